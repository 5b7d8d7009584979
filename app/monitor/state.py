"""From scores over time to a state: ok, watch, drifted, idle, stale.

Evidence is gathered joint by joint as a cumulative sum (Page 1954, "Continuous inspection schemes") of the logarithm of
the score over `UNUSUAL`, in seconds of motion: a window speaks for drift or against it by at most its own length, so
that no single one, however wild, decides. Time counts while a joint moves; how often anyone looks doesn't matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from app.monitor.score import UNUSUAL, WindowScore
from app.registry.drift import STALE_AFTER_S, DriftState

__all__ = ["DriftState", "Standing", "next_standing"]

WATCH_S: Final = 4.0
"""Evidence of one joint at which a robot is watched [s of motion, each at least e times as high as `UNUSUAL`]."""
DRIFTED_S: Final = 10.0
"""Evidence of one joint at which a robot has drifted [s]."""
MOST_S: Final = 20.0
"""Evidence is kept up to here, so that a robot that is well again is not held to its past for long [s]."""
CLEARED_S: Final = 1.0
"""Evidence of every joint below which a robot is ok again [s]."""
IDLE_AFTER_S: Final = 30.0
"""A robot that sends telemetry and hasn't moved for so long is idle [s]."""

_EVIDENCE: Final = "evidence_s/"
_MOVED_AT: Final = "moved_at_s"
_HELD: Final = "held"
_HELD_SINCE: Final = "held_since_s"

_Held = Literal["ok", "watch", "drifted"]
_CODES: Final[tuple[_Held, ...]] = ("ok", "watch", "drifted")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a robot stands.

    Attributes:
        state: now.
        since: when it came into that state; a robot that moves again after it was idle or stale is in its former state
            since it first was.
        memory: what hysteresis and the detection of onset carry; numbers by name, so that a monitor that starts again
            goes on where it was.
    """

    state: DriftState
    since: datetime
    memory: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Findings:
    """What motion has shown, whether the robot moves now or not.

    Attributes:
        state: that it speaks for.
        since: when it came to that.
        moved_at: when it last moved enough to judge; None: never.
        evidence: of each joint for drift [s].
    """

    state: _Held
    since: datetime
    moved_at: datetime | None
    evidence: Mapping[str, float]


def next_standing(
    previous: Standing | None, score: WindowScore | None, now: datetime, last_telemetry: datetime | None
) -> Standing:
    """The standing after another look at a robot.

    Neither rest nor silence changes what motion has shown: a drifted robot that goes idle or stale is drifted again as
    soon as it moves, until its motion says otherwise.

    Args:
        previous: as stored; None for a version never looked at.
        score: of telemetry that came since; None where there was none, or none that can be judged.
        now: aware.
        last_telemetry: when telemetry last arrived; None: never.
    """
    findings = _recalled(previous, now)
    if score is not None and score.windows > 0:
        findings = _weighed(findings, score, now)
    state = _state(findings, now, last_telemetry)
    if state in _CODES:
        since = findings.since
    else:
        since = previous.since if previous is not None and previous.state == state else now
    return Standing(state, since, _memory(findings))


def _state(findings: _Findings, now: datetime, last_telemetry: datetime | None) -> DriftState:
    if last_telemetry is None or now - last_telemetry > timedelta(seconds=STALE_AFTER_S):
        return "stale"
    if findings.moved_at is None or now - findings.moved_at > timedelta(seconds=IDLE_AFTER_S):
        return "idle"
    return findings.state


def _weighed(findings: _Findings, score: WindowScore, now: datetime) -> _Findings:
    """Findings with the windows of one more score."""
    window_s = score.moving_s / score.windows
    evidence = dict(findings.evidence)
    state = findings.state
    for step in score.steps:
        for joint, ratio in step.items():
            evidence[joint] = _gathered(evidence.get(joint, 0.0), ratio, window_s)
        state = _held(state, max(evidence.values(), default=0.0))
    since = findings.since if state == findings.state and findings.moved_at is not None else now
    return _Findings(state, since, now, evidence)


def _gathered(evidence_s: float, ratio: float, window_s: float) -> float:
    """A joint's evidence after one more window."""
    loud = math.log(max(ratio, 1e-9) / UNUSUAL)
    return min(max(evidence_s + window_s * min(max(loud, -1.0), 1.0), 0.0), MOST_S)


def _held(state: _Held, most_s: float) -> _Held:
    """Up at once where the evidence reaches a threshold; down only when hardly any is left."""
    if most_s >= DRIFTED_S:
        return "drifted"
    if most_s < CLEARED_S:
        return "ok"
    return "watch" if most_s >= WATCH_S and state == "ok" else state


def _recalled(previous: Standing | None, now: datetime) -> _Findings:
    if previous is None or _HELD not in previous.memory:
        return _Findings("ok", now, None, {})
    memory = previous.memory
    moved_at = memory.get(_MOVED_AT)
    return _Findings(
        state=_CODES[int(memory[_HELD])],
        since=datetime.fromtimestamp(memory[_HELD_SINCE], UTC),
        moved_at=None if moved_at is None else datetime.fromtimestamp(moved_at, UTC),
        evidence={k.removeprefix(_EVIDENCE): v for k, v in memory.items() if k.startswith(_EVIDENCE)},
    )


def _memory(findings: _Findings) -> dict[str, float]:
    memory = {_HELD: float(_CODES.index(findings.state)), _HELD_SINCE: findings.since.timestamp()}
    if findings.moved_at is not None:
        memory[_MOVED_AT] = findings.moved_at.timestamp()
    return memory | {_EVIDENCE + joint: value for joint, value in findings.evidence.items() if value > 0.0}
