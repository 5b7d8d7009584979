"""The drift monitor: every live robot's latest motion against its active twin, pass after pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.errors import ServiceError
from app.ingest.broker import BrokerAddress
from app.metrics import (
    monitor_active,
    monitor_last_pass,
    monitor_pass_seconds,
    monitor_passes,
    monitor_robots,
)
from app.monitor.leader import STANDBY_S, Leadership, wait
from app.monitor.publish import Publisher
from app.monitor.recalibration import consider
from app.monitor.store import Due, find_due, forget_old, forget_unserved, read_retained
from app.monitor.watch import Consider, Watcher
from app.twin.rollout import available_cores

INTERVAL_S: Final = 10.0
HISTORY_S: Final = 60.0
KEEP_DAYS: Final = 90
POOL_SIZE: Final = 2 * available_cores() + 2
"""Connections to the database: of the robots being looked at, of the lock, and of what is read at a pass' begin."""

_RETRY_S: Final = 2.0
_FORGET_EVERY_S: Final = 3600.0
_AWAY_AFTER: Final = 5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """What a monitor is told.

    Attributes:
        interval_s: how often each robot is looked at [s].
        history_s: the history takes a point of a robot whose state doesn't change at most so often [s].
        keep_days: for how long the history is kept [d].
        broker: where robots are told; None: they aren't.
    """

    interval_s: float = INTERVAL_S
    history_s: float = HISTORY_S
    keep_days: int = KEEP_DAYS
    broker: BrokerAddress | None = None


class Monitor:
    """One monitor. Several may run: one is at work, the others stand by.

    Args:
        engine: the database; `POOL_SIZE` connections are what it makes use of.
        options: what it is told.
        react: what is done about a new standing.
    """

    def __init__(self, engine: AsyncEngine, options: MonitorOptions, react: Consider = consider) -> None:
        self._engine = engine
        self._options = options
        self._react = react
        self._publisher = Publisher(options.broker)
        self._continuous = False
        self._forget_at_s = 0.0
        self._standing_by = False

    async def run(self, stop: asyncio.Event) -> None:
        """Work, or stand by, until `stop` is set."""
        if self._options.broker is None:
            _log.warning("no broker (TWINCAL_MQTT_URL): drift is stored, and robots aren't told")
        try:
            with Watcher(self._engine, self._publisher, self._react, self._options.history_s) as watcher:
                async with Leadership(self._engine) as leadership:
                    while not stop.is_set():
                        await self._turn(watcher, leadership, stop)
        finally:
            monitor_active.set(0)
            self._publisher.close()

    async def _turn(self, watcher: Watcher, leadership: Leadership, stop: asyncio.Event) -> None:
        """One pass, or one look at whether it is our turn, and the wait after it."""
        began_s = time.monotonic()
        try:
            if not await self._leads(leadership):
                await wait(stop, STANDBY_S)
                return
            await self._pass(watcher, stop)
        except Exception as error:  # noqa: BLE001 - the outermost loop: nothing that happens in a pass ends the monitor
            self._continuous = False
            monitor_passes.labels(outcome="failed").inc()
            known = isinstance(error, (OSError, ServiceError))
            _log.error("pass_failed", error=f"{type(error).__name__}: {error}", retry_in_s=_RETRY_S, exc_info=not known)
            await wait(stop, _RETRY_S)
            return
        took_s = time.monotonic() - began_s
        monitor_passes.labels(outcome="done").inc()
        monitor_pass_seconds.observe(took_s)
        monitor_last_pass.set_to_current_time()
        await wait(stop, self._options.interval_s - took_s)

    async def _leads(self, leadership: Leadership) -> bool:
        if await leadership.holds():
            return True
        monitor_active.set(0)
        self._continuous = False
        if not await leadership.take():
            if not self._standing_by:
                _log.info("another monitor is at work, standing by")
            self._standing_by = True
            return False
        self._standing_by = False
        monitor_active.set(1)
        _log.info("watching", interval_s=self._options.interval_s)
        return True

    async def _pass(self, watcher: Watcher, stop: asyncio.Event) -> None:
        """Look at every robot that something is to be said of."""
        if await self._publisher.connect():
            await self._publish_all()
        async with self._engine.begin() as connection:
            for fleet, robot in await forget_unserved(connection):
                self._publisher.clear(fleet, robot)
            due = await find_due(connection, datetime.now(UTC))
        monitor_robots.set(len(due))
        await self._look_at(watcher, due, stop)
        self._continuous = True
        await self._forget_old()

    async def _look_at(self, watcher: Watcher, due: Sequence[Due], stop: asyncio.Event) -> None:
        places = asyncio.Semaphore(POOL_SIZE - 2)
        away = 0

        async def look(robot: Due) -> None:
            nonlocal away
            async with places:
                if not stop.is_set() and away < _AWAY_AFTER:
                    there = await watcher.look(robot, continuous=self._continuous)
                    away = 0 if there else away + 1

        async with asyncio.TaskGroup() as group:
            for robot in due:
                group.create_task(look(robot))
        if away >= _AWAY_AFTER:
            raise ServiceError("the database can't be reached or refuses")

    async def _publish_all(self) -> None:
        async with self._engine.connect() as connection:
            for retained in await read_retained(connection):
                self._publisher.publish(retained)

    async def _forget_old(self) -> None:
        if time.monotonic() < self._forget_at_s:
            return
        async with self._engine.begin() as connection:
            await forget_old(connection, datetime.now(UTC) - timedelta(days=self._options.keep_days))
        self._forget_at_s = time.monotonic() + _FORGET_EVERY_S
