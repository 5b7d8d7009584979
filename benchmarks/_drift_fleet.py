"""Simulated robots for the benchmark of the drift monitor: their twins, their work, and what the monitor makes of it.

MuJoCo plays reality: the demonstration arm with two joints left to move, hidden truths drawn as for the demonstration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, Progress
from app.demo.arm import GAINS, arm_urdf
from app.demo.motion import Commands, excitation
from app.demo.reality import Reality, simulate
from app.demo.truth import Truth, draw_truth
from app.monitor.baseline import Watched, prepare
from app.monitor.score import score_recording
from app.monitor.state import Standing, next_standing
from app.monitor.windows import LEAD_S
from app.telemetry import FloatArray, Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, Joint, parse_urdf
from app.twin.document import seal

JOINTS: Final = ("shoulder_pitch", "elbow_pitch")
RATE_HZ: Final = 200.0
STEP_NS: Final = 500_000
LOOK_S: Final = 4.0
"""How often the monitor looks at a robot."""
START: Final = datetime(2026, 1, 1, tzinfo=UTC)

KINDS: Final = ("point to point, slow", "point to point, fast", "slow sines", "fast sines", "small and fast")
"""Other motions than the one a twin is fitted to, one kind a robot in turn."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the monitor said at one look.

    Attributes:
        moving_s: motion judged so far [s].
        state: of the robot.
        worst_score: of its worst joint since the look before.
        worst_joint: which that is.
    """

    moving_s: float
    state: str
    worst_score: float
    worst_joint: str


def arm() -> Description:
    """The demonstration arm with all but two joints fixed."""
    urdf = arm_urdf()
    for name in GAINS.keys() - set(JOINTS):
        urdf = urdf.replace(
            f'<joint name="{name}" type="revolute">'.encode(), f'<joint name="{name}" type="fixed">'.encode()
        )
    return parse_urdf(urdf)


def declaration() -> RobotDeclaration:
    """Declared position gains, as the demonstration's."""
    gains = {
        "kp": {name: GAINS[name].kp_nm_per_rad for name in JOINTS},
        "kd": {name: GAINS[name].kd_nm_s_per_rad for name in JOINTS},
    }
    return RobotDeclaration.model_validate(
        {"schema": "twincal.robot/1", "robot": "arm", "fleet": "arms", "controller": {"kind": "pd", **gains}}
    )


@dataclass(frozen=True, slots=True)
class Robot:
    """One robot with a calibrated twin.

    Attributes:
        description: without what is hidden.
        truth: what is hidden.
        watched: its twin.
        number: in its fleet.
        seed: of its fleet.
    """

    description: Description
    truth: Truth
    watched: Watched
    number: int
    seed: int

    def work(self, seconds: float) -> Commands:
        """A motion it was not calibrated with."""
        return another_motion(self.description, np.random.default_rng([self.seed, self.number, 23]), self.kind, seconds)

    @property
    def kind(self) -> str:
        """Of its other motion."""
        return KINDS[self.number % len(KINDS)]

    def healthy(self, seconds: float) -> list[Look]:
        """The monitor's looks while it works as it was calibrated."""
        truth = replace(self.truth, noise_seed=self.truth.noise_seed + 1)
        return looks(self.watched, simulate(self.description, GAINS, truth, self.work(seconds), step_ns=STEP_NS))

    def worn(self, joint: str, factor: float, after_s: float, seconds: float) -> list[Look]:
        """The monitor's looks while it works and one joint's friction changes on the way.

        Args:
            joint: which.
            factor: new friction over old.
            after_s: when it changes.
            seconds: how long it goes on after that.
        """
        drive = self.truth.drivetrains[joint]
        aged = replace(drive, coulomb_friction_nm=factor * drive.coulomb_friction_nm)
        worn = replace(self.truth, drivetrains={**self.truth.drivetrains, joint: aged})
        reality = Reality(self.description, GAINS, self.truth, step_ns=STEP_NS)
        commands = self.work(after_s + seconds)
        split = round(after_s * RATE_HZ)
        parts = [reality.follow(_rows(commands, slice(None, split)))]
        reality.become(worn)
        parts.append(reality.follow(_rows(commands, slice(split, None))))
        return looks(self.watched, _joined(parts, commands))


def make_robot(seed: int, number: int, fit_s: float) -> Robot:
    """Draw a robot, let it move, and calibrate it.

    Args:
        seed: of its fleet.
        number: in its fleet.
        fit_s: length of the motion its twin is fitted to; the last quarter is the hold-out.
    """
    description = arm()
    truth = draw_truth(description, seed, number)
    motion = excitation(description, 1000 * seed + number, fit_s)
    request = FitRequest(
        declaration=declaration(),
        description=description,
        train=(simulate(description, GAINS, truth, motion, step_ns=STEP_NS),),
        holdout=(),
        seed=0,
        budget_s=3600.0,
        active=None,
    )
    twin = seal(calibrate(request, _ignore).draft, 1, None, START)
    return Robot(description, truth, prepare(twin, declaration(), description), number, seed)


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def looks(watched: Watched, recording: Recording) -> list[Look]:
    """What a monitor says that looks every `LOOK_S`."""
    standing: Standing | None = None
    after_ns: int | None = None
    moving_s = 0.0
    found = []
    for end_s in np.arange(LOOK_S, recording.duration_s + LOOK_S, LOOK_S).tolist():
        latest = _between(recording, 0.0 if after_ns is None else after_ns * 1e-9 - LEAD_S, end_s)
        score = score_recording(watched, latest, after_ns)
        after_ns = score.stamp_ns
        now = START + timedelta(seconds=end_s)
        standing = next_standing(standing, score, now, now)
        moving_s += score.moving_s
        if score.worst_score is not None and score.worst_joint is not None:
            found.append(Look(moving_s, standing.state, score.worst_score, score.worst_joint))
    return found


def _between(recording: Recording, begin_s: float, end_s: float) -> Recording:
    rows = (recording.t_ns >= begin_s * 1e9) & (recording.t_ns < end_s * 1e9)
    t_ns = recording.t_ns[rows]
    return Recording(
        name=recording.name,
        origin_ns=recording.origin_ns + int(t_ns[0]),
        t_ns=t_ns - t_ns[0],
        names=recording.names,
        channels={channel: values[rows] for channel, values in recording.channels.items()},
        context={},
    )


def _rows(commands: Commands, rows: slice) -> Commands:
    t_ns = commands.t_ns[rows]
    return Commands(t_ns - t_ns[0], commands.names, commands.position[rows].copy())


def _joined(parts: list[Recording], commands: Commands) -> Recording:
    channels = {name: np.concatenate([part.channels[name] for part in parts]) for name in parts[0].channels}
    return Recording("work", 0, commands.t_ns.copy(), parts[0].names, channels, {})


def another_motion(description: Description, rng: np.random.Generator, kind: str, seconds: float) -> Commands:
    """A motion of one of `KINDS`."""
    joints = [joint for joint in description.joints.values() if joint.type != "fixed"]
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    match kind:
        case "point to point, slow":
            position = _point_to_point(joints, rng, t, 0.25)
        case "point to point, fast":
            position = _point_to_point(joints, rng, t, 0.8)
        case "slow sines":
            position = _sines(joints, rng, t, (0.08, 0.4, 0.5))
        case "fast sines":
            position = _sines(joints, rng, t, (0.9, 0.4, 0.8))
        case _:
            position = _sines(joints, rng, t, (2.5, 0.03, 0.3))
    return Commands(np.round(t * 1e9).astype(np.int64), tuple(joint.name for joint in joints), position)


def _range(joint: Joint) -> tuple[float, float, float]:
    """Middle, half width and speed limit."""
    assert joint.lower is not None
    assert joint.upper is not None
    assert joint.velocity_limit is not None
    return 0.5 * (joint.lower + joint.upper), 0.5 * (joint.upper - joint.lower), joint.velocity_limit


def _point_to_point(joints: list[Joint], rng: np.random.Generator, t: FloatArray, speed: float) -> FloatArray:
    """Minimum-jerk moves between poses all over the range, with rests of up to a second.

    Args:
        joints: which.
        rng: of poses and rests.
        t: times [s].
        speed: highest, as a share of the limit.
    """
    middle, half, limit = np.array([_range(joint) for joint in joints]).T
    here = middle + rng.uniform(-0.8, 0.8, len(joints)) * half
    position = np.tile(here, (len(t), 1))
    now = 0.5
    while now < t[-1]:
        there = middle + rng.uniform(-0.8, 0.8, len(joints)) * half
        duration = max(0.3, float((1.875 * np.abs(there - here) / (speed * limit)).max()))
        share = _minimum_jerk((t[t >= now] - now) / duration)[:, None]
        position[t >= now] = here + share * (there - here)
        here = there
        now += duration + rng.uniform(0.1, 1.0)
    return position


def _sines(
    joints: list[Joint], rng: np.random.Generator, t: FloatArray, what: tuple[float, float, float]
) -> FloatArray:
    """Two sines a joint about a pose, begun softly.

    Args:
        joints: which.
        rng: of poses, frequencies and phases.
        t: times [s].
        what: frequency [Hz], largest amplitude as a share of half the range, highest speed as a share of the limit.
    """
    columns = []
    for joint in joints:
        middle, half, limit = _range(joint)
        frequencies = what[0] * rng.uniform(0.7, 1.4) * np.array([1.0, 1.73])
        amplitudes = np.minimum(what[1] * half, what[2] * limit / (4.0 * math.pi * frequencies))
        phases = 2.0 * math.pi * (frequencies * t[:, None] + rng.uniform(size=2))
        swing = (amplitudes * np.sin(phases)).sum(axis=1)
        columns.append(middle + rng.uniform(-0.5, 0.5) * half + _minimum_jerk(t / 2.0) * (swing - swing[0]))
    return np.stack(columns, axis=1)


def _minimum_jerk(share: FloatArray) -> FloatArray:
    u = np.clip(share, 0.0, 1.0)
    smooth: FloatArray = u**3 * (10.0 - 15.0 * u + 6.0 * u * u)
    return smooth
