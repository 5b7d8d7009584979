"""A Postgres of our own: the binaries come from a wheel or a folder, the manager is this module (docs/adr/0003)."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from app.embedded.binaries import find_binaries, run_program
from app.embedded.child import (
    LOOPBACK,
    UNPRIVILEGED_USER,
    Command,
    GuardedChild,
    choose_port,
    hand_over,
    make_directory,
)
from app.embedded.shelter import home_of
from app.errors import ServiceError

USER: Final = "twincal"
DATABASE: Final = "twincal"

_START_DEADLINE_S = 60.0  # crash recovery replays the log first
_STOP_GRACE_S = 30.0
_ORPHAN_DEADLINE_S = _STOP_GRACE_S + 5.0
_POLL_S = 0.05
_PORT_ATTEMPTS = 3

_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    # Our queries are short: compiling them costs more than it saves.
    "jit": "off",
}


class EmbeddedPostgres:
    """A Postgres on a loopback port, started with the context and stopped with it.

    The folder holds `cluster/` (Postgres' own), `password`, `port`, `lock` and `postgres.log`. Only this machine can
    connect, and only with the password. When we are root, Postgres runs as `nobody`, since it refuses root; what
    `nobody` can't enter is in /var/lib/twincal then: `cluster`, `password`, and a copy of the wheel's binaries.

    Args:
        data_dir: kept from run to run; made when it isn't there.
        bin_dir: folder with another Postgres' `initdb` and `postgres`; None: those of the wheel.
        settings: further server settings, e.g. `{"fsync": "off"}` for tests.
    """

    def __init__(self, data_dir: Path, bin_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._dir = data_dir.absolute()
        self._home = self._dir
        self._bin_dir = bin_dir
        self._settings = dict(_SETTINGS) | dict(settings or {})
        self._lock: IO[str] | None = None
        self._child: GuardedChild | None = None
        self._port = 0

    @property
    def _cluster(self) -> Path:
        return self._home / "cluster"

    @property
    def process(self) -> GuardedChild:
        """The server's process, while it is started."""
        assert self._child is not None
        return self._child

    @property
    def url(self) -> str:
        """`postgresql://user:password@127.0.0.1:port/database`."""
        password = (self._home / "password").read_text().strip()
        return f"postgresql://{USER}:{password}@{LOOPBACK}:{self._port}/{DATABASE}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the cluster if there is none, start the server and wait until it takes connections.

        Raises:
            ServiceError: saying what stands in the way, with the last lines of the log where there is one.
        """
        make_directory(self._dir)
        self._lock = _lock(self._dir / "lock")
        try:
            self._home = home_of(self._dir)
            made_by = _version_of(self._cluster)
            binaries = find_binaries(self._bin_dir, made_by)
            if made_by is None:
                self._make_cluster(binaries)
            _wait_for_orphan(self._cluster)
            self._serve(binaries)
        except BaseException:
            self._lock.close()
            raise

    def stop(self) -> None:
        """Shut down in good order: open transactions are rolled back, everything is on disk."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _serve(self, binaries: Path) -> None:
        settings = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        # What a killed server left behind says "ready" as well; process id and start time tell it apart.
        stale = _postmaster_file(self._cluster)[:3]
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._port = choose_port(self._dir / "port")
            arguments = [str(binaries / "postgres"), "-D", str(self._cluster), "-p", str(self._port), *settings]
            child = GuardedChild(
                Command("Postgres", arguments, self._dir / "postgres.log", signal.SIGINT, _STOP_GRACE_S)
            )
            try:
                child.wait_until(lambda: _is_ready(self._cluster, stale), _START_DEADLINE_S)
            except ServiceError:
                # Somebody took the port between our look and the server's.
                if attempt < _PORT_ATTEMPTS and "Address already in use" in child.log_tail():
                    continue
                raise
            self._child = child
            return

    def _make_cluster(self, binaries: Path) -> None:
        """Make the cluster beside its place and move it there whole: an interrupted start leaves no half of one."""
        staging = self._home / "cluster.new"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        hand_over(staging, 0o700)
        password_file = self._home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(24) + "\n")
        hand_over(password_file, 0o600)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
        run_program(
            [str(binaries / "initdb"), "-D", str(staging), "-U", USER, "--pwfile", str(password_file), *options]
        )
        # Single-user mode needs no connection, and so no event loop and no driver.
        single = [str(binaries / "postgres"), "--single", "-D", str(staging), "postgres"]
        run_program(single, stdin=f"CREATE DATABASE {DATABASE};\n")
        staging.rename(self._cluster)
        if self._home != self._dir:
            (self._dir / "cluster").symlink_to(self._cluster)  # for people: nothing of ours follows it


def _lock(path: Path) -> IO[str]:
    try:
        lock = path.open("a+")
    except OSError as error:
        raise ServiceError(f"{path}: can't be written: {error.strerror}") from error
    try:
        # Per process and not inherited by forks: a leftover child can't hold it.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "?"
        lock.close()
        raise ServiceError(
            f"{path.parent}: in use by another twincal, process {owner} (stop that one, or set TWINCAL_DATA_DIR)"
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _version_of(cluster: Path) -> str | None:
    """Major version of the Postgres that made the cluster; None if there is no cluster yet.

    Raises:
        ServiceError: if it is another user's than the one Postgres will run as, which Postgres refuses.
    """
    if not cluster.exists():
        return None
    runs_as = pwd.getpwnam(UNPRIVILEGED_USER).pw_uid if os.geteuid() == 0 else os.geteuid()
    owner = cluster.stat().st_uid
    if owner != runs_as:
        raise ServiceError(
            f"{cluster}: belongs to user {owner}, and Postgres would run as user {runs_as} (run twincal as the user "
            "that made it, or choose another TWINCAL_DATA_DIR)"
        )
    return (cluster / "PG_VERSION").read_text().strip()


def _postmaster_file(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _is_ready(cluster: Path, stale: Sequence[str]) -> bool:
    """Postgres writes process id, folder and start time first, and its state as the 8th line."""
    lines = _postmaster_file(cluster)
    return len(lines) >= 8 and lines[:3] != stale and lines[7].strip() == "ready"


def _wait_for_orphan(cluster: Path) -> None:
    """Let a server that lost its twincal finish; forget one whose process id now belongs to something else.

    Postgres recognises a lock file whose process is gone, but takes any live process of its own user for a server.
    """
    give_up_at = time.monotonic() + _ORPHAN_DEADLINE_S
    while lines := _postmaster_file(cluster):
        pid = int(lines[0])
        if not _is_alive(pid):
            return
        if not _serves(pid, cluster):
            (cluster / "postmaster.pid").unlink(missing_ok=True)
            return
        if time.monotonic() > give_up_at:
            raise ServiceError(f"{cluster}: is served by process {pid}, which doesn't end (stop it: kill -INT {pid})")
        time.sleep(_POLL_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _serves(pid: int, cluster: Path) -> bool:
    """Whether the process is a Postgres of this cluster; where that can't be seen, it is taken for one."""
    command_line = Path(f"/proc/{pid}/cmdline")
    if not Path("/proc/self/cmdline").exists():
        return True
    try:
        return os.fsencode(str(cluster)) in command_line.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
