"""Drift as robots hear it: one retained message each, on a connection that comes back."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from datetime import UTC
from typing import Final

import orjson
import paho.mqtt.client as mqtt
import structlog
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from app.ingest.broker import CONNECT_WAIT_S, BrokerAddress, Client
from app.ingest.topic import PREFIX
from app.monitor.store import Retained
from app.telemetry import FleetId, RobotId

_RETRY_S: Final = 5.0

_log = structlog.get_logger(__name__)


def drift_topic(fleet: FleetId, robot: RobotId) -> str:
    """`twincal/v1/{fleet}/{robot}/drift`."""
    return f"{PREFIX}/{fleet}/{robot}/drift"


def drift_message(retained: Retained) -> bytes:
    """`{"score", "state", "version", "stamp"}`; the stamp is when this was found, by our clock."""
    stamp = retained.stamp.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return orjson.dumps({"score": retained.score, "state": retained.state, "version": retained.version, "stamp": stamp})


class Publisher:
    """Tells robots their drift, QoS 0 and retained. What it can't send is said again at the next look.

    Args:
        address: of the broker; None: nothing is ever sent.
    """

    def __init__(self, address: BrokerAddress | None) -> None:
        self._address = address
        self._client: Client | None = None
        self._connected = threading.Event()
        self._next_try_s = 0.0

    async def connect(self) -> bool:
        """Make sure of the connection, as far as that is possible now; whether it is a new one.

        A broker keeps retained messages or loses them: after a new connection all of them should be sent.
        """
        if self._address is None or self._connected.is_set() or time.monotonic() < self._next_try_s:
            return False
        connected = await asyncio.to_thread(self._connect, self._address)
        if not connected:
            self._next_try_s = time.monotonic() + _RETRY_S
        return connected

    def publish(self, retained: Retained) -> None:
        """Replace the robot's retained message; without a connection nothing happens."""
        self._send(drift_topic(retained.fleet, retained.robot), drift_message(retained))

    def clear(self, fleet: FleetId, robot: RobotId) -> None:
        """Take the robot's retained message back."""
        self._send(drift_topic(fleet, robot), b"")

    def close(self) -> None:
        """Send what is under way and disconnect."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None
            self._connected.clear()

    def _send(self, topic: str, payload: bytes) -> None:
        if self._client is not None and self._connected.is_set():
            self._client.publish(topic, payload, qos=0, retain=True)

    def _connect(self, address: BrokerAddress) -> bool:
        self.close()
        # A name of its own: two monitors, one of them standing by, mustn't take each other's session.
        client = Client(address, f"twincal-monitor-{uuid.uuid4().hex[:12]}")
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        try:
            client.connect(address.host, address.port)
        except OSError as error:
            _log.warning("broker can't be reached, drift isn't published", broker=str(address), error=str(error))
            return False
        self._client = client
        client.loop_start()
        if self._connected.wait(CONNECT_WAIT_S):
            return True
        _log.warning("broker doesn't let us in, drift isn't published", broker=str(address))
        self.close()
        return False

    def _on_connect(
        self,
        _client: mqtt.Client,
        _userdata: object,
        _flags: mqtt.ConnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            _log.warning("broker refuses us", reason=str(reason))
        else:
            self._connected.set()

    def _on_disconnect(
        self,
        client: mqtt.Client,
        _userdata: object,
        _flags: mqtt.DisconnectFlags,
        _reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if client is self._client:
            self._connected.clear()
