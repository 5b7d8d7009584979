from __future__ import annotations

import os
import queue
import signal
import socket
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from app.embedded.broker import MAX_PAYLOAD_BYTES, EmbeddedBroker, find_mosquitto
from app.errors import ServiceError

DEADLINE_S = 10.0


class Client:
    """A paho client that puts what it receives into a queue."""

    def __init__(self, url: str, client_id: str, *, manual_ack: bool = False) -> None:
        self.received: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.session_present = False
        self._connected = threading.Event()
        self._subscribed = threading.Event()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5, manual_ack=manual_ack
        )
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = lambda _c, _u, message: self.received.put((message.topic, bytes(message.payload)))
        address = urlsplit(url)
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho types everything but these
        session.SessionExpiryInterval = 3600
        self._client.connect(str(address.hostname), address.port or 1883, clean_start=False, properties=session)
        self._client.loop_start()
        assert self._connected.wait(DEADLINE_S)

    def _on_connect(self, _client: object, _user: object, flags: mqtt.ConnectFlags, code: object, *_: object) -> None:
        assert not getattr(code, "is_failure", code)
        self.session_present = flags.session_present
        self._connected.set()

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, qos=1)
        assert self._subscribed.wait(DEADLINE_S)

    def publish(self, topic: str, payload: bytes, **properties: Any) -> None:
        sent = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # as above
        for name, value in properties.items():
            setattr(sent, name, value)
        self._client.publish(topic, payload, qos=1, properties=sent if properties else None).wait_for_publish(
            DEADLINE_S
        )

    def take(self, number: int) -> list[bytes]:
        return [self.received.get(timeout=DEADLINE_S)[1] for _ in range(number)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def client(url: str, client_id: str, *, manual_ack: bool = False) -> Iterator[Client]:
    connected = Client(url, client_id, manual_ack=manual_ack)
    try:
        yield connected
    finally:
        connected.close()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def test_half_a_megabyte_passes_unchanged(broker: EmbeddedBroker, name: str) -> None:
    payload = os.urandom(500_000)
    with client(broker.url, f"{name}-a") as receiver, client(broker.url, f"{name}-b") as sender:
        receiver.subscribe(f"{name}/#")
        sender.publish(f"{name}/telemetry", payload, ContentType="application/msgpack")
        assert receiver.take(1) == [payload]


def test_messages_wait_for_an_ingester_that_is_away(broker: EmbeddedBroker, name: str) -> None:
    """More of them than Mosquitto's own default would keep."""
    sent = [f"{i}".encode() for i in range(2_500)]
    with client(broker.url, f"{name}-a") as receiver:
        assert not receiver.session_present
        receiver.subscribe(f"{name}/#")
    with client(broker.url, f"{name}-b") as sender:
        for payload in sent:
            sender.publish(f"{name}/telemetry", payload)
    with client(broker.url, f"{name}-a") as receiver:
        assert receiver.session_present
        assert receiver.take(len(sent)) == sent


def test_messages_that_were_not_acknowledged_come_again(broker: EmbeddedBroker, name: str) -> None:
    sent = [f"{i}".encode() for i in range(10)]
    with client(broker.url, f"{name}-b") as sender:
        with client(broker.url, f"{name}-a", manual_ack=True) as receiver:
            receiver.subscribe(f"{name}/#")
            for payload in sent:
                sender.publish(f"{name}/telemetry", payload)
            assert receiver.take(len(sent)) == sent
        with client(broker.url, f"{name}-a") as receiver:
            assert receiver.take(len(sent)) == sent


def test_a_shared_subscription_gives_each_message_to_one_member(broker: EmbeddedBroker, name: str) -> None:
    sent = {f"{i}".encode() for i in range(200)}
    with (
        client(broker.url, f"{name}-a") as first,
        client(broker.url, f"{name}-b") as second,
        client(broker.url, f"{name}-c") as sender,
    ):
        merged: queue.Queue[tuple[str, bytes]] = queue.Queue()
        first.received = second.received = merged
        for member in (first, second):
            member.subscribe(f"$share/ingest/{name}/#")
        for payload in sent:
            sender.publish(f"{name}/telemetry", payload)
        got = first.take(len(sent))
        assert set(got) == sent
        assert merged.empty()


def test_a_retained_message_reaches_who_subscribes_later(broker: EmbeddedBroker, name: str) -> None:
    with client(broker.url, f"{name}-b") as sender:
        sender._client.publish(f"{name}/twin", b"v7", qos=1, retain=True).wait_for_publish(DEADLINE_S)
    with client(broker.url, f"{name}-a") as receiver:
        receiver.subscribe(f"{name}/twin")
        assert receiver.take(1) == [b"v7"]


def test_only_this_machine_can_connect(broker: EmbeddedBroker) -> None:
    """Every address of 127/8 is this machine's: a listener on all interfaces would answer on the second one."""
    port = urlsplit(broker.url).port
    assert urlsplit(broker.url).hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port or 0), timeout=1):
        pass


def test_a_broker_keeps_its_port_and_ends_with_its_context(service_dir: Path, broker: EmbeddedBroker) -> None:
    folder = service_dir / f"again-{broker.kind}"
    with EmbeddedBroker(folder, broker.kind) as first:
        url = first.url
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)):
        pass
    with EmbeddedBroker(folder, broker.kind) as second:
        assert second.url == url


@pytest.mark.skipif(find_mosquitto() is None, reason="NO MOSQUITTO ON THIS MACHINE")
def test_mosquitto_keeps_queued_messages_over_a_restart(service_dir: Path, name: str) -> None:
    folder = service_dir / f"kept-{name}"
    with EmbeddedBroker(folder, "mosquitto") as broker:
        with client(broker.url, f"{name}-a") as receiver:
            receiver.subscribe(f"{name}/#")
        with client(broker.url, f"{name}-b") as sender:
            sender.publish(f"{name}/telemetry", b"kept")
    with EmbeddedBroker(folder, "mosquitto") as broker, client(broker.url, f"{name}-a") as receiver:
        assert receiver.session_present
        assert receiver.take(1) == [b"kept"]
    assert stat.S_IMODE((folder / "store").stat().st_mode) == 0o700


def test_a_broker_ends_when_its_process_is_killed(service_dir: Path, broker: EmbeddedBroker) -> None:
    code = (
        "import sys, signal; from pathlib import Path; from app.embedded.broker import EmbeddedBroker\n"
        f"with EmbeddedBroker(Path(sys.argv[1]), {broker.kind!r}) as broker:\n"
        "    print(broker.url, flush=True); signal.pause()\n"
    )
    folder = service_dir / f"killed-{broker.kind}"
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = urlsplit(parent.stdout.readline().strip()).port or 0
        with socket.create_connection(("127.0.0.1", port)) as idle:
            parent.send_signal(signal.SIGKILL)
            idle.settimeout(DEADLINE_S)
            with suppress(ConnectionResetError):
                assert idle.recv(1) == b"", "the broker closes its connections when it ends"


def test_a_broker_that_cannot_write_says_so(service_dir: Path, broker: EmbeddedBroker) -> None:
    blocked = service_dir / f"blocked-{broker.kind}"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="can't be made a data folder"), EmbeddedBroker(blocked, broker.kind):
        pass


def test_the_largest_payload_is_a_mebibyte() -> None:
    assert MAX_PAYLOAD_BYTES == 2**20
