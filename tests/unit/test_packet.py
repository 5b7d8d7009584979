from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.database.telemetry import BatchFlag
from app.errors import TelemetryError
from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.packet import SCHEMA, Limits, Origin, Packet, decode_packet
from app.ingest.refusal import REASONS
from app.telemetry import CHANNELS, CONTEXT_NAMES, SampleBatch

RECEIVED_NS = 1_767_225_700_000_000_001
STAMP_NS = 1_767_225_600_000_000_000
ORIGIN = Origin(fleet="arms", robot="arm-01", stream="joints", received_ns=RECEIVED_NS)

BATCH: dict[str, Any] = {
    "schema": SCHEMA,
    "boot_id": "b1",
    "seq": 17,
    "stamp": {"sec": 1_767_225_600, "nanosec": 7},
    "name": ["shoulder", "elbow"],
    "dt_ns": [0, 1_000_000],
    "position": [[0.1, 0.2], [0.3, None]],
    "effort": [],
    "command": {"position": [[1, 2], [3, 4]], "kp": [[80, 80], [80, 80]], "enabled": [[True, False], [1, 0]]},
    "context": {"supply_v": [24.1, 24.2], "temperature_c": 31, "payload_kg": [0.5]},
}
JOINT_STATE: dict[str, Any] = {
    "header": {"stamp": {"sec": 1_767_225_600, "nanosec": 7}, "frame_id": "base"},
    "name": ["elbow", "shoulder"],
    "position": [0.2, 0.1],
    "velocity": [],
    "effort": [float("nan"), 1.5],
}


def decode(document: object, origin: Origin = ORIGIN, **changes: Any) -> Packet:
    if isinstance(document, Mapping):
        document = json.dumps({**document, **changes}).encode()
    assert isinstance(document, bytes)
    return decode_packet(document, origin)


def reason_of(document: object, origin: Origin = ORIGIN, **changes: Any) -> str:
    with pytest.raises(TelemetryError) as refused:
        decode(document, origin, **changes)
    assert refused.value.reason in REASONS
    assert "\n" not in str(refused.value)
    return refused.value.reason


def test_a_batch_is_read_by_name_and_row() -> None:
    packet = decode(BATCH)
    assert (packet.stream, packet.boot_id, packet.seq, packet.flags) == ("joints", "b1", 17, BatchFlag.NONE)
    batch = packet.batch
    assert batch.stamp_ns == STAMP_NS + 7
    assert batch.dt_ns.tolist() == [0, 1_000_000]
    assert batch.names == ("shoulder", "elbow")
    assert list(batch.channels) == ["position", "command_position", "command_kp", "command_enabled"]
    np.testing.assert_array_equal(batch.channels["position"], [[0.1, 0.2], [0.3, np.nan]])
    np.testing.assert_array_equal(batch.channels["command_position"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(batch.channels["command_enabled"], [[1, 0], [1, 0]])
    np.testing.assert_array_equal(batch.context["supply_v"], [24.1, 24.2])
    np.testing.assert_array_equal(batch.context["temperature_c"], [31, 31])
    np.testing.assert_array_equal(batch.context["payload_kg"], [0.5, 0.5])


def test_a_joint_state_is_measured_on_any_stream_and_commanded_on_the_command_stream() -> None:
    measured = decode(JOINT_STATE)
    assert measured.batch.names == ("elbow", "shoulder")
    assert (measured.seq, measured.boot_id, measured.batch.stamp_ns) == (None, "", STAMP_NS + 7)
    assert list(measured.batch.channels) == ["position", "effort"]
    np.testing.assert_array_equal(measured.batch.channels["position"], [[0.2, 0.1]])
    np.testing.assert_array_equal(measured.batch.channels["effort"], [[np.nan, 1.5]])
    commanded = decode(JOINT_STATE, replace(ORIGIN, stream="command"))
    assert list(commanded.batch.channels) == ["command_position", "command_effort"]


def test_the_ros_1_spelling_of_a_stamp_is_read_too() -> None:
    packet = decode(JOINT_STATE, header={"seq": 3, "stamp": {"secs": 1_767_225_600, "nsecs": 8}, "frame_id": ""})
    assert packet.batch.stamp_ns == STAMP_NS + 8


def test_a_content_type_decides_and_an_unknown_one_leaves_it_to_the_first_byte() -> None:
    packed = msgpack.packb(BATCH | {"dt_ns": [0, 5]})
    assert decode_packet(packed, ORIGIN).batch.dt_ns.tolist() == [0, 5]
    assert decode_packet(packed, replace(ORIGIN, content_type="text/plain")).seq == 17
    assert reason_of(packed, replace(ORIGIN, content_type="application/json")) == "not_json"
    text = json.dumps(BATCH).encode()
    assert decode_packet(b" \n" + text, replace(ORIGIN, content_type="application/json; charset=utf-8")).seq == 17
    assert reason_of(text, replace(ORIGIN, content_type="Application/MsgPack")) == "not_msgpack"


def test_missing_values_may_be_null_or_the_tokens_that_json_has_not() -> None:
    text = json.dumps(BATCH).replace("0.1, 0.2", "NaN, -Infinity").replace("24.1", '"nan"')
    packet = decode(text.replace('"shoulder"', r'"a NaN \" Infinity"').encode())
    assert packet.batch.names == ('a NaN " Infinity', "elbow")
    np.testing.assert_array_equal(packet.batch.channels["position"], [[np.nan, np.nan], [0.3, np.nan]])
    np.testing.assert_array_equal(packet.batch.context["supply_v"], [np.nan, 24.2])
    assert packet.flags == BatchFlag.NON_FINITE


def test_nan_alone_is_a_missing_value_and_not_odd() -> None:
    assert decode(JOINT_STATE).flags == BatchFlag.NONE


@pytest.mark.parametrize(
    ("stamp", "expected_ns"),
    [
        (1_767_225_600, STAMP_NS),
        (1_767_225_600_010, STAMP_NS + 10_000_000),
        (1_767_225_600_010_001, STAMP_NS + 10_001_000),
        (1_767_225_600_009_999_873, STAMP_NS + 9_999_873),
        (1_767_225_600.01, STAMP_NS + 10_000_000),
        (1_767_225_600_010.5, STAMP_NS + 10_500_000),
        ({"sec": 1_767_225_600, "nanosec": 999_999_999}, STAMP_NS + 999_999_999),
        ("2026-01-01T00:00:00Z", STAMP_NS),
        ("2026-01-01T01:00:00.123456789+01:00", STAMP_NS + 123_456_789),
        ("2025-12-31 23:00:00.5-0100", STAMP_NS + 500_000_000),
    ],
)
def test_the_unit_of_a_stamp_follows_from_its_magnitude_and_integers_stay_exact(
    stamp: object, expected_ns: int
) -> None:
    assert decode(BATCH, stamp=stamp).batch.stamp_ns == expected_ns


@pytest.mark.parametrize("stamp", [0, 0.0, None, {"sec": 0, "nanosec": 0}])
def test_no_stamp_means_our_receipt_and_says_so(stamp: object) -> None:
    packet = decode(BATCH, stamp=stamp)
    assert packet.batch.stamp_ns == RECEIVED_NS
    assert packet.flags == BatchFlag.STAMP_MISSING


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("2026-01-01T00:00:00", "naive_stamp"),
        ("2026-13-01T00:00:00Z", "bad_stamp"),
        ("yesterday", "bad_stamp"),
        ("1970-01-02T00:00:00Z", "stamp_out_of_range"),
        (86_400, "stamp_out_of_range"),
        (4_575_657_600_000_000, "stamp_out_of_range"),
        (2**80, "stamp_out_of_range"),
        (-1_767_225_600, "stamp_out_of_range"),
        (145_000_000 * 31_556_952, "stamp_out_of_range"),
        ({"sec": 145_000_000 * 31_556_952, "nanosec": 0}, "stamp_out_of_range"),
        ({"sec": 86_400, "nanosec": 0}, "stamp_out_of_range"),
        ({"sec": 1_767_225_600}, "bad_stamp"),
        ({"sec": 1_767_225_600.5, "nanosec": 0}, "bad_stamp"),
        ({"sec": 1_767_225_600, "nanosec": 1_000_000_000}, "bad_stamp"),
        ({"sec": 2**62, "nanosec": 0}, "bad_stamp"),
        (True, "bad_stamp"),
        ([1_767_225_600, 0], "bad_stamp"),
    ],
)
def test_a_stamp_that_no_running_robot_has_is_refused(stamp: object, reason: str) -> None:
    assert reason_of(BATCH, stamp=stamp) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": "twincal.telemetry/2"}, "unknown_payload"),
        ({"robot": "arm-02"}, "robot_mismatch"),
        ({"fleet": "legs"}, "robot_mismatch"),
        ({"positon": []}, "unknown_field"),
        ({"command": {"torque": []}}, "unknown_field"),
        ({"context": {"humidity": 1}}, "unknown_field"),
        ({"name": ["elbow", "elbow"]}, "duplicate_name"),
        ({"name": ["elbow", "a\0b"]}, "bad_name"),
        ({"name": ["elbow", ""]}, "bad_name"),
        ({"name": ["elbow", "x" * 257]}, "bad_name"),
        ({"name": ["elbow", 7]}, "wrong_type"),
        ({"name": "elbow"}, "wrong_type"),
        ({"name": [f"j{i}" for i in range(257)]}, "too_many_joints"),
        ({"boot_id": 7}, "wrong_type"),
        ({"boot_id": "a\0"}, "bad_name"),
        ({"seq": -1}, "number_out_of_range"),
        ({"seq": 2**63}, "number_out_of_range"),
        ({"seq": 1.0}, "wrong_type"),
        ({"seq": True}, "wrong_type"),
        ({"position": [[0.1, 0.2]]}, "length_mismatch"),
        ({"position": [[0.1, 0.2], [0.3]]}, "length_mismatch"),
        ({"position": [[0.1, 0.2], [0.3, 0.4, 0.5]]}, "length_mismatch"),
        ({"position": [[0.1, 0.2], 0.3]}, "wrong_type"),
        ({"position": [[0.1, "0.2"], [0.3, 0.4]]}, "wrong_type"),
        ({"position": [[0.1, True], [0.3, 0.4]]}, "wrong_type"),
        ({"position": "0.1"}, "wrong_type"),
        ({"command": {"position": [[1, 2]]}}, "length_mismatch"),
        ({"command": []}, "wrong_type"),
        ({"context": {"supply_v": [1, 2, 3]}}, "length_mismatch"),
        ({"context": {"supply_v": "24"}}, "wrong_type"),
        ({"dt_ns": [0, 0]}, "rows_out_of_order"),
        ({"dt_ns": [5, 0]}, "rows_out_of_order"),
        ({"dt_ns": [0, 0.5]}, "wrong_type"),
        ({"dt_ns": [0, 2**63]}, "number_out_of_range"),
        ({"dt_ns": [0, 3601 * 10**9]}, "number_out_of_range"),
        ({"dt_ns": None}, "missing_field"),
        ({"dt_ns": list(range(10_001))}, "too_many_samples"),
        ({"position": None, "command": None, "context": None}, "empty"),
    ],
)
def test_a_batch_at_fault_is_refused_whole(changes: dict[str, Any], reason: str) -> None:
    assert reason_of(BATCH, **changes) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"position": [0.2]}, "length_mismatch"),
        ({"velocity": [1, 2, 3]}, "length_mismatch"),
        ({"name": []}, "empty"),
        ({"position": [], "effort": []}, "empty"),
        ({"header": None}, "wrong_type"),
        ({"robot": "arm-02"}, "robot_mismatch"),
        ({"name": ["elbow", "elbow"]}, "duplicate_name"),
    ],
)
def test_a_joint_state_at_fault_is_refused_whole(changes: dict[str, Any], reason: str) -> None:
    assert reason_of(JOINT_STATE, **changes) == reason


def test_a_joint_state_without_names_is_refused() -> None:
    assert reason_of(b'{"header": {"stamp": {"sec": 1767225600, "nanosec": 0}}, "position": [1]}') == "missing_field"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "empty"),
        (b"hello", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b'{"schema": "\xff"}', "not_json"),
        (b'{"schema": 1e400}', "number_out_of_range"),
        (b'{"schema": NaN, "seq": 1e400}', "number_out_of_range"),
        (b"[" * 100_000, "too_deep"),
        (b'{"a": NaN, "b": ' + b"[" * 100_000, "too_deep"),
        (b"NaN", "wrong_type"),
        (b"[1, 2]", "wrong_type"),
        (b"{}", "unknown_payload"),
        (b'{"NaN' + rb"\"" * 300_000, "not_json"),
        (b" " * ((1 << 20) + 1), "too_large"),
        (b"\x80", "unknown_payload"),
        (b"\x81\xa1a" + b"\x91" * 100_000, "too_deep"),
        (b"\xdf\xff\xff\xff\xff", "not_msgpack"),
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "not_msgpack"),
        (b"\x81\xa1a\xc6\xff\xff\xff\xff", "not_msgpack"),
        (b"\x80\x80", "not_msgpack"),
        (b"\x81\x01\x02", "not_msgpack"),
        (b"\x81\xa1\xff\x02", "not_msgpack"),
    ],
)
def test_bytes_that_hold_no_message_are_refused(payload: bytes, reason: str) -> None:
    assert reason_of(payload) == reason


def typed(values: Any, dtype: str) -> dict[str, Any]:
    array = np.asarray(values, dtype=dtype)
    return {"dtype": dtype, "shape": list(array.shape), "data": array.tobytes()}


def test_msgpack_arrays_are_read_in_each_of_their_types() -> None:
    document = BATCH | {
        "dt_ns": typed([0, 9], "<i8"),
        "position": typed([[0.5, np.inf], [np.nan, 2]], "<f4"),
        "velocity": typed([[0.1, 0.2], [0.3, 0.4]], "<f8"),
        "effort": typed(np.zeros((0, 2)), "<f8"),
        "command": {"enabled": typed([[1, 0], [1, 1]], "<i8")},
        "context": {"supply_v": typed([24.5], "<f4")},
    }
    packet = decode_packet(msgpack.packb(document), ORIGIN)
    np.testing.assert_array_equal(packet.batch.channels["position"], [[0.5, np.nan], [np.nan, 2]])
    np.testing.assert_array_equal(packet.batch.channels["velocity"], [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_array_equal(packet.batch.channels["command_enabled"], [[1, 0], [1, 1]])
    np.testing.assert_array_equal(packet.batch.context["supply_v"], [24.5, 24.5])
    assert "effort" not in packet.batch.channels
    assert packet.flags == BatchFlag.NON_FINITE
    assert all(array.dtype == np.float64 for array in packet.batch.channels.values())


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ({"dtype": "<f8", "shape": [2**31, 2**31], "data": b""}, "length_mismatch"),
        ({"dtype": "<f8", "shape": [2**60, 16], "data": b""}, "wrong_type"),
        ({"dtype": "<f8", "shape": [2, 2], "data": b"1234567"}, "length_mismatch"),
        ({"dtype": "<f8", "shape": [4], "data": b"\0" * 32}, "wrong_type"),
        ({"dtype": "<f8", "shape": [-2, -2], "data": b"\0" * 32}, "wrong_type"),
        ({"dtype": "<f8", "shape": [2, 2.0], "data": b"\0" * 32}, "wrong_type"),
        ({"dtype": "|O", "shape": [2, 2], "data": b"\0" * 32}, "wrong_type"),
        ({"dtype": "<f8", "shape": [2, 2], "data": "0" * 32}, "wrong_type"),
        ({"dtype": "<f8", "shape": [4, 1], "data": b"\0" * 32}, "length_mismatch"),
        ({"dtype": "<f8", "shape": [1, 2], "data": b"\0" * 16}, "length_mismatch"),
        ({}, "wrong_type"),
    ],
)
def test_a_msgpack_array_is_checked_before_it_takes_memory(array: dict[str, Any], reason: str) -> None:
    assert reason_of(msgpack.packb(BATCH | {"position": array})) == reason


def test_msgpack_times_must_be_integers() -> None:
    assert reason_of(msgpack.packb(BATCH | {"dt_ns": typed([0.0, 1.0], "<f8")})) == "wrong_type"


def test_a_limit_says_what_it_is() -> None:
    with pytest.raises(TelemetryError, match="at most 10"):
        decode_packet(b"x" * 11, ORIGIN, Limits(payload_bytes=10))


finite = st.floats(allow_nan=True, allow_infinity=False, width=64)


@st.composite
def batches(draw: st.DrawFn) -> SampleBatch:
    rows = draw(st.integers(1, 4))
    names = tuple(draw(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=9),
                                min_size=1, max_size=3, unique=True)))  # fmt: skip
    steps = draw(st.lists(st.integers(1, 10**11), min_size=rows, max_size=rows))

    def table(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(finite, min_size=size, max_size=size)), dtype=np.float64).reshape(shape)

    channels = draw(st.lists(st.sampled_from(CHANNELS), min_size=1, unique=True))
    context = draw(st.lists(st.sampled_from(CONTEXT_NAMES), unique=True))
    return SampleBatch(
        stamp_ns=draw(st.integers(946_684_800 * 10**9, 4_000_000_000 * 10**9)),
        dt_ns=np.cumsum(np.array(steps, dtype=np.int64)),
        names=names,
        channels={channel: table((rows, len(names))) for channel in channels},
        context={name: table((rows,)) for name in context},
    )


def bits(batch: SampleBatch) -> dict[str, bytes]:
    values = {str(k): v for group in (batch.channels, batch.context) for k, v in group.items()}
    return {name: np.where(np.isnan(array), np.nan, array).tobytes() for name, array in values.items()}


@given(batches())
def test_encoding_and_decoding_gives_back_every_bit(batch: SampleBatch) -> None:
    for payload in (encode_json(batch, "boot", 3), encode_msgpack(batch, "boot", 3)):
        packet = decode_packet(payload, ORIGIN)
        assert (packet.boot_id, packet.seq, packet.flags) == ("boot", 3, BatchFlag.NONE)
        assert packet.batch.stamp_ns == batch.stamp_ns
        assert packet.batch.names == batch.names
        assert packet.batch.dt_ns.tolist() == batch.dt_ns.tolist()
        assert bits(packet.batch) == bits(batch)


def test_single_precision_halves_the_values_and_keeps_the_times() -> None:
    batch = SampleBatch(STAMP_NS, np.array([1, 10**9 + 1]), ("a",), {"position": np.array([[0.1], [0.2]])})
    single, double = encode_msgpack(batch, "b", 0, "<f4"), encode_msgpack(batch, "b", 0)
    assert len(double) - len(single) == 8
    decoded = decode_packet(single, ORIGIN).batch
    assert decoded.dt_ns.tolist() == [1, 10**9 + 1]
    np.testing.assert_array_equal(decoded.channels["position"], np.array([[0.1], [0.2]], dtype=np.float32))


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from([*BATCH, "velocity", "header", "robot"])


@given(st.dictionaries(fields, anything, max_size=4), st.booleans())
def test_no_content_raises_anything_but_a_refusal(changes: dict[str, Any], whole: bool) -> None:
    document = (BATCH if whole else JOINT_STATE) | changes
    texts = [json.dumps(document, ensure_ascii=True).encode(), msgpack.packb(document, unicode_errors="surrogatepass")]
    for payload in texts:
        with contextlib.suppress(TelemetryError):
            decode_packet(payload, ORIGIN)


@given(st.binary(max_size=80), st.sampled_from([None, "application/json", "application/msgpack"]))
def test_no_bytes_raise_anything_but_a_refusal(payload: bytes, content_type: str | None) -> None:
    with pytest.raises(TelemetryError) as refused:
        decode_packet(payload, replace(ORIGIN, content_type=content_type))
    assert refused.value.reason in REASONS
