"""A motion that shows what a joint is like: slow reversals, fast swings, and poses all over the arm's range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.telemetry import FloatArray, IntArray, read_only
from app.twin.description import Description, Joint

RATE_HZ: Final = 200.0
REST_S: Final = 1.0
"""Standing still at the start, so that a run starts from a known state."""
RAMP_S: Final = 3.0
SPEED_SHARE: Final = 0.55
"""Of a joint's velocity limit: the highest commanded speed."""
RANGE_SHARE: Final = 0.42
"""Of the way from the middle of a joint's range to its limit: the slow sweep. The fast swings come on top."""
SWEEP_PERIODS_S: Final = (14.0, 9.0)
"""Two slow sines a joint: poses, gravity, and reversals at creeping speed."""
SWING_HZ: Final = (0.25, 1.7)
"""Fast sines, log-spaced in this range: speed for damping, acceleration for inertia and armature."""
SWINGS: Final = 4
BURST_PERIOD_S: Final = 16.0
"""The fast swings come and go with this period, out of step between joints, so that each joint also moves slowly."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Position commands, each held until the next row.

    Attributes:
        t_ns: time since the first row, evenly spaced, shape (T,).
        names: joint names; columns of `position`.
        position: [rad], shape (T, n).
    """

    t_ns: IntArray
    names: tuple[str, ...]
    position: FloatArray

    def __post_init__(self) -> None:
        read_only(self.t_ns)
        read_only(self.position)


def excitation(description: Description, seed: int, duration_s: float) -> Commands:
    """A smooth motion of every joint within its limits that lets friction, damping, inertia and gravity be told apart.

    Args:
        description: its revolute and prismatic joints need position and velocity limits.
        seed: of phases and frequencies.
        duration_s: whole length, at 200 rows a second.
    """
    rng = np.random.default_rng([seed, 7])
    joints = [j for j in description.joints.values() if j.type != "fixed" and j.mimic is None]
    t = np.arange(round(duration_s * RATE_HZ)) / RATE_HZ
    columns = [_joint_motion(joint, index / len(joints), t, rng) for index, joint in enumerate(joints)]
    return Commands(
        t_ns=np.arange(len(t), dtype=np.int64) * round(1e9 / RATE_HZ),
        names=tuple(j.name for j in joints),
        position=np.stack(columns, axis=1),
    )


def _joint_motion(joint: Joint, phase: float, t: FloatArray, rng: np.random.Generator) -> FloatArray:
    lower, upper, speed = joint.lower, joint.upper, joint.velocity_limit
    if lower is None or upper is None or speed is None:
        raise ValueError(f"joint {joint.name!r} needs position and velocity limits")
    half = 0.5 * (upper - lower)
    sweep = sum(
        rng.uniform(0.4, 0.6) * np.sin(2.0 * math.pi * (t / (period * rng.uniform(0.85, 1.15)) + rng.uniform()))
        for period in SWEEP_PERIODS_S
    )
    frequencies = np.geomspace(*SWING_HZ, SWINGS) * rng.uniform(0.85, 1.15, SWINGS)
    # Equal speeds: the amplitude falls with frequency.
    swings = sum(np.sin(2.0 * math.pi * (f * t + rng.uniform())) / (2.0 * math.pi * f) for f in frequencies)
    envelope = 0.5 - 0.5 * np.cos(2.0 * math.pi * (t / BURST_PERIOD_S + phase))
    swings = swings * np.clip(1.6 * envelope - 0.3, 0.0, 1.0) * speed * SPEED_SHARE / SWINGS
    ramp = np.clip((t - REST_S) / RAMP_S, 0.0, 1.0)
    ramp = ramp**3 * (10.0 - 15.0 * ramp + 6.0 * ramp**2)  # minimum jerk
    return np.asarray(0.5 * (lower + upper) + ramp * (RANGE_SHARE * half * sweep + swings), dtype=np.float64)
