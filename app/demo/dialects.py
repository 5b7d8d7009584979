"""One recording told in each of the payloads robots use for what they measured and were asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import orjson

from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.packet import COMMAND_STREAM
from app.ingest.payload import JSON_CONTENT_TYPE, MSGPACK_CONTENT_TYPE
from app.ingest.stamp import NS_PER_S
from app.telemetry import FloatArray, Recording, SampleBatch

Dialect = Literal["json", "msgpack", "ros"]
"""Batches as JSON, batches as MessagePack in float32, or one ROS `sensor_msgs/JointState` a sample and a command."""

DIALECTS: Final[tuple[Dialect, ...]] = ("msgpack", "json", "ros")
ROWS_PER_BATCH: Final = 50
STREAM: Final = "joints"


@dataclass(frozen=True, slots=True)
class Message:
    """What is published, and when it would be in real time.

    Attributes:
        due_ns: since the motion's start; when the last sample in it has been taken.
        stream: last level of the topic.
        payload: the bytes.
        content_type: MQTT 5 content type.
    """

    due_ns: int
    stream: str
    payload: bytes
    content_type: str


def messages(
    recording: Recording, dialect: Dialect, origin_ns: int, boot_id: str, first_seq: int = 0
) -> Iterator[Message]:
    """A recording, or a piece of one, as its robot tells it.

    Args:
        recording: what was measured and asked.
        dialect: which payload.
        origin_ns: stamp of the first row, nanoseconds since the epoch.
        boot_id: names this run of the robot; a JointState has no place for it.
        first_seq: sequence number of the first message; nor for this.
    """
    if dialect == "ros":
        yield from _joint_states(recording, origin_ns)
        return
    for seq, start in enumerate(range(0, len(recording), ROWS_PER_BATCH), first_seq):
        rows = slice(start, start + ROWS_PER_BATCH)
        t_ns = recording.t_ns[rows]
        batch = SampleBatch(
            stamp_ns=origin_ns + int(t_ns[0]),
            dt_ns=t_ns - t_ns[0],
            names=recording.names,
            channels={channel: values[rows].copy() for channel, values in recording.channels.items()},
        )
        if dialect == "json":
            yield Message(int(t_ns[-1]), STREAM, encode_json(batch, boot_id, seq), JSON_CONTENT_TYPE)
        else:
            yield Message(int(t_ns[-1]), STREAM, encode_msgpack(batch, boot_id, seq, "<f4"), MSGPACK_CONTENT_TYPE)


def _joint_states(recording: Recording, origin_ns: int) -> Iterator[Message]:
    # Drivers publish joints in an order of their own; receivers go by name.
    order = np.arange(len(recording.names))[::-1]
    names = [recording.names[i] for i in order]
    position, velocity, asked = (
        recording.channels[channel][:, order] for channel in ("position", "velocity", "command_position")
    )
    nothing = np.empty(0)
    for row, t_ns in enumerate(recording.t_ns.tolist()):
        stamp_ns = origin_ns + t_ns
        measured = _joint_state(stamp_ns, names, position[row], velocity[row])
        yield Message(t_ns, STREAM, measured, JSON_CONTENT_TYPE)
        yield Message(t_ns, COMMAND_STREAM, _joint_state(stamp_ns, names, asked[row], nothing), JSON_CONTENT_TYPE)


def _joint_state(stamp_ns: int, names: list[str], position: FloatArray, velocity: FloatArray) -> bytes:
    seconds, nanoseconds = divmod(stamp_ns, NS_PER_S)
    document = {
        "header": {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": ""},
        "name": names,
        "position": position.tolist(),
        "velocity": velocity.tolist(),
        "effort": [],
    }
    return orjson.dumps(document)
