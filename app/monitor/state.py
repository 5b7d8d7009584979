"""From scores over time to a state: ok, watch, drifted, idle, stale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.monitor.score import WindowScore

DriftState = Literal["ok", "watch", "drifted", "idle", "stale"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a robot stands.

    Attributes:
        state: now.
        since: when it came into that state.
        memory: what hysteresis and the detection of onset carry; numbers by name, so that a monitor that starts again
            goes on where it was.
    """

    state: DriftState
    since: datetime
    memory: Mapping[str, float]


def next_standing(
    previous: Standing | None, score: WindowScore | None, now: datetime, last_telemetry: datetime | None
) -> Standing:
    """The standing after another look at a robot.

    Args:
        previous: as stored; None for a version never looked at.
        score: of telemetry that came since; None where there was none, or none that can be judged.
        now: aware.
        last_telemetry: when telemetry last arrived; None: never.
    """
    raise NotImplementedError
