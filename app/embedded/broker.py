"""An MQTT broker of our own on a loopback port: a Mosquitto of this machine, or the one in a wheel."""

from __future__ import annotations

import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from app.embedded.child import (
    LOOPBACK,
    Command,
    GuardedChild,
    accepts_connections,
    choose_port,
    hand_over,
    make_directory,
)
from app.embedded.shelter import home_of
from app.errors import ServiceError

BrokerKind = Literal["mosquitto", "iotcore"]

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""The largest message the embedded brokers take: a second of a 7-joint arm at 1 kHz in JSON is 0.4 MB."""

_START_DEADLINE_S = 10.0
_STOP_GRACE_S = 5.0

# Debian puts it where an ordinary user's PATH doesn't look.
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")

_MOSQUITTO_CONFIG = """\
listener {port} {host}
# Nobody but this machine can connect.
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval 5
# An ingester that is away for a night finds every message when it comes back.
max_queued_messages 0
max_queued_bytes 0
message_size_limit {max_payload}
log_dest stderr
log_type error
log_type warning
log_type notice
connection_messages false
"""

# rumqttd keeps what a subscription matched in segments in memory, delivered or not, and forgets the oldest:
# 16 x 16 MiB each.
_RUMQTTD_CONFIG = """\
id = 0

[router]
id = 0
max_connections = 10010
max_outgoing_packet_count = 200
max_segment_size = 16777216
max_segment_count = 16

[v5.1]
name = "v5-1"
listen = "{host}:{port}"
next_connection_delay_ms = 1

[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = {max_payload}
max_inflight_count = 200
dynamic_filters = true
"""


class EmbeddedBroker:
    """A broker on a loopback port, started with the context and stopped with it.

    A Mosquitto keeps sessions and queued messages on disk and speaks MQTT 3.1.1 and 5; the wheel's (rumqttd) keeps them
    in memory, so that they live as long as it runs, and speaks MQTT 5 alone.

    Args:
        data_dir: kept from run to run; made when it isn't there.
        kind: which broker; None: Mosquitto where there is one.
    """

    def __init__(self, data_dir: Path, kind: BrokerKind | None = None) -> None:
        self._dir = data_dir.absolute()
        self.kind: BrokerKind = kind or ("mosquitto" if find_mosquitto() else "iotcore")
        self._child: GuardedChild | None = None
        self._port = 0

    @property
    def process(self) -> GuardedChild:
        """The broker's process, while it is started."""
        assert self._child is not None
        return self._child

    @property
    def url(self) -> str:
        """`mqtt://127.0.0.1:port`."""
        return f"mqtt://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it takes connections.

        Raises:
            ServiceError: saying what stands in the way, with the last lines of the log where there is one.
        """
        make_directory(self._dir)
        self._port = choose_port(self._dir / "port")
        mosquitto = self.kind == "mosquitto"
        command = Command(
            name=f"the MQTT broker ({self.kind})",
            arguments=self._mosquitto() if mosquitto else self._iotcore(),
            log=self._dir / "broker.log",
            stop_signal=signal.SIGTERM,
            grace_s=_STOP_GRACE_S,
            # The wheel's broker runs in our own Python, which may well lie where `nobody` can't read it.
            keeps_user=not mosquitto,
        )
        child = GuardedChild(command)
        child.wait_until(lambda: accepts_connections(self._port) and child.running, _START_DEADLINE_S)
        self._child = child

    def stop(self) -> None:
        """Stop it and wait; Mosquitto writes its sessions to disk first."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _mosquitto(self) -> list[str]:
        program = find_mosquitto()
        if program is None:
            raise ServiceError("the MQTT broker: no mosquitto on this machine (install it, or use the wheel's broker)")
        home = home_of(self._dir)
        store = home / "store"
        store.mkdir(exist_ok=True)
        hand_over(store, 0o700)
        text = _MOSQUITTO_CONFIG.format(host=LOOPBACK, port=self._port, folder=store, max_payload=MAX_PAYLOAD_BYTES)
        config = home / "mosquitto.conf"
        config.write_text(text)
        hand_over(config, 0o600)
        return [str(program), "-c", str(config)]

    def _iotcore(self) -> list[str]:
        if find_spec("iotcore") is None:
            raise ServiceError(
                "no embedded MQTT broker is installed (pip install 'twincal[embedded]', install mosquitto, or set "
                "TWINCAL_MQTT_URL to a running one)"
            )
        text = _RUMQTTD_CONFIG.format(host=LOOPBACK, port=self._port, max_payload=MAX_PAYLOAD_BYTES)
        config = self._dir / "rumqttd.toml"
        config.write_text(text)
        # -P: a folder named iotcore in the working directory must not be taken for it.
        return [sys.executable, "-P", "-m", "iotcore", "--config", str(config), "--log-level", "WARNING"]


def find_mosquitto() -> Path | None:
    """The `mosquitto` of this machine, if there is one."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path=":".join(_SYSTEM_FOLDERS))
    return Path(found) if found else None
