"""What was recorded of a robot: its recordings, and their samples back from the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Row, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import recordings, telemetry_batches
from app.database.telemetry import MAX_BATCH_SPAN_NS, unpack
from app.errors import NotFoundError
from app.telemetry import Recording, RobotId, SampleBatch, assemble_recording

LIVE_SPAN_NS: Final = 30 * 10**9
"""A live message's samples lie within so long of its stamp, either way [ns]."""

_PACKED: Final = tuple(telemetry_batches.c[name] for name in ("stamp_ns", "sample_count", "names", "layout", "data"))
_RECEIVED: Final = tuple(telemetry_batches.c[name] for name in ("received_ns", "stamp_ns", "identity"))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, `from_ns` included and `to_ns` not [nanoseconds since the epoch]."""

    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording without its samples: what one boot of a robot sent.

    Attributes:
        id: names it in requests.
        robot: whose.
        boot_id: as sent; '' holds what came without one.
        name: for people; '' if it has none.
        span: from its first sample to just after its last.
        samples: rows over all its messages; rows of one instant count each.
        created_at: when its first message was stored.
    """

    id: UUID
    robot: RobotId
    boot_id: str
    name: str
    span: Span
    samples: int
    created_at: datetime

    @property
    def title(self) -> str:
        """What to call it: its name, or else its boot id, or else its id."""
        return self.name or self.boot_id or str(self.id)


async def list_recordings(
    connection: AsyncConnection, robot: str, after: tuple[int, UUID] | None = None, limit: int = 100
) -> list[RecordingSummary]:
    """A robot's recordings, the latest first.

    Args:
        connection: to the database.
        robot: its id; one that isn't registered has none.
        after: `(span.to_ns, id)` of the last one already seen.
        limit: at most so many.
    """
    order = (recordings.c.last_ns.desc(), recordings.c.id.desc())
    statement = select(recordings).where(recordings.c.robot == robot).order_by(*order).limit(limit)
    if after is not None:
        to_ns, identifier = after
        statement = statement.where(tuple_(recordings.c.last_ns, recordings.c.id) < tuple_(to_ns - 1, identifier))
    return [_summary(row) for row in await connection.execute(statement)]


async def recordings_within(connection: AsyncConnection, robot: str, span: Span) -> list[RecordingSummary]:
    """The robot's recordings that may have samples within a stretch of time, the earliest first."""
    statement = (
        select(recordings)
        .where(
            recordings.c.robot == robot,
            recordings.c.last_ns >= _int64(span.from_ns),
            recordings.c.first_ns < _int64(span.to_ns),
        )
        .order_by(recordings.c.first_ns, recordings.c.id)
    )
    return [_summary(row) for row in await connection.execute(statement)]


async def get_recording(connection: AsyncConnection, robot: str, recording: UUID) -> RecordingSummary:
    """One recording of a robot.

    Raises:
        NotFoundError: if the robot has none of this id.
    """
    statement = select(recordings).where(recordings.c.id == recording, recordings.c.robot == robot)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise NotFoundError(f"recording of robot {robot!r}", str(recording))
    return _summary(row)


async def last_sample_ns(connection: AsyncConnection, robot: str) -> int | None:
    """When the robot's latest sample was taken [nanoseconds since the epoch]; None if it has none."""
    latest: int | None = await connection.scalar(
        select(func.max(recordings.c.last_ns)).where(recordings.c.robot == robot)
    )
    return latest


async def load_recording(connection: AsyncConnection, robot: str, recording: UUID) -> Recording:
    """A recording with its samples: equal to the one that was sent, whatever messages it came in.

    Raises:
        NotFoundError: if the robot has none of this id.
    """
    summary = await get_recording(connection, robot, recording)
    return assemble_recording(summary.title, await load_batches(connection, robot, summary.span, summary.boot_id))


async def load_window(connection: AsyncConnection, robot: str, span: Span) -> list[Recording]:
    """All samples of a robot within a stretch of time, a recording for each of its boots, the earliest first."""
    loaded = []
    for summary in await recordings_within(connection, robot, span):
        batches = await load_batches(connection, robot, span, summary.boot_id)
        if batches:
            loaded.append(assemble_recording(summary.title, batches))
    return loaded


async def load_latest(connection: AsyncConnection, robot: str, span: Span) -> list[Recording]:
    """The same as `load_window` for a short stretch of live telemetry, in one question that looks at little else.

    Messages whose stamp is more than `LIVE_SPAN_NS` from the stretch are left out: live ones are never so long.
    """
    b = telemetry_batches.c
    columns = (b.boot_id, *_PACKED)
    statement = select(*columns).where(b.robot == robot, *_within(span, LIVE_SPAN_NS)).order_by(*_RECEIVED)
    boots: dict[str, list[SampleBatch]] = {}
    for boot_id, *packed in await connection.execute(statement):
        boots.setdefault(boot_id, []).append(_cut(unpack(*packed), span))
    found = [
        assemble_recording(boot_id or robot, batches) for boot_id, batches in boots.items() if any(map(len, batches))
    ]
    return sorted(found, key=lambda recording: recording.origin_ns)


async def load_batches(
    connection: AsyncConnection, robot: str, span: Span, boot_id: str | None = None
) -> list[SampleBatch]:
    """Stored messages in the order of their receipt, cut to a stretch of time; those without a sample in it are absent.

    Args:
        connection: to the database.
        robot: its id.
        span: of the samples' own time.
        boot_id: only this boot's; None: all.
    """
    b = telemetry_batches.c
    # The key and the partitions know stamps; a batch's samples are within MAX_BATCH_SPAN_NS of its own.
    statement = select(*_PACKED).where(b.robot == robot, *_within(span, MAX_BATCH_SPAN_NS)).order_by(*_RECEIVED)
    if boot_id is not None:
        statement = statement.where(b.boot_id == boot_id)
    batches = (_cut(unpack(*row), span) for row in await connection.execute(statement))
    return [batch for batch in batches if len(batch)]


def _within(span: Span, around_ns: int) -> tuple[ColumnElement[bool], ...]:
    b = telemetry_batches.c
    return (
        b.stamp_ns >= _int64(span.from_ns - around_ns),
        b.stamp_ns < _int64(span.to_ns + around_ns),
        b.last_ns >= _int64(span.from_ns),
        b.first_ns < _int64(span.to_ns),
    )


def _int64(instant_ns: int) -> int:
    """The nearest instant that a column can hold: people ask from year 1 and until year 9999."""
    return max(-(2**63), min(instant_ns, 2**63 - 1))


def _cut(batch: SampleBatch, span: Span) -> SampleBatch:
    times = batch.stamp_ns + batch.dt_ns
    inside = (times >= span.from_ns) & (times < span.to_ns)
    if inside.all():
        return batch
    return SampleBatch(
        stamp_ns=batch.stamp_ns,
        dt_ns=batch.dt_ns[inside],
        names=batch.names,
        channels={name: values[inside] for name, values in batch.channels.items()},
        context={name: values[inside] for name, values in batch.context.items()},
    )


def _summary(row: Row[Any]) -> RecordingSummary:
    return RecordingSummary(
        id=row.id,
        robot=RobotId(row.robot),
        boot_id=row.boot_id,
        name=row.name,
        span=Span(row.first_ns, row.last_ns + 1),
        samples=row.samples,
        created_at=row.created_at,
    )
