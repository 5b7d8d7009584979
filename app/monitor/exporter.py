"""What Prometheus is told of robots and jobs, read from the database at each scrape: so every monitor says the same.

`robot_id` is the only label that grows with the fleet, on five gauges and one info metric; what is per joint stays in
the database. Metrics of a process (app.metrics) are served beside these.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from asyncpg import InterfaceError, PostgresError
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
    start_http_server,
)
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Row
from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import create_engine
from app.errors import ServiceError
from app.monitor.reading import MAX_LETTERS, UNWATCHED, Reading, read

MAX_ROBOTS: Final = 2000
"""Robots with series of their own: at six gauges each, more would make Prometheus' scrape slow and its memory large."""

STATE_NUMBERS: Final[Mapping[str, int]] = {"ok": 0, "watch": 1, "drifted": 2, "idle": 3, "stale": 4}
"""Values of `twincal_robot_drift_state`."""

_PATIENCE_S: Final = 4.0  # well below Prometheus' own timeout of 10 s: an answer without robots is better than none

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class RobotCollector(Collector):
    """The metrics of all registered robots, for a Prometheus registry.

    A database that doesn't answer within the patience leaves only `twincal_exporter_up 0`: a scrape never hangs.

    Args:
        database_url: where to read.
        cap: the most robots with series of their own; those heard of within a day come first.
        patience_s: the longest that a scrape waits for the database.
    """

    def __init__(self, database_url: str, *, cap: int = MAX_ROBOTS, patience_s: float = _PATIENCE_S) -> None:
        self._cap = cap
        self._patience_s = patience_s
        self._thread = _LoopThread("twincal-exporter")
        self._engine = create_engine(database_url, pool_size=1)

    def describe(self) -> Iterable[Metric]:
        """Names and types alone, so that registering doesn't ask the database."""
        return _families(Reading((), {}, {}, {}, 0), time.time_ns())

    def collect(self) -> Iterator[Metric]:
        """Every family, or what can be said without the database."""
        started = time.perf_counter()
        try:
            reading = self._thread.run(read(self._engine, self._cap), self._patience_s)
        except (TimeoutError, OSError, InterfaceError, PostgresError, SQLAlchemyError) as error:
            _log.warning("the database can't be read for metrics", error=f"{type(error).__name__}: {error}")
            reading = None
        yield GaugeMetricFamily(
            "twincal_exporter_up",
            "1 if the database could be read for this scrape, else 0.",
            float(reading is not None),
        )
        yield GaugeMetricFamily(
            "twincal_exporter_read_seconds",
            "Time this scrape waited for the database.",
            time.perf_counter() - started,
        )
        if reading is not None:
            yield from _families(reading, time.time_ns())

    def close(self) -> None:
        """Give the connection back."""
        self._thread.run(self._engine.dispose(), self._patience_s)
        self._thread.stop()


@dataclass(frozen=True, slots=True)
class Served:
    """Metrics that are being served, by threads of this process, until `close` or its end."""

    collector: RobotCollector
    server: WSGIServer

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self.server.server_port

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()
        self.collector.close()


def serve(
    host: str, port: int, database_url: str, *, registry: CollectorRegistry = REGISTRY, cap: int = MAX_ROBOTS
) -> Served:
    """Serve this process' metrics and those of all robots, at `/metrics`, from threads of their own.

    Args:
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        database_url: where robots are read.
        registry: of this process' metrics.
        cap: the most robots with series of their own.

    Raises:
        ServiceError: if the port can't be listened on.
    """
    collector = RobotCollector(database_url, cap=cap)
    try:
        server, _ = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        collector.close()
        raise ServiceError(f"metrics: can't listen on {host}:{port}: {error.strerror}") from error
    server.set_app(_application(registry, collector))
    return Served(collector, server)


def _application(registry: CollectorRegistry, collector: RobotCollector) -> WSGIApplication:
    def application(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = generate_latest(registry) + to_text(collector.collect())
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4), ("Content-Length", str(len(body)))])
        return [body]

    return application


def to_text(families: Iterable[Metric]) -> bytes:
    """Gauges and info metrics in Prometheus' text format.

    The library's own writer checks and sorts each label anew. With that, OpenMetrics and gzip, a scrape of a thousand
    robots took more than twice as much of the processor, in the process that judges their drift.
    """
    lines = []
    for family in families:
        name = f"{family.name}_info" if family.type == "info" else family.name
        lines.append(f"# HELP {name} {family.documentation}\n# TYPE {name} gauge\n")
        for sample in family.samples:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
            lines.append(f"{sample.name}{{{labels}}} {sample.value}\n" if labels else f"{name} {sample.value}\n")
    return "".join(lines).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _LoopThread:
    """An event loop in a thread: scrapes come in threads of the HTTP server, the connection lives in one loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T], patience_s: float) -> _T:
        """The work's result. Raises TimeoutError after the patience."""
        return asyncio.run_coroutine_threadsafe(_within(work, patience_s), self._loop).result(2.0 * patience_s)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _within(work: Coroutine[Any, Any, _T], patience_s: float) -> _T:
    async with asyncio.timeout(patience_s):
        return await work


def _families(reading: Reading, now_ns: int) -> list[Metric]:
    return [*_robot_families(reading.robots, now_ns), *_fleet_families(reading)]


def _robot_families(found: Sequence[Row[Any]], now_ns: int) -> list[Metric]:
    score, worst, state, age, connected = (GaugeMetricFamily(name, text, labels=["robot_id"]) for name, text in _GAUGES)
    info = InfoMetricFamily(
        "twincal_robot_twin", "The robot's fleet and active version; empty without one.", labels=("robot_id",)
    )
    for row in found:
        labels = [row.robot]
        version = "" if row.version is None else str(row.version)
        info.add_metric(labels, {"fleet": row.fleet, "version": version})
        if row.score is not None:
            score.add_metric(labels, row.score)
        if row.worst_score is not None:
            worst.add_metric(labels, row.worst_score)
        if row.state is not None:
            state.add_metric(labels, STATE_NUMBERS[row.state])
        if row.connection is not None:
            connected.add_metric(labels, float(row.connection == "ONLINE"))
        if row.last_ns is not None:
            # A clock that runs ahead of ours is no telemetry from the future.
            age.add_metric(labels, max(0.0, (now_ns - row.last_ns) / 1e9))
    return [score, worst, state, age, connected, info]


_GAUGES: Final = (
    (
        "twincal_robot_drift_score_ratio",
        "Error of the active twin on the robot's latest motion, as a multiple of its own baseline; 1 is as calibrated.",
    ),
    ("twincal_robot_worst_joint_drift_score_ratio", "The same of the joint that is worst."),
    ("twincal_robot_drift_state", "0 ok, 1 watch, 2 drifted, 3 idle, 4 stale; absent while not watched."),
    ("twincal_robot_telemetry_age_seconds", "Time since the robot's latest sample, by its own stamp."),
    ("twincal_robot_connected", "1 while the robot says that it is online, else 0; absent if it never said."),
)


def _fleet_families(reading: Reading) -> list[Metric]:
    total = sum(reading.counts.values())
    counts = GaugeMetricFamily(
        "twincal_robots", "Registered robots by state of their drift; unwatched: not scored yet.", labels=["state"]
    )
    for state in (*STATE_NUMBERS, UNWATCHED):
        counts.add_metric([state], reading.counts.get(state, 0))
    omitted = GaugeMetricFamily(
        "twincal_robots_omitted",
        "Registered robots without series of their own, because there are too many.",
        max(0, total - len(reading.robots)),
    )
    unfinished = GaugeMetricFamily(
        "twincal_calibrations_unfinished", "Calibrations waiting for a worker or running.", labels=["state"]
    )
    oldest = GaugeMetricFamily(
        "twincal_calibrations_oldest_seconds",
        "For how long the oldest of them has been waiting or running; 0 without one.",
        labels=["state"],
    )
    for state in ("queued", "running"):
        number, age = reading.unfinished.get(state, (0, 0.0))
        unfinished.add_metric([state], number)
        oldest.add_metric([state], age)
    letters = GaugeMetricFamily(
        "twincal_dead_letters_pending",
        f"Refused messages that are kept and not stored since, by reason, among the newest {MAX_LETTERS}.",
        labels=["reason"],
    )
    for reason, number in sorted(reading.letters.items()):
        letters.add_metric([reason], number)
    proposed = GaugeMetricFamily(
        "twincal_recalibrations_proposed",
        "Drifted robots whose calibration waits for somebody to start it.",
        reading.proposed,
    )
    return [counts, omitted, unfinished, oldest, letters, proposed]
