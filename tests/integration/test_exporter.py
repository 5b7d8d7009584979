"""What Prometheus is told of robots: from a real database, and without one."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database.tables import (
    calibrations,
    connections,
    dead_letters,
    drift,
    recalibrations,
    recordings,
    twin_versions,
)
from app.errors import ServiceError
from app.monitor.exporter import RobotCollector, serve, to_text
from tests.integration.ingesting import register

Labels = tuple[tuple[str, str], ...]
Scrape = Callable[[], dict[tuple[str, Labels], float]]


@pytest.fixture
def scrape(database_url: str) -> Iterator[Scrape]:
    """What a scrape of an exporter on the test's own database says, by name and labels."""
    served = serve("127.0.0.1", 0, database_url, registry=CollectorRegistry(), cap=3)
    yield lambda: _read(served.port)
    served.close()


def _read(port: int) -> dict[tuple[str, Labels], float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def _of(robot: str) -> Labels:
    return (("robot_id", robot),)


async def _add_version(engine: AsyncEngine, robot: str, version: int, state: str = "active") -> None:
    row = {"robot": robot, "version": version, "document": b"{}", "digest": f"sha256:{version}", "state": state}
    async with engine.begin() as connection:
        await connection.execute(insert(twin_versions).values(row))


async def _add_drift(engine: AsyncEngine, robot: str, version: int, heard_s_ago: float = 5) -> None:
    row = {
        "robot": robot,
        "version": version,
        "state": "drifted",
        "since": text("now()"),
        "score": 2.5,
        "worst_score": 4.0,
    }
    row |= {"telemetry_at": text(f"now() - interval '{heard_s_ago} seconds'")}
    async with engine.begin() as connection:
        await connection.execute(insert(drift).values(row))


async def _add_recording(engine: AsyncEngine, robot: str, seconds_ago: float) -> None:
    last_ns = time.time_ns() - int(seconds_ago * 1e9)
    row = {"robot": robot, "boot_id": str(last_ns), "first_ns": last_ns - 10**9, "last_ns": last_ns, "samples": 100}
    async with engine.begin() as connection:
        await connection.execute(insert(recordings).values(row))


async def test_a_robot_is_shown_as_it_stands(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-07")
    await _add_version(engine, "arm-07", 6, "retired")
    await _add_version(engine, "arm-07", 7)
    await _add_drift(engine, "arm-07", 7)
    await _add_recording(engine, "arm-07", 3600)
    await _add_recording(engine, "arm-07", 100)
    online = {"robot": "arm-07", "state": "ONLINE", "stamp": text("now()"), "received_at": text("now()")}
    async with engine.begin() as connection:
        await connection.execute(insert(connections).values(online))
    found = await asyncio.to_thread(scrape)
    assert found["twincal_robot_drift_score_ratio", _of("arm-07")] == 2.5
    assert found["twincal_robot_worst_joint_drift_score_ratio", _of("arm-07")] == 4.0
    assert found["twincal_robot_drift_state", _of("arm-07")] == 2
    assert found["twincal_robot_connected", _of("arm-07")] == 1
    assert found["twincal_robot_telemetry_age_seconds", _of("arm-07")] == pytest.approx(100, abs=10)
    info = (("fleet", "arms"), ("robot_id", "arm-07"), ("version", "7"))
    assert found["twincal_robot_twin_info", info] == 1
    assert found["twincal_robots", (("state", "drifted"),)] == 1
    assert found["twincal_exporter_up", ()] == 1


async def test_what_is_not_known_of_a_robot_is_absent(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-08")
    found = await asyncio.to_thread(scrape)
    assert [name for name, labels in found if ("robot_id", "arm-08") in labels] == ["twincal_robot_twin_info"]
    assert found["twincal_robots", (("state", "unwatched"),)] == 1


async def test_the_drift_of_a_former_version_is_not_the_robots(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-07")
    await _add_version(engine, "arm-07", 6, "retired")
    await _add_version(engine, "arm-07", 7)
    await _add_drift(engine, "arm-07", 6)
    found = await asyncio.to_thread(scrape)
    assert ("twincal_robot_drift_state", _of("arm-07")) not in found
    assert found["twincal_robots", (("state", "unwatched"),)] == 1


async def test_what_a_monitor_said_goes_stale_with_the_telemetry_it_saw(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-07")
    await _add_version(engine, "arm-07", 7)
    await _add_drift(engine, "arm-07", 7, heard_s_ago=120)
    found = await asyncio.to_thread(scrape)
    assert found["twincal_robot_drift_state", _of("arm-07")] == 4
    assert found["twincal_robots", (("state", "stale"),)] == 1
    assert found["twincal_robots", (("state", "drifted"),)] == 0


async def test_a_recording_stamped_far_in_the_future_is_not_the_latest(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-07")
    await _add_recording(engine, "arm-07", 100)
    await _add_recording(engine, "arm-07", -365 * 86400)
    found = await asyncio.to_thread(scrape)
    assert found["twincal_robot_telemetry_age_seconds", _of("arm-07")] == pytest.approx(100, abs=10)


async def test_a_robot_that_went_offline_is_zero_and_a_retired_one_is_gone(engine: AsyncEngine, scrape: Scrape) -> None:
    for robot in ("arm-01", "arm-02"):
        await register(engine, robot)
        row = {"robot": robot, "state": "CONNECTIONBROKEN", "stamp": text("now()"), "received_at": text("now()")}
        async with engine.begin() as connection:
            await connection.execute(insert(connections).values(row))
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM robots WHERE robot = 'arm-02'"))
    found = await asyncio.to_thread(scrape)
    assert found["twincal_robot_connected", _of("arm-01")] == 0
    assert ("twincal_robot_connected", _of("arm-02")) not in found


async def test_beyond_the_cap_robots_are_counted_and_live_ones_are_kept(engine: AsyncEngine, scrape: Scrape) -> None:
    for robot in ("a", "b", "c", "d", "e"):
        await register(engine, robot)
    await _add_recording(engine, "e", 60)
    await _add_recording(engine, "a", 3 * 86400)
    found = await asyncio.to_thread(scrape)
    shown = {dict(labels)["robot_id"] for name, labels in found if name == "twincal_robot_twin_info"}
    assert shown == {"e", "a", "b"}
    assert found["twincal_robots_omitted", ()] == 2


async def test_jobs_dead_letters_and_proposals_are_counted(engine: AsyncEngine, scrape: Scrape) -> None:
    await register(engine, "arm-07")
    letter = {"topic": "t", "payload": b"", "payload_bytes": 0, "detail": "", "received_at": text("now()")}
    letter |= {"expires_at": text("now() + interval '1 day'")}
    proposal = {"robot": "arm-07", "version": 7, "since": text("now()"), "evidence": "", "from_ns": 0, "to_ns": 1}
    async with engine.begin() as connection:
        await connection.execute(
            insert(calibrations),
            [{"robot": "arm-07", "request": {}, "state": state} for state in ("queued", "queued", "failed", "running")],
        )
        await connection.execute(
            update(calibrations)
            .where(calibrations.c.state == "queued")
            .values(created_at=text("now() - interval '90 seconds'"))
        )
        for reason in ("empty", "empty", "bad_stamp"):
            await connection.execute(insert(dead_letters).values(reason=reason, **letter))
        await connection.execute(insert(dead_letters).values(reason="empty", replayed_at=text("now()"), **letter))
        await connection.execute(insert(recalibrations).values(proposed_at=text("now()"), **proposal))
    found = await asyncio.to_thread(scrape)
    assert found["twincal_calibrations_unfinished", (("state", "queued"),)] == 2
    assert found["twincal_calibrations_unfinished", (("state", "running"),)] == 1
    assert found["twincal_calibrations_oldest_seconds", (("state", "queued"),)] == pytest.approx(90, abs=10)
    assert found["twincal_dead_letters_pending", (("reason", "empty"),)] == 2
    assert found["twincal_dead_letters_pending", (("reason", "bad_stamp"),)] == 1
    assert found["twincal_recalibrations_proposed", ()] == 1


def test_the_text_is_what_the_library_reads_back() -> None:
    odd = GaugeMetricFamily("odd", "Of odd labels.", labels=["a", "b"])
    odd.add_metric(['say "no"', "back\\slash\nnew line"], 1e-9)
    plain = GaugeMetricFamily("plain", "Of none.", value=-3)
    info = InfoMetricFamily("thing", "About it.", labels=["robot_id"])
    info.add_metric(["arm-07"], {"version": "7"})
    read = list(text_string_to_metric_families(to_text([odd, plain, info]).decode()))
    assert [(family.name, family.documentation) for family in read] == [
        ("odd", "Of odd labels."),
        ("plain", "Of none."),
        ("thing_info", "About it."),
    ]
    assert [(dict(s.labels), s.value) for family in read for s in family.samples] == [
        ({"a": 'say "no"', "b": "back\\slash\nnew line"}, 1e-9),
        ({}, -3.0),
        ({"robot_id": "arm-07", "version": "7"}, 1.0),
    ]


def test_a_scrape_answers_without_the_database_and_again_with_it(database_url: str) -> None:
    nowhere = RobotCollector("postgresql://nobody@127.0.0.1:1/nowhere", patience_s=1.0)
    assert _names(nowhere) == {"twincal_exporter_up": 0.0}
    nowhere.close()
    there = RobotCollector(database_url)
    assert _names(there)["twincal_exporter_up"] == 1.0
    there.close()


def test_a_database_that_takes_connections_and_never_answers_does_not_hold_up_a_scrape() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        collector = RobotCollector(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/x", patience_s=0.3)
        began = time.monotonic()
        assert _names(collector) == {"twincal_exporter_up": 0.0}
        assert time.monotonic() - began < 3.0
        collector.close()


def _names(collector: RobotCollector) -> dict[str, float]:
    """The samples without labels, apart from how long it took."""
    samples = [sample for family in collector.collect() for sample in family.samples if not sample.labels]
    return {sample.name: sample.value for sample in samples if sample.name != "twincal_exporter_read_seconds"}


def test_a_port_that_is_taken_is_named(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=rf"metrics: can't listen on 127\.0\.0\.1:{port}: "):
            serve("127.0.0.1", port, database_url, registry=CollectorRegistry())
