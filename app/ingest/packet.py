"""One message into one packet: the three telemetry payloads, refused whole or taken whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.database.telemetry import BatchFlag
from app.ingest.payload import decode_object
from app.ingest.refusal import refusal, shown
from app.ingest.stamp import NS_PER_S, check_in_range, parse_stamp
from app.ingest.values import (
    read_integer,
    read_mapping,
    read_names,
    read_offsets,
    read_row,
    read_rows,
    read_series,
    read_text,
)
from app.telemetry import CONTEXT_NAMES, Channel, ContextName, FloatArray, SampleBatch

SCHEMA: Final = "twincal.telemetry/1"
COMMAND_STREAM: Final = "command"
"""A JointState on this stream is what was asked of the joints, not what was measured."""

_MEASURED: Final[Mapping[str, Channel]] = {"position": "position", "velocity": "velocity", "effort": "effort"}
_COMMANDED: Final[Mapping[str, Channel]] = {
    "position": "command_position",
    "velocity": "command_velocity",
    "effort": "command_effort",
    "kp": "command_kp",
    "kd": "command_kd",
    "enabled": "command_enabled",
}
_CONTEXT: Final[Mapping[str, ContextName]] = {str(name): name for name in CONTEXT_NAMES}
_FIELDS: Final[Mapping[str, object]] = dict.fromkeys(
    ("schema", "fleet", "robot", "boot_id", "seq", "stamp", "name", "dt_ns", *_MEASURED, "command", "context")
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How big a message may be.

    Attributes:
        payload_bytes: of the payload; a refused one is kept up to this size.
        joints: names in a message.
        samples: rows in a message.
        span_s: from the stamp to any row, either way.
    """

    payload_bytes: int = 1 << 20
    joints: int = 256
    samples: int = 10_000
    span_s: int = 3600


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message came from: its topic, and when.

    Attributes:
        fleet: as the topic says.
        robot: as the topic says.
        stream: last level of the topic.
        received_ns: our clock at receipt, nanoseconds since the epoch.
        content_type: MQTT 5 content type, if there was one.
    """

    fleet: str
    robot: str
    stream: str
    received_ns: int
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Packet:
    """A decoded message.

    Attributes:
        stream: last level of the topic.
        boot_id: names one run of the robot's publisher; empty where the payload has none.
        seq: number within that run; None where the payload has none.
        batch: the samples, raw.
        flags: what is odd about it.
    """

    stream: str
    boot_id: str
    seq: int | None
    batch: SampleBatch
    flags: BatchFlag = BatchFlag.NONE


def decode_packet(payload: bytes, origin: Origin, limits: Limits | None = None) -> Packet:
    """Decode a telemetry message.

    Args:
        payload: JSON or MessagePack; `twincal.telemetry/1` or one ROS `sensor_msgs/JointState`.
        origin: the message's topic and receipt.
        limits: how big it may be.

    Raises:
        TelemetryError: with one of the reasons of `app.ingest.refusal`; no other error, whatever the bytes.
    """
    limits = limits or Limits()
    document = decode_object(payload, origin.content_type, limits.payload_bytes)
    _check_owner(document, origin)
    if "schema" in document:
        packet = _read_batch(document, origin, limits)
    elif "header" in document:
        packet = _read_joint_state(document, origin, limits)
    else:
        raise refusal(
            "unknown_payload",
            "payload",
            "has neither schema nor header",
            f'"schema": "{SCHEMA}", or a sensor_msgs/JointState',
        )
    batch = packet.batch
    if not batch.channels and not batch.context:
        raise refusal("empty", "payload", "holds no values")
    for offset in (int(batch.dt_ns[0]), int(batch.dt_ns[-1])):
        if abs(offset) > limits.span_s * NS_PER_S:
            raise refusal("number_out_of_range", "dt_ns", f"{offset} is too far from the stamp", f"{limits.span_s} s")
        check_in_range(batch.stamp_ns + offset, "dt_ns", f"stamp + {offset}")
    return _without_infinities(packet)


def _check_owner(document: Mapping[str, object], origin: Origin) -> None:
    """The topic names the robot, which is what the broker's access list speaks of; the payload may only agree."""
    for key, expected in (("robot", origin.robot), ("robot_id", origin.robot), ("fleet", origin.fleet)):
        named = document.get(key, expected)
        if named != expected:
            raise refusal("robot_mismatch", key, f"{shown(named)} under the topic of {expected!r}", "the topic's own")


def _read_batch(document: Mapping[str, object], origin: Origin, limits: Limits) -> Packet:
    if document["schema"] != SCHEMA:
        raise refusal("unknown_payload", "schema", f"{shown(document['schema'])} is unknown", SCHEMA)
    read_mapping(document, "", _FIELDS)
    names = read_names(document.get("name"), limits.joints)
    command = read_mapping(document.get("command"), "command", _COMMANDED)
    context = read_mapping(document.get("context"), "context", _CONTEXT)
    channels: dict[Channel, FloatArray] = {}
    fields = [(key, document.get(key), channel) for key, channel in _MEASURED.items()]
    fields += [(f"command.{key}", command.get(key), channel) for key, channel in _COMMANDED.items()]
    for where, value, channel in fields:
        table = read_rows(value, where, len(names), booleans=channel == "command_enabled")
        if table is not None:
            channels[channel] = table
    offsets = read_offsets(document.get("dt_ns"), "dt_ns", limits.samples)
    if offsets is None:
        if any(len(table) > 1 for table in channels.values()):
            raise refusal("missing_field", "dt_ns", "is missing", "whole nanoseconds after the stamp, one for each row")
        offsets = np.zeros(1, dtype=np.int64)
    for where, _, channel in fields:
        if channel in channels and len(channels[channel]) != len(offsets):
            rows = len(channels[channel])
            raise refusal("length_mismatch", where, f"holds {rows} rows", f"{len(offsets)}, one for each of dt_ns")
    series = {name: read_series(context.get(key), f"context.{key}", len(offsets)) for key, name in _CONTEXT.items()}
    boot_id = document.get("boot_id")
    seq = document.get("seq")
    return _stamped(
        Packet(
            stream=origin.stream,
            boot_id="" if boot_id is None else read_text(boot_id, "boot_id"),
            seq=None if seq is None else read_integer(seq, "seq"),
            batch=SampleBatch(
                stamp_ns=parse_stamp(document.get("stamp")) or 0,
                dt_ns=offsets,
                names=names,
                channels=channels,
                context={name: values for name, values in series.items() if values is not None},
            ),
        ),
        origin,
    )


def _read_joint_state(document: Mapping[str, object], origin: Origin, limits: Limits) -> Packet:
    """A `sensor_msgs/JointState`; members that bridges add are none of our business."""
    header = document["header"]
    if not isinstance(header, dict):
        raise refusal("wrong_type", "header", f"{shown(header)} is not an object", "a std_msgs/Header")
    if "name" not in document:
        raise refusal("missing_field", "name", "is missing", "the joints' names, one for each value")
    names = read_names(document["name"], limits.joints)
    if not names:
        raise refusal("empty", "name", "names no joint")
    fields = _COMMANDED if origin.stream == COMMAND_STREAM else _MEASURED
    channels: dict[Channel, FloatArray] = {}
    for key in _MEASURED:
        row = read_row(document.get(key), key, len(names))
        if row is not None:
            channels[fields[key]] = row
    batch = SampleBatch(
        stamp_ns=parse_stamp(header.get("stamp"), "header.stamp") or 0,
        dt_ns=np.zeros(1, dtype=np.int64),
        names=names,
        channels=channels,
    )
    return _stamped(Packet(origin.stream, "", None, batch), origin)


def _stamped(packet: Packet, origin: Origin) -> Packet:
    """Our receipt's time where the robot gave none."""
    if packet.batch.stamp_ns:
        return packet
    batch = replace(packet.batch, stamp_ns=origin.received_ns)
    return replace(packet, batch=batch, flags=packet.flags | BatchFlag.STAMP_MISSING)


def _without_infinities(packet: Packet) -> Packet:
    """Infinities are missing values, and said to have been there."""
    batch = packet.batch
    if not any(np.isinf(values).any() for values in (*batch.channels.values(), *batch.context.values())):
        return packet
    channels = {name: np.where(np.isinf(values), np.nan, values) for name, values in batch.channels.items()}
    context = {name: np.where(np.isinf(values), np.nan, values) for name, values in batch.context.items()}
    return replace(
        packet, batch=replace(batch, channels=channels, context=context), flags=packet.flags | BatchFlag.NON_FINITE
    )
