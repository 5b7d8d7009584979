"""The compiled rollout: the twin's dynamics stepped for several parameter sets in lockstep, without the GIL.

Held equal to the PyBullet world (`world.py`) by tests; the search runs here, what is published is judged there.

numba's cache knows a function by its own file only: after a change to `lockstep`, `dynamics`, `actuator` or `friction`
alone, touch this file, or an old rollout keeps running.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray
from app.twin.actuator import COMMAND_COLUMNS, average_command, continued_velocity, held_torque, ticks
from app.twin.dynamics import LANES, Space, Tree, mass_and_bias, space_for
from app.twin.friction import JOINT_ROWS, OFFSET
from app.twin.lockstep import Parameters, Scratch, implicit_step, scratch_for

__all__ = ["DIVERGED_RAD_S", "Drive", "Parameters", "run"]

# A joint that turns this fast has diverged; PyBullet itself stops at 100 rad/s without saying so.
DIVERGED_RAD_S = 90.0


class Drive(NamedTuple):
    """What was asked of the robot, and when to look at it; times in seconds of the recording."""

    t: FloatArray  # (T,)
    command: FloatArray  # (T, n, COMMAND_COLUMNS)
    rate_hz: float  # of a sampled controller; 0 = continuous
    t_out: FloatArray  # (K,), not before the start
    begin: float
    dt: float


def run(
    tree: Tree, parameters: Parameters, drive: Drive, q0: FloatArray, v0: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Roll the lanes of a batch out.

    Args:
        tree: the mechanism.
        parameters: one set a lane, `LANES` at most.
        drive: commands and output times.
        q0: true initial positions [rad], shape (n, lanes).
        v0: initial velocities [rad/s], shape (n, lanes).

    Returns:
        Measured positions (offset included) [rad] and velocities [rad/s] at `drive.t_out`, shape (K, n, lanes) each,
        and for each lane 1 if it diverged, from where on its values are NaN.
    """
    n, lanes = q0.shape
    if lanes > LANES:
        raise ValueError(f"{lanes} parameter sets, but a batch holds {LANES}")
    out_q = np.full((len(drive.t_out), n, lanes), np.nan)
    out_v = np.full((len(drive.t_out), n, lanes), np.nan)
    diverged = np.zeros(lanes, dtype=np.int64)
    filled = Parameters(*(_filled(each) for each in parameters))
    space, scratch = space_for(len(tree.parent), n), scratch_for(filled, lanes)
    _roll(tree, filled, drive, _filled(q0), _filled(v0), space, scratch, out_q, out_v, diverged)
    return out_q, out_v, diverged


def _filled(array: FloatArray) -> FloatArray:
    """A copy with `LANES` lanes: the last one fills those that are missing."""
    return np.ascontiguousarray(array[..., np.minimum(np.arange(LANES), array.shape[-1] - 1)])


@njit(cache=True, error_model="numpy", nogil=True)
def _roll(
    tree: Tree,
    parameters: Parameters,
    drive: Drive,
    q: FloatArray,
    v: FloatArray,
    space: Space,
    scratch: Scratch,
    out_q: FloatArray,
    out_v: FloatArray,
    diverged: IntArray,
) -> None:
    n = q.shape[0]
    dt = drive.dt
    inertial = parameters.inertial.reshape(len(tree.parent), 10 * LANES)
    total = len(drive.t_out)
    k_q, k_v = 0, 0  # positions and velocities reported
    step = 0
    while k_v < total:
        t = drive.begin + step * dt
        # The first step is half as long: it takes a velocity at the start to one half a step after it.
        length = 0.5 * dt if step == 0 else dt
        _continue_velocities(v, step, scratch)
        _take_command(parameters, drive, t, length, q, step, scratch)
        mass_and_bias(tree, inertial, parameters.gravity, q, scratch.v_now, space)
        implicit_step(space, q, v, length, scratch)
        k_q = _report_positions(drive, t, q, parameters.joint[OFFSET], scratch, k_q, out_q)
        k_v = _report_velocities(drive, t, length, v, scratch, k_v, out_v)
        for i in range(n):
            for l in range(LANES):
                scratch.v_before[i, l] = v[i, l]
                v[i, l] = scratch.v_next[i, l]
                q[i, l] += dt * v[i, l]
        if _mark_diverged(q, v, diverged) == len(diverged):
            return
        step += 1


@njit(cache=True, error_model="numpy", inline="always")
def _continue_velocities(v: FloatArray, step: int, scratch: Scratch) -> None:
    n = len(v)
    ahead = 0.5 if step > 1 else float(step)
    for i in range(n):
        for l in range(LANES):
            scratch.v_now[i, l] = continued_velocity(v[i, l], scratch.v_before[i, l], ahead)


@njit(cache=True, error_model="numpy", inline="always")
def _report_positions(
    drive: Drive, t: float, q: FloatArray, offset: FloatArray, scratch: Scratch, k: int, out: FloatArray
) -> int:
    """Write positions up to the step's end; the first output not written."""
    n = len(q)
    while k < len(drive.t_out) and drive.t_out[k] <= t + drive.dt:
        since = drive.t_out[k] - t
        for i in range(n):
            for l in range(out.shape[2]):
                out[k, i, l] = q[i, l] + since * scratch.v_next[i, l] + offset[i, l]
        k += 1
    return k


@njit(cache=True, error_model="numpy", inline="always")
def _report_velocities(
    drive: Drive, t: float, length: float, v: FloatArray, scratch: Scratch, k: int, out: FloatArray
) -> int:
    """Write velocities up to the step's middle, where v⁺ belongs; the first output not written."""
    n = len(v)
    middle = t + 0.5 * drive.dt
    while k < len(drive.t_out) and drive.t_out[k] <= middle:
        share = 1.0 - (middle - drive.t_out[k]) / length
        for i in range(n):
            for l in range(out.shape[2]):
                out[k, i, l] = v[i, l] + share * (scratch.v_next[i, l] - v[i, l])
        k += 1
    return k


@njit(cache=True, error_model="numpy", inline="always")
def _mark_diverged(q: FloatArray, v: FloatArray, diverged: IntArray) -> int:
    """Turn lanes in which a joint is too fast to NaN; the number of lanes lost so far."""
    n = len(q)
    lost = 0
    for l in range(len(diverged)):
        for i in range(n):
            if not abs(v[i, l]) < DIVERGED_RAD_S:
                diverged[l] = 1
        if diverged[l] == 1:
            lost += 1
            for i in range(n):
                q[i, l] = np.nan
                v[i, l] = np.nan
    return lost


@njit(cache=True, error_model="numpy")
def _take_command(
    parameters: Parameters, drive: Drive, t: float, length: float, q: FloatArray, step: int, scratch: Scratch
) -> None:
    """Bring each lane's delayed command up to the step that begins at t; sample the controller where it has a rate."""
    n = len(q)
    one = scratch.one_command
    tick = drive.rate_hz > 0.0 and ticks(drive.rate_hz, t, drive.dt, step)
    last = len(drive.t) - 1
    for l in range(len(scratch.row)):
        end = t + 0.5 * drive.dt - parameters.latency[l]
        row = scratch.row[l]
        if scratch.settled[l] == 0 or (row < last and drive.t[row + 1] < end):
            row, whole = average_command(drive.t, drive.command, row, end - length, end, one)
            scratch.row[l] = row
            scratch.settled[l] = 1 if whole else 0
            for i in range(n):
                for c in range(COMMAND_COLUMNS):
                    scratch.command[i, c * LANES + l] = one[i, c]
        if drive.rate_hz > 0.0:
            for i in range(n):
                scratch.held[i, l] = scratch.next_held[i, l]
        if tick:
            for i in range(n):
                scratch.one[0, i], scratch.one[1, i] = q[i, l], scratch.v_now[i, l]
                for r in range(JOINT_ROWS):
                    scratch.one_joint[r, i] = scratch.joint[i, r * LANES + l]
                for c in range(COMMAND_COLUMNS):
                    one[i, c] = scratch.command[i, c * LANES + l]
            held_torque(scratch.one[0], scratch.one[1], scratch.one_joint, one, scratch.one[2])
            for i in range(n):
                # the step reaches from half a step before the tick to half a step after it
                before = scratch.one[2, i] if step == 0 else scratch.next_held[i, l]
                scratch.held[i, l] = 0.5 * (before + scratch.one[2, i])
                scratch.next_held[i, l] = scratch.one[2, i]
