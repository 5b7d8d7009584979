"""Where the broker is, and a paho client that can reach it: for the ingester's session and for replay."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from app.errors import ServiceError

CONNECT_WAIT_S: Final = 5.0

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker, as `mqtt://user:password@host:port` or `mqtts://…` says; printed without the password."""

    scheme: Literal["mqtt", "mqtts"]
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            ServiceError: if it isn't one of a broker. The message never holds the password.
        """
        form = "mqtt://user:password@host:port or mqtts://…"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ServiceError(f"broker URL: can't be read ({form})") from error
        if parts.scheme not in _PORTS or not parts.hostname or parts.path not in ("", "/"):
            raise ServiceError(f"broker URL: is not that of a broker ({form})")
        return cls(
            scheme="mqtts" if parts.scheme == "mqtts" else "mqtt",
            host=parts.hostname,
            port=port or _PORTS[parts.scheme],
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Client(mqtt.Client):
    """A paho client that tells when its network loop last went round: the only sign that its thread still lives."""

    def __init__(self, address: BrokerAddress, client_id: str, *, manual_ack: bool = False) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv5,
            manual_ack=manual_ack,
            # A connection that ended is never taken up again by the same object: see app.ingest.session.
            reconnect_on_failure=False,
        )
        self.address = address
        self.connect_timeout = CONNECT_WAIT_S
        self.last_loop = time.monotonic()
        if address.user is not None:
            self.username_pw_set(address.user, address.password)
        if address.scheme == "mqtts":
            self.tls_set()

    def loop_misc(self) -> MQTTErrorCode:
        """Housekeeping of the network loop, at least once a second while the thread lives."""
        self.last_loop = time.monotonic()
        return super().loop_misc()


def connect_properties(**values: int) -> Properties:
    """Properties of a CONNECT packet, by paho's names."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own
    for name, value in values.items():
        setattr(properties, name, value)
    return properties
