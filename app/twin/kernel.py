"""The compiled rollout: the twin's dynamics stepped for several lanes in lockstep, without the GIL.

A lane is one parameter set driven by one motion; neither need be another lane's, and no lane feels another.

Held equal to the PyBullet world (`world.py`) by tests; the search runs here, what is published is judged there.

numba's cache knows a function by its own file only: after a change to `lockstep`, `dynamics`, `actuator`, `friction`,
`command_chain`, `backlash` or `command_lag` alone, touch this file, or an old rollout keeps running.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray
from app.twin.actuator import continued_velocity
from app.twin.backlash import carried, starting_gap
from app.twin.batch import Batch, Drive, batch_of
from app.twin.command_chain import carry, sense, take_commands
from app.twin.command_lag import MEMORY
from app.twin.dynamics import LANES, Space, Tree, mass_and_bias, space_for
from app.twin.friction import BACKLASH, OFFSET
from app.twin.lockstep import implicit_step
from app.twin.scratch import Parameters, Scratch, scratch_for

__all__ = ["DIVERGED_RAD_S", "Drive", "Parameters", "run", "run_lanes"]

# A joint that turns this fast has diverged; PyBullet itself stops at 100 rad/s without saying so.
DIVERGED_RAD_S = 90.0


def run(
    tree: Tree, parameters: Parameters, drive: Drive, q0: FloatArray, v0: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Roll one motion out for several parameter sets.

    Args:
        tree: the mechanism.
        parameters: one set a lane, `LANES` at most.
        drive: commands and output times.
        q0: true initial positions, of the motors where there is backlash [rad], shape (n, lanes).
        v0: initial velocities [rad/s], shape (n, lanes).

    Returns:
        Measured positions (offset included) [rad] and velocities [rad/s] at `drive.t_out`, shape (K, n, lanes) each,
        and for each lane 1 if it diverged, from where on its values are NaN.
    """
    n, lanes = q0.shape
    count = len(drive.t_out)
    out_q, out_v = np.full((2, lanes * count, n), np.nan)
    diverged = run_lanes(tree, parameters, [drive] * lanes, (q0, v0), (out_q, out_v, range(0, lanes * count, count)))
    shape = (lanes, count, n)
    return np.moveaxis(out_q.reshape(shape), 0, 2), np.moveaxis(out_v.reshape(shape), 0, 2), diverged


def run_lanes(
    tree: Tree,
    parameters: Parameters,
    drives: Sequence[Drive],
    start: tuple[FloatArray, FloatArray],
    out: tuple[FloatArray, FloatArray, Sequence[int]],
) -> IntArray:
    """Roll the lanes of a batch out.

    Args:
        tree: the mechanism.
        parameters: one set a lane, `LANES` at most.
        drives: one a lane, all with the same step and controller rate.
        start: true initial positions, of the motors where there is backlash [rad], and velocities [rad/s], shape
            (n, lanes) each.
        out: where measured positions and velocities are written, shape (rows, n) each, and each lane's first row; what
            a lane doesn't reach stays as it is. No rows for velocities: they aren't wanted.

    Returns:
        For each lane 1 if it diverged, shape (lanes,).
    """
    q0, v0 = start
    n, lanes = q0.shape
    if lanes > LANES:
        raise ValueError(f"{lanes} parameter sets, but a batch holds {LANES}")
    batch = batch_of(drives, parameters.latency + MEMORY * parameters.lag, out[2])
    diverged = np.zeros(lanes, dtype=np.int64)
    filled, q, v = Parameters(*(_filled(each) for each in parameters)), _filled(q0), _filled(v0)
    space, scratch = space_for(len(tree.parent), n), scratch_for(filled, lanes)
    scratch.gap[:] = starting_gap(filled.joint[BACKLASH], v)
    _roll(tree, filled, batch, q, v, space, scratch, out[0], out[1], diverged)
    return diverged


def _filled(array: FloatArray) -> FloatArray:
    """A copy with `LANES` lanes: the last one fills those that are missing."""
    return np.ascontiguousarray(array[..., np.minimum(np.arange(LANES), array.shape[-1] - 1)])


@njit(cache=True, error_model="numpy", nogil=True)
def _roll(
    tree: Tree,
    parameters: Parameters,
    batch: Batch,
    q: FloatArray,
    v: FloatArray,
    space: Space,
    scratch: Scratch,
    out_q: FloatArray,
    out_v: FloatArray,
    diverged: IntArray,
) -> None:
    n = q.shape[0]
    dt = batch.dt
    inertial = parameters.inertial.reshape(len(tree.parent), 10 * LANES)
    for l in range(len(scratch.row)):
        scratch.k_q[l], scratch.k_v[l] = batch.out_first[l], batch.out_first[l]
    step = 0
    while _mark_moving(batch, diverged, scratch) > 0:
        # The first step is half as long: it takes a velocity at the start to one half a step after it.
        length = 0.5 * dt if step == 0 else dt
        _continue_velocities(v, step, scratch)
        sense(parameters.joint[OFFSET], length, scratch)
        take_commands(parameters, batch, length, q, step, scratch)
        mass_and_bias(tree, inertial, parameters.gravity, q, scratch.v_now, space)
        implicit_step(space, q, v, length, scratch)
        for l in range(len(scratch.row)):
            t = batch.begin[l] + step * dt
            _report_positions(batch, l, t, q, parameters.joint[OFFSET], scratch, out_q)
            _report_velocities(batch, l, t, length, v, scratch, out_v)
        carry(dt, scratch)
        for i in range(n):
            for l in range(LANES):
                scratch.v_before[i, l] = v[i, l]
                v[i, l] = scratch.v_next[i, l]
                q[i, l] += dt * v[i, l]
        _mark_diverged(q, v, diverged, scratch)
        step += 1


@njit(cache=True, error_model="numpy", inline="always")
def _mark_moving(batch: Batch, diverged: IntArray, scratch: Scratch) -> int:
    """Mark the lanes that have outputs to come and haven't diverged; how many there are."""
    count = 0
    for l in range(len(diverged)):
        moving = diverged[l] == 0 and scratch.k_v[l] < batch.out_end[l]
        scratch.moving[l] = 1 if moving else 0
        count += scratch.moving[l]
    return count


@njit(cache=True, error_model="numpy", inline="always")
def _continue_velocities(v: FloatArray, step: int, scratch: Scratch) -> None:
    n = len(v)
    ahead = 0.5 if step > 1 else float(step)
    for i in range(n):
        for l in range(LANES):
            scratch.v_now[i, l] = continued_velocity(v[i, l], scratch.v_before[i, l], ahead)


@njit(cache=True, error_model="numpy", inline="always")
def _report_positions(
    batch: Batch, l: int, t: float, q: FloatArray, offset: FloatArray, scratch: Scratch, out: FloatArray
) -> None:
    """Write a lane's positions up to the step's end."""
    k = scratch.k_q[l]
    while k < batch.out_end[l] and batch.t_out[k] <= t + batch.dt:
        since = batch.t_out[k] - t
        at = batch.place[l] + k - batch.out_first[l]
        for i in range(len(q)):
            moved = since * scratch.v_next[i, l]
            out[at, i] = q[i, l] + moved + offset[i, l]
            if scratch.plays[i] == 1:
                out[at, i] += carried(scratch.gap[i, l], moved, 0.5 * scratch.joint[i, BACKLASH * LANES + l])
        k += 1
    scratch.k_q[l] = k


@njit(cache=True, error_model="numpy", inline="always")
def _report_velocities(
    batch: Batch, l: int, t: float, length: float, v: FloatArray, scratch: Scratch, out: FloatArray
) -> None:
    """Write a lane's velocities up to the step's middle, where v⁺ belongs."""
    middle = t + 0.5 * batch.dt
    k = scratch.k_v[l]
    while k < batch.out_end[l] and batch.t_out[k] <= middle:
        share = 1.0 - (middle - batch.t_out[k]) / length
        at = batch.place[l] + k - batch.out_first[l]
        for i in range(len(v) if len(out) > 0 else 0):
            out[at, i] = v[i, l] + share * (scratch.v_next[i, l] - v[i, l])
            if scratch.plays[i] == 1:
                out[at, i] *= scratch.grip[i, l]
        k += 1
    scratch.k_v[l] = k


@njit(cache=True, error_model="numpy", inline="always")
def _mark_diverged(q: FloatArray, v: FloatArray, diverged: IntArray, scratch: Scratch) -> None:
    """Turn lanes in which a joint is too fast to NaN; what a lane does after its last output doesn't count."""
    n = len(q)
    for l in range(len(diverged)):
        if scratch.moving[l] == 0:
            continue
        for i in range(n):
            if not abs(v[i, l]) < DIVERGED_RAD_S:
                diverged[l] = 1
        if diverged[l] == 1:
            for i in range(n):
                q[i, l] = np.nan
                v[i, l] = np.nan
