"""What a robot says of its connection: `{"state", "stamp"}`, retained, and its will."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import asyncpg

from app.ingest.payload import decode_object
from app.ingest.refusal import refusal, shown
from app.ingest.stamp import parse_stamp
from app.ingest.topic import ConnectionTopic
from app.ingest.values import read_mapping
from app.registry.connections import ConnectionState

STATES: Final[tuple[ConnectionState, ...]] = get_args(ConnectionState)
MAX_BYTES: Final = 4096

_FIELDS: Final[dict[str, object]] = dict.fromkeys(("state", "stamp"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The latest by the robot's stamp wins; of equal ones, as a will and the ONLINE of one connection may be, the last to
# come. A stamp from the future counts from its receipt, or a clock once set wrong would have the last word for ever.
#
# A will is as old as its connection, older than the ONLINE that it ends: a client library sends the one it was given
# when the program started, at every reconnection. For it the order of receipt decides, which on one topic is the
# broker's own.
_STORE: Final = """
INSERT INTO connections AS known (robot, state, stamp, received_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (robot) DO UPDATE SET
    state = excluded.state,
    stamp = greatest(excluded.stamp, least(known.stamp, known.received_at)),
    received_at = excluded.received_at
WHERE least(excluded.stamp, excluded.received_at) >= least(known.stamp, known.received_at)
   OR excluded.state = 'CONNECTIONBROKEN' AND excluded.received_at >= known.received_at
"""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A robot's word on its connection.

    Attributes:
        state: ONLINE, OFFLINE or CONNECTIONBROKEN.
        stamp_ns: the robot's, nanoseconds since the epoch; our receipt's where it gave 0.
        received_ns: our clock.
    """

    state: ConnectionState
    stamp_ns: int
    received_ns: int


def decode_announcement(payload: bytes, content_type: str | None, received_ns: int) -> Announcement:
    """Decode a message on a connection topic.

    Args:
        payload: as received, of a live message, a retained one or a will.
        content_type: MQTT 5 content type, if any.
        received_ns: our clock, nanoseconds since the epoch.

    Raises:
        TelemetryError: with one of the reasons of `app.ingest.refusal`.
    """
    fields = read_mapping(decode_object(payload, content_type, MAX_BYTES), "", _FIELDS)
    for name in _FIELDS:
        if name not in fields:
            raise refusal("missing_field", name, "is missing", '{"state", "stamp"}')
    state = next((known for known in STATES if known == fields["state"]), None)
    if state is None:
        raise refusal("bad_state", "state", f"{shown(fields['state'])} is not a state", ", ".join(STATES))
    return Announcement(state, parse_stamp(fields["stamp"]) or received_ns, received_ns)


async def store_announcements(
    connection: asyncpg.Connection[Any], announced: list[tuple[ConnectionTopic, Announcement]]
) -> None:
    """Write down what robots said, in the order it came, inside the caller's transaction."""
    # By robot, so that two ingesters can't wait for each other in a circle; a stable sort keeps each robot's order.
    rows = sorted(((topic.robot, a.state, _instant(a.stamp_ns), _instant(a.received_ns)) for topic, a in announced),
                  key=lambda row: row[0])  # fmt: skip
    await connection.executemany(_STORE, rows)


def _instant(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
