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
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from app.database.migrate import upgrade
from app.embedded.broker import EmbeddedBroker
from app.embedded.child import LOOPBACK, Command, GuardedChild
from app.embedded.postgres import EmbeddedPostgres
from app.errors import ServiceError
from app.settings import Settings

START_DEADLINE_S: Final = 60.0
STOP_GRACE_S: Final = 15.0
PROBE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """Services that are up.

    Attributes:
        api_url: of the REST interface, without `/v1`.
        mqtt_url: of the broker.
        environment: what a `twincal` command needs to act on them.
        logs: folder with one log a service.
        children: our own services by name.
    """

    api_url: str
    mqtt_url: str
    environment: Mapping[str, str]
    logs: Path
    children: Mapping[str, GuardedChild] = field(default_factory=dict)

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
    settings: Settings, host: str, port: int, announce: Callable[[str], None] = lambda _line: None
) -> Iterator[Running]:
    """Start database and broker where the settings name none, migrate, start API, ingester and worker; stop them after.

    Args:
        settings: where they keep their files, and which of them are elsewhere.
        host: the API's address.
        port: the API's port; 0 for any free one.
        announce: told what is being started.

    Raises:
        ServiceError: if one doesn't start, with the end of its log.
    """
    with ExitStack() as stack:
        data_dir = settings.data_dir.absolute()
        logs = data_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        database_url, mqtt_url = settings.database_url, settings.mqtt_url
        if database_url is None:
            announce("starting Postgres")
            database_url = stack.enter_context(EmbeddedPostgres(data_dir / "postgres", settings.postgres_bin)).url
        if mqtt_url is None:
            announce("starting the MQTT broker")
            mqtt_url = stack.enter_context(EmbeddedBroker(data_dir / "broker")).url
        announce("migrating the database")
        upgrade(database_url)
        environment = {
            "TWINCAL_DATA_DIR": str(data_dir),
            "TWINCAL_DATABASE_URL": database_url,
            "TWINCAL_MQTT_URL": mqtt_url,
        }
        port = port or _free_port(host)
        api_url = f"http://{LOOPBACK if host in {'0.0.0.0', '::'} else host}:{port}"  # noqa: S104 - compared, not bound
        announce("starting API, ingester and worker")
        children: dict[str, GuardedChild] = {}
        arguments = {"worker": (), "ingest": (), "api": ("--host", host, "--port", str(port))}
        for name, options in arguments.items():
            child = _start(name, options, logs / f"{name}.log", environment)
            children[name] = child
            stack.callback(child.stop)
        running = Running(api_url, mqtt_url, environment, logs, children)
        children["api"].wait_until(lambda: _answers(f"{api_url}/readyz"), START_DEADLINE_S)
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


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=PROBE_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback URL
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
