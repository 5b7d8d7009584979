"""The broker's configuration of docker-compose.yml, run by a real mosquitto: who may publish and read what."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

DEPLOY = Path(__file__).parents[2] / "deploy" / "mosquitto"
NOT_AUTHORIZED = 135
PASSWORD = "of-the-test"
WAIT_S = 10.0

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto") is None or shutil.which("mosquitto_passwd") is None,
    reason="mosquitto is not installed (apt-get install mosquitto): the broker's permissions are NOT tested",
)


@pytest.fixture(scope="module")
def broker_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A mosquitto with the repository's own configuration, its paths and port moved."""
    folder = tmp_path_factory.mktemp("mosquitto")
    passwords = folder / "passwords"
    passwords.touch()
    for user in ("twincal", "arm-01", "arm-02"):
        subprocess.run(["mosquitto_passwd", "-b", passwords, user, PASSWORD], check=True, capture_output=True)
    shutil.copy(DEPLOY / "acl", folder / "acl")
    port = _free_port()
    config = (DEPLOY / "mosquitto.conf").read_text()
    config = config.replace("listener 1883", f"listener {port} 127.0.0.1")
    config = config.replace("/mosquitto/data/", f"{folder}/").replace("/mosquitto/config/", f"{folder}/")
    if os.geteuid() == 0:
        config += "\nuser root\n"  # else it becomes `mosquitto` and can't read the test's folder
    (folder / "mosquitto.conf").write_text(config)
    with subprocess.Popen(["mosquitto", "-c", folder / "mosquitto.conf"], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for_port(port)
            yield port
        finally:
            process.terminate()


class _Client:
    """A paho client that remembers what it received and how its publications were answered."""

    def __init__(self, port: int, user: str, subscription: str | None = None) -> None:
        self.received: list[tuple[str, bytes]] = []
        self._answers: dict[int, int] = {}
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._subscription = subscription
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.username_pw_set(user, PASSWORD)
        self._client.on_connect = lambda *_: self._subscribe()
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = self._receive
        self._client.on_publish = lambda _c, _u, mid, code, _p: self._answer(mid, code)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._ready.wait(WAIT_S), f"{user} was not let in"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _subscribe(self) -> None:
        if self._subscription is None:
            self._ready.set()
        else:
            self._client.subscribe(self._subscription, qos=1)

    def _receive(self, _client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
        with self._changed:
            self.received.append((message.topic, bytes(message.payload)))
            self._changed.notify_all()

    def _answer(self, mid: int, code: ReasonCode) -> None:
        with self._changed:
            self._answers[mid] = code.value
            self._changed.notify_all()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Publish with QoS 1 and give the broker's reason code."""
        mid = self._client.publish(topic, payload, qos=1, retain=retain).mid
        with self._changed:
            assert self._changed.wait_for(lambda: mid in self._answers, WAIT_S), f"no answer for {topic}"
        return self._answers[mid]

    def wait_for(self, topic: str, payload: bytes) -> None:
        """Wait until this very message has arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: (topic, payload) in self.received, WAIT_S), self.received


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "mosquitto did not start with the repository's configuration"


def test_a_robot_publishes_below_its_own_topic_and_nowhere_else(broker_port: int) -> None:
    with (
        _Client(broker_port, "twincal", "$share/twincal-ingest/twincal/v1/+/+/telemetry/+") as service,
        _Client(broker_port, "arm-01") as robot,
    ):
        assert robot.publish("twincal/v1/arms/arm-02/telemetry/joints", b"forged") == NOT_AUTHORIZED
        assert robot.publish("twincal/v1/arms/arm-01/twin", b"forged") == NOT_AUTHORIZED
        assert robot.publish("twincal/v1/arms/arm-01/drift", b"forged") == NOT_AUTHORIZED
        assert robot.publish("somewhere/else", b"forged") == NOT_AUTHORIZED
        assert robot.publish("twincal/v1/arms/arm-01/connection", b"online") in (0, 16)
        assert robot.publish("twincal/v1/arms/arm-01/telemetry/joints", b"mine") == 0
        service.wait_for("twincal/v1/arms/arm-01/telemetry/joints", b"mine")
        assert [payload for _, payload in service.received] == [b"mine"]


def test_a_robot_reads_its_own_twin_and_drift_and_nothing_of_others(broker_port: int) -> None:
    with _Client(broker_port, "twincal") as service, _Client(broker_port, "arm-01", "#") as robot:
        for topic in ("arm-02/twin", "arm-02/drift", "arm-01/twin", "arm-01/drift"):
            assert service.publish(f"twincal/v1/arms/{topic}", topic.encode()) in (0, 16)
        robot.wait_for("twincal/v1/arms/arm-01/drift", b"arm-01/drift")
        assert [payload for _, payload in robot.received] == [b"arm-01/twin", b"arm-01/drift"]


def test_a_robots_connection_reaches_the_service_its_will_too(broker_port: int) -> None:
    topic = "twincal/v1/arms/arm-01/connection"
    with _Client(broker_port, "twincal", "twincal/v1/+/+/connection") as service:
        with _Client(broker_port, "arm-01") as robot:
            assert robot.publish(topic, b"online", retain=True) == 0
        service.wait_for(topic, b"online")
        lost = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        lost.username_pw_set("arm-01", PASSWORD)
        lost.will_set(topic, b"broken", qos=1, retain=True)
        connected = threading.Event()
        lost.on_connect = lambda *_: connected.set()
        lost.connect("127.0.0.1", broker_port)
        lost.loop_start()
        assert connected.wait(WAIT_S)
        line = lost.socket()
        assert isinstance(line, socket.socket)
        line.shutdown(socket.SHUT_RDWR)
        service.wait_for(topic, b"broken")
        lost.loop_stop()


def test_a_client_without_a_password_is_not_let_in(broker_port: int) -> None:
    refused = threading.Event()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_connect = lambda _c, _u, _f, code, _p: refused.set() if code.is_failure else None
    client.connect("127.0.0.1", broker_port)
    client.loop_start()
    try:
        assert refused.wait(WAIT_S)
    finally:
        client.disconnect()
        client.loop_stop()
