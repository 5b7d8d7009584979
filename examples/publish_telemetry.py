"""A robot that tells twincal what it measures and what it is asked: paho-mqtt alone, nothing of twincal.

    python examples/publish_telemetry.py --mqtt-url mqtt://127.0.0.1:1883 --fleet arms --robot arm-07 --seconds 30

Put your robot's own numbers where `read_joints` makes some up.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

JOINTS = ["shoulder", "elbow"]
RATE_HZ = 200
ROWS_PER_MESSAGE = 50
DEADLINE_S = 10.0


def read_joints(t_s: float) -> tuple[list[float], list[float]]:
    """What was asked of the joints at this instant, and where they are [rad], in the order of JOINTS."""
    asked = [0.6 * math.sin(1.3 * t_s), 0.4 * math.sin(2.1 * t_s)]
    measured = [0.6 * math.sin(1.3 * (t_s - 0.03)), 0.4 * math.sin(2.1 * (t_s - 0.03))]
    return asked, measured


def state(word: str) -> str:
    """What goes to the robot's `connection` topic, retained; also its will."""
    now_ns = time.time_ns()
    return json.dumps({"state": word, "stamp": {"sec": now_ns // 10**9, "nanosec": now_ns % 10**9}})


def message(boot_id: str, seq: int, stamp_ns: int, rows: list[tuple[list[float], list[float]]]) -> bytes:
    """One batch: row i belongs to stamp + dt_ns[i]; boot_id and seq tell a repeat from a new message."""
    document = {
        "schema": "twincal.telemetry/1",
        "boot_id": boot_id,
        "seq": seq,
        "stamp": {"sec": stamp_ns // 10**9, "nanosec": stamp_ns % 10**9},
        "name": JOINTS,
        "dt_ns": [i * 10**9 // RATE_HZ for i in range(len(rows))],
        "command": {"position": [asked for asked, _ in rows]},
        "position": [measured for _, measured in rows],
    }
    return json.dumps(document).encode()


def publish(options: argparse.Namespace) -> int:
    """Publish for the time asked for; returns how many samples the broker has acknowledged."""
    base = f"twincal/v1/{options.fleet}/{options.robot}"
    url = urlsplit(options.mqtt_url)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=options.robot, protocol=mqtt.MQTTv5)
    if url.username:
        client.username_pw_set(url.username, url.password)
    if url.scheme == "mqtts":
        client.tls_set()
    client.will_set(f"{base}/connection", state("CONNECTIONBROKEN"), qos=1, retain=True)
    client.connect(url.hostname or "127.0.0.1", url.port or 1883)
    client.loop_start()
    client.publish(f"{base}/connection", state("ONLINE"), qos=1, retain=True)
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own
    properties.ContentType = "application/json"
    boot_id, seq, sent = str(uuid.uuid4()), 0, []
    start_ns = time.time_ns()
    while seq * ROWS_PER_MESSAGE < options.seconds * RATE_HZ:
        first = seq * ROWS_PER_MESSAGE
        rows = [read_joints((first + i) / RATE_HZ) for i in range(ROWS_PER_MESSAGE)]
        stamp_ns = start_ns + first * 10**9 // RATE_HZ
        # A message leaves when its last row has been taken.
        time.sleep(max(0.0, (stamp_ns + ROWS_PER_MESSAGE * 10**9 // RATE_HZ - time.time_ns()) / 1e9))
        # QoS 1: kept and sent again until the broker acknowledges, also over a lost connection.
        payload = message(boot_id, seq, stamp_ns, rows)
        sent.append(client.publish(f"{base}/telemetry/joints", payload, qos=1, properties=properties))
        seq += 1
    for info in [*sent, client.publish(f"{base}/connection", state("OFFLINE"), qos=1, retain=True)]:
        info.wait_for_publish(DEADLINE_S)
    client.disconnect()
    client.loop_stop()
    return ROWS_PER_MESSAGE * sum(info.is_published() for info in sent)


def main() -> None:
    """Read the options and publish."""
    parser = argparse.ArgumentParser(description="Publish a robot's telemetry to twincal.")
    parser.add_argument("--mqtt-url", default="mqtt://127.0.0.1:1883")
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--robot", required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    print(f"{publish(options)} samples published as {options.fleet}/{options.robot}")


if __name__ == "__main__":
    main()
