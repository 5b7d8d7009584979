"""One robot after another: looked at, stored, published; what is wrong with one costs the others nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.errors import TwincalError
from app.metrics import monitor_failures, monitor_looks
from app.monitor.failure import is_database_away, kind_of
from app.monitor.look import Seen, arrived_at, conclude, score, span_of
from app.monitor.publish import Publisher
from app.monitor.recalibration import Decision
from app.monitor.score import WindowScore
from app.monitor.state import Standing
from app.monitor.store import Due, Retained, instant, record, save
from app.monitor.twins import PreparedTwins
from app.registry.drift import STALE_AFTER_S, Drift, DriftPoint
from app.registry.recordings import load_latest
from app.telemetry import RobotId
from app.twin.rollout import available_cores

Consider = Callable[[AsyncConnection, RobotId, Standing, WindowScore | None, int, datetime], Awaitable[Decision]]
"""What is done about a new standing, in the transaction that stores it: `app.monitor.recalibration.consider`."""

_LONGEST_REASON: Final = 500

_log = structlog.get_logger(__name__)


class Watcher:
    """Looks at robots.

    Args:
        engine: the database.
        publisher: tells robots what was found.
        consider: what is done about it.
        history_s: the history takes a point of a robot whose state doesn't change at most so often [s].
    """

    def __init__(self, engine: AsyncEngine, publisher: Publisher, consider: Consider, history_s: float) -> None:
        self._engine = engine
        # Reads of one look needn't see the same instant: no transaction, and two round trips less.
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._publisher = publisher
        self._consider = consider
        self._history = timedelta(seconds=history_s)
        self._twins = PreparedTwins()
        self._pool = ThreadPoolExecutor(available_cores(), thread_name_prefix="score")
        self._said: dict[RobotId, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    async def look(self, due: Due, *, continuous: bool) -> bool:
        """Look at one robot, whatever its state; what is wrong with it is stored as the reason.

        Args:
            due: the robot.
            continuous: whether the last pass was just before this one; see `arrived_at`.

        Returns:
            False if the database is away, so that nothing could be said.
        """
        now = datetime.now(UTC)
        arrived = arrived_at(due, now, continuous=continuous)
        try:
            try:
                scores = await self._scores(due, live=now - arrived < timedelta(seconds=STALE_AFTER_S))
            except TwincalError as error:
                reason = self._failed(due, error)
                await self._keep(due, conclude(due, [], arrived, now), reason)
            else:
                await self._keep(due, conclude(due, scores, arrived, now))
                self._said.pop(due.robot, None)
                monitor_looks.labels(outcome=_outcome(scores)).inc()
        except Exception as error:  # noqa: BLE001 - the outermost loop over robots: one of them never ends the others
            self._failed(due, error)
            return not is_database_away(error)
        return True

    async def _scores(self, due: Due, *, live: bool) -> list[WindowScore]:
        if not live or (due.found is not None and due.found.telemetry_ns == due.last_ns):
            return []
        async with self._reading.connect() as connection:
            watched = await self._twins.get(connection, due)
            recordings = await load_latest(connection, due.robot, span_of(due))
        after_ns = None if due.found is None else due.found.scored_ns
        # The kernel leaves the interpreter alone while it computes: the loop goes on, and so do other threads.
        return await asyncio.get_running_loop().run_in_executor(self._pool, score, watched, recordings, after_ns)

    async def _keep(self, due: Due, seen: Seen, reason: str | None = None) -> None:
        """Store what was found, with what follows from it, and tell the robot."""
        found = replace(seen.found, reason=reason)
        point = self._point(due, seen)
        if point is not None:
            found = replace(found, recorded_at=point.at)
        try:
            stored = await self._store(due, seen, found, point, self._consider)
        except TwincalError as error:
            # The policy couldn't act: what was found is stored all the same.
            self._failed(due, error)
            stored = await self._store(due, seen, found, point, None)
        if stored:
            told = Retained(due.robot, due.fleet, found.version, found.state, found.score, found.updated_at)
            self._publisher.publish(told)

    async def _store(
        self, due: Due, seen: Seen, found: Drift, point: DriftPoint | None, consider: Consider | None
    ) -> bool:
        """State, history and what follows from them in one transaction; False: another monitor was here before."""
        async with self._engine.begin() as connection:
            if not await save(connection, due, found):
                return False
            if point is not None:
                await record(connection, due.robot, point)
            if consider is not None:
                await consider(connection, due.robot, seen.standing, seen.score, due.version, found.updated_at)
        return True

    def _point(self, due: Due, seen: Seen) -> DriftPoint | None:
        """The history's next point, if it is time for one."""
        latest, before = seen.score, due.found
        if latest is None:
            return None
        at = instant(latest.stamp_ns)
        if (
            before is not None
            and before.recorded_at is not None
            and (before.state, before.version) == (seen.found.state, due.version)
            and abs(at - before.recorded_at) < self._history
        ):
            return None
        return DriftPoint(
            at=at,
            version=due.version,
            state=seen.found.state,
            score=latest.score,
            worst_score=latest.worst_score,
            worst_joint=latest.worst_joint,
            per_joint=dict(latest.per_joint),
        )

    def _failed(self, due: Due, error: Exception) -> str:
        """Count a failure and say it, once; gives the reason in words."""
        kind = kind_of(error)
        text = str(error) if isinstance(error, TwincalError) else f"{type(error).__name__}: {error}"
        reason = " ".join(text.split())[:_LONGEST_REASON]
        monitor_looks.labels(outcome="failed").inc()
        monitor_failures.labels(kind=kind).inc()
        if self._said.get(due.robot) != reason:
            self._said[due.robot] = reason
            unexpected = error if kind == "unexpected" else None
            _log.warning("robot can't be watched", robot=due.robot, kind=kind, reason=reason, exc_info=unexpected)
        return reason


def _outcome(scores: list[WindowScore]) -> str:
    if not scores:
        return "unchanged"
    return "unmoved" if all(scored.score is None for scored in scores) else "scored"
