"""JSON lines: a log of telemetry payloads, one a line, through the decoder that live messages take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from app.database.telemetry import BatchFlag
from app.errors import LogError, TelemetryError
from app.ingest.packet import Limits, Origin, decode_packet
from app.ingest.payload import JSON_CONTENT_TYPE, decode_object
from app.ingest.stamp import EARLIEST_NS
from app.ingest.topic import MEASUREMENT_STREAM, parse_telemetry_topic
from app.telemetry import Recording, SampleBatch, assemble_recording

# A line is read whole: no longer than a message may be, and the topic around it.
_MAX_LINE_BYTES: Final = Limits().payload_bytes + 1024


def read_json_lines(path: Path) -> Recording:
    """Read a log of telemetry payloads.

    A line is a payload, or `{"topic", "payload"}` as MQTT clients print it, which is how a log holds JointStates of the
    `command` stream. A repeated message changes nothing; all must be of one robot and carry their own stamps.

    Args:
        path: UTF-8; empty lines are skipped.

    Raises:
        LogError: naming `file:line` and the field at fault.
    """
    batches = list(_read_batches(path))
    if not batches:
        raise LogError(str(path), "holds no messages", "one telemetry payload a line")
    return assemble_recording(path.stem, batches)


def _read_batches(path: Path) -> Iterator[SampleBatch]:
    robot = ""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES + 1), b""), start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            where = f"{path}:{number}"
            try:
                payload, origin = _unwrap(text)
                if origin.robot and origin.robot != (robot or origin.robot):
                    raise LogError(where, f"is of robot {origin.robot!r}, lines before of {robot!r}", "one robot a log")
                robot = robot or origin.robot
                packet = decode_packet(payload, origin)
            except TelemetryError as error:
                raise LogError(f"{where}: {error.where}", error.problem, error.remedy) from error
            if packet.flags & BatchFlag.STAMP_MISSING:
                raise LogError(f"{where}: stamp", "is missing or zero", "in a log every message needs its stamp")
            yield packet.batch


def _unwrap(line: bytes) -> tuple[bytes, Origin]:
    """The payload of a line and where it came from: its topic, or only what it says itself."""
    document = decode_object(line.strip(), JSON_CONTENT_TYPE, _MAX_LINE_BYTES)
    topic, payload = document.get("topic"), document.get("payload")
    if isinstance(topic, str) and isinstance(payload, dict | str):
        parsed = parse_telemetry_topic(topic)
        inner = payload.encode() if isinstance(payload, str) else orjson.dumps(payload)
        return inner, Origin(parsed.fleet, parsed.robot, parsed.stream, received_ns=EARLIEST_NS)
    fleet, robot = document.get("fleet"), document.get("robot")
    return line.strip(), Origin(
        fleet=fleet if isinstance(fleet, str) else "",
        robot=robot if isinstance(robot, str) else "",
        stream=MEASUREMENT_STREAM,
        received_ns=EARLIEST_NS,
    )
