"""Each dialect of the simulated robots, read back by the product's own decoder, is the recording it was made from."""

from __future__ import annotations

import numpy as np
import pytest

from app.demo.dialects import DIALECTS, Dialect, messages
from app.demo.robots import RobotSpec, record
from app.ingest.packet import Origin, decode_packet
from app.telemetry import FleetId, Recording, RobotId, assemble_recording

ORIGIN_NS = 1_760_000_000_123_456_789


def spec(dialect: Dialect, index: int = 0) -> RobotSpec:
    return RobotSpec(FleetId("arms"), RobotId("arm-01"), dialect, 0, index, duration_s=2.0, speed=10.0)


def read_back(recording: Recording, dialect: Dialect) -> Recording:
    batches = []
    for message in messages(recording, dialect, ORIGIN_NS, "boot"):
        origin = Origin("arms", "arm-01", message.stream, ORIGIN_NS, message.content_type)
        batches.append(decode_packet(message.payload, origin).batch)
    return assemble_recording("read back", batches)


@pytest.mark.parametrize("dialect", ["json", "ros"])
def test_text_dialects_carry_every_bit(dialect: Dialect) -> None:
    recording = record(spec(dialect))
    again = read_back(recording, dialect)
    assert again.digest() == recording.digest()
    assert again.origin_ns == ORIGIN_NS


def test_msgpack_in_float32_loses_less_than_a_thousandth_of_an_encoder_step() -> None:
    recording = record(spec("msgpack"))
    again = read_back(recording, "msgpack")
    assert again.names == recording.names
    np.testing.assert_array_equal(again.t_ns, recording.t_ns)
    for channel, values in recording.channels.items():
        np.testing.assert_allclose(again.channels[channel], values, atol=2e-7)


def test_messages_are_due_in_the_order_and_at_the_pace_of_the_motion() -> None:
    recording = record(spec("json"))
    for dialect in DIALECTS:
        due = [message.due_ns for message in messages(recording, dialect, ORIGIN_NS, "boot")]
        assert due == sorted(due)
        assert due[-1] == recording.t_ns[-1]
