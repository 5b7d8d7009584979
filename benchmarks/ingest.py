"""How much one ingest worker takes in: messages of 50 samples of 7 joints, from a broker into Postgres.

    python -m benchmarks.ingest [--messages 10000]

Everything runs on this machine: broker, database, publisher and ingester share its cores. Messages are published before
the ingester starts, so that its own rate shows.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import asyncpg
import numpy as np
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from app.database.migrate import upgrade_async
from app.embedded.broker import EmbeddedBroker
from app.embedded.postgres import EmbeddedPostgres
from app.ingest.broker import BrokerAddress, Client
from app.ingest.encode import encode_msgpack
from app.ingest.payload import MSGPACK_CONTENT_TYPE
from app.ingest.service import IngestOptions, IngestService
from app.ingest.session import SessionOptions
from app.telemetry import Channel, SampleBatch

ROWS, JOINTS = 50, 7
TOPIC = "twincal/v1/arms/arm-{robot:02d}/telemetry/joints"
ROBOTS = 10


def sample_batch(stamp_ns: int, rng: np.random.Generator) -> SampleBatch:
    """50 samples of 7 joints, in single precision."""
    channels: tuple[Channel, ...] = ("position", "velocity", "effort", "command_position")
    return SampleBatch(
        stamp_ns=stamp_ns,
        dt_ns=np.arange(ROWS, dtype=np.int64) * 1_000_000,
        names=tuple(f"joint{i}" for i in range(JOINTS)),
        channels={c: rng.normal(size=(ROWS, JOINTS)).astype(np.float32).astype(np.float64) for c in channels},
    )


def publish(address: BrokerAddress, count: int) -> None:
    """All messages, acknowledged by the broker."""
    rng = np.random.default_rng(0)
    client = Client(address, "publisher")
    client.max_inflight_messages_set(100)
    client.connect(address.host, address.port)
    client.loop_start()
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own
    properties.ContentType = MSGPACK_CONTENT_TYPE
    infos = [
        client.publish(TOPIC.format(robot=i % ROBOTS), payload, qos=1, properties=properties)
        for i in range(count)
        if (payload := encode_msgpack(sample_batch(time.time_ns(), rng), "boot", i // ROBOTS, "<f4"))
    ]
    for info in infos:
        info.wait_for_publish()
    client.disconnect()
    client.loop_stop()


async def ingest_rate(database_url: str, mqtt_url: str, count: int) -> None:
    """From a full queue at the broker to the last commit."""
    await upgrade_async(database_url)
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO fleets (fleet) VALUES ('arms')")
    await connection.execute(
        "INSERT INTO robots (robot, fleet, declaration) SELECT format('arm-%s', lpad(i::text, 2, '0')), 'arms', '{}' "
        "FROM generate_series(0, $1) AS i",
        ROBOTS,
    )
    options = IngestOptions(database_url, SessionOptions(BrokerAddress.parse(mqtt_url)))
    for prepare in (True, False):
        service = IngestService(options)
        task = asyncio.create_task(service.run())
        while not service.is_ready:  # noqa: ASYNC110 - asked from outside, as a probe does
            await asyncio.sleep(0.001)
        start_s = time.perf_counter()
        counting = "SELECT count(*) FROM telemetry_batches"
        while not prepare and await connection.fetchval(counting) < count:  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.05)
        elapsed_s = time.perf_counter() - start_s
        service.stop()
        await task
        if prepare:
            await asyncio.to_thread(publish, options.session.address, count)
    await connection.close()
    rate = count / elapsed_s
    print(f"broker to committed rows, msgpack f4  {rate:>7.0f} messages/s  {rate * ROWS / 1e3:.0f} k samples/s")


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "postgres") as postgres, EmbeddedBroker(Path(folder) / "broker") as broker:
            print(f"broker: {broker.kind}")
            asyncio.run(ingest_rate(postgres.url, broker.url, arguments.messages))


if __name__ == "__main__":
    main()
