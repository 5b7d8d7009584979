"""Faults that users of such services met, one file each, adapted to our payloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.database.telemetry import BatchFlag
from app.errors import TelemetryError
from app.ingest.packet import SCHEMA, Origin, Packet, decode_packet
from app.ingest.topic import parse_telemetry_topic
from app.telemetry import Recording, assemble_recording

RECEIVED_NS = 1_767_229_200_000_000_000
STAMP_NS = 1_767_225_600_000_000_000


def lines(shared: Path, name: str) -> list[dict[str, Any]]:
    (path,) = (shared / "cases" / "telemetry").glob(name + "*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def payload(case: dict[str, Any]) -> bytes:
    """A case as one `twincal.telemetry/1` message of one row; the command's joints may be others than the measured."""
    names = list(case["name"])
    command = case.get("command", {})
    row = {key: ([case[key]] if case.get(key) else case.get(key)) for key in ("position", "velocity", "effort")}
    asked = dict(zip(command.get("name", []), command.get("position", []), strict=True))
    return json.dumps(
        {
            "schema": SCHEMA,
            "robot": case["robot_id"],
            "stamp": case["stamp"],
            "name": names,
            **row,
            "command": {"position": [[asked.get(name) for name in names]]} if asked else None,
        }
    ).encode()


def joint_state(case: dict[str, Any]) -> bytes:
    fields = ("name", "position", "velocity", "effort")
    return json.dumps({"header": {"stamp": case["stamp"]}, **{key: case[key] for key in fields}}).encode()


def decode_all(cases: Sequence[dict[str, Any]]) -> tuple[list[Packet], Counter[str]]:
    packets: list[Packet] = []
    reasons: Counter[str] = Counter()
    for case in cases:
        origin = Origin("arms", case["robot_id"], "joints", RECEIVED_NS)
        try:
            packets.append(decode_packet(payload(case), origin))
        except TelemetryError as error:
            reasons[error.reason] += 1
    return packets, reasons


def assemble(cases: Sequence[dict[str, Any]]) -> Recording:
    packets, reasons = decode_all(cases)
    assert not reasons
    return assemble_recording("case", [packet.batch for packet in packets])


@pytest.fixture
def clean(shared: Path) -> Recording:
    return assemble(lines(shared, "t01"))


def test_t01_a_clean_log_is_stored_whole(clean: Recording) -> None:
    assert clean.origin_ns == STAMP_NS
    assert clean.t_ns.tolist() == [10_000_000 * i for i in range(600)]
    assert clean.names == ("elbow", "shoulder")
    assert set(clean.channels) == {"position", "velocity", "effort", "command_position"}
    assert not any(np.isnan(values).any() for values in clean.channels.values())


def test_t01_says_the_same_as_joint_states_with_a_command_stream(shared: Path, clean: Recording) -> None:
    batches = []
    for case in lines(shared, "t01"):
        command = {"stamp": case["stamp"], **{key: case["command"].get(key, []) for key in case if key != "stamp"}}
        for stream, fields in (("joints", case), ("command", command)):
            batches.append(decode_packet(joint_state(fields), Origin("arms", "arm-01", stream, RECEIVED_NS)).batch)
    assert assemble_recording("streams", batches).digest() == clean.digest()


def test_t02_joints_are_keyed_by_name_whatever_their_order(shared: Path, clean: Recording) -> None:
    recording = assemble(lines(shared, "t02"))
    rows = len(recording)
    for channel in clean.channels:
        np.testing.assert_array_equal(recording.channels[channel], clean.channels[channel][:rows])


def test_t03_joints_of_one_robot_may_come_in_messages_of_their_own(shared: Path) -> None:
    recording = assemble(lines(shared, "t03"))
    assert len(recording) == 600
    present = ~np.isnan(recording.channels["position"])
    assert present.sum(axis=0).tolist() == [300, 300]
    assert (present.sum(axis=1) == 1).all()


def test_t04_an_empty_array_is_not_measured(shared: Path) -> None:
    assert set(assemble(lines(shared, "t04")).channels) == {"position", "command_position"}


def test_t05_nan_null_and_infinity_are_missing_never_zero(shared: Path) -> None:
    packets, reasons = decode_all(lines(shared, "t05"))
    assert not reasons
    assert sum(packet.flags == BatchFlag.NON_FINITE for packet in packets) == 75
    recording = assemble_recording("case", [packet.batch for packet in packets])
    assert "effort" not in recording.channels
    assert not np.isnan(recording.channels["position"]).any()


def test_t06_a_wrong_length_costs_that_message_alone(shared: Path) -> None:
    cases = lines(shared, "t06")
    wrong = sum(any(len(case[key]) != 2 for key in ("position", "velocity", "effort")) for case in cases)
    packets, reasons = decode_all(cases)
    assert wrong > 0
    assert reasons == {"length_mismatch": wrong}
    assert len(packets) == len(cases) - wrong


def test_t07_a_zero_stamp_is_our_receipt_and_said_so(shared: Path) -> None:
    packets, reasons = decode_all(lines(shared, "t07"))
    assert not reasons
    unset = [case["stamp"] == 0 for case in lines(shared, "t07")]
    assert any(unset)
    for packet, is_unset in zip(packets, unset, strict=True):
        assert bool(packet.flags & BatchFlag.STAMP_MISSING) == is_unset
        assert (packet.batch.stamp_ns == RECEIVED_NS) == is_unset


@pytest.mark.parametrize("name", ["t08", "t10"])
def test_t08_t10_order_and_repeats_change_nothing(shared: Path, clean: Recording, name: str) -> None:
    recording = assemble(lines(shared, name))
    rows = len(recording)
    assert len({case["stamp"] for case in lines(shared, name)}) == rows
    assert (np.diff(recording.t_ns) > 0).all()
    if name == "t08":
        np.testing.assert_array_equal(recording.channels["position"], clean.channels["position"][:rows])


@pytest.mark.parametrize(("unit", "resolution_ns"), [("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
def test_t09_the_unit_of_the_epoch_is_told_by_magnitude(shared: Path, unit: str, resolution_ns: int) -> None:
    cases = lines(shared, f"t09_epoch_{unit}")
    recording = assemble(cases)
    assert (recording.origin_ns + recording.t_ns).tolist() == [case["stamp"] * resolution_ns for case in cases]


def test_t12_positions_beyond_pi_are_kept_as_sent(shared: Path) -> None:
    cases = lines(shared, "t12")
    recording = assemble(cases)
    assert recording.channels["position"][:, 1].tolist() == [case["position"][0] for case in cases]


@pytest.mark.parametrize("name", ["t13", "t14", "t15", "t16", "t17", "t20", "t21", "t22", "t25", "t26", "t27"])
def test_values_are_stored_raw_whatever_they_mean(shared: Path, name: str) -> None:
    cases = lines(shared, name)
    recording = assemble(cases)
    assert len(recording) == len(cases)
    for row, case in enumerate(cases):
        for joint, value in zip(case["name"], case["position"], strict=True):
            assert recording.channels["position"][row, recording.names.index(joint)] == value


@pytest.mark.parametrize("name", ["t18", "t19"])
def test_gaps_and_uneven_rates_stay_in_the_times(shared: Path, name: str) -> None:
    cases = lines(shared, name)
    recording = assemble(cases)
    expected = [round(case["stamp"] * 1e6) * 1000 - STAMP_NS for case in cases]
    assert recording.t_ns.tolist() == expected


def test_t23_an_id_that_breaks_the_grammar_is_refused_by_its_topic(shared: Path) -> None:
    for case in lines(shared, "t23"):
        with pytest.raises(TelemetryError) as refused:
            parse_telemetry_topic(f"twincal/v1/arms/{case['robot_id']}/telemetry/joints")
        assert refused.value.reason == "bad_topic"
        origin = Origin("arms", "arm-01", "joints", RECEIVED_NS)
        with pytest.raises(TelemetryError) as mismatch:
            decode_packet(payload(case), origin)
        assert mismatch.value.reason == "robot_mismatch"


def test_t24_a_log_without_commands_has_none(shared: Path) -> None:
    assert set(assemble(lines(shared, "t24")).channels) == {"position", "velocity", "effort"}
