"""Ingest, whole: a real broker, a real database, robots that misbehave and parts that die."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database.migrate import upgrade_async
from app.embedded.broker import EmbeddedBroker
from app.embedded.postgres import EmbeddedPostgres
from app.errors import ServiceError
from app.ingest.broker import BrokerAddress
from app.ingest.dead_letters import Selection, get_dead_letter, list_dead_letters, replay_dead_letters
from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.files import read_log
from app.ingest.replay import Publisher, ReplayOptions, replay
from app.ingest.service import IngestOptions, IngestService
from app.ingest.session import SessionOptions
from app.metrics import ingest_disconnects, ingest_messages, ingest_sequence_gaps
from app.registry.recordings import list_recordings, load_recording
from app.telemetry import FleetId, RobotId
from tests.integration.ingesting import (
    DEADLINE_S,
    FLEET,
    RobotClient,
    batch,
    eventually,
    ingest_process,
    ingesting,
    new_id,
    query,
    register,
    stored,
    wait_for_letters,
    wait_for_samples,
)


@pytest.fixture
async def robot(engine: AsyncEngine) -> str:
    """A registered robot of the test's own."""
    robot = new_id("arm")
    await register(engine, robot)
    return robot


@pytest.fixture
def client(mqtt_url: str, robot: str) -> Iterator[RobotClient]:
    with RobotClient(mqtt_url, robot) as client:
        yield client


async def test_messages_become_rows_and_a_boot_becomes_a_recording(
    database_url: str, mqtt_url: str, engine: AsyncEngine, robot: str, client: RobotClient
) -> None:
    async with ingesting(database_url, mqtt_url):
        sent = client.send_batches(4, "boot-1") + client.send_batches(2, "boot-2")
        await wait_for_samples(database_url, robot, sent)
    async with engine.connect() as connection:
        recordings = await list_recordings(connection, robot)
    assert sorted((recording.boot_id, recording.samples) for recording in recordings) == [("boot-1", 12), ("boot-2", 6)]


async def test_a_repeated_message_is_stored_once(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    repeated = encode_json(batch(), "boot", 1)
    last = encode_json(batch(), "boot", 2)
    async with ingesting(database_url, mqtt_url):
        client.send(repeated, repeated, repeated)
        await wait_for_samples(database_url, robot, 3)
        client.send(repeated, last)
        await wait_for_samples(database_url, robot, 6)
    assert (await stored(database_url, robot)).messages == 2
    assert await query(database_url, "SELECT samples FROM recordings WHERE robot = $1", robot) == [(6,)]


async def test_a_repeat_without_a_stamp_is_told_by_boot_and_number(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    unstamped = json.loads(encode_json(batch(), "boot", 1)) | {"stamp": 0}
    anonymous = {**unstamped, "boot_id": None, "seq": None}
    async with ingesting(database_url, mqtt_url):
        client.send(*[json.dumps(unstamped).encode()] * 2)
        await wait_for_samples(database_url, robot, 3)
        client.send(json.dumps(unstamped).encode(), *[json.dumps(anonymous).encode()] * 2)
        await wait_for_samples(database_url, robot, 9)
    # One, and both that nothing tells apart.
    rows = await query(database_url, "SELECT boot_id, flags FROM telemetry_batches WHERE robot = $1 ORDER BY 1", robot)
    assert rows == [("", 3), ("", 3), ("boot", 1)]


async def test_a_bad_message_costs_itself_alone(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    async with ingesting(database_url, mqtt_url):
        infos = [client.publish(encode_json(batch(), "boot", i)) for i in range(5)]
        infos += [client.publish(payload) for payload in (b"", b"\x00", b"[" * 100_000, b'{"schema": 1e400}')]
        infos.append(client.publish(encode_json(batch(), "boot", 5), topic=client.topic + "/deeper"))
        infos += [client.publish(encode_msgpack(batch(), "boot", i)) for i in range(6, 11)]
        for info in infos:
            info.wait_for_publish(DEADLINE_S)
        await wait_for_samples(database_url, robot, 30)
        await wait_for_letters(database_url, robot, 4)
    state = await stored(database_url, robot)
    assert state.messages == 10
    assert sorted(state.letters) == ["empty", "not_json", "number_out_of_range", "too_deep"]
    by_topic = await query(database_url, "SELECT reason FROM dead_letters WHERE topic = $1", client.topic + "/deeper")
    assert by_topic == [("bad_topic",)]


async def test_a_row_that_the_database_refuses_is_set_aside_alone(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    await query(
        database_url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '22023'; END $$",
    )
    await query(
        database_url,
        "CREATE TRIGGER refuse BEFORE INSERT ON telemetry_batches FOR EACH ROW WHEN (NEW.seq = 13) "
        "EXECUTE FUNCTION refuse()",
    )
    async with ingesting(database_url, mqtt_url):
        client.send_batches(40, "boot")
        await wait_for_samples(database_url, robot, 117)
        await wait_for_letters(database_url, robot, 1)
    state = await stored(database_url, robot)
    assert (state.messages, state.samples, state.letters) == (39, 117, ["not_storable"])


async def test_an_unregistered_robots_messages_wait_for_its_registration(
    database_url: str, mqtt_url: str, engine: AsyncEngine
) -> None:
    robot = new_id("unknown")
    async with ingesting(database_url, mqtt_url):
        with RobotClient(mqtt_url, robot) as client:
            client.send_batches(3, "boot")
            await wait_for_letters(database_url, robot, 3)
            assert await stored(database_url, robot) == await stored(database_url, robot)
            assert (await stored(database_url, robot)).messages == 0
            await register(engine, robot)
            again = await replay_dead_letters(engine, database_url, Selection(robot=robot, reason="unregistered_robot"))
            assert (again.stored, again.samples, again.duplicates, sum(again.refused.values())) == (3, 9, 0, 0)
            repeated = await replay_dead_letters(engine, database_url, Selection(robot=robot))
            assert (repeated.stored, repeated.duplicates) == (0, 0)

            async def is_taken() -> bool:
                client.send(encode_json(batch(), "boot", int(time.monotonic() * 1000)))
                return (await stored(database_url, robot)).messages > 3

            await eventually(is_taken, "the registration is noticed without a restart")
    async with engine.connect() as connection:
        letters = await list_dead_letters(connection, Selection(robot=robot, reason="unregistered_robot"))
        assert sum(letter.replayed_at is not None for letter in letters) == 3
        assert (await get_dead_letter(connection, letters[-1].id)).payload == letters[-1].payload


async def test_a_letter_refused_again_keeps_the_reason_of_now(
    database_url: str, mqtt_url: str, engine: AsyncEngine
) -> None:
    robot = new_id("moved")
    async with ingesting(database_url, mqtt_url):
        with RobotClient(mqtt_url, robot) as client:
            client.send_batches(1, "boot")
            await wait_for_letters(database_url, robot, 1)
    await register(engine, robot, "legs")
    again = await replay_dead_letters(engine, database_url, Selection(robot=robot))
    assert (again.stored, dict(again.refused)) == (0, {"wrong_fleet": 1})
    assert (await stored(database_url, robot)).letters == ["wrong_fleet"]


async def test_a_robot_under_another_fleets_topic_is_a_dead_letter(
    database_url: str, mqtt_url: str, robot: str
) -> None:
    async with ingesting(database_url, mqtt_url):
        with RobotClient(mqtt_url, robot, fleet="legs") as client:
            client.send_batches(1, "boot")
            await wait_for_letters(database_url, robot, 1)
    assert (await stored(database_url, robot)).letters == ["wrong_fleet"]


async def test_a_retained_message_is_no_live_data(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    client.publish(encode_json(batch(), "stale", 0), retain=True).wait_for_publish(DEADLINE_S)
    before = ingest_messages.labels(outcome="retained")._value.get()
    async with ingesting(database_url, mqtt_url):

        async def was_seen() -> bool:
            return bool(ingest_messages.labels(outcome="retained")._value.get() > before)

        await eventually(was_seen, "the broker delivered what it kept")
        client.send_batches(1, "live")
        await wait_for_samples(database_url, robot, 3)
    client.publish(b"", retain=True).wait_for_publish(DEADLINE_S)
    rows = await query(database_url, "SELECT boot_id FROM telemetry_batches WHERE robot = $1", robot)
    assert rows == [("live",)]


async def test_messages_wait_at_the_broker_while_no_ingester_runs(
    database_url: str, broker: EmbeddedBroker, robot: str
) -> None:
    name = new_id("ingest")
    with RobotClient(broker.url, robot) as client:
        async with ingesting(database_url, broker.url, name):
            sent = client.send_batches(2, "boot")
            await wait_for_samples(database_url, robot, sent)
        sent += client.send_batches(30, "boot", first_seq=2)
        assert (await stored(database_url, robot)).messages == 2
        async with ingesting(database_url, broker.url, name):
            await wait_for_samples(database_url, robot, sent)
    assert (await stored(database_url, robot)).messages == 32


async def test_a_killed_ingester_loses_no_sample_and_stores_none_twice(
    database_url: str, broker: EmbeddedBroker, robot: str
) -> None:
    name = new_id("ingest")
    # The session is there before anything is published: what comes without one, no broker keeps.
    async with ingesting(database_url, broker.url, name):
        pass
    published = 2000
    with RobotClient(broker.url, robot) as client, ingest_process(database_url, broker.url, name) as process:
        infos = [client.publish(encode_json(batch(), "boot", i)) for i in range(published)]

        async def is_in_mid_stream() -> bool:
            assert process.poll() is None, "the ingester ended by itself"
            return (await stored(database_url, robot)).messages >= 100

        await eventually(is_in_mid_stream, "some are stored")
        process.kill()
        process.wait()
        assert (await stored(database_url, robot)).messages < published, "it was killed in the middle"
        for info in infos:
            info.wait_for_publish(DEADLINE_S)
    async with ingesting(database_url, broker.url, name):
        await wait_for_samples(database_url, robot, 3 * published)
    state = await stored(database_url, robot)
    assert (state.messages, state.samples, state.letters) == (published, 3 * published, [])
    numbers = await query(database_url, "SELECT count(DISTINCT seq) FROM telemetry_batches WHERE robot = $1", robot)
    assert numbers == [(published,)]
    assert await query(database_url, "SELECT samples FROM recordings WHERE robot = $1", robot) == [(3 * published,)]


async def test_a_restarted_database_costs_nothing(mqtt_url: str, service_dir: Path) -> None:
    robot = new_id("arm")
    with EmbeddedPostgres(service_dir / new_id("postgres"), None, {"fsync": "off"}) as server:
        await upgrade_async(server.url)
        await query(server.url, "INSERT INTO fleets (fleet) VALUES ($1)", FLEET)
        await query(server.url, "INSERT INTO robots (robot, fleet, declaration) VALUES ($1, $2, '{}')", robot, FLEET)
        async with ingesting(server.url, mqtt_url) as service:
            with RobotClient(mqtt_url, robot) as client:
                sent = client.send_batches(5, "boot")
                await wait_for_samples(server.url, robot, sent)
                await asyncio.to_thread(server.stop)
                sent += client.send_batches(20, "boot", first_seq=5)

                async def noticed() -> bool:
                    return not service.is_ready

                await eventually(noticed, "the ingester isn't ready without its database")
                await asyncio.to_thread(server.start)
                sent += client.send_batches(5, "boot", first_seq=25)
                await wait_for_samples(server.url, robot, sent)
        assert (await stored(server.url, robot)).messages == 30


async def test_a_batch_refused_for_good_comes_again_on_another_connection(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    async with ingesting(database_url, mqtt_url) as service:
        await query(database_url, "ALTER TABLE recordings RENAME TO hidden")
        client.send_batches(3, "boot")

        async def noticed() -> bool:
            return not service.is_ready

        await eventually(noticed, "the commit failed")
        assert (await stored(database_url, robot)).messages == 0
        await query(database_url, "ALTER TABLE hidden RENAME TO recordings")
        await wait_for_samples(database_url, robot, 9)
    assert (await stored(database_url, robot)).messages == 3


async def test_a_full_buffer_holds_up_a_broker_that_is_only_faster(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    full = ingest_disconnects.labels(cause="buffer_full")
    before = full._value.get()
    async with ingesting(database_url, mqtt_url, batch_messages=5, high_water_bytes=20_000, low_water_bytes=5_000):
        sent = client.send_batches(200, "boot")
        await wait_for_samples(database_url, robot, sent)
    assert (await stored(database_url, robot)).messages == 200
    assert full._value.get() == before


async def test_a_full_buffer_leaves_messages_with_the_broker_while_the_database_stalls(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    full = ingest_disconnects.labels(cause="buffer_full")
    before = full._value.get()
    async with ingesting(
        database_url, mqtt_url, batch_messages=5, high_water_bytes=20_000, low_water_bytes=5_000, patience_s=0.2
    ) as service:
        stalling = await asyncpg.connect(database_url)
        await stalling.execute("BEGIN; LOCK TABLE telemetry_batches")
        sent = client.send_batches(200, "boot")

        async def gave_up() -> bool:
            return bool(full._value.get() > before) and not service.is_ready

        await eventually(gave_up, "the ingester disconnects")
        await stalling.execute("ROLLBACK")
        await stalling.close()
        await wait_for_samples(database_url, robot, sent)
    assert (await stored(database_url, robot)).messages == 200


async def test_two_ingesters_of_one_name_end_with_the_cause_where_the_broker_only_hangs_up(
    database_url: str, mqtt_url: str
) -> None:
    name = new_id("ingest")
    options = IngestOptions(database_url, SessionOptions(BrokerAddress.parse(mqtt_url), client_id=name))
    services = [IngestService(options), IngestService(options)]
    tasks = [asyncio.create_task(service.run()) for service in services]
    done, _ = await asyncio.wait(tasks, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(ServiceError, match=f"taken over again and again.* another ingester connected as '{name}'"):
        await done.pop()
    for service in services:
        service.stop()
    await asyncio.wait(tasks)


async def test_an_ingester_whose_session_is_taken_over_ends_with_the_cause(database_url: str) -> None:
    async def take_over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A broker that says so, as EMQX does: CONNACK, SUBACK, DISCONNECT with 0x8E."""
        while header := await reader.read(2):
            body = await reader.readexactly(header[1])
            if header[0] == 0x10:
                writer.write(bytes([0x20, 3, 0, 0, 0]))
            elif header[0] == 0x82:
                writer.write(bytes([0x90, 4, *body[:2], 0, 1]) + bytes([0xE0, 1, 0x8E]))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(take_over, "127.0.0.1", 0)
    async with server:
        address = BrokerAddress("mqtt", *server.sockets[0].getsockname())
        service = IngestService(IngestOptions(database_url, SessionOptions(address, client_id="twin")))
        with pytest.raises(ServiceError, match="session taken over: another ingester connected as 'twin'"):
            await asyncio.wait_for(service.run(), DEADLINE_S)


async def test_a_message_of_qos_0_is_stored_and_not_acknowledged(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    lost = ingest_disconnects.labels(cause="lost")
    before = lost._value.get()
    async with ingesting(database_url, mqtt_url):
        client.publish(encode_json(batch(), "boot", 0), qos=0)
        client.send_batches(1, "boot", first_seq=1)
        await wait_for_samples(database_url, robot, 6)
        client.send_batches(1, "boot", first_seq=2)
        await wait_for_samples(database_url, robot, 9)
    assert lost._value.get() == before


async def test_ingesters_that_share_divide_the_work_and_one_that_leaves_takes_nothing_along(
    database_url: str, mqtt_url: str, robot: str, client: RobotClient
) -> None:
    async with ingesting(database_url, mqtt_url, shared=True):
        async with ingesting(database_url, mqtt_url, shared=True):
            infos = [client.publish(encode_json(batch(), "boot", i)) for i in range(300)]
        infos += [client.publish(encode_json(batch(), "boot", i)) for i in range(300, 400)]
        for info in infos:
            info.wait_for_publish(DEADLINE_S)
        await wait_for_samples(database_url, robot, 1200)
    assert (await stored(database_url, robot)).messages == 400


async def test_the_command_ends_in_good_order_when_asked_to(database_url: str, mqtt_url: str, robot: str) -> None:
    with RobotClient(mqtt_url, robot) as client, ingest_process(database_url, mqtt_url, new_id("ingest")) as process:

        async def is_up() -> bool:
            client.send_batches(1, "boot", first_seq=time.monotonic_ns())
            return (await stored(database_url, robot)).messages > 0

        await eventually(is_up, "the ingester stores")
        process.terminate()
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0


async def test_what_has_had_its_time_is_forgotten(database_url: str, mqtt_url: str, robot: str) -> None:
    await query(
        database_url,
        "INSERT INTO dead_letters (robot, topic, payload, payload_bytes, reason, detail, received_at, expires_at) "
        "SELECT $1, 't', '', 0, reason, '', now(), now() + days * interval '1 day' "
        "FROM (VALUES ('old', -1), ('young', 1)) AS letter (reason, days)",
        robot,
    )
    await query(
        database_url,
        "INSERT INTO unstamped_messages (robot, identity, received_at) "
        "SELECT $1, convert_to(days::text, 'UTF8'), now() - days * interval '1 day' "
        "FROM (VALUES (1), (31)) AS age (days)",
        robot,
    )
    async with ingesting(database_url, mqtt_url):

        async def is_forgotten() -> bool:
            return (await stored(database_url, robot)).letters == ["young"]

        await eventually(is_forgotten, "the old dead letter is gone")
    left = await query(database_url, "SELECT convert_from(identity, 'UTF8') FROM unstamped_messages")
    assert left == [("1",)]


async def test_numbers_left_out_are_counted(database_url: str, mqtt_url: str, robot: str, client: RobotClient) -> None:
    before = ingest_sequence_gaps._value.get()
    async with ingesting(database_url, mqtt_url):
        client.send_batches(2, "boot")
        client.send_batches(2, "boot", first_seq=7)
        await wait_for_samples(database_url, robot, 12)
    assert ingest_sequence_gaps._value.get() - before == 5


@pytest.mark.parametrize(
    ("log", "encoding"), [("xl330/kp100_lift_and_drop.csv", "msgpack"), ("double_pendulum/trajectory_00.csv", "json")]
)
async def test_a_replayed_log_comes_out_of_the_database_bit_for_bit(  # noqa: PLR0917 - pytest passes by name
    shared: Path, database_url: str, mqtt_url: str, engine: AsyncEngine, robot: str, log: str, encoding: Any
) -> None:
    recording = read_log(shared / "data" / log)
    options = ReplayOptions(FleetId(FLEET), RobotId(robot), encoding, rows_per_message=64, speed=None)

    def publish() -> tuple[str, int]:
        with Publisher(BrokerAddress.parse(mqtt_url), robot) as publisher:
            sent = replay(recording, options, publisher, lambda _: None)
        assert sent.unheard == 0
        return sent.boot_id, sent.samples

    async with ingesting(database_url, mqtt_url):
        boot_id, samples = await asyncio.to_thread(publish)
        assert samples == len(recording)
        await wait_for_samples(database_url, robot, samples)
    async with engine.connect() as connection:
        (summary,) = await list_recordings(connection, robot)
        assert (summary.boot_id, summary.samples) == (boot_id, samples)
        loaded = await load_recording(connection, robot, summary.id)
    assert loaded.digest() == recording.digest()
