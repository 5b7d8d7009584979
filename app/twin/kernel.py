"""The compiled rollout: the twin's dynamics stepped for several parameter sets in lockstep, without the GIL.

Held equal to the PyBullet world (`world.py`) by tests; the search runs here, what is published is judged there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray
from app.twin.actuator import (
    COMMAND_COLUMNS,
    ENABLED,
    FEED_FORWARD,
    KD_SCALE,
    KP_SCALE,
    LIMIT_SCALE,
    TARGET,
    TARGET_VELOCITY,
    average_command,
    continued_velocity,
    held_torque,
    motor_pull,
    motor_slope,
    step_velocity,
    ticks,
)
from app.twin.dynamics import LANES, Space, Tree, mass_and_bias, space_for
from app.twin.friction import (
    ARMATURE,
    BACK_EMF,
    BREAKAWAY,
    COULOMB,
    DAMPING,
    JOINT_ROWS,
    KD,
    KP,
    LOAD,
    OFFSET,
    STRIBECK,
    TORQUE_LIMIT,
    friction_limit,
)

# A joint that turns this fast has diverged; PyBullet itself stops at 100 rad/s without saying so.
DIVERGED_RAD_S = 90.0


class Parameters(NamedTuple):
    """What differs between the lanes of a batch, of which there are `LANES` at most."""

    inertial: FloatArray  # (nb, 10, lanes)
    joint: FloatArray  # (JOINT_ROWS, n, lanes)
    latency: FloatArray  # command latency [s], (lanes,)
    gravity: FloatArray  # [m/s²], (3, lanes)


class Drive(NamedTuple):
    """What was asked of the robot, and when to look at it; times in seconds of the recording."""

    t: FloatArray  # (T,)
    command: FloatArray  # (T, n, COMMAND_COLUMNS)
    rate_hz: float  # of a sampled controller; 0 = continuous
    t_out: FloatArray  # (K,), not before the start
    begin: float
    dt: float


class Scratch(NamedTuple):
    """Work space of the implicit step: arrays over lanes, then one lane's copies for the exact solver.

    Vector loops run over all `LANES`; those that no parameter set fills hold copies and are left out elsewhere.
    """

    L: FloatArray  # (n, n, LANES)
    diagonal: FloatArray  # (n, LANES)
    rhs: FloatArray
    bound: FloatArray
    slide: FloatArray  # -1, 0 or 1: the guess of who slides
    drive: FloatArray
    slope: FloatArray
    v_next: FloatArray
    v_before: FloatArray  # velocities before the last step
    v_now: FloatArray  # velocities at the instant of the positions
    held: FloatArray  # torque of a sampled controller over this step; NaN where it is continuous
    next_held: FloatArray  # and after it
    command: FloatArray  # each joint's in one block, as bodies have theirs (n, COMMAND_COLUMNS · LANES)
    joint: FloatArray  # each joint's parameters in one block (n, JOINT_ROWS · LANES)
    breaks_loose: IntArray  # 1 where some lane's breakaway friction is above its Coulomb friction, (n,)
    needed: FloatArray  # (LANES,)
    wrong: FloatArray  # (LANES,)
    row: IntArray  # command row each lane is at, (lanes,)
    settled: IntArray  # 1 where one row of commands filled the lane's last step, (lanes,)
    one: FloatArray  # (6, n)
    one_joint: FloatArray  # (JOINT_ROWS, n)
    one_command: FloatArray  # (n, COMMAND_COLUMNS)
    one_mass: FloatArray  # (n, n)
    state: IntArray  # (n,)
    work: FloatArray  # (2n + 3, n)


def scratch_for(parameters: Parameters, lanes: int) -> Scratch:
    """Allocate the step's work space for `LANES` parameter sets, the first `lanes` of which count."""
    n = parameters.joint.shape[1]

    def per_joint(fill: float = 0.0) -> FloatArray:
        return np.full((n, LANES), fill)

    return Scratch(
        L=np.zeros((n, n, LANES)),
        diagonal=per_joint(),
        rhs=per_joint(),
        bound=per_joint(),
        slide=per_joint(),
        drive=per_joint(),
        slope=per_joint(),
        v_next=per_joint(),
        v_before=per_joint(),
        v_now=per_joint(),
        held=per_joint(np.nan),
        next_held=per_joint(np.nan),
        command=np.zeros((n, COMMAND_COLUMNS * LANES)),
        joint=np.moveaxis(parameters.joint, 1, 0).reshape(n, JOINT_ROWS * LANES),
        breaks_loose=(parameters.joint[BREAKAWAY] > parameters.joint[COULOMB]).any(axis=1).astype(np.int64),
        needed=np.zeros(LANES),
        wrong=np.zeros(LANES),
        row=np.zeros(lanes, dtype=np.int64),
        settled=np.zeros(lanes, dtype=np.int64),
        one=np.zeros((6, n)),
        one_joint=np.zeros((JOINT_ROWS, n)),
        one_command=np.zeros((n, COMMAND_COLUMNS)),
        one_mass=np.zeros((n, n)),
        state=np.zeros(n, dtype=np.int64),
        work=np.zeros((2 * n + 3, n)),
    )


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
        _implicit_step(space, q, v, length, scratch)
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


@njit(cache=True, error_model="numpy")
def _implicit_step(space: Space, q: FloatArray, v: FloatArray, dt: float, scratch: Scratch) -> None:
    """`step_velocity` for all lanes at once, on the guess that joints keep sliding or resting as they do.

    Where the guess or a torque limit fails, that lane is solved exactly by `step_velocity` itself.
    """
    _assemble(space, q, v, dt, scratch)
    _factorise(space.M, scratch)
    _substitute(scratch)
    _check_guess(space.M, scratch)
    for l in range(len(scratch.row)):
        if scratch.wrong[l] > 0.0:
            _solve_exactly(space, q, v, dt, l, scratch)


@njit(cache=True, error_model="numpy")
def _assemble(space: Space, q: FloatArray, v: FloatArray, dt: float, scratch: Scratch) -> None:
    """Diagonal and right side of the implicit step (see `step_velocity`)."""
    M, h = space.M, space.h
    for i in range(len(q)):
        J, C, drive, slope = scratch.joint[i], scratch.command[i], scratch.drive[i], scratch.slope[i]
        _limit_friction(J, h[i], scratch.v_now[i], dt, scratch.breaks_loose[i], scratch.bound[i])
        _slopes(J, C, scratch.held[i], dt, slope)
        _pulls(J, C, scratch.held[i], q[i], v[i], dt, drive)
        _diagonals(J, C, M[i, i], slope, dt, scratch.diagonal[i])
        _sides(J, C, v[i], drive, h[i], dt, scratch.rhs[i])
        for l in range(LANES):
            scratch.slide[i, l] = np.sign(v[i, l])
    for i in range(len(q)):
        for j in range(len(q)):
            for l in range(LANES):
                scratch.rhs[i, l] += M[i, j, l] * v[j, l]


# Each of these loops writes one array only: with several the compiler would have to prove too much about which may
# overlap, and use no vector instructions.


@njit(cache=True, error_model="numpy")
def _limit_friction(
    J: FloatArray, h: FloatArray, v_now: FloatArray, dt: float, breaks_loose: int, bound: FloatArray
) -> None:
    if breaks_loose == 1:
        for l in range(LANES):
            load = h[l] + J[DAMPING * LANES + l] * v_now[l]
            coulomb, breakaway = J[COULOMB * LANES + l], J[BREAKAWAY * LANES + l]
            stribeck, share = J[STRIBECK * LANES + l], J[LOAD * LANES + l]
            bound[l] = dt * friction_limit(v_now[l], load, coulomb, breakaway, stribeck, share)
    else:  # no branch, and no exponential
        for l in range(LANES):
            load = h[l] + J[DAMPING * LANES + l] * v_now[l]
            coulomb = J[COULOMB * LANES + l]
            bound[l] = dt * friction_limit(v_now[l], load, coulomb, coulomb, 1.0, J[LOAD * LANES + l])


@njit(cache=True, error_model="numpy")
def _slopes(J: FloatArray, C: FloatArray, held: FloatArray, dt: float, slope: FloatArray) -> None:
    for l in range(LANES):
        on = C[ENABLED * LANES + l]
        kp = on * J[KP * LANES + l] * C[KP_SCALE * LANES + l]
        kd = on * J[KD * LANES + l] * C[KD_SCALE * LANES + l]
        # a held torque that is not a number belongs to a continuous controller
        slope[l] = 0.0 if held[l] == held[l] else motor_slope(kp, kd, dt)


@njit(cache=True, error_model="numpy")
def _pulls(
    J: FloatArray, C: FloatArray, held: FloatArray, q: FloatArray, v: FloatArray, dt: float, drive: FloatArray
) -> None:
    for l in range(LANES):
        on = C[ENABLED * LANES + l]
        kp = on * J[KP * LANES + l] * C[KP_SCALE * LANES + l]
        kd = on * J[KD * LANES + l] * C[KD_SCALE * LANES + l]
        target = C[TARGET * LANES + l] - J[OFFSET * LANES + l]
        pull = on * C[FEED_FORWARD * LANES + l]
        pull += motor_pull(kp, kd, dt, target, C[TARGET_VELOCITY * LANES + l], q[l], v[l])
        drive[l] = held[l] if held[l] == held[l] else pull


@njit(cache=True, error_model="numpy")
def _diagonals(J: FloatArray, C: FloatArray, mass: FloatArray, slope: FloatArray, dt: float, out: FloatArray) -> None:
    for l in range(LANES):
        loss = 0.5 * dt * (J[DAMPING * LANES + l] + C[ENABLED * LANES + l] * J[BACK_EMF * LANES + l])
        out[l] = mass[l] + J[ARMATURE * LANES + l] + loss + dt * slope[l]


@njit(cache=True, error_model="numpy")
def _sides(
    J: FloatArray, C: FloatArray, v: FloatArray, drive: FloatArray, h: FloatArray, dt: float, rhs: FloatArray
) -> None:
    for l in range(LANES):
        loss = 0.5 * dt * (J[DAMPING * LANES + l] + C[ENABLED * LANES + l] * J[BACK_EMF * LANES + l])
        rhs[l] = (J[ARMATURE * LANES + l] - loss) * v[l] + dt * (drive[l] - h[l])


@njit(cache=True, error_model="numpy", inline="always")
def _factorise(M: FloatArray, scratch: Scratch) -> None:
    """Cholesky factor of the sliding joints' matrix; joints at rest get rows of the unit matrix."""
    n = len(scratch.rhs)
    L, slide = scratch.L, scratch.slide
    for j in range(n):
        for l in range(LANES):
            L[j, j, l] = abs(slide[j, l]) * scratch.diagonal[j, l] + (1.0 - abs(slide[j, l]))
        for k in range(j):
            for l in range(LANES):
                L[j, j, l] -= L[j, k, l] * L[j, k, l]
        for l in range(LANES):
            L[j, j, l] = 1.0 / np.sqrt(L[j, j, l])
        for i in range(j + 1, n):
            for l in range(LANES):
                L[i, j, l] = M[i, j, l] * abs(slide[i, l] * slide[j, l])
            for k in range(j):
                for l in range(LANES):
                    L[i, j, l] -= L[i, k, l] * L[j, k, l]
            for l in range(LANES):
                L[i, j, l] *= L[j, j, l]


@njit(cache=True, error_model="numpy", inline="always")
def _substitute(scratch: Scratch) -> None:
    """Velocities from the factor, whose diagonal is stored inverted; exactly 0 for joints at rest."""
    n = len(scratch.rhs)
    L, v, slide = scratch.L, scratch.v_next, scratch.slide
    for i in range(n):
        for l in range(LANES):
            v[i, l] = abs(slide[i, l]) * (scratch.rhs[i, l] - scratch.bound[i, l] * slide[i, l])
        for k in range(i):
            for l in range(LANES):
                v[i, l] -= L[i, k, l] * v[k, l]
        for l in range(LANES):
            v[i, l] *= L[i, i, l]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            for l in range(LANES):
                v[i, l] -= L[k, i, l] * v[k, l]
        for l in range(LANES):
            v[i, l] *= L[i, i, l]


@njit(cache=True, error_model="numpy", inline="always")
def _check_guess(M: FloatArray, scratch: Scratch) -> None:
    """Mark the lanes where a joint turned round, broke loose, or would pass its torque limit."""
    n = len(scratch.rhs)
    v, slide, wrong, needed = scratch.v_next, scratch.slide, scratch.wrong, scratch.needed
    wrong[:] = 0.0
    for i in range(n):
        for l in range(LANES):
            needed[l] = scratch.rhs[i, l]
        for j in range(n):
            for l in range(LANES):
                needed[l] -= M[i, j, l] * v[j, l]
        for l in range(LANES):
            turned = 1.0 if v[i, l] * slide[i, l] < 0.0 else 0.0
            resting = 1.0 - abs(slide[i, l])
            loose = resting if abs(needed[l]) > scratch.bound[i, l] else 0.0
            limit = scratch.joint[i, TORQUE_LIMIT * LANES + l] * scratch.command[i, LIMIT_SCALE * LANES + l]
            torque = abs(scratch.drive[i, l] - scratch.slope[i, l] * v[i, l])
            beyond = 1.0 if torque > scratch.command[i, ENABLED * LANES + l] * limit else 0.0
            wrong[l] += turned + loose + beyond


@njit(cache=True, error_model="numpy")
def _solve_exactly(space: Space, q: FloatArray, v: FloatArray, dt: float, l: int, scratch: Scratch) -> None:
    """One lane through `step_velocity`."""
    n = q.shape[0]
    one, joint, M, command = scratch.one, scratch.one_joint, scratch.one_mass, scratch.one_command
    for i in range(n):
        one[0, i], one[1, i], one[2, i], one[3, i] = space.h[i, l], q[i, l], v[i, l], scratch.held[i, l]
        one[4, i] = scratch.bound[i, l]
        scratch.state[i] = int(scratch.slide[i, l])
        for r in range(JOINT_ROWS):
            joint[r, i] = scratch.joint[i, r * LANES + l]
        for c in range(COMMAND_COLUMNS):
            command[i, c] = scratch.command[i, c * LANES + l]
        for j in range(n):
            M[i, j] = space.M[i, j, l]
    step_velocity(M, one[0], one[1], one[2], one[4], joint, command, one[3], dt, scratch.state, one[5], scratch.work)
    for i in range(n):
        scratch.v_next[i, l] = one[5, i]
