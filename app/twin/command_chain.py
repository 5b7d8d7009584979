"""Latency, lag, sampling and backlash, lane by lane: what the implicit step takes for granted."""

from __future__ import annotations

from numba import njit

from app.telemetry import FloatArray
from app.twin.actuator import COMMAND_COLUMNS, average_command, held_torque, ticks
from app.twin.backlash import carried, grip
from app.twin.batch import Batch
from app.twin.command_lag import LAGGED_COLUMNS, lag_start, smooth_command
from app.twin.dynamics import LANES
from app.twin.friction import BACKLASH, JOINT_ROWS, OFFSET
from app.twin.scratch import Parameters, Scratch


@njit(cache=True, error_model="numpy", inline="always")
def sense(offset: FloatArray, length: float, scratch: Scratch) -> None:
    """What controllers read beyond motors' positions, and how much of the step motors carry their links along."""
    for i in range(len(offset)):
        if scratch.plays[i] == 1:
            for l in range(LANES):
                gap, half = scratch.gap[i, l], 0.5 * scratch.joint[i, BACKLASH * LANES + l]
                scratch.joint[i, OFFSET * LANES + l] = offset[i, l] + gap
                scratch.grip[i, l] = grip(gap, scratch.v_now[i, l], half, length)


@njit(cache=True, error_model="numpy", inline="always")
def carry(dt: float, scratch: Scratch) -> None:
    """Where the links are in their gaps at the step's end."""
    for i in range(len(scratch.plays)):
        if scratch.plays[i] == 1:
            for l in range(LANES):
                half = 0.5 * scratch.joint[i, BACKLASH * LANES + l]
                scratch.gap[i, l] = carried(scratch.gap[i, l], dt * scratch.v_next[i, l], half)


@njit(cache=True, error_model="numpy")
def take_commands(
    parameters: Parameters, batch: Batch, length: float, q: FloatArray, step: int, scratch: Scratch
) -> None:
    """Bring each lane's delayed command up to the step, and what its controller makes of it beyond the implicit PD."""
    one = scratch.one_command
    for l in range(len(scratch.row)):
        t = batch.begin[l] + step * batch.dt
        end = t + 0.5 * batch.dt - parameters.latency[l]
        first, row = batch.first[l], scratch.row[l]
        last = batch.end[l] - first - 1
        lags = parameters.lag[l] > 0.0
        if scratch.settled[l] == 0 or (row < last and batch.t[first + row + 1] < end):
            rows_t, rows = batch.t[first : batch.end[l]], batch.command[first : batch.end[l]]
            row, whole = average_command(rows_t, rows, row, end - length, end, one)
            scratch.row[l] = row
            scratch.settled[l] = 1 if whole else 0
            _write_command(l, one, scratch.asked if lags else scratch.command)
        if lags:
            if step == 0:
                rows_t, rows = batch.t[first : batch.end[l]], batch.command[first : batch.end[l]]
                lag_start(rows_t, rows, end - length, parameters.lag[l], scratch.one_lagged)
                for i in range(len(one)):
                    scratch.lagged[i, :, l] = scratch.one_lagged[i]
            _lag_command(l, parameters.lag[l], length, scratch)
        if batch.rate_hz > 0.0:
            _sample(ticks(batch.rate_hz, t, batch.dt, step), l, q, step, scratch)


@njit(cache=True, error_model="numpy", inline="always")
def _write_command(l: int, one: FloatArray, out: FloatArray) -> None:
    for i in range(len(one)):
        for c in range(COMMAND_COLUMNS):
            out[i, c * LANES + l] = one[i, c]


@njit(cache=True, error_model="numpy", inline="always")
def _read_lane(l: int, scratch: Scratch) -> None:
    """One lane's commands and joint parameters, for functions of one robot."""
    for i in range(len(scratch.one_command)):
        for r in range(JOINT_ROWS):
            scratch.one_joint[r, i] = scratch.joint[i, r * LANES + l]
        for c in range(COMMAND_COLUMNS):
            scratch.one_command[i, c] = scratch.command[i, c * LANES + l]


@njit(cache=True, error_model="numpy")
def _lag_command(l: int, lag_s: float, length: float, scratch: Scratch) -> None:
    """A lane's command behind its controller's lag."""
    one, state = scratch.one_command, scratch.one_lagged
    for i in range(len(one)):
        for c in range(COMMAND_COLUMNS):
            one[i, c] = scratch.asked[i, c * LANES + l]
        for c in range(LAGGED_COLUMNS):
            state[i, c] = scratch.lagged[i, c, l]
    smooth_command(one, state, lag_s, length)
    _write_command(l, one, scratch.command)
    for i in range(len(one)):
        for c in range(LAGGED_COLUMNS):
            scratch.lagged[i, c, l] = state[i, c]


@njit(cache=True, error_model="numpy")
def _sample(tick: bool, l: int, q: FloatArray, step: int, scratch: Scratch) -> None:
    """What a controller with a rate holds over this step; a new torque where it ticks."""
    n = len(q)
    for i in range(n):
        scratch.held[i, l] = scratch.next_held[i, l]
    if not tick:
        return
    one = scratch.one
    _read_lane(l, scratch)
    for i in range(n):
        one[0, i], one[1, i] = q[i, l], scratch.grip[i, l] * scratch.v_now[i, l]
    held_torque(one[0], one[1], scratch.one_joint, scratch.one_command, one[2])
    for i in range(n):
        # the step reaches from half a step before the tick to half a step after it
        before = one[2, i] if step == 0 else scratch.next_held[i, l]
        scratch.held[i, l] = 0.5 * (before + one[2, i])
        scratch.next_held[i, l] = one[2, i]
