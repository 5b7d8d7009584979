from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from app.database.telemetry import BatchOrigin, BatchRow, pack
from app.errors import ServiceError, TelemetryError
from app.ingest.broker import BrokerAddress
from app.ingest.buffer import Buffer, Delivery
from app.ingest.encode import encode_json
from app.ingest.gaps import SequenceGaps
from app.ingest.intake import Accepted, Intake, Message, Refused
from app.ingest.packet import Limits
from app.ingest.replay import split
from app.ingest.topic import parse_telemetry_topic
from app.telemetry import Recording, RobotId, SampleBatch

STAMP_NS = 1_767_225_600_000_000_000
TOPIC = "twincal/v1/arms/arm-01/telemetry/joints"
DEADLINE_S = 5.0


class Acknowledged:
    def __init__(self) -> None:
        self.mids: list[int] = []

    def acknowledge(self, mid: int) -> None:
        self.mids.append(mid)


def delivery(mid: int, size: int = 0) -> Delivery:
    return Delivery(Acknowledged(), mid, TOPIC, None, b"x" * size, retain=False, received_ns=mid)


def a_batch() -> SampleBatch:
    return SampleBatch(STAMP_NS, np.array([0, 5]), ("a",), {"position": np.array([[1.0], [2.0]])})


def row(seq: int | None, boot_id: str = "boot") -> BatchRow:
    return pack(a_batch(), BatchOrigin(RobotId("arm-01"), "joints", 1, boot_id=boot_id, seq=seq))


async def test_a_buffer_gives_out_messages_in_order_and_counts_them_until_released() -> None:
    buffer = Buffer(high_water_bytes=10**6, low_water_bytes=10**5, patience_s=1.0)
    for mid in range(5):
        assert buffer.put(delivery(mid))
    first = await buffer.take(max_messages=3, max_bytes=10**6)
    assert [item.mid for item in first] == [0, 1, 2]
    held = buffer.held_bytes
    buffer.release(first)
    assert buffer.held_bytes == held * 2 // 5
    assert [item.mid for item in await buffer.take(10, 1)] == [3], "one at least, however big"


async def test_a_buffer_wakes_who_waits_for_a_message() -> None:
    buffer = Buffer(10**6, 10**5, 1.0)
    taking = asyncio.create_task(buffer.take(10, 10**6))
    await asyncio.sleep(0)
    threading.Thread(target=buffer.put, args=(delivery(7),)).start()
    assert [item.mid for item in await asyncio.wait_for(taking, DEADLINE_S)] == [7]


async def test_a_full_buffer_holds_up_the_network_thread_until_there_is_room() -> None:
    buffer = Buffer(high_water_bytes=5000, low_water_bytes=2000, patience_s=DEADLINE_S)
    assert buffer.put(delivery(0, 2500))
    putting = asyncio.create_task(asyncio.to_thread(buffer.put, delivery(1, 2500)))
    taken: list[Delivery] = []
    while len(taken) < 2:
        taken += await buffer.take(1, 1)
    assert not putting.done()
    buffer.release(taken)
    assert await asyncio.wait_for(putting, DEADLINE_S)
    await asyncio.wait_for(buffer.wait_until_drained(), DEADLINE_S)


async def test_a_buffer_that_stays_full_says_so_and_later_that_it_drained() -> None:
    buffer = Buffer(high_water_bytes=1000, low_water_bytes=500, patience_s=0.0)
    assert not await asyncio.to_thread(buffer.put, delivery(0, 2500))
    waiting = asyncio.create_task(buffer.wait_until_drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    buffer.release(await buffer.take(1, 1))
    await asyncio.wait_for(waiting, DEADLINE_S)
    await asyncio.wait_for(buffer.wait_until_empty(), DEADLINE_S)


async def test_a_closed_buffer_gives_out_nothing_and_holds_up_nobody() -> None:
    buffer = Buffer(high_water_bytes=1000, low_water_bytes=500, patience_s=DEADLINE_S)
    taking = asyncio.create_task(buffer.take(1, 1))
    await asyncio.sleep(0)
    buffer.close()
    assert await asyncio.wait_for(taking, DEADLINE_S) == []
    start_s = time.monotonic()
    await asyncio.to_thread(buffer.put, delivery(0, 2500))
    assert time.monotonic() - start_s < DEADLINE_S / 2


def test_gaps_are_counted_by_stream_and_boot() -> None:
    gaps = SequenceGaps()
    assert [gaps.missing_before(row(seq)) for seq in (5, 6, 9, 7, 10)] == [0, 0, 2, 0, 0]
    assert gaps.missing_before(row(0, "next boot")) == 0
    assert gaps.missing_before(row(None)) == 0


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://localhost", BrokerAddress("mqtt", "localhost", 1883)),
        ("mqtts://me:p%40ss@broker.example:8884/", BrokerAddress("mqtts", "broker.example", 8884, "me", "p@ss")),
    ],
)
def test_a_broker_is_named_by_its_url(url: str, address: BrokerAddress) -> None:
    assert BrokerAddress.parse(url) == address
    assert "p@ss" not in f"{address} {address!r}"


@pytest.mark.parametrize("url", ["localhost:1883", "http://me:secret@host", "mqtt://", "mqtt://me:secret@host:x"])
def test_a_url_that_names_no_broker_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ServiceError, match="broker URL") as refused:
        BrokerAddress.parse(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "twincal/v1/arms/arm-01/telemetry",
        "twincal/v1/arms/arm-01/telemetry/a/b",
        "twincal/v1/arms//telemetry/joints",
        "twincal/v1/arms/.arm/telemetry/joints",
        "twincal/v2/arms/arm-01/telemetry/joints",
        "twincal/v1/arms/arm-01/connection/joints",
        "twincal/v1/arms/" + "a" * 65 + "/telemetry/joints",
    ],
)
def test_a_topic_that_is_none_of_ours_is_refused(topic: str) -> None:
    with pytest.raises(TelemetryError) as refused:
        parse_telemetry_topic(topic)
    assert refused.value.reason == "bad_topic"


def test_a_topic_says_fleet_robot_and_stream() -> None:
    topic = parse_telemetry_topic(TOPIC)
    assert (topic.fleet, topic.robot, topic.stream, str(topic)) == ("arms", "arm-01", "joints", TOPIC)


def test_a_message_is_accepted_as_its_row() -> None:
    message = Message(TOPIC, encode_json(a_batch(), "boot", 3), None, received_ns=STAMP_NS + 9)
    accepted = Intake().examine(message)
    assert isinstance(accepted, Accepted)
    assert (accepted.row.robot, accepted.row.seq, accepted.row.received_ns) == ("arm-01", 3, STAMP_NS + 9)
    assert (accepted.row.first_ns, accepted.row.last_ns, accepted.row.sample_count) == (STAMP_NS, STAMP_NS + 5, 2)


def test_a_dead_letter_keeps_what_can_be_tried_again_and_cuts_what_is_too_large() -> None:
    intake = Intake(Limits(payload_bytes=5000))
    message = Message(TOPIC, b"x" * 5000, "text/\0plain", STAMP_NS)
    whole = intake.examine(message)
    cut = intake.examine(replace(message, payload=b"x" * 5001))
    assert isinstance(whole, Refused)
    assert isinstance(cut, Refused)
    kept = intake.dead_letter(whole)
    assert (kept.robot, kept.fleet, kept.reason, kept.payload_bytes) == ("arm-01", "arms", "not_json", 5000)
    assert kept.payload == message.payload
    assert kept.content_type == "text/\\0plain"
    assert kept.expires_at > kept.received_at
    begun = intake.dead_letter(cut)
    assert (begun.reason, begun.payload_bytes) == ("too_large", 5001)
    assert len(begun.payload) < 5000


def test_a_dead_letter_without_a_topic_of_ours_names_no_robot() -> None:
    refused = Intake().examine(Message("some/\0where", b"{}", None, STAMP_NS))
    assert isinstance(refused, Refused)
    kept = Intake().dead_letter(refused)
    assert (kept.robot, kept.fleet, kept.topic, kept.reason) == (None, None, "some/\\0where", "bad_topic")


def test_a_log_is_split_without_moving_a_nanosecond() -> None:
    t_ns = np.array([0, 3, 10, 11, 400_000_000_001])
    values = np.arange(5, dtype=np.float64)[:, None]
    recording = Recording("log", 123, t_ns, ("a",), {"position": values}, {"supply_v": values[:, 0]})
    batches = list(split(recording, 2, STAMP_NS))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    times = np.concatenate([batch.stamp_ns + batch.dt_ns for batch in batches])
    assert (times - STAMP_NS).tolist() == t_ns.tolist()
    assert np.concatenate([batch.context["supply_v"] for batch in batches]).tolist() == [0, 1, 2, 3, 4]
