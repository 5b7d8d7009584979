"""A delivery into what will be stored of it: its row, or a dead letter."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import structlog

from app.database.telemetry import BatchOrigin, BatchRow, pack
from app.errors import TelemetryError
from app.ingest.announcement import Announcement, decode_announcement
from app.ingest.packet import Limits, Origin, decode_packet
from app.ingest.refusal import Reason, refusal
from app.ingest.topic import ConnectionTopic, TelemetryTopic, Topic, parse_topic

DEAD_LETTER_DAYS: Final = 14
# Too large to be replayed, so a beginning to recognise it by is enough.
_CUT_BYTES: Final = 4096

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came, from the broker or out of the dead letters.

    Attributes:
        topic: as received.
        payload: as received.
        content_type: MQTT 5 content type, if any.
        received_ns: our clock at first receipt, nanoseconds since the epoch.
    """

    topic: str
    payload: bytes
    content_type: str | None
    received_ns: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that can be stored, if its robot is registered."""

    message: Message
    topic: TelemetryTopic
    row: BatchRow


@dataclass(frozen=True, slots=True)
class Announced:
    """A robot's word on its connection, which can be stored if the robot is registered."""

    message: Message
    topic: ConnectionTopic
    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that can't be stored, and why."""

    message: Message
    error: TelemetryError
    topic: Topic | None = None


Examined = Accepted | Announced | Refused


class DeadLetterRow(NamedTuple):
    """A row of `dead_letters`, by the names of its columns."""

    robot: str | None
    fleet: str | None
    topic: str
    content_type: str | None
    payload: bytes
    payload_bytes: int
    reason: str
    detail: str
    received_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Intake:
    """Decodes messages; whatever is in them, it answers.

    Attributes:
        limits: how big a message may be.
    """

    limits: Limits = field(default_factory=Limits)

    def examine(self, message: Message) -> Examined:
        """Decode one message."""
        topic: Topic | None = None
        try:
            topic = parse_topic(message.topic)
            if isinstance(topic, ConnectionTopic):
                word = decode_announcement(message.payload, message.content_type, message.received_ns)
                return Announced(message, topic, word)
            origin = Origin(topic.fleet, topic.robot, topic.stream, message.received_ns, message.content_type)
            packet = decode_packet(message.payload, origin, self.limits)
            row = pack(
                packet.batch,
                BatchOrigin(
                    robot=topic.robot,
                    stream=packet.stream,
                    received_ns=message.received_ns,
                    boot_id=packet.boot_id,
                    seq=packet.seq,
                    flags=packet.flags,
                ),
            )
        except TelemetryError as error:
            return Refused(message, error, topic)
        except Exception as error:  # noqa: BLE001 - the outermost edge: nothing that arrives may stop the worker
            _log.exception("decoding failed", topic=message.topic, payload_bytes=len(message.payload))
            problem = f"our decoder failed: {type(error).__name__}"
            return Refused(message, refusal("internal_error", "payload", problem), topic)
        return Accepted(message, topic, row)

    def dead_letter(self, refused: Refused) -> DeadLetterRow:
        """The row that keeps a refused message; one too large for us is cut and can't be replayed."""
        message, topic = refused.message, refused.topic
        received_at = datetime.fromtimestamp(message.received_ns / 1e9, tz=UTC)
        cut = _CUT_BYTES if len(message.payload) > self.limits.payload_bytes else len(message.payload)
        return DeadLetterRow(
            robot=topic.robot if topic else None,
            fleet=topic.fleet if topic else None,
            topic=_storable(message.topic),
            content_type=None if message.content_type is None else _storable(message.content_type),
            payload=message.payload[:cut],
            payload_bytes=len(message.payload),
            reason=refused.error.reason,
            detail=_storable(str(refused.error)),
            received_at=received_at,
            expires_at=datetime.fromtimestamp(time.time(), tz=UTC) + timedelta(days=DEAD_LETTER_DAYS),
        )


def refuse(accepted: Accepted | Announced, reason: Reason, where: str, problem: str, remedy: str = "") -> Refused:
    """A message that was well formed and still can't be stored."""
    return Refused(accepted.message, refusal(reason, where, problem, remedy), accepted.topic)


def _storable(text: str, limit: int = 2000) -> str:
    """Text that Postgres takes, whatever was received."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:limit]
