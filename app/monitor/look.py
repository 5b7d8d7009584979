"""One look at one robot: its new telemetry scored, and where that leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.monitor.baseline import Watched
from app.monitor.score import WindowScore, score_recording
from app.monitor.state import Standing, next_standing
from app.monitor.store import Due, instant
from app.monitor.windows import LEAD_S
from app.registry.drift import Drift
from app.registry.recordings import Span
from app.telemetry import Recording

HORIZON_NS: Final = 60 * 10**9
"""A look goes back no farther: a monitor that was away judges what is now, not all that it missed [ns]."""

COMMANDS_NS: Final = 2 * 10**9
"""How far before the new telemetry commands are read: one that came then is still obeyed [ns]."""

SETTLING_NS: Final = 3 * 10**8
"""The latest telemetry is left for the next look: of two streams, the other's part may still be on its way [ns]."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look gave.

    Attributes:
        found: to be stored.
        standing: the robot's new one.
        score: what it was made of; None where nothing was new or could be judged.
    """

    found: Drift
    standing: Standing
    score: WindowScore | None


def span_of(due: Due) -> Span:
    """The telemetry to look at: what came since the last look, and as much before as a window needs for its start."""
    to_ns = due.last_ns - SETTLING_NS
    from_ns = to_ns - HORIZON_NS
    known_ns = None if due.found is None else due.found.scored_ns
    if known_ns is not None:
        from_ns = max(from_ns, known_ns - max(COMMANDS_NS, round(LEAD_S * 1e9)))
    return Span(min(from_ns, to_ns), to_ns)


def arrived_at(due: Due, now: datetime, *, continuous: bool) -> datetime:
    """When the robot's latest telemetry arrived, by our clock.

    Args:
        due: the robot.
        now: aware.
        continuous: whether the last look at all robots was just before this one: what is new then is new now, however
            wrong the robot's clock is. Otherwise its stamp is all there is to go by.
    """
    known = due.found
    if known is not None and known.telemetry_ns == due.last_ns and known.telemetry_at is not None:
        return known.telemetry_at
    if continuous and known is not None:
        return now
    stamped = min(now, instant(due.last_ns))
    return stamped if known is None or known.telemetry_at is None else max(stamped, known.telemetry_at)


def score(watched: Watched, recordings: Sequence[Recording], after_ns: int | None) -> list[WindowScore]:
    """The scores of a robot's new telemetry, one a boot; none where there is no new window in it.

    Raises:
        TwincalError: if the telemetry can't be judged, or the twin can't be simulated.
    """
    scores = []
    for recording in recordings:
        scored = score_recording(watched, recording, after_ns)
        if after_ns is None or scored.stamp_ns > after_ns:
            after_ns = scored.stamp_ns
            scores.append(scored)
    return scores


def conclude(due: Due, scores: Sequence[WindowScore], telemetry_at: datetime, now: datetime) -> Seen:
    """Where scores leave a robot.

    Args:
        due: the robot, and what was found of it before.
        scores: of what is new, the earliest first; empty: nothing is.
        telemetry_at: when its latest telemetry arrived.
        now: aware.
    """
    found = due.found if due.found is not None and due.found.version == due.version else None
    standing = None if found is None else Standing(found.state, found.since, found.memory)
    latest = scores[-1] if scores else None
    for scored in scores or (None,):
        standing = next_standing(standing, scored, now, telemetry_at)
    assert standing is not None
    # What was looked at with the version before isn't looked at again: the new one is judged by what comes.
    seen_ns = latest.stamp_ns if latest is not None else due.found.scored_ns if due.found is not None else None
    result = Drift(
        version=due.version,
        state=standing.state,
        since=standing.since,
        scored_at=None if found is None else found.scored_at,
        scored_ns=seen_ns,
        score=None if found is None else found.score,
        worst_score=None if found is None else found.worst_score,
        worst_joint=None if found is None else found.worst_joint,
        per_joint={} if found is None else found.per_joint,
        memory=standing.memory,
        telemetry_ns=due.last_ns,
        telemetry_at=telemetry_at,
        recorded_at=None if found is None else found.recorded_at,
        reason=None,
        updated_at=now,
    )
    # While a robot rests, what was measured last stays: it is the time that is told.
    judged = next((scored for scored in reversed(scores) if scored.score is not None), None)
    if judged is not None:
        result = replace(
            result,
            scored_at=instant(judged.stamp_ns),
            score=judged.score,
            worst_score=judged.worst_score,
            worst_joint=judged.worst_joint,
            per_joint=dict(judged.per_joint),
        )
    return Seen(result, standing, latest)
