"""Backlash: a gap between motor and link. The link stands still while the motor crosses it, and moves with it after.

A play operator in the gap's own coordinate: g = link − motor, within half the full gap on either side. The encoder is
on the link: in the gap it reads a joint that stands still, and the controller, which knows nothing else, gives the
torque it would give to that. All inertia moves with the motor; a mass that floats in the gap is another model.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from app.telemetry import FloatArray

SURELY_MOVING = 0.05
"""A joint this fast [rad/s or m/s] begins a rollout with its gap closed, a slower one less so, one at rest midway."""


def starting_gap(backlash: FloatArray, v: FloatArray) -> FloatArray:
    """Where links begin in their gaps: behind a motor that moves, in the middle at rest.

    Args:
        backlash: full gaps [rad or m].
        v: velocities [rad/s or m/s], same shape.
    """
    gap: FloatArray = -0.5 * backlash * np.clip(v / SURELY_MOVING, -1.0, 1.0)
    return gap


@njit(cache=True, error_model="numpy", inline="always")
def carried(gap: float, moved: float, half: float) -> float:
    """Where the link is in its gap after the motor has moved.

    Args:
        gap: link − motor before [rad].
        moved: by the motor [rad].
        half: of the full gap [rad].
    """
    return min(max(gap - moved, -half), half)


@njit(cache=True, error_model="numpy", inline="always")
def grip(gap: float, v: float, half: float, dt: float) -> float:
    """How much of a step the motor carries the link along, 0 to 1.

    A part of the step in which the gap closes, so that motions change smoothly with the gap.

    Args:
        gap: link − motor at the step's start [rad].
        v: the motor's velocity [rad/s].
        half: of the full gap [rad].
        dt: the step [s].
    """
    ahead = gap + half if v > 0.0 else half - gap  # way to go until the gap is closed
    if ahead <= 0.0 or (v == 0.0 and gap == -half):
        return 1.0
    moved = abs(v) * dt
    return 0.0 if moved <= ahead else 1.0 - ahead / moved


@njit(cache=True, error_model="numpy")
def grips(gap: FloatArray, v: FloatArray, backlash: FloatArray, dt: float, out: FloatArray) -> None:
    """`grip` of every joint, shape (n,) each."""
    for i in range(len(gap)):
        out[i] = grip(gap[i], v[i], 0.5 * backlash[i], dt)
