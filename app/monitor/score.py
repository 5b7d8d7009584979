"""How far a robot's latest motion is from its twin, beside how far a healthy robot's is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration import judge
from app.calibration.dataset import Stretch
from app.calibration.recording import BoolArray
from app.monitor.baseline import DRAW_STEP, Watched
from app.monitor.windows import Window, moved_threshold, moving_windows, read_telemetry, travel
from app.telemetry import FloatArray, Recording
from app.twin.rollout import rollout

UNUSUAL: Final = 1.75
"""Multiple of what is expected of a healthy joint above which its error speaks for drift, below it against."""
POSTERIOR_SDS: Final = 2.0
"""Parameters are believed to be within so many standard deviations of their posterior."""
CLOSER_LOOKS: Final = 5
"""Of more unusual windows than this in one recording only so many are looked at more closely, evenly spread: the others
expect as much as the most of these, so that a fleet that drifts all at once doesn't keep its monitor busy for long."""
MEDIAN_SQUARE: Final = 0.455
"""Median of a squared standard normal variable."""
MIN_SAMPLES: Final = 10
"""A joint measured less often in a window isn't judged by it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Windows beside what is expected, shape (W, n) each, 0 where a joint doesn't count.

    Attributes:
        square: mean square error over the squared baseline.
        unexpected: mean square error over what is expected of a healthy robot on the window's motion.
        counted: where a joint counts.
    """

    square: FloatArray
    unexpected: FloatArray
    counted: BoolArray


@dataclass(frozen=True, slots=True)
class WindowScore:
    """The drift score of a robot's latest moving windows.

    Attributes:
        stamp_ns: end of the latest complete window looked at, moving or not, nanoseconds since the epoch: the next
            `after_ns`.
        score: root mean square over the counted joints of `per_joint`; None where nothing moved enough to judge.
        worst_score: the highest of `per_joint`; None as above.
        worst_joint: its joint; None as above.
        per_joint: RMS error over the windows in which the joint moved ÷ the version's baseline, of the joints that
            moved.
        moving_s: length of the windows in which some joint moved [s].
        windows: their number.
        steps: per window, in order of time, of each joint that moved, RMS error ÷ what is expected of a healthy robot
            on this motion: what the detection of onset goes by.
    """

    stamp_ns: int
    score: float | None
    worst_score: float | None
    worst_joint: str | None
    per_joint: Mapping[str, float]
    moving_s: float
    windows: int
    steps: tuple[Mapping[str, float], ...] = ()


def score_recording(watched: Watched, recording: Recording, after_ns: int | None) -> WindowScore:
    """Score the windows of a recording that begin after an instant.

    Args:
        watched: from `prepare`.
        recording: the robot's latest raw telemetry, with the commands it recorded; should begin `LEAD_S` before
            `after_ns`, because a window starts from a smoothed state.
        after_ns: windows that begin before it were scored already, nanoseconds since the epoch; None: none were.

    Raises:
        LogError: when no joint of the recording is the description's.
        FitImpossibleError: when a joint of the twin isn't measured, or the commands its controller follows are missing.
    """
    telemetry = read_telemetry(watched, recording)
    known_ns = recording.origin_ns if after_ns is None else max(after_ns, recording.origin_ns)
    windows, end_ns = moving_windows(watched, telemetry, known_ns - recording.origin_ns)
    found = judged(watched, windows)
    counted = found.counted
    names = watched.model.joints
    ratio = np.sqrt(found.square.sum(axis=0) / np.maximum(counted.sum(axis=0), 1))
    per_joint = {name: float(ratio[j]) for j, name in enumerate(names) if counted[:, j].any()}
    worst = max(per_joint, key=lambda name: per_joint[name], default=None)
    moving = np.flatnonzero(counted.any(axis=1)).tolist()
    return WindowScore(
        stamp_ns=recording.origin_ns + end_ns,
        score=math.sqrt(sum(r * r for r in per_joint.values()) / len(per_joint)) if per_joint else None,
        worst_score=None if worst is None else per_joint[worst],
        worst_joint=worst,
        per_joint=per_joint,
        moving_s=len(moving) * watched.window_s,
        windows=len(moving),
        steps=tuple(
            {names[j]: math.sqrt(found.unexpected[w, j]) for j in np.flatnonzero(counted[w]).tolist()} for w in moving
        ),
    )


def judged(watched: Watched, windows: Sequence[Window]) -> Judged:
    """Judge windows.

    A joint counts in a window in which it moved, or would have moved had it been like its twin.
    """
    n = len(watched.model.joints)
    parts = [window.stretch for window in windows]
    square, counted = np.zeros((len(parts), n)), np.zeros((len(parts), n), dtype=np.bool_)
    if not parts:
        return Judged(square, square, counted)
    positions = judge.simulated(watched.model, parts, watched.values)
    threshold = moved_threshold(watched)
    for row, (part, position, error) in enumerate(zip(parts, positions, judge.errors(parts, positions), strict=True)):
        seen = ~np.isnan(error)
        moved = (travel(part.position) > threshold) | (travel(position) > threshold)
        counted[row] = windows[row].told & moved & (seen.sum(axis=0) >= MIN_SAMPLES) & ~np.isnan(watched.baseline)
        square[row] = np.where(seen, error**2, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    square = np.where(counted, square / watched.baseline**2, 0.0)
    return Judged(square, square / _expected(watched, parts, positions, square), counted)


def _expected(
    watched: Watched, parts: Sequence[Stretch], positions: Sequence[FloatArray], square: FloatArray
) -> FloatArray:
    """Mean square error that a healthy robot may have on each window's motion, over the squared baseline, shape (W, n).

    The version's baseline, and what its fit left open of the parameters that this motion shows: another motion shows
    others. Looked at only where the error is beyond `UNUSUAL` baselines; 1 elsewhere.
    """
    expected = np.ones_like(square)
    unusual = np.flatnonzero((square > UNUSUAL**2).any(axis=1))
    if not len(unusual):
        return expected
    closely = unusual[:: math.ceil(len(unusual) / CLOSER_LOOKS)]
    drawn = rollout(watched.model, [parts[row].motion for row in closely.tolist()], watched.draws)
    for row, trajectory in zip(closely.tolist(), drawn, strict=True):
        away = np.nan_to_num(trajectory.position, nan=judge.DIVERGED_RAD) - positions[row]
        # nothing is expected of a twin that runs away itself; of draws the median, so that one that does excuses little
        square_away = (np.nan_to_num(away / DRAW_STEP) ** 2).mean(axis=1)
        variance = np.median(square_away, axis=0) / MEDIAN_SQUARE
        expected[row] += POSTERIOR_SDS**2 * variance / watched.baseline**2
    expected[np.setdiff1d(unusual, closely)] = expected[closely].max(axis=0)
    return np.where(np.isnan(expected), 1.0, expected)
