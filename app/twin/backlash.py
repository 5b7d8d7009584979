"""Backlash: a gap between motor and link. The link stands still while the motor crosses it, and moves with it after.

A play operator in the gap's own coordinate: g = link − motor, within half the full gap on either side. The encoder is
on the link: in the gap it reads a joint that stands still, and the controller, which knows nothing else, gives the
torque it would give to that. All inertia moves with the motor; a mass that floats in the gap is another model.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from app.telemetry import FloatArray
from app.twin.actuator import held_torque
from app.twin.friction import BACKLASH

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
def in_contact(gap: float, v: float, half: float) -> bool:
    """Whether the link moves with a motor of this velocity."""
    return abs(gap) >= half and v * gap <= 0.0


@njit(cache=True, error_model="numpy")
def torque_across(
    q: FloatArray, v: FloatArray, gap: FloatArray, joint: FloatArray, command: FloatArray, out: FloatArray
) -> None:
    """Torque of a continuous controller at joints whose motor crosses its gap; NaN where it moves the link.

    Args:
        q: motor positions [rad], shape (n,).
        v: motor velocities [rad/s], shape (n,).
        gap: link − motor [rad], shape (n,).
        joint: joint parameters with the gap added to the encoder offset, shape (JOINT_ROWS, n).
        command: shape (n, COMMAND_COLUMNS).
        out: [N·m], shape (n,).
    """
    out[:] = 0.0
    held_torque(q, out, joint, command, out)  # of a link at rest: each element is read before it is written
    for i in range(len(q)):
        if in_contact(gap[i], v[i], 0.5 * joint[BACKLASH, i]):
            out[i] = np.nan
