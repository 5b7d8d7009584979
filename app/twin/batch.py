"""What the lanes of one kernel call are driven by: each lane its own commands, start and times to be looked at.

Lanes that share a drive share its rows; of each drive only the rows that a rollout reads are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.telemetry import FloatArray, IntArray


class Drive(NamedTuple):
    """What was asked of the robot, and when to look at it; times in seconds of the recording."""

    t: FloatArray  # (T,)
    command: FloatArray  # (T, n, COMMAND_COLUMNS)
    rate_hz: float  # of a sampled controller; 0 = continuous
    t_out: FloatArray  # (K,), not before the start
    begin: float
    dt: float


class Batch(NamedTuple):
    """The drives of a batch's lanes."""

    t: FloatArray  # of all drives' rows, one drive after another
    command: FloatArray  # (rows, n, COMMAND_COLUMNS)
    first: IntArray  # each lane's first row, (lanes,)
    end: IntArray  # and the one after its last
    t_out: FloatArray  # of all drives' outputs
    out_first: IntArray  # each lane's first output, (lanes,)
    out_end: IntArray
    place: IntArray  # where each lane's first output is written
    begin: FloatArray  # (lanes,)
    rate_hz: float
    dt: float


def steps_of(drive: Drive) -> int:
    """About how many steps a drive takes."""
    return round((float(drive.t_out[-1]) - drive.begin) / drive.dt) + 1 if len(drive.t_out) else 0


def batch_of(drives: Sequence[Drive], back_s: FloatArray, place: Sequence[int]) -> Batch:
    """Lay the drives of a batch's lanes end to end.

    Args:
        drives: one a lane, all with the same step and controller rate.
        back_s: how long before a lane's start its rows must reach: latency and memory of the command chain [s],
            shape (lanes,).
        place: where each lane's outputs begin.
    """
    reach: dict[int, float] = {}
    for drive, back in zip(drives, back_s.tolist(), strict=True):
        reach[id(drive)] = max(reach.get(id(drive), 0.0), back)
    at: dict[int, tuple[int, int, int, int]] = {}
    t, command, t_out = [], [], []
    rows, outs = 0, 0
    for drive in drives:
        if id(drive) in at:
            continue
        span = _rows(drive, reach[id(drive)])
        t.append(drive.t[span])
        command.append(drive.command[span])
        t_out.append(drive.t_out)
        at[id(drive)] = (rows, rows + len(t[-1]), outs, outs + len(drive.t_out))
        rows, outs = rows + len(t[-1]), outs + len(drive.t_out)
    spans = np.array([at[id(drive)] for drive in drives], dtype=np.int64)
    return Batch(
        t=np.concatenate(t),
        command=np.concatenate(command),
        first=np.ascontiguousarray(spans[:, 0]),
        end=np.ascontiguousarray(spans[:, 1]),
        t_out=np.concatenate(t_out),
        out_first=np.ascontiguousarray(spans[:, 2]),
        out_end=np.ascontiguousarray(spans[:, 3]),
        place=np.array(place, dtype=np.int64),
        begin=np.array([drive.begin for drive in drives]),
        rate_hz=drives[0].rate_hz,
        dt=drives[0].dt,
    )


def _rows(drive: Drive, back_s: float) -> slice:
    """Rows that hold from `back_s` before the start to the last output, and one more on either side."""
    last = drive.t_out[-1] if len(drive.t_out) else drive.begin
    first = int(np.searchsorted(drive.t, drive.begin - back_s - drive.dt, side="right")) - 2
    end = int(np.searchsorted(drive.t, last + drive.dt, side="right")) + 1
    return slice(max(first, 0), max(end, first + 1, 1))
