"""One connection of the ingester to the broker: a paho client that is never reconnected.

So a message can be acknowledged only on the connection it came by: after a reconnect its packet identifier would name
another message, and acknowledging that one would lose it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import paho.mqtt.client as mqtt
import structlog
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from app.ingest.broker import CONNECT_WAIT_S, BrokerAddress, Client, connect_properties
from app.ingest.buffer import Buffer, Delivery
from app.ingest.topic import CONNECTION_FILTER, TELEMETRY_FILTER
from app.metrics import ingest_connected

Cause = Literal["lost", "refused", "silent", "buffer_full", "commit_failed", "stopping"]
"""Why a connection ended."""

SHARE_GROUP: Final = "twincal-ingest"
SESSION_EXPIRY_S: Final = 86_400
# A message a bit over the limit on payloads must still reach us, to become a dead letter: the broker drops larger ones.
MAX_PACKET_BYTES: Final = 8 << 20
KEEPALIVE_S: Final = 30
# The network loop goes round at least once a second; ten times that is a thread that died or hangs.
SILENT_AFTER_S: Final = 10.0

_TAKEN_OVER: Final = 0x8E
# Reasons that time doesn't heal: credentials, client id, permission.
_HOPELESS: Final = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
_CHECK_S: Final = 0.5
_SHORT_LIFE_S: Final = 5.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How the ingester connects.

    Attributes:
        address: the broker.
        client_id: names the session at the broker: stable over restarts, and of one ingester alone.
        shared: whether several ingesters, each with a client id of its own, divide the messages among them.
        receive_maximum: unacknowledged messages the broker may send; must exceed what one commit takes.
    """

    address: BrokerAddress
    client_id: str = "twincal-ingest"
    shared: bool = False
    receive_maximum: int = 4000


@dataclass(frozen=True, slots=True)
class Ended:
    """How a connection ended."""

    cause: Cause
    detail: str = ""
    was_ready: bool = False
    fatal: str = ""
    lived_s: float = 0.0

    @property
    def is_short_lived(self) -> bool:
        """Whether it was good and the other side ended it at once."""
        return self.was_ready and self.cause == "lost" and self.lived_s < _SHORT_LIFE_S


class _Clock:
    """Our clock in nanoseconds, never the same value twice: receipts tell messages apart that have nothing else."""

    def __init__(self) -> None:
        self._last_ns = 0

    def now_ns(self) -> int:
        self._last_ns = max(time.time_ns(), self._last_ns + 1)
        return self._last_ns


_clock = _Clock()


class Connection:
    """One connection: a paho client with its network thread. Callbacks run on that thread and only hand over."""

    def __init__(self, options: SessionOptions, buffer: Buffer) -> None:
        self._options = options
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._subscribed = False
        self._was_ready = False
        self._gave_up = False
        self._leaving: int | None = None
        self._left = asyncio.Event()
        self._began_s = time.monotonic()
        client = Client(options.address, options.client_id, manual_ack=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        self._client = client

    @property
    def is_ready(self) -> bool:
        """Whether messages flow on it."""
        return self._subscribed and not self._ended.done() and not self._is_silent

    @property
    def _is_silent(self) -> bool:
        return time.monotonic() - self._client.last_loop > SILENT_AFTER_S

    def acknowledge(self, mid: int) -> None:
        """PUBACK; nothing happens once the connection has ended."""
        if not self._ended.done():
            self._client.ack(mid, 1)

    async def unsubscribe(self) -> None:
        """Ask for no more messages; what the broker had sent until it heard of it is in the buffer on return."""
        _, self._leaving = self._client.unsubscribe([self._filter, CONNECTION_FILTER])
        left: asyncio.Future[Any] = asyncio.ensure_future(self._left.wait())
        over: asyncio.Future[Any] = self._ended
        try:
            await asyncio.wait([left, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()

    def end(self, cause: Cause, detail: str = "", fatal: str = "") -> None:
        """Mark the connection as ended; on the event loop's thread."""
        if not self._ended.done():
            lived_s = time.monotonic() - self._began_s
            self._ended.set_result(Ended(cause, detail, self._was_ready, fatal, lived_s))

    async def run(self, stopping: asyncio.Event) -> Ended:
        """Live until something ends it."""
        try:
            await asyncio.to_thread(self._connect)
        except (OSError, ValueError) as error:
            return Ended("refused", str(error) or type(error).__name__)
        deadline = time.monotonic() + CONNECT_WAIT_S
        try:
            while not self._ended.done():
                await asyncio.wait([self._ended], timeout=_CHECK_S)
                if stopping.is_set():
                    self.end("stopping")
                elif self._is_silent:
                    self.end("silent", "the network thread died or hangs")
                elif not self._subscribed and time.monotonic() > deadline:
                    self.end("refused", "no answer to CONNECT and SUBSCRIBE")
        finally:
            await asyncio.to_thread(self._close)
        return self._ended.result()

    def _connect(self) -> None:
        address = self._options.address
        properties = connect_properties(
            SessionExpiryInterval=SESSION_EXPIRY_S,
            ReceiveMaximum=self._options.receive_maximum,
            MaximumPacketSize=MAX_PACKET_BYTES,
        )
        self._client.connect(address.host, address.port, KEEPALIVE_S, clean_start=False, properties=properties)
        self._client.loop_start()

    def _close(self) -> None:
        # Sends what is queued, acknowledgements among them, then DISCONNECT; the session stays.
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def _filter(self) -> str:
        return f"$share/{SHARE_GROUP}/{TELEMETRY_FILTER}" if self._options.shared else TELEMETRY_FILTER

    @property
    def _other_filter(self) -> str:
        return TELEMETRY_FILTER if self._options.shared else f"$share/{SHARE_GROUP}/{TELEMETRY_FILTER}"

    def _on_connect(
        self,
        client: mqtt.Client,
        _userdata: object,
        flags: mqtt.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            fatal = f"broker {self._options.address}: refuses us: {reason}" if reason.value in _HOPELESS else ""
            self._from_network("refused", str(reason), fatal)
            return
        granted_s = getattr(properties, "SessionExpiryInterval", SESSION_EXPIRY_S)
        _log.info("connected to broker", broker=str(self._options.address), session_present=flags.session_present,
                  session_expiry_s=granted_s)  # fmt: skip
        if granted_s < SESSION_EXPIRY_S:
            _log.warning("the broker keeps our session for less than a day", session_expiry_s=granted_s)
        if flags.session_present:
            # What an ingester of this name subscribed to when it shared, or didn't, would still be delivered.
            client.unsubscribe(self._other_filter)
        # Always: a broker that lost the session gives no sign but silence.
        kept = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        # Retained messages never come by a shared subscription. So connections aren't shared: every ingester hears of
        # each, and writes what the others wrote.
        options = SubscribeOptions(qos=1) if self._options.shared else kept
        client.subscribe([(self._filter, options), (CONNECTION_FILTER, kept)])

    def _on_subscribe(
        self,
        _client: mqtt.Client,
        _userdata: object,
        _mid: int,
        granted: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        if any(reason.is_failure or reason.value < 1 for reason in granted):
            codes = ", ".join(str(reason) for reason in granted)
            self._from_network("refused", f"subscription with QoS 1 refused: {codes}", "")
            return
        self._loop.call_soon_threadsafe(self._become_ready)

    def _on_unsubscribe(
        self,
        _client: mqtt.Client,
        _userdata: object,
        mid: int,
        _answers: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._leave, mid)

    def _leave(self, mid: int) -> None:
        if mid == self._leaving:
            self._left.set()

    def _become_ready(self) -> None:
        self._subscribed = self._was_ready = True
        ingest_connected.set(1)
        _log.info("subscribed", filters=[self._filter, CONNECTION_FILTER])

    def _on_message(self, _client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
        if self._gave_up or self._ended.done():
            return  # comes again on the next connection
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""  # no broker forwards it; if one does, it is a dead letter
        delivery = Delivery(
            connection=self,
            # What a robot published with QoS 0 comes with QoS 0, has no number and mustn't be acknowledged.
            mid=message.mid if message.qos else None,
            topic=topic,
            content_type=getattr(message.properties, "ContentType", None),
            payload=bytes(message.payload),
            retain=message.retain,
            received_ns=_clock.now_ns(),
        )
        if not self._buffer.put(delivery):
            self._gave_up = True
            self._from_network("buffer_full", "the writer is behind: the broker queues meanwhile", "")

    def _on_disconnect(
        self,
        _client: mqtt.Client,
        _userdata: object,
        _flags: mqtt.DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        fatal = ""
        if reason.value == _TAKEN_OVER and reason.packetType == PacketTypes.DISCONNECT:
            fatal = taken_over(self._options)
        self._from_network("lost", str(reason), fatal)

    def _from_network(self, cause: Cause, detail: str, fatal: str) -> None:
        self._loop.call_soon_threadsafe(self.end, cause, detail, fatal)


def taken_over(options: SessionOptions, how_sure: str = "") -> str:
    """What to tell whoever runs two ingesters of one name."""
    return (
        f"broker {options.address}: session taken over{how_sure}: another ingester connected as "
        f"{options.client_id!r} (give each its own --client-id, and --shared to divide the work)"
    )
