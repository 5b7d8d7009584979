"""What the robots are asked to do: a motion that shows what a joint is like, and a day's work, which is another one."""

from __future__ import annotations

import math
from collections.abc import Iterator
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


WORK_SPEED_SHARE: Final = (0.2, 0.7)
"""Of a joint's velocity limit: the peak speed of a move at work; each move draws its own."""
WORK_RANGE_SHARE: Final = 0.6
"""Of the way from the middle of a joint's range to its limit: where work takes place."""
DWELL_S: Final = (0.1, 0.5)
"""At work, between two moves: gripping, letting go."""
MINIMUM_JERK_PEAK: Final = 1.875
"""Peak speed of a minimum-jerk move over its mean speed."""


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


def work(description: Description, seed: int, rows: int) -> Iterator[Commands]:
    """Moves from place to place, all joints at once, with short dwells between: pieces that follow each other for ever.

    Each piece's times count from its own first row.

    Args:
        description: its revolute and prismatic joints need position and velocity limits.
        seed: of places, speeds and dwells.
        rows: of each piece, at 200 rows a second.
    """
    rng = np.random.default_rng([seed, 13])
    joints = [j for j in description.joints.values() if j.type != "fixed" and j.mimic is None]
    ranges = np.array([_range(joint) for joint in joints])
    names = tuple(joint.name for joint in joints)
    times = round(1e9 / RATE_HZ) * np.arange(rows, dtype=np.int64)
    place = ranges[:, 0]
    ahead = np.tile(place, (round(REST_S * RATE_HZ), 1))
    while True:
        while len(ahead) < rows:
            target = ranges[:, 0] + WORK_RANGE_SHARE * ranges[:, 1] * rng.uniform(-1.0, 1.0, len(joints))
            ahead = np.vstack([ahead, _move(place, target, ranges[:, 2], rng)])
            place = target
        yield Commands(times, names, ahead[:rows].copy())
        ahead = ahead[rows:]


def _move(start: FloatArray, target: FloatArray, speed_limits: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One move and the dwell after it, shape (T, n)."""
    speeds = rng.uniform(*WORK_SPEED_SHARE) * speed_limits
    duration_s = float(np.max(MINIMUM_JERK_PEAK * np.abs(target - start) / speeds))
    t = np.arange(1, round((duration_s + rng.uniform(*DWELL_S)) * RATE_HZ) + 1) / RATE_HZ
    return start + _minimum_jerk(t / duration_s)[:, None] * (target - start)


def _minimum_jerk(share: FloatArray) -> FloatArray:
    """From 0 to 1 while `share` of the time goes from 0 to 1, without a jump in speed or acceleration."""
    s = np.clip(share, 0.0, 1.0)
    return np.asarray(s**3 * (10.0 - 15.0 * s + 6.0 * s**2))


def _range(joint: Joint) -> tuple[float, float, float]:
    """Middle and half width of a joint's range, and its highest speed."""
    lower, upper, speed = joint.lower, joint.upper, joint.velocity_limit
    if lower is None or upper is None or speed is None:
        raise ValueError(f"joint {joint.name!r} needs position and velocity limits")
    return 0.5 * (lower + upper), 0.5 * (upper - lower), speed


def _joint_motion(joint: Joint, phase: float, t: FloatArray, rng: np.random.Generator) -> FloatArray:
    middle, half, speed = _range(joint)
    sweep = sum(
        rng.uniform(0.4, 0.6) * np.sin(2.0 * math.pi * (t / (period * rng.uniform(0.85, 1.15)) + rng.uniform()))
        for period in SWEEP_PERIODS_S
    )
    frequencies = np.geomspace(*SWING_HZ, SWINGS) * rng.uniform(0.85, 1.15, SWINGS)
    # Equal speeds: the amplitude falls with frequency.
    swings = sum(np.sin(2.0 * math.pi * (f * t + rng.uniform())) / (2.0 * math.pi * f) for f in frequencies)
    envelope = 0.5 - 0.5 * np.cos(2.0 * math.pi * (t / BURST_PERIOD_S + phase))
    swings = swings * np.clip(1.6 * envelope - 0.3, 0.0, 1.0) * speed * SPEED_SHARE / SWINGS
    ramp = _minimum_jerk((t - REST_S) / RAMP_S)
    return np.asarray(middle + ramp * (RANGE_SHARE * half * sweep + swings), dtype=np.float64)
