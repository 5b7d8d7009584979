"""One robot wore while the fleet worked: what the product was expected to do about it by itself, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.demo.verdict import Finding, RobotOutcome, share_that_holds

Step = Literal["steady", "wearing", "drifting", "raising", "fitting", "settling", "done"]
EXPECTED: Final[Mapping[Step, str]] = {
    "steady": "the drift of every robot becomes ok",
    "wearing": "the friction rises",
    "drifting": "the robot is called drifted",
    "raising": "the monitor raises a calibration",
    "fitting": "its version becomes active",
    "settling": "the drift of the new version becomes ok",
}
"""What ends each step."""


@dataclass(frozen=True, slots=True)
class RobotDrift:
    """What was seen of one robot's drift.

    Attributes:
        robot: its id.
        before: median score before the friction rose; None if it didn't.
        highest: score from then on; None without any.
        after: median score of the version that is served at the end; None before its first.
        versions: that were served at the beginning and at the end.
        raised: calibrations that the monitor has raised.
        drifted: whether it was ever called drifted.
    """

    robot: str
    before: float | None
    highest: float | None
    after: float | None
    versions: tuple[int | None, int | None]
    raised: int
    drifted: bool

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was raised about it."""
        return not self.drifted and self.raised == 0 and self.versions[0] == self.versions[1]


@dataclass(frozen=True, slots=True)
class WearOutcome:
    """How it went.

    Attributes:
        robot: the one that wore.
        missing: the step whose end was waited for in vain, or `done`.
        score_at_drift: when it was called drifted; None if it wasn't.
        worst_joint: as the monitor named it then.
        seconds: from the rise of the friction to each step's end, by step.
        drifts: of every robot.
        first: what its first calibration found, against the friction of that time.
        again: what the one that was raised found, against the risen friction; None if none was served.
        trail: its audit trail, oldest first.
    """

    robot: str
    missing: Step
    score_at_drift: float | None
    worst_joint: str | None
    seconds: Mapping[Step, float]
    drifts: tuple[RobotDrift, ...]
    first: RobotOutcome
    again: RobotOutcome | None
    trail: tuple[Mapping[str, Any], ...]

    @property
    def happened(self) -> bool:
        """Whether all of it happened, and nothing was raised about any other robot."""
        return self.missing == "done" and all(drift.is_quiet for drift in self.drifts if drift.robot != self.robot)

    @property
    def frictions(self) -> tuple[tuple[Finding | None, Finding], ...]:
        """What the first calibration found of each friction, if anything, and what the second did."""
        if self.again is None:
            return ()
        first = {finding.name: finding for finding in self.first.findings}
        return tuple((first.get(finding.name), finding) for finding in self.again.findings if finding.is_friction)

    @property
    def frictions_held(self) -> str:
        """In how many of the new version's frictions the interval holds the new truth."""
        return share_that_holds(finding for _, finding in self.frictions)


def wear_summary(outcome: WearOutcome) -> tuple[str, ...]:
    """The story in a few lines."""
    lines = []
    mine = next(drift for drift in outcome.drifts if drift.robot == outcome.robot)
    seconds = outcome.seconds
    if "drifting" in seconds:
        lines.append(
            f"{outcome.robot}: called drifted {seconds['drifting']:.0f} s after its friction rose, "
            f"score {_score(mine.before)} before, {_score(outcome.score_at_drift)} then"
        )
    if "fitting" in seconds:
        lines.append(
            f"calibrated again by itself: version {mine.versions[1]} active after {seconds['fitting']:.0f} s, "
            f"intervals hold the new frictions in {outcome.frictions_held}"
        )
    if "settling" in seconds:
        lines.append(f"score {_score(mine.after)} again after {seconds['settling']:.0f} s")
    if outcome.missing != "done":
        lines.append(f"what did not happen in time: {EXPECTED[outcome.missing]}")
    others = [drift for drift in outcome.drifts if drift.robot != outcome.robot]
    loud = [drift.robot for drift in others if not drift.is_quiet]
    if loud:
        lines.append(f"raised though nothing wore: {', '.join(loud)}")
    elif others:
        lines.append(f"the other {len(others)}, at the same work, raised nothing")
    return tuple(lines)


def _score(score: float | None) -> str:
    return "unknown" if score is None else f"{score:.2f}"
