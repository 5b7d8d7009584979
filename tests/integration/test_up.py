"""`twincal up` as a person runs it: one process that brings everything up and takes everything along."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.processes import DEADLINE_S, descendants, still_there, wait_until
from tests.integration.serving import URDF

COMMAND = (sys.executable, "-c", "from app.cli import main; main()")
ROBOT_YAML = "schema: twincal.robot/1\nrobot: arm-07\nfleet: arms\ndescription: arm.urdf\ncontroller: {kind: pd}\n"
LOG = "t_s,elbow.position,elbow.command_position\n" + "".join(f"{i / 100},{i / 500},{i / 400}\n" for i in range(200))


@pytest.fixture
def folder(service_dir: Path, request: pytest.FixtureRequest) -> Path:
    """Where the command is typed; `nobody` can enter it, which Postgres needs when we are root."""
    made: Path = service_dir / request.node.name.translate(str.maketrans("[]", "--"))
    made.mkdir()
    made.chmod(0o755)
    return made


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("TWINCAL_")}


def twincal(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@contextmanager
def up(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running `twincal up` and what it printed."""
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, "up", "--port", "0"], cwd=folder, env=environment(), stdout=file, stderr=file
        )
    try:
        wait_until(lambda: "/twin\n" in output.read_text() or process.poll() is not None, output)
        assert process.poll() is None, output.read_text()
        yield process, output.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_what_up_says_to_type_next_works_and_telemetry_is_stored_from_the_first_message(folder: Path) -> None:
    (folder / "arm.urdf").write_bytes(URDF)
    (folder / "robot.yaml").write_text(ROBOT_YAML)
    (folder / "log.csv").write_text(LOG)
    with up(folder) as (process, said):
        assert twincal(folder, "robots", "put", "robot.yaml").stdout == "arm-07 of fleet arms is registered\n"
        replayed = twincal(folder, "replay", "--robot", "robot.yaml", "--log", "log.csv", "--speed", "max")
        assert (replayed.returncode, "nobody is subscribed" in replayed.stderr) == (0, False)
        key = twincal(folder, "keys", "create", "--scope", "read").stdout.strip()
        url = re.search(r"http://127\.0\.0\.1:\d+(?=/v1/robots/ROBOT/twin)", said)
        assert url is not None
        with httpx.Client(base_url=url[0], headers={"Authorization": f"Bearer {key}"}) as api:

            def samples() -> int:
                items = api.get("/v1/robots/arm-07/recordings").raise_for_status().json()["items"]
                return sum(item["samples"] for item in items)

            wait_until(lambda: samples() == 200, folder / "output")
            twin = api.get("/v1/robots/arm-07/twin")
            assert (twin.status_code, twin.json()["type"]) == (404, "urn:twincal:problem:no-active-twin")
            drift = api.get("/v1/robots/arm-07/drift")
            assert (drift.status_code, drift.json()["type"]) == (404, "urn:twincal:problem:no-active-twin")
        gauges = re.search(r"http://127\.0\.0\.1:\d+/metrics", said)
        assert gauges is not None
        wait_until(lambda: "twincal_monitor_active 1.0" in httpx.get(gauges[0]).text, folder / "output")
        assert 'twincal_robot_telemetry_age_seconds{robot_id="arm-07"}' in httpx.get(gauges[0]).text
        second = twincal(folder, "up", "--port", "0")
        assert second.returncode == 2
        assert f"in use by another twincal, process {process.pid} " in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert "no database" in twincal(folder, "keys", "list").stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_that_up_started_outlives_it(folder: Path, how: signal.Signals) -> None:
    with up(folder) as (process, _):
        # Postgres, broker, API, ingester, worker and monitor, each with its guard.
        children = descendants(process.pid)
        assert len(children) >= 12
        process.send_signal(how)
        code = process.wait(DEADLINE_S)
        assert code == (-signal.SIGKILL if how == signal.SIGKILL else 0)
        wait_until(lambda: not still_there(children), folder / "output")
    if how != signal.SIGKILL:
        assert (folder / "output").read_text().endswith("stopping …\nstopped\n")


def test_a_port_that_is_taken_is_said_before_anything_starts(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = twincal(folder, "up", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == (
        f"twincal: the API can't listen on 127.0.0.1:{port}: Address already in use (choose another --port)\n"
    )
    assert not (folder / ".twincal").exists()


def test_a_data_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / ".twincal").write_text("a file")
    done = twincal(folder, "up", "--port", "0")
    assert done.returncode == 2
    assert done.stderr.startswith(f"twincal: {folder}/.twincal/logs: can't be made a data folder: ")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument"), [("ingest", b"\0ingest\0"), ("database", b"listen_addresses=127.0.0.1")])
def test_a_service_that_ends_takes_the_others_along_and_is_named(folder: Path, name: str, argument: bytes) -> None:
    with up(folder) as (process, _):
        children = descendants(process.pid)
        ended = next(
            pid
            for pid in children
            if argument in (line := Path(f"/proc/{pid}/cmdline").read_bytes()) and b"guard.py" not in line
        )
        os.kill(ended, signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 2
        assert f"twincal: the {name} service has ended; " in (folder / "output").read_text()
        wait_until(lambda: not still_there(children), folder / "output")
