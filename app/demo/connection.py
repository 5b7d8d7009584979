"""A simulated robot's session with the broker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Self

import orjson
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from app.demo.dialects import Message
from app.errors import ServiceError
from app.ingest.broker import BrokerAddress
from app.ingest.stamp import NS_PER_S
from app.ingest.topic import PREFIX
from app.telemetry import FleetId, RobotId

CONNECT_DEADLINE_S: Final = 20.0
ACKNOWLEDGE_DEADLINE_S: Final = 60.0
INFLIGHT: Final = 100
BACKLOG: Final = 400
"""Messages handed to the client and not yet acknowledged by the broker: more, and the robot waits."""


class RobotConnection:
    """A robot's session with the broker: it says ONLINE and OFFLINE; its will, CONNECTIONBROKEN, the broker says."""

    def __init__(self, fleet: FleetId, robot: RobotId, mqtt_url: str) -> None:
        self._base = f"{PREFIX}/{fleet}/{robot}"
        self._address = address = BrokerAddress.parse(mqtt_url)
        self._connected = threading.Event()
        self._refusal = ""
        self._pending: deque[mqtt.MQTTMessageInfo] = deque()
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=robot, protocol=mqtt.MQTTv5)
        client.on_connect = self._on_connect
        client.max_inflight_messages_set(INFLIGHT)
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        if address.scheme == "mqtts":
            client.tls_set()
        client.will_set(f"{self._base}/connection", self._state("CONNECTIONBROKEN"), qos=1, retain=True)
        self._client = client

    def __enter__(self) -> Self:
        address = self._address
        try:
            self._client.connect(address.host, address.port, keepalive=30)
        except OSError as error:
            raise ServiceError(f"broker {address}: {error}") from error
        self._client.loop_start()
        if not self._connected.wait(CONNECT_DEADLINE_S) or self._refusal:
            self._client.loop_stop()
            raise ServiceError(f"broker {address}: {self._refusal or 'did not answer'}")
        return self

    def __exit__(self, *_: object) -> None:
        self._pending.append(self._announce("OFFLINE"))
        self._drain(0)
        self._client.disconnect()
        self._client.loop_stop()

    def publish_paced(self, stream: Iterable[Message], speed: float) -> None:
        """Publish messages when they are due, `speed` times faster than real time, and wait until all are acknowledged.

        Raises:
            ServiceError: if the broker stops acknowledging.
        """
        start = time.monotonic()
        for message in stream:
            wait_s = start + message.due_ns / NS_PER_S / speed - time.monotonic()
            if wait_s > 0.0:
                time.sleep(wait_s)
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own
            properties.ContentType = message.content_type
            topic = f"{self._base}/telemetry/{message.stream}"
            self._pending.append(self._client.publish(topic, message.payload, qos=1, properties=properties))
            self._drain(BACKLOG)
        self._drain(0)

    def _announce(self, state: str) -> mqtt.MQTTMessageInfo:
        return self._client.publish(f"{self._base}/connection", self._state(state), qos=1, retain=True)

    def _drain(self, allowed: int) -> None:
        while len(self._pending) > allowed:
            info = self._pending.popleft()
            info.wait_for_publish(ACKNOWLEDGE_DEADLINE_S)
            if not info.is_published():
                raise ServiceError(f"the broker did not acknowledge within {ACKNOWLEDGE_DEADLINE_S:g} s")

    def _on_connect(
        self,
        _client: mqtt.Client,
        _userdata: Any,
        _flags: mqtt.ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self._refusal = str(reason) if reason.is_failure else ""
        if not reason.is_failure:
            # At every connect: the will of a broken connection has been retained by then.
            self._announce("ONLINE")
        self._connected.set()

    @staticmethod
    def _state(state: str) -> bytes:
        seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
        return orjson.dumps({"state": state, "stamp": {"sec": seconds, "nanosec": nanoseconds}})
