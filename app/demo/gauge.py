"""What the product says of a robot's drift, kept as it comes in."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from app.demo.client import ApiClient

KEPT: Final = 64
"""Scores: three minutes of them."""


@dataclass(slots=True)
class Gauge:
    """One robot's drift, as `GET …/drift` tells it.

    Attributes:
        robot: its id.
        state: ok, watch, drifted, idle or stale; empty before the monitor has looked at it.
        since: when it came into that state.
        version: which twin version is compared with the robot.
        score: the latest; None before the first one of this version.
        worst_joint: the joint that is furthest off.
        scores: the latest of the present version, each once.
        trace: the latest of all versions.
        highest: score of any version so far; None before the first.
        states: all that were seen.
    """

    robot: str
    state: str = ""
    since: datetime | None = None
    version: int | None = None
    score: float | None = None
    worst_joint: str | None = None
    scores: list[float] = field(default_factory=list)
    trace: list[float] = field(default_factory=list)
    highest: float | None = None
    states: set[str] = field(default_factory=set)
    _scored_at: str | None = None

    def look(self, api: ApiClient) -> None:
        """Ask again."""
        drift = api.find(f"/robots/{self.robot}/drift?limit=1")
        # Before the monitor has looked at it for the first time there is nothing to tell.
        if drift is not None and drift["telemetry_at"] is not None:
            self.take(drift)

    def take(self, drift: dict[str, Any]) -> None:
        """Take what was answered."""
        if drift["version"] != self.version:
            self.version, self.scores = drift["version"], []
        self.state, self.score, self.worst_joint = drift["state"], drift["score"], drift["worst_joint"]
        self.since = datetime.fromisoformat(drift["since"])
        self.states.add(self.state)
        if self.score is not None and drift["scored_at"] != self._scored_at:
            self._scored_at = drift["scored_at"]
            self.scores = [*self.scores, self.score][-KEPT:]
            self.trace = [*self.trace, self.score][-KEPT:]
            self.highest = max(self.highest or 0.0, self.score)
