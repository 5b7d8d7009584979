"""The topics robots publish under, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.errors import InvalidInputError
from app.ingest.refusal import refusal, shown
from app.telemetry import FleetId, RobotId, parse_fleet_id, parse_robot_id

PREFIX: Final = "twincal/v1"
TELEMETRY_FILTER: Final = f"{PREFIX}/+/+/telemetry/#"
"""Takes in deeper topics too: they are refused where somebody can see it."""

MEASUREMENT_STREAM: Final = "joints"
"""The stream that our own publishers use; robots may name theirs as they like."""


_FORM: Final = f"{PREFIX}/{{fleet}}/{{robot}}/telemetry/{{stream}}"


@dataclass(frozen=True, slots=True)
class TelemetryTopic:
    """`twincal/v1/{fleet}/{robot}/telemetry/{stream}`."""

    fleet: FleetId
    robot: RobotId
    stream: str

    def __str__(self) -> str:
        return f"{PREFIX}/{self.fleet}/{self.robot}/telemetry/{self.stream}"


def parse_telemetry_topic(topic: str) -> TelemetryTopic:
    """What a telemetry topic says.

    Raises:
        TelemetryError: `bad_topic`, where it isn't one or an id in it breaks the grammar.
    """
    levels = topic.split("/")
    if len(levels) != 6 or levels[:2] != PREFIX.split("/") or levels[4] != "telemetry":
        raise refusal("bad_topic", "topic", f"{shown(topic)} is not a telemetry topic", _FORM)
    try:
        stream = str(parse_robot_id(levels[5], "stream"))
        return TelemetryTopic(parse_fleet_id(levels[2]), parse_robot_id(levels[3]), stream)
    except InvalidInputError as error:
        raise refusal("bad_topic", f"topic: {error.where}", error.problem, error.remedy) from error
