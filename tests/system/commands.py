"""`twincal` as typed, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from app.telemetry import Recording

COMMAND = (sys.executable, "-c", "from app.cli import main; main()")


def twincal(*arguments: object, cwd: Path, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Run it and hold what it says to what is promised of it: no line but the last begins with a brace."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines[:-1] if line.startswith("{")] == []
    return done


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that `--json` ends standard output with."""
    block: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return block


def write_csv(recording: Recording, path: Path) -> None:
    """A log as its robot's owner would have it, every bit kept."""
    columns = {
        f"{name}.{channel}": values[:, i]
        for channel, values in recording.channels.items()
        for i, name in enumerate(recording.names)
    }
    seconds = [f"{t_ns // 10**9}.{t_ns % 10**9:09d}" for t_ns in recording.t_ns.tolist()]
    rows = [",".join(["t_s", *columns])]
    for k, t_s in enumerate(seconds):
        cells = ["" if np.isnan(column[k]) else repr(float(column[k])) for column in columns.values()]
        rows.append(",".join([t_s, *cells]))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def cut_csv(source: Path, target: Path, seconds: float) -> None:
    """The first seconds of a log."""
    header, *rows = source.read_text(encoding="utf-8").splitlines()
    first = float(rows[0].split(",")[0])
    kept = [row for row in rows if float(row.split(",")[0]) - first < seconds]
    target.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
