from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.embedded.child import Command, GuardedChild, choose_port
from app.errors import ServiceError

DEADLINE_S = 10.0

# Says that it runs, ends well on SIGTERM, and otherwise never.
OBEDIENT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
print("running", flush=True)
while True:
    signal.pause()
"""
STUBBORN = OBEDIENT.replace("sys.exit(0)", "None")


def _command(tmp_path: Path, program: str, grace_s: float = DEADLINE_S) -> Command:
    arguments = [sys.executable, "-I", "-S", "-c", program]
    return Command("the service", arguments, tmp_path / "log", signal.SIGTERM, grace_s, keeps_user=True)


def _says(tmp_path: Path, words: str) -> Callable[[], bool]:
    return lambda: words in (tmp_path / "log").read_text()


def _wait(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_service_is_asked_to_end_and_waited_for(tmp_path: Path) -> None:
    child = GuardedChild(_command(tmp_path, OBEDIENT))
    child.wait_until(_says(tmp_path, "running"), DEADLINE_S)
    assert child.running
    child.stop()
    assert not child.running
    assert (tmp_path / "log").read_text() == "running\nasked to end\n"
    child.stop()


def test_a_service_that_does_not_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = GuardedChild(_command(tmp_path, STUBBORN, grace_s=0.05))
    child.wait_until(_says(tmp_path, "running"), DEADLINE_S)
    child.stop()
    assert not child.running


def test_a_service_that_ends_while_starting_leaves_its_last_words_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("words of another day\n")
    child = GuardedChild(_command(tmp_path, "import sys; print('no luck'); sys.exit('port taken')"))
    with pytest.raises(ServiceError, match="the service ended while starting") as refused:
        child.wait_until(lambda: False, DEADLINE_S)
    assert "no luck" in str(refused.value)
    assert "port taken" in str(refused.value)
    assert "another day" not in str(refused.value)
    assert "\n" not in str(refused.value)
    child.stop()


def test_a_service_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    child = GuardedChild(_command(tmp_path, OBEDIENT))
    child.wait_until(_says(tmp_path, "running"), DEADLINE_S)
    with pytest.raises(ServiceError, match=r"was not ready after 0\.05 s"):
        child.wait_until(lambda: False, 0.05)
    assert not child.running


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    child = GuardedChild(Command("the service", ["/no/such/program"], tmp_path / "log", signal.SIGTERM, 1.0))
    with pytest.raises(ServiceError, match="/no/such/program: can't be run: No such file"):
        child.wait_until(lambda: False, DEADLINE_S)
    child.stop()


@pytest.mark.parametrize("killed", ["parent", "guard"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NO PARENT-DEATH SIGNAL HERE")
def test_a_service_ends_with_whoever_started_it(tmp_path: Path, killed: str) -> None:
    """Also when it was started by a thread that ended, and whichever of the two above it is killed."""
    parent_program = f"""
import os, signal, sys, threading
from pathlib import Path
from app.embedded.child import Command, GuardedChild
command = Command("s", [sys.executable, "-I", "-S", "-c", {OBEDIENT!r}], Path(sys.argv[1]), signal.SIGTERM, 5.0,
                  keeps_user=True)
started = []
thread = threading.Thread(target=lambda: started.append(GuardedChild(command)))
thread.start()
thread.join()
started[0].wait_until(lambda: "running" in Path(sys.argv[1]).read_text(), 10)
print(started[0]._process.pid, flush=True)
signal.pause()
"""
    log = str(tmp_path / "log")
    with subprocess.Popen([sys.executable, "-c", parent_program, log], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        assert (tmp_path / "log").read_text() == "running\n", "it outlived the thread that started it"
        os.kill(parent.pid if killed == "parent" else guard, signal.SIGKILL)
        _wait(_says(tmp_path, "asked to end"))
        parent.kill()


def test_a_port_is_remembered_and_changed_only_when_taken(tmp_path: Path) -> None:
    remembered = tmp_path / "port"
    port = choose_port(remembered)
    assert choose_port(remembered) == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert choose_port(remembered) != port
    remembered.write_text("nonsense")
    assert 0 < choose_port(remembered) < 2**16
