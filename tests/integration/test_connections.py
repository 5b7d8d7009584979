"""What robots say of their connection: the latest word wins, whatever way and in whatever order it comes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.embedded.broker import EmbeddedBroker
from app.ingest.broker import BrokerAddress, Client
from app.ingest.dead_letters import Selection, replay_dead_letters
from app.telemetry import RobotId
from tests.integration.ingesting import (
    DEADLINE_S,
    FLEET,
    eventually,
    ingesting,
    new_id,
    query,
    register,
    stored,
    wait_for_letters,
)
from tests.integration.serving import client_of, make_key, running_api

NOON = 1_780_000_000


def word(state: str, stamp: float = NOON) -> bytes:
    return json.dumps({"state": state, "stamp": stamp}).encode()


class Robot:
    """A robot that says how its connection stands, and whose broker says so when it is lost."""

    def __init__(self, mqtt_url: str, robot: str, will: bytes | None = None, fleet: str = FLEET) -> None:
        self.topic = f"twincal/v1/{fleet}/{robot}/connection"
        self._client = Client(BrokerAddress.parse(mqtt_url), f"{robot}-client")
        if will is not None:
            self._client.will_set(self.topic, will, qos=1, retain=True)

    def __enter__(self) -> Self:
        address = self._client.address
        self._client.connect(address.host, address.port)
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def say(self, *payloads: bytes) -> None:
        for payload in payloads:
            self._client.publish(self.topic, payload, qos=1, retain=True).wait_for_publish(DEADLINE_S)

    def lose_connection(self) -> None:
        """As a robot whose power fails: no word of farewell."""
        connected = self._client.socket()
        assert isinstance(connected, socket.socket)
        connected.shutdown(socket.SHUT_RDWR)


@pytest.fixture
async def robot(engine: AsyncEngine) -> str:
    """A registered robot of the test's own."""
    robot = new_id("arm")
    await register(engine, robot)
    return robot


@pytest.fixture
def client(mqtt_url: str, robot: str) -> Iterator[Robot]:
    with Robot(mqtt_url, robot) as client:
        yield client


async def known(url: str, robot: str) -> list[tuple[str, datetime]]:
    return await query(url, "SELECT state, stamp FROM connections WHERE robot = $1", robot)


async def wait_for_state(url: str, robot: str, state: str, stamp: float | None = None) -> None:
    async def there() -> bool:
        rows = await known(url, robot)
        return bool(rows) and rows[0][0] == state and (stamp is None or rows[0][1].timestamp() == stamp)

    await eventually(there, f"{robot} is {state}")


async def test_a_robot_that_comes_and_goes_is_seen_to(
    database_url: str, mqtt_url: str, robot: str, client: Robot
) -> None:
    async with ingesting(database_url, mqtt_url):
        client.say(word("ONLINE"))
        await wait_for_state(database_url, robot, "ONLINE", NOON)
        client.say(word("OFFLINE", NOON + 5.5))
        await wait_for_state(database_url, robot, "OFFLINE", NOON + 5.5)
    assert (await stored(database_url, robot)).letters == []


async def test_what_the_broker_kept_counts_though_retained(
    database_url: str, broker: EmbeddedBroker, robot: str
) -> None:
    with Robot(broker.url, robot) as client:
        client.say(word("ONLINE"))
        async with ingesting(database_url, broker.url):
            await wait_for_state(database_url, robot, "ONLINE")


async def test_the_broker_says_it_when_a_robot_is_lost(database_url: str, broker: EmbeddedBroker, robot: str) -> None:
    """Its will is older than its ONLINE, as a client library's that was told it at the program's start."""
    async with ingesting(database_url, broker.url):
        with Robot(broker.url, robot, will=word("CONNECTIONBROKEN", NOON - 3600)) as client:
            client.say(word("ONLINE"))
            await wait_for_state(database_url, robot, "ONLINE")
            client.lose_connection()
            await wait_for_state(database_url, robot, "CONNECTIONBROKEN", NOON)
        with Robot(broker.url, robot, will=word("CONNECTIONBROKEN", NOON - 3600)) as client:
            client.say(word("ONLINE", NOON + 60))
            await wait_for_state(database_url, robot, "ONLINE", NOON + 60)
            client.say(word("OFFLINE", NOON + 70))
        await wait_for_state(database_url, robot, "OFFLINE", NOON + 70)


async def test_the_latest_stamp_wins_whatever_comes_last(
    database_url: str, mqtt_url: str, robot: str, client: Robot
) -> None:
    async with ingesting(database_url, mqtt_url):
        client.say(word("OFFLINE", NOON + 10), word("ONLINE", NOON), b"nonsense")
        await wait_for_letters(database_url, robot, 1)
        assert await known(database_url, robot) == [("OFFLINE", datetime.fromtimestamp(NOON + 10, UTC))]
        client.say(word("ONLINE", NOON + 10))
        await wait_for_state(database_url, robot, "ONLINE", NOON + 10)


async def test_a_clock_once_set_wrong_does_not_have_the_last_word(
    database_url: str, mqtt_url: str, robot: str, client: Robot
) -> None:
    async with ingesting(database_url, mqtt_url):
        client.say(word("ONLINE", 4_000_000_000))
        await wait_for_state(database_url, robot, "ONLINE")
        client.say(word("OFFLINE", time.time() + 0.001))
        await wait_for_state(database_url, robot, "OFFLINE")


async def test_words_that_waited_for_the_ingester_end_with_the_last(
    database_url: str, broker: EmbeddedBroker, robot: str
) -> None:
    name = new_id("ingest")
    async with ingesting(database_url, broker.url, name):
        pass
    with Robot(broker.url, robot) as client:
        client.say(word("ONLINE"), word("CONNECTIONBROKEN", NOON - 1), word("ONLINE", NOON + 20))
        async with ingesting(database_url, broker.url, name):
            await wait_for_state(database_url, robot, "ONLINE", NOON + 20)


async def test_ingesters_that_share_the_work_all_hear_it(database_url: str, broker: EmbeddedBroker, robot: str) -> None:
    async with (
        ingesting(database_url, broker.url, shared=True),
        ingesting(database_url, broker.url, shared=True),
    ):
        with Robot(broker.url, robot) as client:
            client.say(word("ONLINE"), word("OFFLINE", NOON + 1))
            await wait_for_state(database_url, robot, "OFFLINE", NOON + 1)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"ONLINE", "not_json"),
        (b'"ONLINE"', "wrong_type"),
        (b'{"state": "ONLINE"}', "missing_field"),
        (b'{"stamp": 1780000000}', "missing_field"),
        (word("online"), "bad_state"),
        (b'{"state": ["ONLINE"], "stamp": 1780000000}', "bad_state"),
        (b'{"state": "ONLINE", "stamp": "yesterday"}', "bad_stamp"),
        (b'{"state": "ONLINE", "stamp": "2026-05-01T12:00:00"}', "naive_stamp"),
        (word("ONLINE", 1000), "stamp_out_of_range"),
        (b'{"state": "ONLINE", "stamp": 1780000000, "since": 1}', "unknown_field"),
        (b'{"state": "ONLINE", "stamp": 0, "state ": "' + b"x" * 5000 + b'"}', "too_large"),
    ],
)
async def test_nonsense_is_a_dead_letter_and_changes_nothing(
    database_url: str, mqtt_url: str, robot: str, client: Robot, payload: bytes, reason: str
) -> None:
    async with ingesting(database_url, mqtt_url):
        client.say(word("ONLINE"), payload)
        await wait_for_letters(database_url, robot, 1)
    assert (await stored(database_url, robot)).letters == [reason]
    assert await known(database_url, robot) == [("ONLINE", datetime.fromtimestamp(NOON, UTC))]


async def test_an_unregistered_robots_word_is_a_dead_letter_that_counts_once_it_is_registered(
    engine: AsyncEngine, database_url: str, mqtt_url: str
) -> None:
    robot = new_id("arm")
    async with ingesting(database_url, mqtt_url):
        with Robot(mqtt_url, robot) as client:
            client.say(word("ONLINE"))
            await wait_for_letters(database_url, robot, 1)
    assert (await stored(database_url, robot)).letters == ["unregistered_robot"]
    await register(engine, robot)
    replayed = await replay_dead_letters(engine, database_url, Selection(robot=robot))
    assert (replayed.stored, replayed.refused) == (1, {})
    await wait_for_state(database_url, robot, "ONLINE", NOON)


async def test_a_word_under_another_fleet_is_a_dead_letter(database_url: str, mqtt_url: str, robot: str) -> None:
    async with ingesting(database_url, mqtt_url):
        with Robot(mqtt_url, robot, fleet="legs") as client:
            client.say(word("ONLINE"))
            await wait_for_letters(database_url, robot, 1)
    assert (await stored(database_url, robot)).letters == ["wrong_fleet"]
    assert await known(database_url, robot) == []


async def test_a_robots_page_shows_its_connection(
    engine: AsyncEngine, database_url: str, mqtt_url: str, robot: str, client: Robot
) -> None:
    _, token = await make_key(engine)

    async def shown(path: str) -> Any:
        return (await api.get(path)).raise_for_status().json()

    async with running_api(engine) as url, client_of(url, token) as api:
        assert (await shown(f"/v1/robots/{RobotId(robot)}"))["connection"] is None
        async with ingesting(database_url, mqtt_url):
            client.say(word("ONLINE"))
            await wait_for_state(database_url, robot, "ONLINE")
        one = (await shown(f"/v1/robots/{robot}"))["connection"]
        (listed,) = (await shown(f"/v1/robots?fleet={FLEET}"))["items"]
        assert (await api.delete(f"/v1/robots/{robot}")).status_code == 204
    assert (one["state"], one["stamp"]) == ("ONLINE", "2026-05-28T20:26:40Z")
    assert abs(datetime.fromisoformat(one["received_at"]).timestamp() - time.time()) < DEADLINE_S
    assert listed["connection"] == one
    assert await known(database_url, robot) == []
