"""From segments to what is simulated and compared: training and hold-out stretches, disjoint by time or by log."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from app.calibration.plausibility import implausible_joints, keep_known_joints, plausibility_warnings
from app.calibration.recording import Commanded, read_commands
from app.calibration.turns import unwrap
from app.errors import FitImpossibleError, InvalidInputError
from app.telemetry import Channel, FloatArray, Recording, read_only
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from app.twin.joint_map import apply_joint_map
from app.twin.model import PLAIN, Structure, TwinModel, build_model
from app.twin.rollout import Motion

TORQUE_WINDOW_S = 1.0
"""Torque-driven robots run away from any twin: they are compared in windows of this length."""
MIN_STRETCH_S = 0.5
# Stretches end before the instant the next one begins at; a segment's last row belongs to it.
_INCLUSIVE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Stretch:
    """One rollout's worth of data: a motion to simulate and what was measured meanwhile.

    Attributes:
        log: name of the recording.
        motion: what to simulate.
        position: measured at `motion.t_out_s` [rad or m], NaN where missing or at a stop, shape (K, n).
        velocity: measured [rad/s or m/s], NaN where missing, shape (K, n).
        commanded: the recording it is cut from.
    """

    log: str
    motion: Motion
    position: FloatArray
    velocity: FloatArray
    commanded: Commanded

    def __post_init__(self) -> None:
        read_only(self.position)
        read_only(self.velocity)

    @property
    def duration_s(self) -> float:
        """Simulated time [s]."""
        return float(self.motion.t_out_s[-1] - self.motion.begin_s)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Everything a fit works on.

    Attributes:
        model: the robot's, for the joints and channels that the data hold.
        train: fitted.
        holdout: only judged; shares no instant with `train`.
        digest: of times, values, joint map and split.
        warnings: what is odd about the data, each naming its log or joint.
        variant: the robot's model with other laws; its joints, and so the stretches, are the same.
    """

    model: TwinModel
    train: tuple[Stretch, ...]
    holdout: tuple[Stretch, ...]
    digest: str
    warnings: tuple[str, ...]
    variant: Callable[[Structure], TwinModel]

    def with_structure(self, structure: Structure) -> Dataset:
        """The same data for a model with these laws."""
        return replace(self, model=self.variant(structure))


@dataclass(frozen=True, slots=True)
class Split:
    """Which part of the data is fitted.

    Attributes:
        from_s: cut each training log before this [s since its first row]; None: nothing.
        to_s: cut each training log after this [s]; None: nothing.
        holdout_fraction: of each training log, from its end, held out where no log is held out.
    """

    from_s: float | None = None
    to_s: float | None = None
    holdout_fraction: float = 0.25


def make_dataset(
    description: Description,
    declaration: RobotDeclaration,
    train: Sequence[Recording],
    holdout: Sequence[Recording],
    split: Split,
) -> Dataset:
    """Prepare recordings for a fit.

    Args:
        description: the robot's.
        declaration: checked against it.
        train: raw recordings to fit.
        holdout: raw recordings to judge by; empty holds out the end of each training recording.
        split: cuts and shares.

    Raises:
        LogError: naming a log whose joints aren't the description's.
        FitImpossibleError: when commands are missing or nothing is left to fit.
    """
    if not train:
        raise FitImpossibleError("there is no recording to fit")
    known, warnings = _in_si(description, declaration, train)
    judged, more = _in_si(description, declaration, holdout)
    variant = partial(build_model, description, declaration, _logged(known), _channels(known))
    model = variant(PLAIN)
    fitted: list[Stretch] = []
    kept: list[Stretch] = []
    for recording in known:
        commanded = read_commands(model, recording)
        begin, end = _cut(recording, split)
        last = math.inf if judged and split.to_s is None else end
        if not judged:
            last = end - split.holdout_fraction * (end - begin)
            kept += stretches(model, commanded, last, math.inf if split.to_s is None else end)
        fitted += stretches(model, commanded, begin, last)
    for recording in judged:
        kept += stretches(model, read_commands(model, recording), 0.0, math.inf)
    if not fitted:
        raise FitImpossibleError(f"no stretch of {MIN_STRETCH_S} s without a gap is left to fit")
    if not kept:
        raise FitImpossibleError(f"no stretch of {MIN_STRETCH_S} s without a gap is left to judge the fit by")
    return Dataset(
        model=model,
        train=tuple(fitted),
        holdout=tuple(kept),
        digest=_digest(declaration, train, holdout, split),
        warnings=warnings + tuple(w for w in more if w not in warnings),
        variant=variant,
    )


def judged_stretches(
    description: Description,
    declaration: RobotDeclaration,
    logs: Sequence[Recording],
    span: tuple[float | None, float | None],
    window_s: float | None,
    structure: Structure = PLAIN,
) -> tuple[TwinModel, tuple[Stretch, ...]]:
    """Prepare recordings to judge a twin by.

    Args:
        description: the robot's.
        declaration: checked against it.
        logs: raw recordings.
        span: judge from and to [s since each log's first row]; None: from its start, to its end.
        window_s: length of the windows; None: free runs (windows for torque-driven robots).
        structure: laws of the twin that is judged.

    Raises:
        InvalidInputError: when nothing is left.
    """
    known, _ = _in_si(description, declaration, logs)
    model = build_model(description, declaration, _logged(known), _channels(known), structure)
    begin = 0.0 if span[0] is None else span[0]
    parts: list[Stretch] = []
    for recording in known:
        end = math.inf if span[1] is None else span[1]
        parts += stretches(model, read_commands(model, recording), begin, end, window_s)
    if not parts:
        raise InvalidInputError("--from-s, --to-s", "leave nothing to judge", "a span within the logs")
    return model, tuple(parts)


def stretches(
    model: TwinModel, commanded: Commanded, begin_s: float, end_s: float, window_s: float | None = None
) -> list[Stretch]:
    """Cut a recording's segments to a span, and into windows where they are asked for or the robot needs them."""
    if window_s is None and model.controller in ("torque", "none"):
        window_s = TORQUE_WINDOW_S
    parts = []
    for first, last in commanded.segments.tolist():
        start = max(begin_s, float(commanded.t_s[first]))
        stop = min(end_s, float(commanded.t_s[last]) + _INCLUSIVE_S)
        for lower, upper in _windows(start, stop, window_s):
            parts.append(cut_stretch(commanded, lower, upper))
    return parts


def _windows(start: float, stop: float, window_s: float | None) -> Iterable[tuple[float, float]]:
    if window_s is None:
        return [(start, stop)] if stop - start >= MIN_STRETCH_S else []
    count = int((stop - start) / window_s + 1e-9)
    return [(start + i * window_s, start + (i + 1) * window_s) for i in range(count)]


def cut_stretch(commanded: Commanded, begin_s: float, end_s: float) -> Stretch:
    """The part of a recording from `begin_s` to before `end_s`, starting from its smoothed measured state."""
    rows = np.flatnonzero((commanded.t_s >= begin_s) & (commanded.t_s < end_s))
    q0, v0 = commanded.state_at(begin_s)
    motion = Motion(commanded.t_s, commanded.command, commanded.t_s[rows], begin_s, q0, v0)
    position = np.where(commanded.at_stop[rows], np.nan, commanded.position[rows])
    return Stretch(commanded.name, motion, position, commanded.velocity[rows], commanded)


def _in_si(
    description: Description, declaration: RobotDeclaration, recordings: Sequence[Recording]
) -> tuple[list[Recording], tuple[str, ...]]:
    """Recordings on the description's joints, in SI, without jumps at full turns; what is odd about them."""
    known: list[Recording] = []
    warnings: list[str] = []
    suspect: dict[str, str] = {}
    # by content, so that neither the order of logs nor where they came from changes a bit of the fit
    for raw in sorted(recordings, key=lambda r: r.digest()):
        recording, unknown = keep_known_joints(description, apply_joint_map(declaration, raw))
        recording = unwrap(description, recording)
        known.append(recording)
        warnings += [*unknown, *plausibility_warnings(description, recording)]
        suspect |= implausible_joints(description, recording)
    return [_without(recording, suspect) for recording in known], tuple(dict.fromkeys(warnings))


def _without(recording: Recording, suspect: Mapping[str, str]) -> Recording:
    """A recording less the joints whose values can't be right: left out rather than poisoning the others' fit.

    Raises:
        FitImpossibleError: when none is left.
    """
    kept = [i for i, name in enumerate(recording.names) if name not in suspect]
    if not kept:
        raise FitImpossibleError(f"{recording.name}: no joint's values can be right: {'; '.join(suspect.values())}")
    if len(kept) == len(recording.names):
        return recording
    return replace(
        recording,
        names=tuple(recording.names[i] for i in kept),
        channels={channel: values[:, kept] for channel, values in recording.channels.items()},
    )


def _logged(recordings: Sequence[Recording]) -> set[str]:
    """Joints whose position is measured in some recording."""
    joints: set[str] = set()
    for recording in recordings:
        if "position" in recording.channels:
            missing = np.all(np.isnan(recording.channels["position"]), axis=0)
            joints |= {name for name, none in zip(recording.names, missing.tolist(), strict=True) if not none}
    return joints


def _channels(recordings: Sequence[Recording]) -> set[Channel]:
    return {channel for recording in recordings for channel in recording.channels}


def _cut(recording: Recording, split: Split) -> tuple[float, float]:
    begin = max(0.0, split.from_s or 0.0)
    end = recording.duration_s if split.to_s is None else min(split.to_s, recording.duration_s)
    return begin, end


def _digest(
    declaration: RobotDeclaration, train: Sequence[Recording], holdout: Sequence[Recording], split: Split
) -> str:
    joints = {
        name: joint.model_dump(mode="json", exclude={"encoder"}) for name, joint in sorted(declaration.joints.items())
    }
    sha = hashlib.sha256(json.dumps({"joints": joints, "effort_unit": declaration.effort_unit}).encode())
    sha.update(json.dumps([split.from_s, split.to_s, None if holdout else split.holdout_fraction]).encode())
    for label, recordings in (("train", train), ("holdout", holdout)):
        sha.update(label.encode())
        for digest in sorted(recording.digest() for recording in recordings):
            sha.update(digest)
    return "sha256:" + sha.hexdigest()
