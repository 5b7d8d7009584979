"""From what was asked of a joint to the torque on it: latency, lag, controller, saturation, motor curve, backlash.

Commands are targets. Latency shifts the targets, in seconds; a step uses their time average over the step, so that an
error is smooth in the latency. A controller's first-order lag then smooths them (`command_lag`). The controller is part
of the implicit step (`step_velocity`), because explicit PD diverges on real gains; one with a declared rate is a
zero-order hold instead (`held_torque`).

A velocity is held between two positions: v belongs to t − dt/2 and v⁺ to t + dt/2, which makes PyBullet's own update,
q⁺ = q + dt v⁺, a second-order leapfrog. Everything at t is therefore centred: damping acts on the mean of v and v⁺,
stiffness on the mean of the three positions around t (Newmark's average acceleration), and what is taken explicitly
(Coriolis torques, the friction limit, a sampled controller) on the velocity continued from the last two to t
(`continued_velocity`). Taken at the step's end instead, Kp alone would add Kp·dt of damping that no robot has
(docs/adr/0008). A rollout begins with a step of half the length, from a velocity that belongs to its very start.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray
from app.twin.friction import (
    ARMATURE,
    BACK_EMF,
    BREAKAWAY,
    COULOMB,
    DAMPING,
    KD,
    KP,
    LIMIT_SLOPE,
    LOAD,
    OFFSET,
    STRIBECK,
    TORQUE_CONSTANT,
    TORQUE_LIMIT,
    friction_limit,
    solve_friction,
)

# Command columns of `command[row, dof, COLUMN]`.
TARGET, TARGET_VELOCITY, FEED_FORWARD, KP_SCALE, KD_SCALE, ENABLED, LIMIT_SCALE = range(7)
COMMAND_COLUMNS = 7


@njit(cache=True, error_model="numpy")
def average_command(
    t: FloatArray, command: FloatArray, row: int, begin: float, end: float, out: FloatArray
) -> tuple[int, bool]:
    """Time average of the held commands over [begin, end].

    Args:
        t: row k holds on [t[k], t[k+1]); the first holds before, the last after [s], shape (T,).
        command: shape (T, n, COMMAND_COLUMNS).
        row: a row that holds at or before `begin`.
        begin: start of the interval, latency subtracted [s].
        end: its end [s].
        out: shape (n, COMMAND_COLUMNS).

    Returns:
        The row that holds at `begin`, and whether it holds for the whole interval.
    """
    last = len(t) - 1
    while row < last and t[row + 1] <= begin:
        row += 1
    if row == last or t[row + 1] >= end:
        out[:, :] = command[row]
        return row, True
    out[:, :] = 0.0
    k = row
    start = begin
    while True:
        stop = end if k == last else min(t[k + 1], end)
        share = (stop - start) / (end - begin)
        for i in range(out.shape[0]):
            for c in range(out.shape[1]):
                out[i, c] += share * command[k, i, c]
        if stop >= end:
            return row, False
        start = stop
        k += 1


@njit(cache=True, error_model="numpy", inline="always")
def torque_limits(limit: float, slope: float, v: float) -> tuple[float, float]:
    """Least and greatest torque of a motor at a speed: the straight curve from stall torque to no-load speed.

    Speed takes off what drives it further, not what brakes it.

    Args:
        limit: at standstill [N·m].
        slope: how much it falls with speed, stall torque ÷ no-load speed [N·m·s/rad]; 0: not at all.
        v: [rad/s].
    """
    return slope * max(-v, 0.0) - limit, limit - slope * max(v, 0.0)


@njit(cache=True, error_model="numpy", inline="always")
def ticks(rate_hz: float, t: float, dt: float, step: int) -> bool:
    """Whether a controller of the given rate samples at t [s], the start of a step; it always does at the first."""
    period = np.floor(t * rate_hz + 1e-9)
    return step == 0 or period != np.floor((t - dt) * rate_hz + 1e-9)


@njit(cache=True, error_model="numpy")
def held_torque(q: FloatArray, v: FloatArray, joint: FloatArray, command: FloatArray, out: FloatArray) -> None:
    """Torque of a controller that samples now and holds [N·m].

    Args:
        q: true joint positions [rad], shape (n,).
        v: joint velocities at the same instant [rad/s], shape (n,).
        joint: joint parameters, shape (JOINT_ROWS, n).
        command: shape (n, COMMAND_COLUMNS).
        out: shape (n,).
    """
    for i in range(len(q)):
        c = command[i]
        torque = (
            c[FEED_FORWARD] * joint[TORQUE_CONSTANT, i]
            + joint[KP, i] * c[KP_SCALE] * (c[TARGET] - q[i] - joint[OFFSET, i])
            + joint[KD, i] * c[KD_SCALE] * (c[TARGET_VELOCITY] - v[i])
        )
        low, high = torque_limits(joint[TORQUE_LIMIT, i] * c[LIMIT_SCALE], joint[LIMIT_SLOPE, i], v[i])
        out[i] = c[ENABLED] * min(max(torque, low), high)


@njit(cache=True, error_model="numpy", inline="always")
def continued_velocity(v: float, before: float, ahead: float) -> float:
    """Velocity a little after the last one known: half a step, `ahead` steps of the kind that led to it.

    Args:
        v: the last velocity; exactly 0 is a joint at rest, which stays there.
        before: the one before it.
        ahead: 0 at a rollout's start, 1 after its first, halved step, 0.5 from then on.
    """
    return v + ahead * (v - before) if v != 0.0 else 0.0


@njit(cache=True, error_model="numpy")
def friction_bounds(v: FloatArray, h: FloatArray, joint: FloatArray, dt: float, out: FloatArray) -> None:
    """Largest friction impulse of a step at each joint [N·m·s].

    Args:
        v: joint velocities at the instant of `h` [rad/s], shape (n,).
        h: gravity, Coriolis and centrifugal torques [N·m], shape (n,).
        joint: joint parameters, shape (JOINT_ROWS, n).
        dt: the step [s].
        out: shape (n,).
    """
    for i in range(len(v)):
        load = h[i] + joint[DAMPING, i] * v[i]
        limit = friction_limit(v[i], load, joint[COULOMB, i], joint[BREAKAWAY, i], joint[STRIBECK, i], joint[LOAD, i])
        out[i] = dt * limit


@njit(cache=True, error_model="numpy", inline="always")
def motor_slope(kp: float, kd: float, dt: float) -> float:
    """How much PD torque falls with v⁺ [N·m·s/rad]."""
    return 0.5 * kd + 0.25 * dt * kp


@njit(cache=True, error_model="numpy", inline="always")
def motor_pull(kp: float, kd: float, dt: float, target: float, target_velocity: float, q: float, v: float) -> float:
    """PD torque at v⁺ = 0 [N·m]; with `motor_slope` · v⁺ taken off, it is centred on the step's start."""
    return kp * (target - q + 0.25 * dt * v) + kd * (target_velocity - 0.5 * v)


@njit(cache=True, error_model="numpy", inline="always")
def still_pull(kp: float, kd: float, target: float, target_velocity: float, q: float) -> float:
    """PD torque while a motor crosses its gap and the encoder stands still [N·m]: nothing of it falls with v⁺."""
    return kp * (target - q) + kd * target_velocity


@njit(cache=True, error_model="numpy")
def step_velocity(
    M: FloatArray,
    h: FloatArray,
    q: FloatArray,
    v: FloatArray,
    bound: FloatArray,
    joint: FloatArray,
    command: FloatArray,
    held: FloatArray,
    grip: FloatArray,
    dt: float,
    state: IntArray,
    v_next: FloatArray,
    work: FloatArray,
) -> None:
    """One implicit step of the joint-space dynamics: the velocities at its end.

    (M + A + dt(b + Kd)/2 + dt²Kp/4)(v⁺ − v) = dt(τff + Kp(q* − q) + Kd(v* − v) − h − b v) − λ, with λ of
    `solve_friction`. Where a motor would pass its limit, its whole torque becomes ±limit and the step is solved again.

    Args:
        M: mass matrix [kg·m²], shape (n, n).
        h: gravity, Coriolis and centrifugal torques [N·m], shape (n,).
        q: true joint positions [rad], shape (n,).
        v: joint velocities half a step before q [rad/s], shape (n,).
        bound: largest friction impulses, see `friction_bounds` [N·m·s], shape (n,).
        joint: joint parameters, with what encoders read beyond q as their offset, shape (JOINT_ROWS, n).
        command: shape (n, COMMAND_COLUMNS).
        held: torque of a sampled controller [N·m], shape (n,); NaN where the controller is continuous.
        grip: how much of the step each motor carries its link along, 0 to 1, shape (n,).
        dt: the step [s].
        state: first guess of who slides, shape (n,); the solution on return.
        v_next: out [rad/s], shape (n,).
        work: shape (2n + 4, n).
    """
    n = len(q)
    A = work[:n]
    L = work[n : 2 * n]
    rhs, fixed, drive, sag = work[2 * n], work[2 * n + 1], work[2 * n + 2], work[2 * n + 3]
    fixed[:] = held
    sag[:] = 0.0  # how much a saturated motor's torque falls with speed
    for _ in range(n + 1):
        for i in range(n):
            c = command[i]
            on = c[ENABLED]
            loss = 0.5 * dt * (joint[DAMPING, i] + on * joint[BACK_EMF, i])
            momentum = (joint[ARMATURE, i] - loss) * v[i]
            for j in range(n):
                A[i, j] = M[i, j]
                momentum += M[i, j] * v[j]
            A[i, i] += joint[ARMATURE, i] + loss
            if np.isnan(fixed[i]):
                kp = on * joint[KP, i] * c[KP_SCALE]
                kd = on * joint[KD, i] * c[KD_SCALE]
                A[i, i] += dt * grip[i] * motor_slope(kp, kd, dt)
                target = c[TARGET] - joint[OFFSET, i]
                pull = motor_pull(kp, kd, dt, target, c[TARGET_VELOCITY], q[i], v[i])
                if grip[i] < 1.0:
                    still = still_pull(kp, kd, target, c[TARGET_VELOCITY], q[i])
                    pull = grip[i] * pull + (1.0 - grip[i]) * still
                drive[i] = on * c[FEED_FORWARD] * joint[TORQUE_CONSTANT, i] + pull
            else:
                A[i, i] += 0.5 * dt * sag[i]
                drive[i] = fixed[i] - 0.5 * sag[i] * v[i]
            rhs[i] = momentum + dt * (drive[i] - h[i])
        solve_friction(A, rhs, bound, state, v_next, L)
        saturated = False
        for i in range(n):
            if not np.isnan(fixed[i]):
                continue
            c = command[i]
            on = c[ENABLED]
            slope = grip[i] * motor_slope(on * joint[KP, i] * c[KP_SCALE], on * joint[KD, i] * c[KD_SCALE], dt)
            torque = drive[i] - slope * v_next[i]
            limit, curve = on * joint[TORQUE_LIMIT, i] * c[LIMIT_SCALE], on * joint[LIMIT_SLOPE, i]
            low, high = torque_limits(limit, curve, 0.5 * (v[i] + v_next[i]))
            if torque > high:
                fixed[i], sag[i] = limit, curve if v[i] >= 0.0 else 0.0
                saturated = True
            elif torque < low:
                fixed[i], sag[i] = -limit, curve if v[i] <= 0.0 else 0.0
                saturated = True
        if not saturated:
            return
