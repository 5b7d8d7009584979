"""`twincal replay` and `twincal dead-letters`, as typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import create_app
from app.database.engine import create_engine
from app.embedded.broker import EmbeddedBroker, find_mosquitto
from app.errors import LogError, ServiceError
from tests.integration.ingesting import ingesting, new_id, query, register, stored, wait_for_letters

LOG = "xl330/kp100_sin_sin.csv"


class Shell:
    """Runs `twincal` with a database and a broker in its environment."""

    def __init__(self, database_url: str, mqtt_url: str) -> None:
        self.database_url, self.mqtt_url = database_url, mqtt_url

    def run(self, *arguments: str) -> Result:
        environment = {"TWINCAL_DATABASE_URL": self.database_url, "TWINCAL_MQTT_URL": self.mqtt_url}
        return CliRunner().invoke(create_app(), arguments, env=environment, catch_exceptions=False)


@pytest.fixture
def shell(database_url: str, mqtt_url: str) -> Shell:
    return Shell(database_url, mqtt_url)


@pytest.fixture
def declaration(shared: Path, tmp_path: Path) -> Path:
    """The declaration of a recorded robot under an id of the test's own."""
    source = shared / "data" / "xl330"
    text = (source / "robot.yaml").read_text(encoding="utf-8")
    urdf = (source / "xl330_rig.urdf").read_bytes()
    (tmp_path / "xl330_rig.urdf").write_bytes(urdf)
    path = tmp_path / "robot.yaml"
    path.write_text(text.replace("robot: xl330", f"robot: {new_id('xl330')}"), encoding="utf-8")
    return path


def robot_of(declaration: Path) -> str:
    (line,) = (line for line in declaration.read_text(encoding="utf-8").splitlines() if line.startswith("robot: "))
    return line.removeprefix("robot: ")


async def while_ingesting(shell: Shell, action: str, *arguments: str, robot: str, letters: int) -> Result:
    """Run a command while an ingester runs, until so many of the robot's messages are dead letters."""
    async with ingesting(shell.database_url, shell.mqtt_url):
        result = await asyncio.to_thread(shell.run, action, *arguments)
        await wait_for_letters(shell.database_url, robot, letters)
    return result


def test_a_log_of_an_unregistered_robot_is_refused_kept_and_stored_once_it_is_registered(
    shell: Shell, shared: Path, declaration: Path
) -> None:
    robot = robot_of(declaration)
    log = str(shared / "data" / LOG)
    arguments = ("--robot", str(declaration), "--log", log, "--log", log, "--speed", "max", "--batch", "100")
    sent = asyncio.run(while_ingesting(shell, "replay", *arguments, robot=robot, letters=24))
    assert sent.exit_code == 0
    lines = sent.stdout.splitlines()
    assert len(lines) == 2
    assert all(f"1124 samples (6.0 s) of xl330/{robot} in 12 messages" in line for line in lines)
    boots = {line.rpartition(" ")[2] for line in lines}
    assert len(boots) == 2, "each log is a boot of its own"

    listed = shell.run("dead-letters", "list", "--robot", robot, "--reason", "unregistered_robot").stdout.splitlines()
    assert len(listed) == 24
    assert "register it, then: twincal dead-letters replay" in listed[0]
    identifier = listed[0].split()[0]
    shown = shell.run("dead-letters", "show", identifier).stdout
    assert f"topic:         twincal/v1/xl330/{robot}/telemetry/joints" in shown
    assert "reason:        unregistered_robot" in shown
    raw = shell.run("dead-letters", "show", identifier, "--payload").stdout_bytes
    assert raw[:1] in b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"

    async def register_robot() -> None:
        engine = create_engine(shell.database_url)
        await register(engine, robot, "xl330")
        await engine.dispose()

    asyncio.run(register_robot())
    again = shell.run("dead-letters", "replay", "--robot", robot).stdout
    assert "stored 24 messages, 2248 samples; 0 were stored already" in again
    assert asyncio.run(stored(shell.database_url, robot)).samples == 2248
    counts = "SELECT boot_id, samples FROM recordings WHERE robot = $1"
    assert set(asyncio.run(query(shell.database_url, counts, robot))) == {(boot, 1124) for boot in boots}
    assert "[stored since]" in shell.run("dead-letters", "list", "--robot", robot).stdout


def test_a_replay_that_nobody_hears_says_so(shell: Shell, shared: Path, declaration: Path, service_dir: Path) -> None:
    if find_mosquitto() is None:
        pytest.skip("NO MOSQUITTO ON THIS MACHINE: the wheel's broker doesn't tell whether anybody subscribes")
    with EmbeddedBroker(service_dir / new_id("broker"), "mosquitto") as broker:
        log = str(shared / "data" / LOG)
        sent = shell.run(
            "replay", "--robot", str(declaration), "--log", log, "--speed", "max", "--mqtt-url", broker.url
        )
    assert "nobody is subscribed: the broker dropped 23 messages" in sent.stderr


def test_a_broken_log_stops_a_replay_before_anything_is_published(
    shell: Shell, shared: Path, declaration: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("t_s,a.position\n0,1\n0,2\n", encoding="utf-8")
    good = str(shared / "data" / LOG)
    with pytest.raises(LogError, match=r"broken\.csv:3: column t_s"):
        shell.run("replay", "--robot", str(declaration), "--log", good, "--log", str(broken), "--mqtt-url", "mqtt://no")


def test_a_broker_that_is_away_is_one_line(shell: Shell, shared: Path, declaration: Path) -> None:
    log = str(shared / "data" / LOG)
    with pytest.raises(ServiceError, match=r"broker mqtt://127\.0\.0\.1:1: can't be reached"):
        shell.run("replay", "--robot", str(declaration), "--log", log, "--mqtt-url", "mqtt://127.0.0.1:1")
