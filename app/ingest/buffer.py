"""What the network thread hands over, and the bounded buffer it is handed to."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.metrics import ingest_buffered_bytes

# What a message takes beside its payload: the objects around it, its topic. Empty messages must not fill the memory.
_OVERHEAD_BYTES = 1024


class Acknowledges(Protocol):
    """The connection that a message came by; the only one on which it may be acknowledged."""

    def acknowledge(self, mid: int) -> None:
        """Tell the broker that message `mid` of this very connection is safe."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as received.

    Attributes:
        connection: where to acknowledge it. After a reconnect the same mid names another message.
        mid: packet identifier, of this connection alone; None: nothing to acknowledge (QoS 0).
        topic: as received.
        content_type: MQTT 5 content type, if any.
        payload: as received.
        retain: whether the broker had kept it from before we subscribed.
        received_ns: our clock, nanoseconds since the epoch; never twice the same in a process.
    """

    connection: Acknowledges
    mid: int | None
    topic: str
    content_type: str | None
    payload: bytes
    retain: bool
    received_ns: int

    def acknowledge(self) -> None:
        """Tell the broker that it is safe; nothing happens once its connection has ended."""
        if self.mid is not None:
            self.connection.acknowledge(self.mid)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.payload) + _OVERHEAD_BYTES


class Buffer:
    """Messages between the network thread and the writer, first in, first out; it counts bytes until they are released.

    MQTT has no word for "pause". A full buffer first holds up the network thread, so that TCP holds up the broker: that
    is enough where the writer is only slow, and what it commits meanwhile is still acknowledged. If it is not down to
    the low-water mark within a while, `put` says so, and the session disconnects until it is.

    Args:
        high_water_bytes: from here on the buffer is full.
        low_water_bytes: down to here it stays so.
        patience_s: how long a full buffer holds up the network thread; less than the keep-alive.
    """

    def __init__(self, high_water_bytes: int, low_water_bytes: int, patience_s: float) -> None:
        self._high, self._low = high_water_bytes, low_water_bytes
        self._patience_s = patience_s
        self._lock = threading.Condition()
        self._queue: deque[Delivery] = deque()
        self._held_bytes = 0
        self._full = False
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._emptied = asyncio.Event()
        self._closed = False

    @property
    def held_bytes(self) -> int:
        """Bytes handed over and not yet released."""
        return self._held_bytes

    def put(self, delivery: Delivery) -> bool:
        """Take a message in, from the network thread; it is never turned away. Waits where the buffer is full.

        Returns:
            Whether there is room for more.
        """
        with self._lock:
            was_empty = not self._queue
            self._queue.append(delivery)
            self._held_bytes += delivery.size_bytes
            self._full = self._full or self._held_bytes >= self._high
            if was_empty:
                self._loop.call_soon_threadsafe(self._filled.set)
            if self._full:
                self._lock.wait_for(lambda: not self._full or self._closed, self._patience_s)
            has_room = not self._full
        ingest_buffered_bytes.set(self._held_bytes)
        return has_room

    async def take(self, max_messages: int, max_bytes: int) -> list[Delivery]:
        """The oldest messages, at least one; waits for it. They stay counted until `release`. Empty once closed."""
        while not self._closed:
            with self._lock:
                taken: list[Delivery] = []
                size = 0
                while self._queue and len(taken) < max_messages and (not taken or size < max_bytes):
                    taken.append(self._queue.popleft())
                    size += taken[-1].size_bytes
                if not self._queue:
                    self._filled.clear()
            if taken:
                return taken
            await self._filled.wait()
        return []

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Stop counting messages that are stored, or given up."""
        with self._lock:
            self._held_bytes -= sum(delivery.size_bytes for delivery in deliveries)
            if self._full and self._held_bytes <= self._low:
                self._full = False
                self._lock.notify_all()
                self._drained.set()
        if not self._held_bytes:
            self._emptied.set()
        ingest_buffered_bytes.set(self._held_bytes)

    async def wait_until_drained(self) -> None:
        """Return once the buffer isn't full."""
        while self._full:
            self._drained.clear()
            await self._drained.wait()

    async def wait_until_empty(self) -> None:
        """Return once everything taken in has been released."""
        while self._held_bytes:
            self._emptied.clear()
            await self._emptied.wait()

    def close(self) -> None:
        """Give out nothing more: `take` returns empty."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._filled.set()
