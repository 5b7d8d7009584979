"""A fit's process may do what it likes: it ends as a result or as a reason, never as the worker's problem."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import cast

import pytest

from app.calibration.process import FitFailedError, hard_limit_s, run_fit
from app.calibration.types import FitRequest, FitResult, Progress
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from tests import entries

DECLARATION = RobotDeclaration.model_validate({"schema": "twincal.robot/1", "robot": "arm-07", "fleet": "arms"})


def request(seed: int = 0) -> FitRequest:
    # The stand-in processes look at nothing but the robot's name and the seed.
    return FitRequest(DECLARATION, cast("Description", None), (), (), seed, budget_s=10.0, active=None)


async def fit(
    entry: Callable[[Connection], None], progress: list[Progress] | None = None, limit_s: float = 60.0
) -> FitResult:
    seen: list[Progress] = [] if progress is None else progress
    return await run_fit(request(), seen.append, limit_s, entry)


async def test_a_fit_reports_progress_and_gives_its_result() -> None:
    progress: list[Progress] = []
    result = await fit(entries.succeed, progress)
    assert progress == [Progress("search", 0.5, 1, 1.5)]
    assert (result.draft.robot, result.acceptance.accepted, len(result.trials)) == ("arm-07", True, 2)


async def test_a_fit_that_finds_nothing_says_why_and_brings_its_report() -> None:
    with pytest.raises(FitFailedError, match="the robot is idle: no joint moved") as caught:
        await fit(entries.find_nothing)
    assert "<title>idle</title>" in caught.value.report_html


async def test_a_crash_is_named_by_its_signal() -> None:
    with pytest.raises(FitFailedError, match="killed by SIGSEGV"):
        await fit(entries.crash)


async def test_a_process_that_just_ends_is_no_result() -> None:
    with pytest.raises(FitFailedError, match="ended with code 0 and no result"):
        await fit(entries.leave)


async def test_a_fit_that_hangs_is_killed_at_its_limit() -> None:
    with pytest.raises(FitFailedError, match=r"killed after 5 s"):
        await fit(entries.hang, limit_s=5.0)
    assert multiprocessing.active_children() == []


async def test_cancelling_kills_the_process() -> None:
    started = asyncio.Event()
    fit = asyncio.create_task(run_fit(request(), lambda _: started.set(), 60.0, entries.hang))
    await asyncio.wait_for(started.wait(), 30)
    (process,) = multiprocessing.active_children()
    pid = process.pid
    assert pid is not None
    fit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fit
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_hard_limit_leaves_room_for_what_comes_after_the_search() -> None:
    assert hard_limit_s(300.0) == 510.0
