"""What the three telemetry payloads cost: bytes on the wire and samples decoded a second.

    make bench-decode

A message holds 50 samples of 7 joints: position, velocity and commanded position. One sample is all joints at one
instant. JointStates hold one sample each, measurement and command apart, so 100 of them carry the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson

from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.packet import Origin, decode_packet
from app.telemetry import SampleBatch

SAMPLES: Final = 50
JOINTS: Final = 7
MEASURED_FOR_S: Final = 1.0
STAMP_NS: Final = 1_767_225_600_000_000_000


def main() -> None:
    """Print one line a payload."""
    batch = _batch()
    payloads: dict[str, list[tuple[str, bytes]]] = {
        "msgpack float32": [("joints", encode_msgpack(batch, "b", 0, "<f4"))],
        "msgpack float64": [("joints", encode_msgpack(batch, "b", 0))],
        "JSON batch": [("joints", encode_json(batch, "b", 0))],
        "JSON JointStates": _joint_states(batch),
    }
    print(f"{SAMPLES} samples of {JOINTS} joints, one core\n{'payload':18} {'bytes':>8} {'samples/s':>12}")
    for name, messages in payloads.items():
        size = sum(len(payload) for _, payload in messages)
        print(f"{name:18} {size:8d} {_samples_per_s(messages):12,.0f}")


def _samples_per_s(messages: Sequence[tuple[str, bytes]]) -> float:
    origins = {stream: Origin("arms", "arm-01", stream, STAMP_NS) for stream, _ in messages}
    done, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < MEASURED_FOR_S:
        for stream, payload in messages:
            decode_packet(payload, origins[stream])
        done += SAMPLES
    return done / elapsed


def _batch() -> SampleBatch:
    draw = np.random.default_rng(0)
    shape = (SAMPLES, JOINTS)
    return SampleBatch(
        stamp_ns=STAMP_NS,
        dt_ns=np.arange(SAMPLES, dtype=np.int64) * 1_000_000,
        names=tuple(f"joint{i + 1}" for i in range(JOINTS)),
        channels={
            "position": draw.normal(size=shape),
            "velocity": draw.normal(size=shape),
            "command_position": draw.normal(size=shape),
        },
    )


def _joint_states(batch: SampleBatch) -> list[tuple[str, bytes]]:
    messages = []
    for row, offset_ns in enumerate(batch.dt_ns):
        seconds, nanoseconds = divmod(batch.stamp_ns + int(offset_ns), 1_000_000_000)
        header = {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": ""}
        position, velocity, command = (
            batch.channels[channel][row].tolist() for channel in ("position", "velocity", "command_position")
        )
        measured = {"header": header, "name": batch.names, "position": position, "velocity": velocity, "effort": []}
        messages.append(("joints", orjson.dumps(measured)))
        messages.append(("command", orjson.dumps({"header": header, "name": batch.names, "position": command})))
    return messages


if __name__ == "__main__":
    main()
