"""How far a robot's latest motion is from its twin, beside how far a healthy robot's is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.monitor.baseline import Watched
from app.telemetry import Recording


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
        evidence: per joint, see `app.monitor.state`.
    """

    stamp_ns: int
    score: float | None
    worst_score: float | None
    worst_joint: str | None
    per_joint: Mapping[str, float]
    moving_s: float
    windows: int
    evidence: Mapping[str, float] = field(default_factory=dict)


def score_recording(watched: Watched, recording: Recording, after_ns: int | None) -> WindowScore:
    """Score the windows of a recording that begin after an instant.

    Args:
        watched: from `prepare`.
        recording: the robot's latest raw telemetry, with the commands it recorded; should begin `LEAD_S` before
            `after_ns`, because a window starts from a smoothed state.
        after_ns: windows that begin before it were scored already, nanoseconds since the epoch; None: none were.

    Raises:
        FitImpossibleError: when the commands that the declared controller follows, or positions, are missing.
    """
    raise NotImplementedError
