"""One joint by textbook: an integrator that shares nothing with the twin's, so that it can play reality.

Explicit midpoint steps of 0.1 ms; dry friction by its definition: it holds a joint that is slower than it can stop in a
step and whose torque it can bear, and else opposes its motion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.telemetry import FloatArray

DT_S = 1e-4
INERTIA_KG_M2 = 0.02 + 2.0 * 0.1**2
GRAVITY_NM = 2.0 * 9.81 * 0.1
"""Both of `tests.planted.hanging_joint`, about its axis; the torque is with the link level."""


@dataclass(frozen=True, slots=True)
class Motor:
    """What the joint adds to its link; SI."""

    armature: float
    damping: float
    coulomb: float


Drive = Callable[[int, float, float], float]
"""Motor torque [N·m] from the row of the log whose command is in force, the angle and the speed."""


def swing(motor: Motor, drive: Drive, t_s: FloatArray, latency_s: float, q0: float = 0.0) -> FloatArray:
    """Angles at the rows of a log [rad], shape (T,).

    Args:
        motor: the joint.
        drive: the motor's torque.
        t_s: rows; row k's command is in force from `t_s[k]` + latency to the next row's; the first one before.
        latency_s: of commands.
        q0: where it starts, at rest [rad].
    """
    inertia = INERTIA_KG_M2 + motor.armature
    steps = round(float(t_s[-1]) / DT_S) + 1
    at = np.maximum(np.searchsorted(t_s, np.arange(steps) * DT_S - latency_s + 1e-12, side="right") - 1, 0).tolist()
    angles = np.zeros(steps)
    q, v = q0, 0.0

    def pull(row: int, angle: float, speed: float) -> float:
        return drive(row, angle, speed) - GRAVITY_NM * float(np.sin(angle)) - motor.damping * speed

    for step in range(steps):
        angles[step] = q
        middle = pull(at[step], q + 0.5 * DT_S * v, v)
        free = v + DT_S * middle / inertia
        stop = DT_S * motor.coulomb / inertia
        after = 0.0 if abs(free) <= stop else free - np.sign(free) * stop
        q += 0.5 * DT_S * (v + after)
        v = after
    rows = np.round(t_s / DT_S).astype(int)
    return np.asarray(angles[rows])
