"""One monitor at a time: the others stand by, and the next takes over when its connection to the database ends."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

STANDBY_S: Final = 1.0
"""How often one that stands by asks."""

_LOCK: Final = 0x7477_6E63_0003
# The database gives the lock away when it notices that the connection is gone: of a machine that lost its power, this
# is how.
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
)

_log = structlog.get_logger(__name__)


class Leadership:
    """A lock that lives as long as one connection: held, or asked for again and again.

    Args:
        engine: the database; one of its connections is kept.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._taken = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()

    async def holds(self) -> bool:
        """Whether it is ours, now."""
        if self._connection is None or not self._taken:
            return False
        try:
            await self._connection.execute(text("SELECT 1"))
        except (OSError, SQLAlchemyError):
            await self.leave()
            return False
        return True

    async def take(self) -> bool:
        """Ask for it once.

        Raises:
            OSError, SQLAlchemyError: if the database can't be asked.
        """
        if self._connection is None:
            connection = await self._engine.connect()
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            self._connection = connection
            for statement in _KEEPALIVE:
                await connection.execute(text(statement))
        try:
            asked = text("SELECT pg_try_advisory_lock(:lock)")
            self._taken = bool(await self._connection.scalar(asked, {"lock": _LOCK}))
        except (OSError, SQLAlchemyError):
            await self.leave()
            raise
        return self._taken

    async def leave(self) -> None:
        """Give it back: the connection ends, and with it the lock."""
        connection, self._connection, self._taken = self._connection, None, False
        if connection is None:
            return
        try:
            # Not back into the pool: the lock is the session's.
            await connection.invalidate()
            await connection.close()
        except (OSError, SQLAlchemyError) as error:
            _log.warning("the monitor's connection couldn't be closed", error=type(error).__name__)


async def wait(stop: asyncio.Event, seconds: float) -> None:
    """Return when `stop` is set, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
