"""All services of the product as children of this process: what `twincal up` and `twincal demo` run on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from app.database.migrate import upgrade
from app.embedded.broker import EmbeddedBroker
from app.embedded.child import LOOPBACK, Command, GuardedChild, make_directory
from app.embedded.endpoints import Endpoints, published
from app.embedded.postgres import EmbeddedPostgres
from app.errors import ServiceError
from app.settings import Settings

START_DEADLINE_S: Final = 60.0
STOP_GRACE_S: Final = 15.0
PROBE_TIMEOUT_S: Final = 2.0

_SERVICES: Final = ("worker", "monitor", "ingest", "api")
"""In the order of their start: the last ones are waited for."""


@dataclass(frozen=True, slots=True)
class Running:
    """Services that are up.

    Attributes:
        api_url: of the REST interface, without `/v1`.
        mqtt_url: of the broker.
        environment: what a `twincal` command needs to act on them.
        metrics_urls: where each service's Prometheus metrics are, by its name; those of robots are the monitor's.
        logs: folder with one log a service.
        children: everything that was started here, by name.
    """

    api_url: str
    mqtt_url: str
    environment: Mapping[str, str]
    metrics_urls: Mapping[str, str]
    logs: Path
    children: dict[str, GuardedChild] = field(default_factory=dict)

    def check(self) -> None:
        """Notice a service that has ended.

        Raises:
            ServiceError: naming it, with the end of its log.
        """
        for name, child in self.children.items():
            if not child.running:
                raise ServiceError(f"the {name} service has ended; {child.log_tail()}")

    def twincal(self, *arguments: str) -> str:
        """Run one `twincal` command against these services; what it printed.

        Raises:
            ServiceError: with what it said on standard error.
        """
        done = subprocess.run(  # noqa: S603 - our own program
            twincal_command(*arguments),
            env=os.environ | dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"twincal {' '.join(arguments)}: {done.stderr.strip() or f'exit {done.returncode}'}")
        return done.stdout.strip()


@contextmanager
def services(
    settings: Settings,
    host: str,
    port: int,
    announce: Callable[[str], None] = lambda _line: None,
    monitor_options: tuple[str, ...] = (),
) -> Iterator[Running]:
    """Start database and broker where the settings name none, migrate, start all other services; stop them after.

    When they are up the ingester is subscribed: what robots publish from then on is stored. Other commands find them by
    the data folder (`app.embedded.endpoints`).

    Args:
        settings: where they keep their files, and which of them are elsewhere.
        host: the API's address.
        port: the API's port; 0 for any free one.
        announce: told what is being started.
        monitor_options: of `twincal monitor`, where its defaults aren't wanted.

    Raises:
        ServiceError: if one doesn't start, with the end of its log.
    """
    with ExitStack() as stack:
        # First of all: what would be noticed last otherwise, and is wrong most often.
        port = _free_port(host, port)
        data_dir = settings.data_dir.absolute()
        logs = data_dir / "logs"
        make_directory(logs)
        database_url, mqtt_url = settings.database_url, settings.mqtt_url
        children: dict[str, GuardedChild] = {}
        if database_url is None:
            announce("starting Postgres")
            postgres = stack.enter_context(EmbeddedPostgres(data_dir / "postgres", settings.postgres_bin))
            database_url, children["database"] = postgres.url, postgres.process
        if mqtt_url is None:
            announce("starting the MQTT broker")
            broker = stack.enter_context(EmbeddedBroker(data_dir / "broker"))
            mqtt_url, children["broker"] = broker.url, broker.process
        announce("migrating the database")
        upgrade(database_url)
        metrics_ports = {name: _free_port(LOOPBACK, 0) for name in _SERVICES}
        metrics_urls = {name: f"http://{LOOPBACK}:{number}/metrics" for name, number in metrics_ports.items()}
        endpoints = Endpoints(database_url, mqtt_url, f"http://{_host_of_url(host)}:{port}", metrics_urls)
        stack.enter_context(published(data_dir, endpoints))
        environment = {
            "TWINCAL_DATA_DIR": str(data_dir),
            "TWINCAL_DATABASE_URL": database_url,
            "TWINCAL_MQTT_URL": mqtt_url,
        }
        announce("starting API, ingester, worker and monitor")
        running = Running(endpoints.api_url, mqtt_url, environment, metrics_urls, logs, children)
        options = {"api": ("--host", host, "--port", str(port)), "monitor": monitor_options}
        for name in _SERVICES:
            own = (*options.get(name, ()), "--metrics-port", str(metrics_ports[name]))
            child = _start(name, own, logs / f"{name}.log", environment)
            stack.callback(child.stop)
            children[name] = child
        children["ingest"].wait_until(lambda: _is_subscribed(metrics_urls["ingest"]), START_DEADLINE_S)
        children["api"].wait_until(lambda: _fetch(f"{endpoints.api_url}/readyz") is not None, START_DEADLINE_S)
        running.check()
        yield running


def twincal_command(*arguments: str) -> list[str]:
    """How to run another `twincal` with this very interpreter."""
    return [sys.executable, "-P", "-c", "from app.cli import main; main()", *arguments]


def _start(name: str, options: tuple[str, ...], log: Path, environment: Mapping[str, str]) -> GuardedChild:
    return GuardedChild(
        Command(
            name=f"the {name} service",
            arguments=twincal_command(name, *options),
            log=log,
            stop_signal=signal.SIGTERM,
            grace_s=STOP_GRACE_S,
            environment=environment,
            keeps_user=True,
        )
    )


def _free_port(host: str, port: int) -> int:
    """The port if it can be listened on, or any that can for 0."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ServiceError(
            f"the API can't listen on {host}:{port}: {os.strerror(error.errno or 0)} (choose another --port)"
        ) from error


def _host_of_url(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return LOOPBACK
    return f"[{host}]" if ":" in host else host


def _is_subscribed(metrics_url: str) -> bool:
    """Whether the ingester receives: a broker keeps nothing for a session that has never been there."""
    metrics = _fetch(metrics_url)
    return metrics is not None and b"twincal_ingest_connected 1.0" in metrics.splitlines()


def _fetch(url: str) -> bytes | None:
    """What a service answers with 200, or None."""
    try:
        with urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:  # noqa: S310 - our own services' URL
            return bytes(answer.read()) if answer.status == HTTPStatus.OK else None
    except OSError:
        return None
