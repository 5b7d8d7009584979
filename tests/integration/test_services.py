"""The services as they are started in production: each a process, told by the environment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import URDF

DEADLINE_S = 60.0
COMMAND = (sys.executable, "-c", "from app.cli import main; main()")


def twincal(url: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TWINCAL_")}
    # Not the services of a developer's own `twincal up` in this folder.
    environment["TWINCAL_DATA_DIR"] = os.devnull
    if url is not None:
        environment["TWINCAL_DATABASE_URL"] = url
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@contextmanager
def service(url: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A service's process; told to stop at the end, which it must do in good order."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=os.environ | {"TWINCAL_DATABASE_URL": url}, stdout=output, stderr=output
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) in {0, -signal.SIGTERM}, log.read_text()
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, log: Path) -> httpx.Response:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return httpx.get(url)
        except httpx.TransportError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def test_an_empty_database_is_migrated_and_again_without_harm(empty_database_url: str) -> None:
    for _ in range(2):
        done = twincal(empty_database_url, "migrate")
        assert (done.returncode, done.stderr) == (0, "")
    assert twincal(empty_database_url, "keys", "list").returncode == 0


def test_a_key_made_on_the_command_line_opens_the_api_until_it_is_revoked(database_url: str, tmp_path: Path) -> None:
    made = twincal(database_url, "keys", "create", "--scope", "read", "--expires-in-days", "1")
    token = made.stdout.strip()
    assert (made.returncode, token.startswith("twincal_"), token in made.stderr) == (0, True, False)
    port, log = free_port(), tmp_path / "api.log"
    with service(database_url, log, "api", "--port", str(port)):
        base = f"http://127.0.0.1:{port}"
        assert wait_for(f"{base}/readyz", log).json()["ready"] is True
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/v1/fleets").status_code == 401
        assert httpx.get(f"{base}/v1/fleets", headers=headers).json() == {"items": [], "next": None}
        listed = twincal(database_url, "keys", "list").stdout
        assert "read" in listed
        assert token not in listed
        assert twincal(database_url, "keys", "revoke", listed.split()[0]).returncode == 0
        # The process that revoked took longer than the second the service may take to notice.
        deadline = time.monotonic() + 1.0
        while httpx.get(f"{base}/v1/fleets", headers=headers).status_code != 401:
            assert time.monotonic() < deadline
    assert token not in log.read_text()


def test_a_worker_stops_when_told(database_url: str, tmp_path: Path) -> None:
    log, port = tmp_path / "worker.log", free_port()
    with service(database_url, log, "worker", "--metrics-port", str(port)) as worker:
        assert "twincal_calibrations_total" in wait_for(f"http://127.0.0.1:{port}/metrics", log).text
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_service_without_keys_is_never_open_to_others(host: str) -> None:
    done = twincal("postgresql://x@127.0.0.1:1/x", "api", "--insecure-local", "--host", host)
    assert done.returncode == 2
    assert done.stderr == (f"twincal: --insecure-local: {host} can be reached from other machines (--host 127.0.0.1)\n")


@pytest.mark.parametrize("command", [("api",), ("worker",), ("migrate",), ("keys", "list")])
def test_without_a_database_a_service_says_what_to_set(command: tuple[str, ...]) -> None:
    done = twincal(None, *command)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("twincal: no database: set TWINCAL_DATABASE_URL")


def test_a_key_for_a_fleet_that_is_not_there_is_refused(database_url: str) -> None:
    done = twincal(database_url, "keys", "create", "--scope", "read", "--fleet", "arms")
    assert (done.returncode, done.stderr) == (2, "twincal: no fleet 'arms'\n")


def test_a_robot_is_registered_and_calibrated_from_a_shell(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "arm.urdf").write_bytes(URDF)
    (tmp_path / "robot.yaml").write_text(
        "schema: twincal.robot/1\nrobot: arm-07\nfleet: arms\ndescription: arm.urdf\ncontroller: {kind: pd}\n"
    )
    for word in ("registered", "replaced"):
        done = twincal(database_url, "robots", "put", str(tmp_path / "robot.yaml"))
        assert (done.returncode, done.stdout) == (0, f"arm-07 of fleet arms is {word}\n"), done.stderr
    assert twincal(database_url, "robots", "list").stdout.split()[:2] == ["arm-07", "arms"]
    shown = json.loads(twincal(database_url, "robots", "show", "arm-07").stdout)
    assert shown["description"]["sha256"] == hashlib.sha256(URDF).hexdigest()
    with service(database_url, tmp_path / "worker.log", "worker"):
        done = twincal(database_url, "calibrate", "arm-07")
    assert (done.returncode, done.stdout) == (3, "failed: robot 'arm-07' has sent no telemetry yet\n")
    assert twincal(database_url, "twins", "list", "arm-07").stdout == ""
    missing = twincal(database_url, "twins", "show", "arm-07")
    assert missing.returncode == 2
    assert missing.stderr.startswith("twincal: no active twin of robot 'arm-07'")
