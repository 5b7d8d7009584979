"""The ingester's MQTT session: at least once, acknowledged by hand, back after every failure.

The session at the broker outlives its connections: what arrives between two of them waits there.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from app.errors import ServiceError
from app.ingest.buffer import Buffer
from app.ingest.connection import Cause, Connection, SessionOptions, taken_over
from app.metrics import ingest_connected, ingest_disconnects

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 15.0
# Brokers needn't say that a session was taken over (Mosquitto 2.0 just closes the connection). So many good connections
# in a row that each ended at once are two ingesters of one name that evict each other.
_EVICTIONS: Final = 5

_log = structlog.get_logger(__name__)

__all__ = ["Session", "SessionOptions"]


class Session:
    """Keeps a connection up and hands what arrives to the buffer, until `stop`.

    Args:
        options: how to connect.
        buffer: takes the messages; while it is full there is no connection.
    """

    def __init__(self, options: SessionOptions, buffer: Buffer) -> None:
        self._options = options
        self._buffer = buffer
        self._connection: Connection | None = None
        self._ended = "not connected yet"
        self._stopping = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether messages flow: subscribed with QoS 1, and the network thread alive."""
        return self._connection is not None and self._connection.is_ready

    @property
    def trouble(self) -> str:
        """Why no messages flow; empty while they do."""
        return "" if self.is_ready else f"not subscribed: {self._ended}"

    async def run(self) -> None:
        """Connect, and again after every failure.

        Raises:
            ServiceError: if going on is pointless: another ingester took the session over, or the broker refuses us.
        """
        failures = evictions = 0
        while not self._stopping.is_set():
            await self._buffer.wait_until_drained()
            connection = Connection(self._options, self._buffer)
            self._connection = connection
            ended = await connection.run(self._stopping)
            ingest_connected.set(0)
            self._connection = None
            self._ended = f"{ended.cause}: {ended.detail}" if ended.detail else ended.cause
            ingest_disconnects.labels(cause=ended.cause).inc()
            evictions = evictions + 1 if ended.is_short_lived else 0
            fatal = ended.fatal or (
                taken_over(self._options, " again and again, it seems") if evictions >= _EVICTIONS else ""
            )
            if fatal:
                raise ServiceError(fatal)
            failures = 0 if ended.was_ready and ended.cause != "commit_failed" else failures + 1
            if ended.cause in ("buffer_full", "stopping"):
                continue
            # Jitter: two that evict each other, or a fleet of ingesters after a broker's restart, mustn't run in step.
            wait_s = min(_FIRST_WAIT_S * 2**failures, _LONGEST_WAIT_S) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            _log.warning(
                "broker connection ended", broker=str(self._options.address), cause=ended.cause, detail=ended.detail,
                retry_in_s=round(wait_s, 2),
            )  # fmt: skip
            await _wait(self._stopping, wait_s)

    def drop_connection(self, cause: Cause) -> None:
        """Give everything unacknowledged back to the broker: it redelivers on the next connection, and only there."""
        if self._connection is not None:
            self._connection.end(cause)

    async def leave_share(self) -> None:
        """Leave the share group: the broker gives new messages to the others; those here can still be stored."""
        if self._options.shared and self._connection is not None:
            await self._connection.unsubscribe()

    def stop(self) -> None:
        """End the connection; the session stays at the broker and queues what arrives."""
        self._stopping.set()
        self.drop_connection("stopping")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
