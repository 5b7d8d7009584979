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
from app.monitor.baseline import Watched
from app.monitor.windows import moved_threshold, moving_windows, read_telemetry, travel
from app.telemetry import FloatArray, Recording

MIN_SAMPLES: Final = 10
"""A joint measured less often in a window isn't judged by it."""


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
        steps: `per_joint` of each of these windows, in order of time, for the detection of onset.
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
    after_s = 0.0 if after_ns is None else max(0.0, (after_ns - recording.origin_ns) * 1e-9)
    parts, end_s = moving_windows(watched, telemetry, after_s)
    stamp_ns = recording.origin_ns + round(end_s * 1e9)
    squares, counted = judged(watched, parts)
    counted_windows = counted.any(axis=1)
    names = watched.model.joints
    number = np.maximum(counted.sum(axis=0), 1)
    ratio = np.sqrt(np.where(counted, squares, 0.0).sum(axis=0) / number)
    per_joint = {name: float(ratio[j]) for j, name in enumerate(names) if counted[:, j].any()}
    worst = max(per_joint, key=lambda name: per_joint[name], default=None)
    windows = int(counted_windows.sum())
    return WindowScore(
        stamp_ns=max(stamp_ns, after_ns or stamp_ns),
        score=math.sqrt(sum(r * r for r in per_joint.values()) / len(per_joint)) if per_joint else None,
        worst_score=None if worst is None else per_joint[worst],
        worst_joint=worst,
        per_joint=per_joint,
        moving_s=windows * watched.window_s,
        windows=windows,
        steps=tuple(
            {names[j]: math.sqrt(squares[w, j]) for j in np.flatnonzero(counted[w]).tolist()}
            for w in np.flatnonzero(counted_windows).tolist()
        ),
    )


def judged(watched: Watched, parts: Sequence[Stretch]) -> tuple[FloatArray, BoolArray]:
    """Mean square error over squared baseline of each window and joint, and where it counts, shape (W, n) each.

    A joint counts in a window in which it moved, or would have moved had it been like its twin.
    """
    n = len(watched.model.joints)
    squares, counted = np.full((len(parts), n), math.nan), np.zeros((len(parts), n), dtype=np.bool_)
    if not parts:
        return squares, counted
    positions = judge.simulated(watched.model, parts, watched.values)
    threshold = moved_threshold(watched)
    for row, (part, position, error) in enumerate(zip(parts, positions, judge.errors(parts, positions), strict=True)):
        seen = ~np.isnan(error)
        enough = seen.sum(axis=0) >= MIN_SAMPLES
        moved = (travel(part.position) > threshold) | (travel(position) > threshold)
        counted[row] = enough & moved & ~np.isnan(watched.baseline)
        mean = np.where(seen, error**2, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        squares[row] = mean / watched.baseline**2
    return squares, counted
