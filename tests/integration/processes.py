"""What a command has started, and whether it is still there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

DEADLINE_S = 90.0


def wait_until(condition: Callable[[], bool], output: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """Every process below this one."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            child = int(entry.parent.name)
            found += [child, *descendants(child)]
    return found


def still_there(pids: Sequence[int]) -> list[int]:
    """Those that have not ended, zombies apart."""
    alive = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            alive.append(pid)
    return alive
