"""The ingest worker: from the broker to the database, each message exactly once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog
from asyncpg import PostgresError
from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import create_engine
from app.database.partitions import days_ahead, ensure_partitions
from app.ingest.buffer import Buffer, Delivery
from app.ingest.dead_letters import forget_expired
from app.ingest.gaps import SequenceGaps
from app.ingest.intake import Accepted, Examined, Intake, Message
from app.ingest.packet import Limits
from app.ingest.refusal import REASONS
from app.ingest.session import Session, SessionOptions
from app.ingest.topic import is_connection_topic
from app.ingest.writer import CommitError, Outcome, Writer
from app.metrics import (
    ingest_clock_skew_seconds,
    ingest_dead_letters,
    ingest_lag_seconds,
    ingest_messages,
    ingest_samples,
    ingest_sequence_gaps,
)

PARTITIONS_AHEAD: Final = 7
_HOUSEKEEPING_EVERY_S: Final = 3600.0
_HOUSEKEEPING_RETRY_S: Final = 60.0
_DRAIN_WAIT_S: Final = 5.0

_log = structlog.get_logger(__name__)

# A counter that first appears with its first event hides it from Prometheus' increase().
for _reason in REASONS:
    ingest_dead_letters.labels(reason=_reason)


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What an ingest worker is told.

    Attributes:
        database_url: where to store.
        session: how to reach the broker.
        limits: how big a message may be.
        batch_messages: the most messages of one commit; below what the broker may send unacknowledged.
        batch_bytes: the most payload of one commit, about.
        high_water_bytes: with so much received and uncommitted, the connection is given up for a while.
        low_water_bytes: with so little, it is taken up again.
        patience_s: how long a full buffer only holds up the broker before the connection is given up.
    """

    database_url: str
    session: SessionOptions
    limits: Limits = field(default_factory=Limits)
    batch_messages: int = 1000
    batch_bytes: int = 8 << 20
    high_water_bytes: int = 64 << 20
    low_water_bytes: int = 16 << 20
    patience_s: float = 5.0


class IngestService:
    """One ingest worker. The story: receive, decode, commit, acknowledge.

    Args:
        options: what it is told. To be made inside the event loop that runs it.
    """

    def __init__(self, options: IngestOptions) -> None:
        self._options = options
        self._intake = Intake(options.limits)
        self._buffer = Buffer(options.high_water_bytes, options.low_water_bytes, options.patience_s)
        self._session = Session(options.session, self._buffer)
        self._writer = Writer(options.database_url, self._intake)
        self._gaps = SequenceGaps()
        self._stop = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether messages flow from the broker, and the last commit went through."""
        return self._session.is_ready and self._writer.is_ready

    async def readiness(self) -> dict[str, str]:
        """`ok`, or what is wrong, for broker and database."""
        database = await self._writer.ping() or self._writer.trouble
        return {"broker": self._session.trouble or "ok", "database": database or "ok"}

    def stop(self) -> None:
        """Ask the worker to end; it stores what it is at, and leaves the rest with the broker."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`.

        Raises:
            ServiceError: if going on is pointless: see `Session.run`.
        """
        async with self._writer:
            session = asyncio.create_task(self._session.run(), name="session")
            writing = asyncio.create_task(self._store_deliveries(), name="writing")
            housekeeping = asyncio.create_task(self._keep_house(), name="housekeeping")
            stopping = asyncio.create_task(self._stop.wait(), name="stopping")
            tasks = (session, writing, housekeeping, stopping)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not any(task.done() for task in (session, writing, housekeeping)):
                    await self._leave(session, writing)
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result

    async def _store_deliveries(self) -> None:
        """The story, a batch at a time: decoded off the network thread, committed together, then acknowledged."""
        options = self._options
        await self._writer.store([])  # whether the database is there shows before the first message
        while deliveries := await self._buffer.take(options.batch_messages, options.batch_bytes):
            # Telemetry that the broker had kept from before we came is no live data, and the robot sends its own again.
            # What it had kept of connections is what they are now.
            live = [delivery for delivery in deliveries if not delivery.retain or is_connection_topic(delivery.topic)]
            ingest_messages.labels(outcome="retained").inc(len(deliveries) - len(live))
            try:
                examined = await asyncio.to_thread(self._examine, live)
                outcome = await self._writer.store(examined)
            except CommitError as error:
                # The broker redelivers only on another connection: end this one, and all of it comes again.
                _log.error("batch given back to the broker", error=str(error), messages=len(live))
                self._session.drop_connection("commit_failed")
            else:
                # In the order of receipt, as MQTT demands; each on its own connection, or not at all.
                for delivery in deliveries:
                    delivery.acknowledge()
                self._count(live, examined, outcome)
            finally:
                self._buffer.release(deliveries)

    def _examine(self, deliveries: Sequence[Delivery]) -> list[Examined]:
        return [self._intake.examine(Message(d.topic, d.payload, d.content_type, d.received_ns)) for d in deliveries]

    def _count(self, live: Sequence[Delivery], examined: Sequence[Examined], outcome: Outcome) -> None:
        now_ns = time.time_ns()
        ingest_messages.labels(outcome="stored").inc(outcome.stored)
        ingest_messages.labels(outcome="duplicate").inc(outcome.duplicates)
        ingest_messages.labels(outcome="dead_letter").inc(len(outcome.refused))
        ingest_messages.labels(outcome="connection").inc(outcome.announced)
        ingest_samples.inc(outcome.samples)
        for refused in outcome.refused:
            ingest_dead_letters.labels(reason=refused.error.reason).inc()
        for delivery in live:
            ingest_lag_seconds.observe((now_ns - delivery.received_ns) / 1e9)
        missing: Counter[str] = Counter()
        for item in examined:
            if isinstance(item, Accepted):
                ingest_clock_skew_seconds.observe(abs(item.row.received_ns - item.row.last_ns) / 1e9)
                missing[item.row.robot] += self._gaps.missing_before(item.row)
        if missing.total():
            ingest_sequence_gaps.inc(missing.total())
            # One line a batch: a robot with a bad counter mustn't fill the log.
            ((worst, _),) = missing.most_common(1)
            _log.warning("messages missing by their numbers", messages=missing.total(), worst_robot=worst)

    async def _keep_house(self) -> None:
        """Make the days to come ahead of time, and forget what has had its time.

        Without it rows are stored all the same, in the default partition.
        """
        engine = create_engine(self._options.database_url, pool_size=1)
        try:
            while True:
                try:
                    async with engine.begin() as connection:
                        await ensure_partitions(connection, days_ahead(PARTITIONS_AHEAD))
                        await forget_expired(connection)
                    wait_s = _HOUSEKEEPING_EVERY_S
                except (OSError, SQLAlchemyError, PostgresError) as error:
                    _log.warning("housekeeping failed", error=type(error).__name__)
                    wait_s = _HOUSEKEEPING_RETRY_S
                await asyncio.sleep(wait_s)
        finally:
            await engine.dispose()

    async def _empty(self) -> None:
        """Leave the share group, and store what was given to us before the broker heard of it."""
        await self._session.leave_share()
        await self._buffer.wait_until_empty()

    async def _leave(self, session: asyncio.Task[None], writing: asyncio.Task[None]) -> None:
        """End in good order: the batch at hand stored and acknowledged, then disconnected; the broker keeps the rest.

        Of a shared subscription it would keep the rest from the others too: all that is here is stored first.
        """
        if self._options.session.shared:
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_WAIT_S):
                    await self._empty()
        self._buffer.close()
        await asyncio.wait([writing], timeout=_DRAIN_WAIT_S)
        self._session.stop()
        await asyncio.wait([session], timeout=_DRAIN_WAIT_S)
