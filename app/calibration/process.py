"""Runs a fit in a process of its own and takes whatever happens to it as an answer."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

from app.calibration import child
from app.calibration.types import FitRequest, FitResult, Progress
from app.errors import FitImpossibleError, ServiceError

# Not fork: the worker's threads and connections must not be in the child.
_SPAWN: Final = multiprocessing.get_context("spawn")

_FIT_GRACE_S: Final = 60.0
_JUDGING_SHARE: Final = 0.5


class FitFailedError(FitImpossibleError):
    """A fit that ended without a twin: refused its data, broke off, was killed or took too long."""


def hard_limit_s(budget_s: float) -> float:
    """Wall time after which a fit's process is killed [s].

    The fit keeps its own budget and still has to compile, judge and report afterwards; only one that hangs gets here.
    """
    return budget_s * (1.0 + _JUDGING_SHARE) + _FIT_GRACE_S


async def run_fit(
    request: FitRequest,
    on_progress: Callable[[Progress], None],
    limit_s: float,
    entry: Callable[[Connection], None] = child.main,
) -> FitResult:
    """Run one fit; cancelling this kills its process.

    Args:
        request: what to fit.
        on_progress: called with each progress the fit reports.
        limit_s: wall time after which it is killed [s].
        entry: what the process runs.

    Raises:
        FitFailedError: with the reason, and a report if the fit made one.
    """
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=entry, args=(theirs,), name="twincal-fit")
    try:
        process.start()
    except OSError as error:
        raise ServiceError(f"a process for the fit could not be started: {error}") from error
    finally:
        theirs.close()  # so that the child's end is the last one, and its death an end of file
    try:
        async with asyncio.timeout(limit_s):
            return await _converse(ours, process, request, on_progress)
    except TimeoutError as error:
        raise FitFailedError(f"killed after {limit_s:.0f} s, its budget long spent") from error
    finally:
        await asyncio.shield(asyncio.to_thread(_end, process))
        ours.close()


async def _converse(
    channel: Connection, process: BaseProcess, request: FitRequest, on_progress: Callable[[Progress], None]
) -> FitResult:
    try:
        await asyncio.to_thread(channel.send, request)
        while True:
            message: child.Message = await asyncio.to_thread(channel.recv)
            if isinstance(message, FitResult):
                return message
            if isinstance(message, child.Failure):
                raise FitFailedError(message.reason, message.report_html)
            on_progress(message)
    except (EOFError, ConnectionError) as error:
        await asyncio.to_thread(process.join)
        raise FitFailedError(f"the fit's process {_how_it_ended(process.exitcode)}") from error


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended with code {exit_code} and no result"
    name = str(-exit_code)
    with suppress(ValueError):
        name = signal.Signals(-exit_code).name
    hint = "; the machine may be out of memory" if exit_code == -signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()
    process.close()
