"""Robots, ingesters and questions to the database, for the tests of ingest."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import asyncpg
import numpy as np
import paho.mqtt.client as mqtt
from sqlalchemy.ext.asyncio import AsyncEngine

from app.ingest.broker import BrokerAddress, Client
from app.ingest.encode import encode_json
from app.ingest.service import IngestOptions, IngestService
from app.ingest.session import SessionOptions
from app.registry.robots import put_robot
from app.telemetry import SampleBatch
from app.twin.declaration import RobotDeclaration

DEADLINE_S = 20.0
FLEET = "arms"


def new_id(word: str) -> str:
    """An id that no other test has: brokers are shared by tests."""
    return f"{word}-{uuid.uuid4().hex[:8]}"


async def register(engine: AsyncEngine, robot: str, fleet: str = FLEET) -> None:
    declaration = RobotDeclaration.model_validate({"schema": "twincal.robot/1", "robot": robot, "fleet": fleet})
    async with engine.begin() as connection:
        await put_robot(connection, declaration)


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + deadline_s
    while not await condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Stored:
    """What the database holds of a robot."""

    messages: int
    samples: int
    letters: Sequence[str]


async def stored(url: str, robot: str) -> Stored:
    connection = await asyncpg.connect(url)
    try:
        row = await connection.fetchrow(
            "SELECT count(*) AS messages, coalesce(sum(sample_count), 0) AS samples "
            "FROM telemetry_batches WHERE robot = $1",
            robot,
        )
        assert row is not None
        letters = await connection.fetch("SELECT reason FROM dead_letters WHERE robot = $1 ORDER BY id", robot)
        return Stored(row["messages"], row["samples"], [letter["reason"] for letter in letters])
    finally:
        await connection.close()


async def query(url: str, statement: str, *arguments: Any) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *arguments)]
    finally:
        await connection.close()


async def wait_for_samples(url: str, robot: str, samples: int, deadline_s: float = DEADLINE_S) -> None:
    async def there() -> bool:
        return (await stored(url, robot)).samples >= samples

    await eventually(there, f"{samples} samples of {robot}", deadline_s)


async def wait_for_letters(url: str, robot: str, count: int) -> None:
    async def there() -> bool:
        return len((await stored(url, robot)).letters) >= count

    await eventually(there, f"{count} dead letters of {robot}")


@asynccontextmanager
async def ingesting(
    database_url: str, mqtt_url: str, client_id: str = "", *, shared: bool = False, **options: Any
) -> AsyncIterator[IngestService]:
    """An ingest worker in this process, ready; ended in good order."""
    session = SessionOptions(BrokerAddress.parse(mqtt_url), client_id=client_id or new_id("ingest"), shared=shared)
    service = IngestService(IngestOptions(database_url, session, **options))
    task = asyncio.create_task(service.run())

    async def ready() -> bool:
        if task.done():
            task.result()
        return service.is_ready

    try:
        await eventually(ready, "the ingester is ready")
        yield service
    finally:
        service.stop()
        await asyncio.wait_for(task, DEADLINE_S)


@contextmanager
def ingest_process(database_url: str, mqtt_url: str, client_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """An ingest worker in a process of its own, as the command line starts it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from app.cli import main; main()", "ingest", "--client-id", client_id],
        env=os.environ | {"TWINCAL_DATABASE_URL": database_url, "TWINCAL_MQTT_URL": mqtt_url},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def batch(stamp_ns: int | None = None, rows: int = 3) -> SampleBatch:
    return SampleBatch(
        stamp_ns=time.time_ns() if stamp_ns is None else stamp_ns,
        dt_ns=np.arange(rows, dtype=np.int64) * 1_000_000,
        names=("elbow", "shoulder"),
        channels={"position": np.arange(rows * 2, dtype=np.float64).reshape(rows, 2) / 7},
    )


class RobotClient:
    """A robot's connection to the broker."""

    def __init__(self, mqtt_url: str, robot: str, fleet: str = FLEET) -> None:
        self._client = Client(BrokerAddress.parse(mqtt_url), robot)
        self.topic = f"twincal/v1/{fleet}/{robot}/telemetry/joints"

    def __enter__(self) -> Self:
        address = self._client.address
        self._client.connect(address.host, address.port)
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def publish(
        self, payload: bytes, *, topic: str | None = None, retain: bool = False, qos: int = 1
    ) -> mqtt.MQTTMessageInfo:
        return self._client.publish(topic or self.topic, payload, qos=qos, retain=retain)

    def send(self, *payloads: bytes) -> None:
        """Publish, and wait for the broker's acknowledgements."""
        for info in [self.publish(payload) for payload in payloads]:
            info.wait_for_publish(DEADLINE_S)
            assert info.is_published()

    def send_batches(self, count: int, boot_id: str, first_seq: int = 0) -> int:
        """Publish batches of three samples, and tell how many samples that were."""
        self.send(*(encode_json(batch(), boot_id, first_seq + i) for i in range(count)))
        return 3 * count
