"""Joint friction: the largest torque it can oppose motion with, and the velocity it leaves, exactly.

Coulomb friction is solved as a complementarity problem, not smoothed: a joint below its friction limit stands still.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray

SLIDING_BACK, STUCK, SLIDING_FORWARD = -1, 0, 1

# Joint parameter rows of the kernel's array `joint[ROW, dof, lane]`.
ARMATURE, DAMPING, COULOMB, BREAKAWAY, STRIBECK, LOAD, KP, KD, TORQUE_LIMIT, BACK_EMF, OFFSET = range(11)
# Full gap between motor and link, how much a motor's torque limit falls per unit of speed, and the torque a unit of
# commanded effort gives.
BACKLASH, LIMIT_SLOPE, TORQUE_CONSTANT = 11, 12, 13
JOINT_ROWS = 14


@njit(cache=True, error_model="numpy", inline="always")
def friction_limit(
    v: float, load: float, coulomb: float, breakaway: float, stribeck: float, load_friction: float
) -> float:
    """Friction torque at the edge of sliding [N·m].

    F = τc + (τs − τc)·exp(−(v/vs)²) + μ·|τ_load|: Stribeck's curve in the form of Armstrong-Hélouvry (1991), with a
    term in the torque the transmission carries.

    Args:
        v: joint velocity [rad/s].
        load: torque the transmission carries [N·m].
        coulomb: τc [N·m].
        breakaway: τs ≥ τc [N·m].
        stribeck: vs [rad/s].
        load_friction: μ [-].
    """
    limit = coulomb + load_friction * abs(load)
    if breakaway > coulomb:
        limit += (breakaway - coulomb) * math.exp(-((v / stribeck) ** 2))
    return limit


@njit(cache=True, error_model="numpy")
def solve_friction(
    A: FloatArray, rhs: FloatArray, bound: FloatArray, state: IntArray, v: FloatArray, L: FloatArray
) -> None:
    """Solve A v = rhs − λ, where λᵢ = boundᵢ·sign(vᵢ) for a sliding joint and |λᵢ| ≤ boundᵢ for one at rest.

    Block principal pivoting on which joints slide (Júdice and Pires 1994), falling back to one change at a time, lowest
    index first, which terminates because A is positive definite (Murty 1974).

    Args:
        A: symmetric positive definite, shape (n, n).
        rhs: shape (n,).
        bound: friction impulse limits, ≥ 0, shape (n,).
        state: first guess in, solution out: SLIDING_BACK, STUCK or SLIDING_FORWARD, shape (n,).
        v: velocities out, exactly 0 where stuck, shape (n,).
        L: work space, shape (n, n).
    """
    n = len(rhs)
    best = n + 1
    patience = 10
    for _ in range(50 + 20 * n):
        _solve_sliding(A, rhs, bound, state, v, L)
        wrong = 0
        lowest = -1
        for i in range(n):
            if _corrected(A, rhs, bound, state, v, i) != state[i]:
                wrong += 1
                if lowest < 0:
                    lowest = i
        if wrong == 0:
            return
        if wrong < best:
            best = wrong
            patience = 10
        else:
            patience -= 1
        if patience > 0:
            for i in range(n):
                L[0, i] = _corrected(A, rhs, bound, state, v, i)
            for i in range(n):
                state[i] = int(L[0, i])
        else:
            state[lowest] = _corrected(A, rhs, bound, state, v, lowest)


@njit(cache=True, error_model="numpy", inline="always")
def _corrected(A: FloatArray, rhs: FloatArray, bound: FloatArray, state: IntArray, v: FloatArray, i: int) -> int:
    """What joint i's state must be, given everybody's velocities."""
    if state[i] != STUCK:
        return STUCK if v[i] * state[i] < 0.0 else state[i]
    needed = rhs[i]
    for j in range(len(rhs)):
        needed -= A[i, j] * v[j]
    if needed > bound[i]:
        return SLIDING_FORWARD
    if needed < -bound[i]:
        return SLIDING_BACK
    return STUCK


@njit(cache=True, error_model="numpy", inline="always")
def _solve_sliding(
    A: FloatArray, rhs: FloatArray, bound: FloatArray, state: IntArray, v: FloatArray, L: FloatArray
) -> None:
    """Velocities with the stuck joints held at 0: Cholesky on the rows that slide."""
    n = len(rhs)
    for i in range(n):
        if state[i] == STUCK:
            v[i] = 0.0
            continue
        total = rhs[i] - bound[i] * state[i]
        for j in range(i):
            if state[j] == STUCK:
                continue
            s = A[i, j]
            for k in range(j):
                if state[k] != STUCK:
                    s -= L[i, k] * L[j, k]
            L[i, j] = s / L[j, j]
            total -= L[i, j] * v[j]
        s = A[i, i]
        for k in range(i):
            if state[k] != STUCK:
                s -= L[i, k] * L[i, k]
        L[i, i] = math.sqrt(s)
        v[i] = total / L[i, i]
    for i in range(n - 1, -1, -1):
        if state[i] == STUCK:
            continue
        total = v[i]
        for k in range(i + 1, n):
            if state[k] != STUCK:
                total -= L[k, i] * v[k]
        v[i] = total / L[i, i]


def stationary(n: int) -> IntArray:
    """A first guess for `solve_friction`: everything at rest, shape (n,)."""
    return np.zeros(n, dtype=np.int64)
