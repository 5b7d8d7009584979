"""The implicit step for all lanes at once, on a guess of who slides; `actuator.step_velocity` where the guess fails."""

from __future__ import annotations

import numpy as np
from numba import njit

from app.telemetry import FloatArray
from app.twin.actuator import (
    COMMAND_COLUMNS,
    ENABLED,
    FEED_FORWARD,
    KD_SCALE,
    KP_SCALE,
    LIMIT_SCALE,
    TARGET,
    TARGET_VELOCITY,
    motor_pull,
    motor_slope,
    step_velocity,
    still_pull,
    torque_limits,
)
from app.twin.dynamics import LANES, Space
from app.twin.friction import (
    ARMATURE,
    BACK_EMF,
    BREAKAWAY,
    COULOMB,
    DAMPING,
    JOINT_ROWS,
    KD,
    KP,
    LIMIT_SLOPE,
    LOAD,
    OFFSET,
    STRIBECK,
    TORQUE_CONSTANT,
    TORQUE_LIMIT,
    friction_limit,
)
from app.twin.scratch import Scratch


@njit(cache=True, error_model="numpy")
def implicit_step(space: Space, q: FloatArray, v: FloatArray, dt: float, scratch: Scratch) -> None:
    """`step_velocity` for all lanes at once, on the guess that joints keep sliding or resting as they do.

    Where the guess or a torque limit fails, that lane is solved exactly by `step_velocity` itself.
    """
    _assemble(space, q, v, dt, scratch)
    _factorise(space.M, scratch)
    _substitute(scratch)
    _check_guess(space.M, v, scratch)
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
        if scratch.plays[i] == 1:
            _loosen(J, C, scratch.held[i], scratch.grip[i], q[i], slope, drive)
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
        pull = on * C[FEED_FORWARD * LANES + l] * J[TORQUE_CONSTANT * LANES + l]
        pull += motor_pull(kp, kd, dt, target, C[TARGET_VELOCITY * LANES + l], q[l], v[l])
        drive[l] = held[l] if held[l] == held[l] else pull


@njit(cache=True, error_model="numpy")
def _loosen(
    J: FloatArray,
    C: FloatArray,
    held: FloatArray,
    grip: FloatArray,
    q: FloatArray,
    slope: FloatArray,
    drive: FloatArray,
) -> None:
    """Take the part of the step in which a motor crosses its gap into slopes and pulls."""
    for l in range(LANES):
        if grip[l] < 1.0 and held[l] != held[l]:
            on = C[ENABLED * LANES + l]
            kp = on * J[KP * LANES + l] * C[KP_SCALE * LANES + l]
            kd = on * J[KD * LANES + l] * C[KD_SCALE * LANES + l]
            target = C[TARGET * LANES + l] - J[OFFSET * LANES + l]
            feed = on * C[FEED_FORWARD * LANES + l] * J[TORQUE_CONSTANT * LANES + l]
            still = still_pull(kp, kd, target, C[TARGET_VELOCITY * LANES + l], q[l])
            drive[l] = grip[l] * (drive[l] - feed) + (1.0 - grip[l]) * still + feed
            slope[l] *= grip[l]


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
def _check_guess(M: FloatArray, v_before: FloatArray, scratch: Scratch) -> None:
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
            on = scratch.command[i, ENABLED * LANES + l]
            limit = on * scratch.joint[i, TORQUE_LIMIT * LANES + l] * scratch.command[i, LIMIT_SCALE * LANES + l]
            curve = on * scratch.joint[i, LIMIT_SLOPE * LANES + l]
            low, high = torque_limits(limit, curve, 0.5 * (v_before[i, l] + v[i, l]))
            torque = scratch.drive[i, l] - scratch.slope[i, l] * v[i, l]
            beyond = (1.0 if torque > high else 0.0) + (1.0 if torque < low else 0.0)
            wrong[l] += turned + loose + beyond


@njit(cache=True, error_model="numpy")
def _solve_exactly(space: Space, q: FloatArray, v: FloatArray, dt: float, l: int, scratch: Scratch) -> None:
    """One lane through `step_velocity`."""
    n = q.shape[0]
    one, joint, M, command = scratch.one, scratch.one_joint, scratch.one_mass, scratch.one_command
    for i in range(n):
        one[0, i], one[1, i], one[2, i], one[3, i] = space.h[i, l], q[i, l], v[i, l], scratch.held[i, l]
        one[4, i], one[6, i] = scratch.bound[i, l], scratch.grip[i, l]
        scratch.state[i] = int(scratch.slide[i, l])
        for r in range(JOINT_ROWS):
            joint[r, i] = scratch.joint[i, r * LANES + l]
        for c in range(COMMAND_COLUMNS):
            command[i, c] = scratch.command[i, c * LANES + l]
        for j in range(n):
            M[i, j] = space.M[i, j, l]
    h, q_now, v_before, held, bound, v_next, grip = one[0], one[1], one[2], one[3], one[4], one[5], one[6]
    step_velocity(M, h, q_now, v_before, bound, joint, command, held, grip, dt, scratch.state, v_next, scratch.work)
    for i in range(n):
        scratch.v_next[i, l] = one[5, i]
