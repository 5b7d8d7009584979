"""What was refused: listed, shown, and tried again once the reason is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Row, Select, bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.tables import dead_letters, unstamped_messages
from app.errors import NotFoundError
from app.ingest.intake import Intake, Message
from app.ingest.writer import Writer

PAGE: Final = 100
_REPLAY_BATCH: Final = 200
# Longer than any session at a broker, or dead letter, lasts.
_UNSTAMPED_FOR: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused message.

    Attributes:
        id: counts up with time.
        robot: of the topic; None where the topic names none.
        fleet: of the topic; None where the topic names none.
        topic: as received.
        content_type: as received.
        payload: as received; shorter than `payload_bytes` if it was cut.
        payload_bytes: of the message as it came.
        reason: one of the stable reasons.
        detail: one line: what is wrong, and what would be right.
        received_at: our clock.
        replayed_at: when it was stored after all.
    """

    id: int
    robot: str | None
    fleet: str | None
    topic: str
    content_type: str | None
    payload: bytes = field(repr=False)
    payload_bytes: int
    reason: str
    detail: str
    received_at: datetime
    replayed_at: datetime | None

    @property
    def is_whole(self) -> bool:
        """Whether the payload was kept in full, so that it can be tried again."""
        return len(self.payload) == self.payload_bytes


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters.

    Attributes:
        robot: of the topic; None: any.
        reason: None: any.
        ids: None: any.
    """

    robot: str | None = None
    reason: str | None = None
    ids: tuple[int, ...] | None = None


@dataclass(slots=True)
class Replayed:
    """What became of dead letters that were tried again.

    Attributes:
        stored: messages that are stored now.
        samples: rows of theirs.
        duplicates: messages that turned out to be stored already.
        refused: messages refused again, by reason.
    """

    stored: int = 0
    samples: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)


async def list_dead_letters(
    connection: AsyncConnection, selection: Selection, *, before_id: int | None = None, limit: int = PAGE
) -> list[DeadLetter]:
    """Dead letters, the newest first.

    Args:
        connection: to the database.
        selection: which.
        before_id: go on after this one, for paging.
        limit: the most to return.
    """
    query = _select(selection).order_by(dead_letters.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(dead_letters.c.id < before_id)
    return [_dead_letter(row) for row in await connection.execute(query)]


async def get_dead_letter(connection: AsyncConnection, identifier: int) -> DeadLetter:
    """One dead letter.

    Raises:
        NotFoundError: if there is none of this id, or no more.
    """
    row = (await connection.execute(_select(Selection(ids=(identifier,))))).first()
    if row is None:
        raise NotFoundError("dead letter", str(identifier), "they are kept for two weeks")
    return _dead_letter(row)


async def replay_dead_letters(engine: AsyncEngine, database_url: str, selection: Selection) -> Replayed:
    """Try refused messages again, the oldest first, as if they had just come; one that is stored is marked so.

    One refused again stays, with the reason of now. To be interrupted and repeated at will: what is stored already is
    told by its identity. Those that were cut are left out.

    Raises:
        CommitError: if the database refuses to store.
    """
    intake = Intake()
    replayed = Replayed()
    last_id = 0
    async with Writer(database_url, intake, keep_refused=False) as writer:
        while letters := await _next_page(engine, selection, last_id):
            last_id = letters[-1].id
            messages = [_message(letter) for letter in letters]
            outcome = await writer.store([intake.examine(message) for message in messages])
            replayed.stored += outcome.stored + outcome.announced
            replayed.samples += outcome.samples
            replayed.duplicates += outcome.duplicates
            again = {id(refused.message): refused for refused in outcome.refused}
            replayed.refused.update(refused.error.reason for refused in outcome.refused)
            verdicts = [
                {"letter": letter.id, "reason_now": refused.error.reason, "detail_now": str(refused.error)}
                for letter, message in zip(letters, messages, strict=True)
                if (refused := again.get(id(message)))
            ]
            stored = [letter.id for letter, message in zip(letters, messages, strict=True) if id(message) not in again]
            await _mark(engine, stored, verdicts)
    return replayed


async def forget_expired(connection: AsyncConnection) -> None:
    """Delete dead letters past their time, and the memory of unstamped messages that no broker still repeats."""
    column = dead_letters.c
    await connection.execute(delete(dead_letters).where(column.expires_at < func.now()))
    await connection.execute(
        delete(unstamped_messages).where(unstamped_messages.c.received_at < func.now() - _UNSTAMPED_FOR)
    )


async def _next_page(engine: AsyncEngine, selection: Selection, after_id: int) -> list[DeadLetter]:
    column = dead_letters.c
    query = (
        _select(selection)
        .where(column.id > after_id, column.replayed_at.is_(None), func.length(column.payload) == column.payload_bytes)
        .order_by(column.id)
        .limit(_REPLAY_BATCH)
    )
    async with engine.connect() as connection:
        return [_dead_letter(row) for row in await connection.execute(query)]


async def _mark(engine: AsyncEngine, stored: Sequence[int], verdicts: Sequence[dict[str, object]]) -> None:
    column = dead_letters.c
    async with engine.begin() as connection:
        if stored:
            await connection.execute(
                update(dead_letters).where(column.id.in_(stored)).values(replayed_at=func.now())
            )  # fmt: skip
        if verdicts:
            await connection.execute(
                update(dead_letters)
                .where(column.id == bindparam("letter"))
                .values(reason=bindparam("reason_now"), detail=bindparam("detail_now")),
                list(verdicts),
            )


def _message(letter: DeadLetter) -> Message:
    # The table keeps microseconds. The id in the digits below keeps receipts apart, and the same letter the same.
    received_us = int(letter.received_at.timestamp()) * 1_000_000 + letter.received_at.microsecond
    return Message(letter.topic, letter.payload, letter.content_type, received_us * 1000 + letter.id % 1000)


def _select(selection: Selection) -> Select[tuple[object, ...]]:
    column = dead_letters.c
    query: Select[tuple[object, ...]] = select(*(column[name] for name in DeadLetter.__dataclass_fields__))
    if selection.robot is not None:
        query = query.where(column.robot == selection.robot)
    if selection.reason is not None:
        query = query.where(column.reason == selection.reason)
    if selection.ids is not None:
        query = query.where(column.id.in_(selection.ids))
    return query


def _dead_letter(row: Row[tuple[object, ...]]) -> DeadLetter:
    return DeadLetter(**row._asdict())
