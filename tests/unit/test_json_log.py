from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import LogError
from app.ingest.encode import encode_json
from app.ingest.files import read_log
from app.telemetry import Recording, SampleBatch

STAMP_NS = 1_767_225_600_000_000_000


def joint_state(nanosec: int, **fields: Any) -> dict[str, Any]:
    return {"header": {"stamp": {"sec": 1_767_225_600, "nanosec": nanosec}}, "name": ["b", "a"], **fields}


def write(path: Path, *lines: object) -> Path:
    log = path / "log.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n", encoding="utf-8")
    return log


def as_messages(recording: Recording, rows: int) -> list[bytes]:
    return [
        encode_json(
            SampleBatch(
                stamp_ns=STAMP_NS + recording.origin_ns + int(recording.t_ns[start]),
                dt_ns=recording.t_ns[start : start + rows] - recording.t_ns[start],
                names=recording.names,
                channels={c: v[start : start + rows].copy() for c, v in recording.channels.items()},
                context={c: v[start : start + rows].copy() for c, v in recording.context.items()},
            ),
            "boot",
            start,
        )
        for start in range(0, len(recording), rows)
    ]


@pytest.mark.parametrize("log", ["xl330/kp100_lift_and_drop.csv", "go2/chirp.csv"])
def test_a_log_is_the_same_recording_as_csv_and_as_messages(shared: Path, tmp_path: Path, log: str) -> None:
    from_csv = read_log(shared / "data" / log)
    messages = as_messages(from_csv, rows=50)
    path = tmp_path / "log.ndjson"
    path.write_bytes(b"\n".join([*reversed(messages), messages[0]]))
    from_messages = read_log(path)
    assert from_messages.origin_ns == STAMP_NS + from_csv.origin_ns
    assert from_messages.digest() == from_csv.digest()


def test_measurement_and_command_streams_are_told_apart_by_their_topics(tmp_path: Path) -> None:
    topic = "twincal/v1/arms/arm-01/telemetry/"
    log = write(
        tmp_path,
        {"topic": topic + "joints", "payload": joint_state(0, position=[1, 2]), "qos": 1},
        {"topic": topic + "command", "payload": json.dumps(joint_state(0, position=[3, 4]))},
    )
    recording = read_log(log)
    assert (recording.names, recording.t_ns.tolist()) == (("a", "b"), [0])
    np.testing.assert_array_equal(recording.channels["position"], [[2, 1]])
    np.testing.assert_array_equal(recording.channels["command_position"], [[4, 3]])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (joint_state(1, position=[1]), "log.jsonl:2: position: holds 1 values (2, one for each name, or none)"),
        (joint_state(1, position=[1, 2]) | {"header": {}}, "log.jsonl:2: stamp: is missing or zero"),
        ({"topic": "a/b", "payload": {}}, "log.jsonl:2: topic: 'a/b' is not a telemetry topic"),
        (
            {"topic": "twincal/v1/arms/arm-02/telemetry/joints", "payload": joint_state(1, position=[1, 2])},
            "log.jsonl:2: is of robot 'arm-02', lines before of 'arm-01' (one robot a log)",
        ),
        ([], "log.jsonl:2: payload: list of 0 is not an object"),
    ],
)
def test_a_broken_line_is_refused_by_number_and_field(tmp_path: Path, second: object, message: str) -> None:
    first = {"topic": "twincal/v1/arms/arm-01/telemetry/joints", "payload": joint_state(0, position=[1, 2])}
    with pytest.raises(LogError) as refused:
        read_log(write(tmp_path, first, second))
    assert message in str(refused.value)


def test_a_log_without_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="holds no messages"):
        read_log(write(tmp_path))
