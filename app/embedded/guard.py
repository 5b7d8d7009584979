"""Run a command that ends when its parent does: `python -I -S guard.py USER SIGNAL GRACE_S COMMAND…`.

A service started as a plain child outlives a killed parent and keeps its port and its files. A parent-death signal on
the service itself would follow the *thread* that started it, which asyncio and pools end at will. So this small process
stands in between: it has one thread, holds the read end of a pipe whose write end is the parent's, and

- when the pipe closes or the parent is gone, sends the service SIGNAL, waits GRACE_S seconds, then kills it;
- when it is itself killed, the kernel sends SIGNAL to the service (Linux).

It runs on the standard library alone, so that it starts in milliseconds, and imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import select
import signal
import subprocess
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PARENT_POLL_S = 1.0


def main(arguments: list[str]) -> int:
    """Run the command to its end and return its exit code."""
    user, signal_name, grace_s, *command = arguments
    stop_signal = signal.Signals[signal_name]
    parent = os.getppid()
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _noted)
    try:
        child = _start(command, user, _ask_kernel_for(stop_signal))
    except OSError as error:
        print(f"{command[0]}: can't be run: {error.strerror}", file=sys.stderr)  # noqa: T201 - goes to the service's log
        return 127
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin, wake_reader], [], [], _PARENT_POLL_S)
        woken_by = os.read(wake_reader, 64) if wake_reader in readable else b""
        told = any(number != signal.SIGCHLD for number in woken_by)
        if told or sys.stdin in readable or os.getppid() != parent:
            return _stop(child, stop_signal, float(grace_s))
    return child.returncode


def _noted(*_: object) -> None:
    """Do nothing: the wake-up pipe has the signal's number already."""


def _start(command: list[str], user: str, before_exec: Callable[[], None]) -> subprocess.Popen[bytes]:
    entry = pwd.getpwnam(user) if user else None
    # One thread makes preexec_fn safe; it runs after the change of user, which would reset the parent-death signal.
    return subprocess.Popen(  # noqa: S603 - the command is our own parent's
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=before_exec,  # noqa: PLW1509 - see above
        user=entry.pw_uid if entry else None,
        group=entry.pw_gid if entry else None,
        extra_groups=[] if entry else None,
    )


def _ask_kernel_for(stop_signal: signal.Signals) -> Callable[[], None]:
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    guard = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(stop_signal))
        if os.getppid() != guard:
            os._exit(1)

    return ask


def _stop(child: subprocess.Popen[bytes], stop_signal: signal.Signals, grace_s: float) -> int:
    child.send_signal(stop_signal)
    try:
        return child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
