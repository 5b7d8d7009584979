"""A recorded log, published as its robot would have: the whole way in for data that was measured before."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from app.errors import ServiceError
from app.ingest.broker import CONNECT_WAIT_S, BrokerAddress, Client
from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.payload import JSON_CONTENT_TYPE, MSGPACK_CONTENT_TYPE, Encoding
from app.ingest.stamp import NS_PER_S
from app.ingest.topic import MEASUREMENT_STREAM, TelemetryTopic
from app.telemetry import FleetId, Recording, RobotId, SampleBatch

# More in flight isn't faster; many more is slower.
_IN_FLIGHT: Final = 100
_ACKNOWLEDGE_WAIT_S: Final = 30.0
_KEEPALIVE_S: Final = 30
_NO_SUBSCRIBERS: Final = 0x10


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a log is published.

    Attributes:
        fleet: of the robot's declaration.
        robot: of the robot's declaration.
        encoding: of the payloads; both keep every bit.
        rows_per_message: samples in a message.
        speed: times real time; None: as fast as the broker takes it.
    """

    fleet: FleetId
    robot: RobotId
    encoding: Encoding = "msgpack"
    rows_per_message: int = 50
    speed: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What was published of a log, all of it acknowledged by the broker.

    Attributes:
        boot_id: names the recording it becomes.
        messages: published.
        samples: rows in them.
        payload_bytes: of all messages.
        unheard: messages that the broker took and nobody subscribes to: they are lost.
        first_ns: stamp of the first row.
        last_ns: stamp of the last row.
    """

    boot_id: str
    messages: int
    samples: int
    payload_bytes: int
    unheard: int
    first_ns: int
    last_ns: int


def split(recording: Recording, rows_per_message: int, origin_ns: int) -> Iterator[SampleBatch]:
    """The log in batches, its first row at `origin_ns`: one offset for all rows, in whole nanoseconds."""
    for start in range(0, len(recording), rows_per_message):
        rows = slice(start, start + rows_per_message)
        t_ns = recording.t_ns[rows]
        yield SampleBatch(
            stamp_ns=origin_ns + int(t_ns[0]),
            dt_ns=t_ns - t_ns[0],
            names=recording.names,
            channels={channel: values[rows].copy() for channel, values in recording.channels.items()},
            context={name: values[rows].copy() for name, values in recording.context.items()},
        )


class Publisher:
    """A robot's connection to the broker; publishes with QoS 1 and waits for acknowledgements.

    Args:
        address: the broker.
        client_id: names the connection; the broker ends another one of the same name.
    """

    def __init__(self, address: BrokerAddress, client_id: str) -> None:
        self._client = Client(address, client_id)
        self._client.max_inflight_messages_set(_IN_FLIGHT)
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish
        self._client.on_disconnect = self._on_disconnect
        self._answered = threading.Event()
        self._pending: deque[mqtt.MQTTMessageInfo] = deque()
        self._problem = ""
        self.unheard = 0

    def __enter__(self) -> Self:
        address = self._client.address
        try:
            self._client.connect(address.host, address.port, _KEEPALIVE_S, clean_start=True)
        except OSError as error:
            raise ServiceError(f"broker {address}: can't be reached: {error}") from error
        self._client.loop_start()
        if not self._answered.wait(CONNECT_WAIT_S) or self._problem:
            self._client.loop_stop()
            raise ServiceError(f"broker {address}: {self._problem or 'gives no answer'}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, content_type: str) -> None:
        """Publish, waiting while too much is unacknowledged.

        Raises:
            ServiceError: if the broker refuses or goes away.
        """
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own
        properties.ContentType = content_type
        self._pending.append(self._client.publish(topic, payload, qos=1, properties=properties))
        self._wait_for(_IN_FLIGHT)

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything.

        Raises:
            ServiceError: if it doesn't.
        """
        self._wait_for(0)

    def _wait_for(self, allowed: int) -> None:
        deadline = time.monotonic() + _ACKNOWLEDGE_WAIT_S
        while len(self._pending) > allowed and not self._problem:
            if self._pending[0].is_published():
                self._pending.popleft()
            elif time.monotonic() > deadline:
                self._problem = f"acknowledged nothing for {_ACKNOWLEDGE_WAIT_S:g} s"
            else:
                self._pending[0].wait_for_publish(0.1)
        if self._problem:
            raise ServiceError(f"broker {self._client.address}: {self._problem}")

    def _on_connect(
        self,
        _client: mqtt.Client,
        _userdata: object,
        _flags: mqtt.ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self._problem = f"refuses us: {reason}" if reason.is_failure else ""
        self._answered.set()

    def _on_publish(
        self, _client: mqtt.Client, _userdata: object, _mid: int, reason: ReasonCode, _properties: Properties
    ) -> None:
        if reason.is_failure:
            self._problem = f"refuses a message: {reason}"
        elif reason.value == _NO_SUBSCRIBERS:
            self.unheard += 1

    def _on_disconnect(
        self,
        _client: mqtt.Client,
        _userdata: object,
        _flags: mqtt.DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.value:
            self._problem = self._problem or f"connection lost: {reason}"


def replay(
    recording: Recording, options: ReplayOptions, publisher: Publisher, on_progress: Callable[[int], None]
) -> Sent:
    """Publish a log from its first row to its last, stamped as if it began now.

    Args:
        recording: raw values, as `read_log` gives them.
        options: how.
        publisher: connected.
        on_progress: called with the number of samples published so far.

    Raises:
        ServiceError: if the broker refuses or goes away.
    """
    boot_id = f"replay-{uuid.uuid4().hex[:12]}"
    topic = str(TelemetryTopic(options.fleet, options.robot, MEASUREMENT_STREAM))
    origin_ns = time.time_ns()
    start_s = time.monotonic()
    samples = sent_bytes = messages = 0
    unheard_before = publisher.unheard
    for seq, batch in enumerate(split(recording, options.rows_per_message, origin_ns)):
        if options.speed is not None:
            # A message is complete with its last row.
            due_s = (batch.stamp_ns + int(batch.dt_ns[-1]) - origin_ns) / NS_PER_S / options.speed
            time.sleep(max(0.0, start_s + due_s - time.monotonic()))
        if options.encoding == "json":
            payload, content_type = encode_json(batch, boot_id, seq), JSON_CONTENT_TYPE
        else:
            payload, content_type = encode_msgpack(batch, boot_id, seq), MSGPACK_CONTENT_TYPE
        publisher.publish(topic, payload, content_type)
        samples, sent_bytes, messages = samples + len(batch), sent_bytes + len(payload), seq + 1
        on_progress(samples)
    publisher.flush()
    return Sent(
        boot_id=boot_id,
        messages=messages,
        samples=samples,
        payload_bytes=sent_bytes,
        unheard=publisher.unheard - unheard_before,
        first_ns=origin_ns,
        last_ns=origin_ns + int(recording.t_ns[-1]),
    )
