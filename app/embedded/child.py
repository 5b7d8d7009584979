"""What an embedded service has in common: a guarded child process, an unprivileged user, a port, a log."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.errors import ServiceError

LOOPBACK: Final = "127.0.0.1"
UNPRIVILEGED_USER: Final = "nobody"
"""Whom services run as when we are root: Postgres refuses root, and Mosquitto has no need of it."""

_POLL_S = 0.01
_LOG_TAIL_LINES = 12
_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True, slots=True)
class Command:
    """A service to run.

    Attributes:
        name: for messages.
        arguments: the program and its arguments.
        log: file that takes its output.
        stop_signal: what asks it to end in good order.
        grace_s: how long that may take before it is killed.
        environment: variables besides our own.
        keeps_user: whether it runs as the user we are, even if that is root: what is our own program may.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    stop_signal: signal.Signals
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    keeps_user: bool = False


class GuardedChild:
    """A running service that ends when this process does, however this process ends."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._log_start = command.log.stat().st_size if command.log.exists() else 0
        user = UNPRIVILEGED_USER if os.geteuid() == 0 and not command.keeps_user else ""
        guard = [sys.executable, "-I", "-S", str(_GUARD), user, command.stop_signal.name, str(command.grace_s)]
        with command.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own guard and the service's own program
                [*guard, *command.arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=clean_environment() | dict(command.environment),
                # Ctrl-C in the terminal is for us: we stop the services when we no longer need them.
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether the service has not ended."""
        return self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Wait until the service answers.

        Raises:
            ServiceError: if it ends first or takes too long, with the last lines of its log; it is stopped then.
        """
        give_up_at = time.monotonic() + deadline_s
        while not ready():
            if not self.running:
                self.stop()
                raise ServiceError(f"{self._command.name} ended while starting; {self.log_tail()}")
            if time.monotonic() > give_up_at:
                self.stop()
                raise ServiceError(f"{self._command.name} was not ready after {deadline_s:g} s; {self.log_tail()}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End the service in good order and wait for it. Harmless when it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def log_tail(self) -> str:
        """The last lines it wrote since it was started, with the file's name."""
        with self._command.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return f"{self._command.log} ends: " + (" | ".join(lines[-_LOG_TAIL_LINES:]) or "(nothing written)")


def clean_environment() -> dict[str, str]:
    """Our environment without what would steer a Postgres elsewhere, in the plain locale."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C"}


def choose_port(remembered: Path) -> int:
    """The port of last time, if it is free; otherwise a free one, remembered."""
    try:
        port = int(remembered.read_text())
    except (FileNotFoundError, ValueError):
        port = 0
    if not (0 < port < 2**16 and _is_free(port)):
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        remembered.write_text(f"{port}\n")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of the last run that linger in TIME_WAIT don't hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts_connections(port: int) -> bool:
    """Whether something listens on the loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def make_directory(path: Path) -> None:
    """Make a folder with its parents.

    Raises:
        ServiceError: naming it, if it can't be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"{path}: can't be made a data folder: {error.strerror}") from error


def hand_over(path: Path, mode: int) -> None:
    """Set a path's mode and, when we are root, give it to the unprivileged user."""
    path.chmod(mode)
    if os.geteuid() == 0:
        entry = pwd.getpwnam(UNPRIVILEGED_USER)
        os.chown(path, entry.pw_uid, entry.pw_gid)
