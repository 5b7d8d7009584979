"""Messages into the database: all of a batch in one transaction, each stored once, none lost to its neighbour."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import asyncpg
import structlog
from asyncpg import exceptions as pg

from app.database.engine import plain_url
from app.database.telemetry import BatchRow
from app.errors import ServiceError
from app.ingest.announcement import store_announcements
from app.ingest.intake import Accepted, Announced, DeadLetterRow, Examined, Intake, Refused, refuse
from app.ingest.registrations import Registrations
from app.metrics import ingest_commit_failures, ingest_commit_seconds

_CONNECT_WAIT_S: Final = 10.0
_STATEMENT_WAIT_S: Final = 60.0
_PING_WAIT_S: Final = 2.0
_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0

_COLUMNS: Final = ", ".join(BatchRow._fields)
_STAGE: Final = "CREATE TEMPORARY TABLE incoming (LIKE telemetry_batches) ON COMMIT DELETE ROWS"

# Rows that are there already are repeats. Recordings grow by what is new alone, in the order of their key, so that two
# ingesters can't wait for each other in a circle.
_STORE: Final = f"""
WITH fresh AS (
    INSERT INTO telemetry_batches ({_COLUMNS}) SELECT {_COLUMNS} FROM incoming
    ON CONFLICT DO NOTHING
    RETURNING robot, boot_id, first_ns, last_ns, sample_count
), grown AS (
    SELECT robot, boot_id, min(first_ns) AS first_ns, max(last_ns) AS last_ns, sum(sample_count) AS samples,
           count(*) AS messages
    FROM fresh GROUP BY robot, boot_id
), kept AS (
    INSERT INTO recordings (robot, boot_id, first_ns, last_ns, samples)
    SELECT robot, boot_id, first_ns, last_ns, samples FROM grown ORDER BY robot, boot_id
    ON CONFLICT (robot, boot_id) DO UPDATE SET
        first_ns = least(recordings.first_ns, excluded.first_ns),
        last_ns = greatest(recordings.last_ns, excluded.last_ns),
        samples = recordings.samples + excluded.samples
)
SELECT coalesce(sum(messages), 0)::bigint AS messages, coalesce(sum(samples), 0)::bigint AS samples FROM grown
"""  # noqa: S608 - column names of our own

_CLAIM: Final = """
INSERT INTO unstamped_messages (robot, identity, received_at)
SELECT robot, identity, now() FROM unnest($1::text[], $2::bytea[]) AS claimed (robot, identity)
ON CONFLICT DO NOTHING RETURNING robot, identity
"""

# The row's own fault: another attempt would fail the same, and the rows around it are fine. ValueError is what asyncpg
# raises for values that it can't encode.
_ROW_ERRORS: Final = (
    pg.DataError,
    pg.IntegrityConstraintViolationError,
    pg.ProgramLimitExceededError,
    pg.PLPGSQLError,
    ValueError,
    OverflowError,
)
# The server's or the network's: the same batch will go through later.
_TRANSIENT_ERRORS: Final = (
    OSError,
    TimeoutError,
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.InsufficientResourcesError,
    pg.TransactionRollbackError,
    pg.ObjectNotInPrerequisiteStateError,
    pg.InterfaceError,
)
_LASTING_ERRORS: Final = (pg.PostgresError, pg.InternalClientError)

_log = structlog.get_logger(__name__)


class CommitError(ServiceError):
    """A batch that the database refuses for a reason that neither waiting nor leaving a row out will heal."""


@dataclass(slots=True)
class Outcome:
    """What became of messages.

    Attributes:
        stored: messages of telemetry that are new.
        samples: rows of theirs.
        duplicates: messages that were stored before.
        announced: messages about robots' connections.
        refused: messages that are dead letters.
    """

    stored: int = 0
    samples: int = 0
    duplicates: int = 0
    announced: int = 0
    refused: list[Refused] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take in another part's outcome."""
        self.stored += other.stored
        self.samples += other.samples
        self.duplicates += other.duplicates
        self.announced += other.announced
        self.refused += other.refused


class Writer:
    """Stores examined messages, through one connection of its own that it opens anew when it breaks.

    Args:
        database_url: where.
        intake: makes dead letters of what is refused here.
        keep_refused: whether refused messages become dead letters; not where they already are.
    """

    def __init__(self, database_url: str, intake: Intake, *, keep_refused: bool = True) -> None:
        self._url = plain_url(database_url)
        self._intake = intake
        self._keep_refused = keep_refused
        self._registrations = Registrations()
        self._connection: asyncpg.Connection[Any] | None = None
        self.trouble = "nothing was stored yet"

    @property
    def is_ready(self) -> bool:
        """Whether the last commit went through."""
        return not self.trouble

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._disconnect()

    async def store(self, examined: Sequence[Examined]) -> Outcome:
        """Store messages; waits as long as the database is away.

        Raises:
            CommitError: if the database refuses for good. Nothing of the batch, or some of its parts, is stored.
        """
        attempt = 0
        while True:
            try:
                outcome = await self._store_or_split(examined)
            except _TRANSIENT_ERRORS as error:
                self.trouble = _one_line(error)
                ingest_commit_failures.labels(kind="transient").inc()
                await self._disconnect()
                wait_s = min(_FIRST_RETRY_S * 2**attempt, _LONGEST_RETRY_S) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                _log.warning("database away, trying again", error=_one_line(error), retry_in_s=round(wait_s, 2))
                await asyncio.sleep(wait_s)
                attempt += 1
            except _LASTING_ERRORS as error:
                self.trouble = _one_line(error)
                ingest_commit_failures.labels(kind="lasting").inc()
                await self._disconnect()
                raise CommitError(f"database: refuses a batch: {_one_line(error)}") from error
            else:
                self.trouble = ""
                return outcome

    async def ping(self) -> str:
        """What is wrong with the database right now, by a connection of its own; empty: nothing.

        While no messages come, the last commit says nothing of it.
        """
        try:
            async with asyncio.timeout(_PING_WAIT_S):
                connection = await asyncpg.connect(self._url)
                try:
                    await connection.execute("SELECT 1")
                finally:
                    await connection.close()
        except TimeoutError:
            return f"no answer within {_PING_WAIT_S:g} s"
        except (*_TRANSIENT_ERRORS, *_LASTING_ERRORS) as error:
            return _one_line(error)
        return ""

    async def _store_or_split(self, examined: Sequence[Examined]) -> Outcome:
        """Store all, or halve until the row that can't be stored stands alone and becomes a dead letter."""
        try:
            return await self._store_once(examined)
        except _ROW_ERRORS as error:
            ingest_commit_failures.labels(kind="row").inc()
            outcome = Outcome()
            if len(examined) > 1:
                middle = len(examined) // 2
                outcome.add(await self._store_or_split(examined[:middle]))
                outcome.add(await self._store_or_split(examined[middle:]))
                return outcome
            (item,) = examined
            if isinstance(item, Refused):
                raise CommitError(f"database: refuses a dead letter: {_one_line(error)}") from error
            _log.warning("a message can't be stored", robot=item.topic.robot, error=_one_line(error))
            return await self._store_once([refuse(item, "not_storable", "payload", _one_line(error))])

    async def _store_once(self, examined: Sequence[Examined]) -> Outcome:
        connection = await self._connect()
        robots = [item.topic.robot for item in examined if not isinstance(item, Refused)]
        await self._registrations.refresh(connection, robots)
        checked = [item if isinstance(item, Refused) else self._registrations.check(item) for item in examined]
        outcome = Outcome(refused=[item for item in checked if isinstance(item, Refused)])
        rows = [item.row for item in checked if isinstance(item, Accepted)]
        words = [(item.topic, item.announcement) for item in checked if isinstance(item, Announced)]
        outcome.announced = len(words)
        start_s = time.perf_counter()
        async with connection.transaction():
            if rows:
                await _store_rows(connection, rows, outcome)
            if words:
                await store_announcements(connection, words)
            if outcome.refused and self._keep_refused:
                letters = [self._intake.dead_letter(item) for item in outcome.refused]
                await connection.copy_records_to_table("dead_letters", records=letters, columns=DeadLetterRow._fields)
        ingest_commit_seconds.observe(time.perf_counter() - start_s)
        return outcome

    async def _connect(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            connection = await asyncpg.connect(
                self._url,
                timeout=_CONNECT_WAIT_S,
                command_timeout=_STATEMENT_WAIT_S,
                server_settings={"application_name": "twincal ingest", "jit": "off"},
            )
            self._connection = connection  # before it is used: what fails now disconnects it
            await connection.execute(_STAGE)
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            # Not close(): that waits for a server which may be gone.
            self._connection.terminate()
            self._connection = None


async def _store_rows(connection: asyncpg.Connection[Any], rows: Sequence[BatchRow], outcome: Outcome) -> None:
    fresh = await _without_known_unstamped(connection, rows)
    await connection.copy_records_to_table("incoming", records=fresh, columns=BatchRow._fields)
    counts = await connection.fetchrow(_STORE)
    assert counts is not None
    outcome.stored += counts["messages"]
    outcome.samples += counts["samples"]
    outcome.duplicates += len(rows) - counts["messages"]


async def _without_known_unstamped(connection: asyncpg.Connection[Any], rows: Sequence[BatchRow]) -> list[BatchRow]:
    """Leave out repeats of messages whose stamp is our receipt: their rows' keys differ from delivery to delivery."""
    unstamped = {(row.robot, row.identity): row for row in reversed(rows) if row.needs_unstamped_entry}
    if not unstamped:
        return list(rows)
    robots, identities = zip(*sorted(unstamped), strict=True)
    new = {(row["robot"], row["identity"]) for row in await connection.fetch(_CLAIM, robots, identities)}
    return [
        row for row in rows
        if not row.needs_unstamped_entry
        or ((row.robot, row.identity) in new and unstamped[row.robot, row.identity] is row)
    ]  # fmt: skip


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no reason given"
    return f"{type(error).__name__}: {text}"[:500]
