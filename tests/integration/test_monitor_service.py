"""The monitor as it runs in production: a process among others, with a broker that robots listen to."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx
import orjson
import paho.mqtt.client as mqtt
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import versions
from app.calibration.audit import Move
from app.embedded.broker import EmbeddedBroker
from app.ingest.broker import BrokerAddress, Client
from app.monitor.leader import Leadership
from tests.integration.ingesting import DEADLINE_S, RobotClient, eventually, ingesting, new_id, wait_for_samples
from tests.integration.test_services import free_port
from tests.integration.watching import (
    FRICTION,
    HALF_A_VERDICT_S,
    TRUTH,
    WatchedRobot,
    monitoring,
    until_drift,
    until_seen,
    watched_robot,
)


class Listener:
    """A robot that reads what is said of its drift."""

    def __init__(self, mqtt_url: str, robot: WatchedRobot) -> None:
        self._topic = f"twincal/v1/{robot.fleet}/{robot.robot}/drift"
        self._client = Client(BrokerAddress.parse(mqtt_url), new_id("listener"))
        self._client.on_message = self._on_message
        self._client.on_connect = lambda client, *_: client.subscribe(self._topic)
        self._lock = threading.Lock()
        self._heard: list[tuple[Any, bool]] = []

    def __enter__(self) -> Self:
        self._client.connect(self._client.address.host, self._client.address.port)
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, _client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
        with self._lock:
            self._heard.append((orjson.loads(message.payload) if message.payload else None, message.retain))

    async def hear(self, what: str, **wanted: Any) -> dict[str, Any]:
        """The first message with these values."""
        found: dict[str, Any] = {}

        async def there() -> bool:
            with self._lock:
                for message, _ in self._heard:
                    if message and all(message[key] == value for key, value in wanted.items()):
                        found.update(message)
                        return True
            return False

        await eventually(there, what)
        return found

    @property
    def heard(self) -> list[tuple[Any, bool]]:
        with self._lock:
            return list(self._heard)


@contextmanager
def monitor_process(url: str, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`twincal monitor` as it is started in production, without a broker."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TWINCAL_")}
    environment |= {"TWINCAL_DATA_DIR": os.devnull, "TWINCAL_DATABASE_URL": url}
    command = [sys.executable, "-c", "from app.cli import main; main()", "monitor", "--interval-s", "0.2", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_robots_are_told_of_what_they_sent_over_the_same_broker(
    engine: AsyncEngine, database_url: str, broker: EmbeddedBroker
) -> None:
    robot = await watched_robot(engine, new_id("told"))
    with Listener(broker.url, robot) as listener:
        async with ingesting(database_url, broker.url), monitoring(engine, broker.url):
            with RobotClient(broker.url, robot.robot, robot.fleet) as client:
                for worn in (1.0, 2.0):
                    recording = robot.motion(30.0, friction=worn * TRUTH[FRICTION])
                    client.send(*(message.payload for message in robot.messages(recording)))
                    await wait_for_samples(database_url, robot.robot, int(worn * 3000))
                    state = "ok" if worn == 1.0 else "drifted"
                    found = await until_drift(engine, robot.robot, state, state=state)
                    message = await listener.hear(state, state=state)
                    assert set(message) == {"score", "state", "version", "stamp"}
                    assert message["version"] == 1
                    assert datetime.fromisoformat(message["stamp"]) <= found.updated_at
        latest = await until_seen(engine, robot)
        # Said before anyone listened, or after: the broker keeps it.
        with Listener(broker.url, robot) as latecomer:
            kept = await latecomer.hear("what was said before", state="drifted")
            assert (kept["score"], latecomer.heard[0][1]) == (latest.score, True)


async def test_what_was_said_of_a_withdrawn_version_is_taken_back(
    engine: AsyncEngine, database_url: str, mqtt_url: str
) -> None:
    robot = await watched_robot(engine, new_id("withdrawn"))
    with Listener(mqtt_url, robot) as listener:
        async with monitoring(engine, mqtt_url):
            await robot.work(database_url, 10.0)
            await listener.hear("ok", state="ok")
            async with engine.begin() as connection:
                await versions.retire(connection, robot.robot, 1, Move("test"))

            async def taken_back() -> bool:
                return listener.heard[-1][0] is None

            await eventually(taken_back, "the retained message is empty")


async def test_a_broker_that_comes_back_empty_is_told_everything_again(
    engine: AsyncEngine, database_url: str, service_dir: Path
) -> None:
    robot = await watched_robot(engine, new_id("retold"))
    folder = service_dir / "broker-that-goes"
    with EmbeddedBroker(folder, "iotcore") as first:
        async with monitoring(engine, first.url) as _:
            await robot.work(database_url, 10.0)
            await until_drift(engine, robot.robot, "ok", state="ok")
            first.stop()
            await robot.work(database_url, 10.0)
            await until_seen(engine, robot)
            with EmbeddedBroker(folder, "iotcore") as second, Listener(second.url, robot) as listener:
                assert second.url == first.url
                assert (await listener.hear("ok", state="ok"))["version"] == 1


async def test_a_second_monitor_stands_by_and_takes_over_when_the_first_is_killed(
    engine: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    robot = await watched_robot(engine, "handed-over")
    port = free_port()
    with monitor_process(database_url, tmp_path / "first") as first:
        await robot.work(database_url, HALF_A_VERDICT_S, friction=2.0 * TRUTH[FRICTION])
        await until_drift(engine, robot.robot, "watched by the first", state="watch")
        with monitor_process(database_url, tmp_path / "second", "--metrics-port", str(port)) as second:
            log = tmp_path / "second"

            async def stands_by() -> bool:
                assert second.poll() is None, log.read_text()
                return "standing by" in log.read_text()

            await eventually(stands_by, "the second stands by", 60.0)
            assert "robots aren't told" in log.read_text()
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert "twincal_monitor_active 0.0" in (await client.get("/metrics")).text
                first.send_signal(signal.SIGKILL)
                first.wait()
                await robot.work(database_url, HALF_A_VERDICT_S, friction=2.0 * TRUTH[FRICTION])
                # Only with what the first had found is it enough for a verdict.
                await until_drift(engine, robot.robot, "drifted", state="drifted")
                metrics = (await client.get("/metrics")).text
            assert "twincal_monitor_active 1.0" in metrics
            assert re.search(r'^twincal_robot_drift_state\{robot_id="handed-over"\} 2(\.0)?$', metrics, re.MULTILINE)
            second.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(second.wait, DEADLINE_S) == 0


async def test_a_monitor_that_loses_the_lock_stands_by(engine: AsyncEngine) -> None:
    async with Leadership(engine) as one, Leadership(engine) as other:
        assert await one.take()
        assert not await other.take()
        assert (await one.holds(), await other.holds()) == (True, False)
        async with engine.connect() as connection:
            ended = await connection.execution_options(isolation_level="AUTOCOMMIT")
            holders = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            assert (await ended.execute(text(holders))).all() == [(True,)]
        assert not await one.holds()
        assert await other.take()
        assert await other.holds()
        assert not await one.take()


async def test_a_monitor_outlives_a_database_that_goes_away(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "survivor")
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
        async with engine.connect() as connection:
            ended = await connection.execution_options(isolation_level="AUTOCOMMIT")
            others = (
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
            assert await ended.scalar(text(others))
        await robot.work(database_url, 10.0)
        await until_seen(engine, robot)
