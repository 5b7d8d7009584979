"""What a fit's process runs in tests of everything around it; spawned, so they must be importable."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

from app.calibration.child import Failure
from app.calibration.types import Acceptance, FitRequest, FitResult, Progress, TrialRecord
from tests.twins import draft

TRIALS = (
    TrialRecord(0, {"friction": "coulomb+viscous"}, {"robot/command_latency_s": 0.01}, 1.5, "complete"),
    TrialRecord(1, {"friction": "viscous"}, {"robot/command_latency_s": 0.02}, None, "failed"),
)


def _result(request: FitRequest, accepted: bool) -> FitResult:
    # The seed tells one fit's twin from another's.
    twin = draft(0.1 + request.seed, robot=request.declaration.robot)
    reason = "gain 0.96 [0.95, 0.97]" if accepted else "gain -0.01 [-0.05, 0.03]: not above 0"
    return FitResult(twin, Acceptance(accepted, reason), TRIALS, "<!doctype html><title>fit</title>")


def succeed(channel: Connection) -> None:
    request = channel.recv()
    channel.send(Progress("search", 0.5, 1, 1.5))
    channel.send(_result(request, accepted=True))


def be_worse(channel: Connection) -> None:
    channel.send(_result(channel.recv(), accepted=False))


def find_nothing(channel: Connection) -> None:
    channel.recv()
    channel.send(Failure("the robot is idle: no joint moved", "<!doctype html><title>idle</title>"))


def crash(channel: Connection) -> None:
    channel.recv()
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(channel: Connection) -> None:
    channel.recv()


def hang(channel: Connection) -> None:
    channel.recv()
    channel.send(Progress("search", 0.25, 12, 0.5))
    while True:
        time.sleep(3600)


def crash_once(channel: Connection) -> None:
    """Seed 666 kills its process; every other request succeeds."""
    request = channel.recv()
    if request.seed == 666:
        os.kill(os.getpid(), signal.SIGKILL)
    channel.send(_result(request, accepted=True))
