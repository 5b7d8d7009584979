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
CONNECTION_FILTER: Final = f"{PREFIX}/+/+/connection"

MEASUREMENT_STREAM: Final = "joints"
"""The stream that our own publishers use; robots may name theirs as they like."""


_FORM: Final = f"{PREFIX}/{{fleet}}/{{robot}}/telemetry/{{stream}}"
_CONNECTION: Final = "connection"


@dataclass(frozen=True, slots=True)
class TelemetryTopic:
    """`twincal/v1/{fleet}/{robot}/telemetry/{stream}`."""

    fleet: FleetId
    robot: RobotId
    stream: str

    def __str__(self) -> str:
        return f"{PREFIX}/{self.fleet}/{self.robot}/telemetry/{self.stream}"


@dataclass(frozen=True, slots=True)
class ConnectionTopic:
    """`twincal/v1/{fleet}/{robot}/connection`."""

    fleet: FleetId
    robot: RobotId

    def __str__(self) -> str:
        return f"{PREFIX}/{self.fleet}/{self.robot}/{_CONNECTION}"


Topic = TelemetryTopic | ConnectionTopic


def is_connection_topic(topic: str) -> bool:
    """Whether a topic is one on which robots tell of their connection."""
    levels = topic.split("/")
    return len(levels) == 5 and levels[:2] == PREFIX.split("/") and levels[4] == _CONNECTION


def parse_topic(topic: str) -> Topic:
    """What a topic of ours says.

    Raises:
        TelemetryError: `bad_topic`, where it is neither of the two or an id in it breaks the grammar.
    """
    if not is_connection_topic(topic):
        return parse_telemetry_topic(topic)
    levels = topic.split("/")
    try:
        return ConnectionTopic(parse_fleet_id(levels[2]), parse_robot_id(levels[3]))
    except InvalidInputError as error:
        raise refusal("bad_topic", f"topic: {error.where}", error.problem, error.remedy) from error


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
