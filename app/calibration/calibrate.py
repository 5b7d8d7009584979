"""The story of one calibration, hop by hop: telemetry, fit, version, its state, the job's end.

Whatever happens to a fit happens in its own process, and is written down as the job's end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Final, NoReturn
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.calibration import child, jobs, versions
from app.calibration.alongside import alongside
from app.calibration.audit import Move
from app.calibration.jobs import Calibration, Ending
from app.calibration.process import hard_limit_s, run_fit
from app.calibration.selection import Inputs, load_inputs
from app.calibration.types import FitRequest, FitResult, Progress
from app.errors import FitImpossibleError, TwincalError
from app.metrics import calibration_seconds, calibrations_ended
from app.twin.document import TwinDraft

MAX_ATTEMPTS: Final = 3
"""Workers a job may take down before it is given up."""

DATABASE_GONE: Final = (OSError, SQLAlchemyError)
"""What a database that is restarted makes of a query."""

_PROGRESS_S: Final = 0.5

_log = structlog.get_logger(__name__)


class CalibrationStoppedError(TwincalError):
    """A job that was cancelled, or ended by another worker, while it ran."""


async def calibrate_robot(
    engine: AsyncEngine, calibration: UUID, entry: Callable[[Connection], None] = child.main
) -> Ending | None:
    """One job, from the robot's telemetry to a published version; its end is written down whatever it is.

    Returns:
        How it ended; None if there was nothing left to do.
    """
    async with engine.begin() as connection:
        job = await jobs.begin(connection, calibration)
    if job is None:
        return None
    began = time.monotonic()
    log = _log.bind(calibration=str(calibration), robot=job.robot)
    log.info("calibration_started", attempt=job.attempts)
    try:
        _refuse_killer(job)
        inputs = await load_inputs(engine, job)
        result = await _fit(engine, job, inputs.request, entry)
        ending = await _publish(engine, job, inputs, result)
    except CalibrationStoppedError as error:
        ending = await _end(engine, job, Ending("cancelled", str(error)))
    except FitImpossibleError as error:
        ending = await _end(engine, job, Ending("failed", str(error), report_html=error.report_html or None))
    except TwincalError as error:
        ending = await _end(engine, job, Ending("failed", str(error)))
    calibrations_ended.labels(ending.state).inc()
    calibration_seconds.observe(time.monotonic() - began)
    log.info("calibration_ended", state=ending.state, version=ending.version, reason=ending.reason)
    return ending


def _refuse_killer(job: Calibration) -> None:
    if job.attempts > MAX_ATTEMPTS:
        raise FitImpossibleError(f"given up: {MAX_ATTEMPTS} workers died while doing it")


async def _fit(
    engine: AsyncEngine, job: Calibration, request: FitRequest, entry: Callable[[Connection], None]
) -> FitResult:
    latest = _Latest()
    fit = run_fit(request, latest.put, hard_limit_s(request.budget_s), entry)
    return await alongside(fit, _watch(engine, job.id, latest))


@dataclass(slots=True)
class _Latest:
    """The newest progress not yet written down."""

    progress: Progress | None = None

    def put(self, progress: Progress) -> None:
        self.progress = progress

    def take(self) -> Progress | None:
        progress, self.progress = self.progress, None
        return progress


async def _watch(engine: AsyncEngine, calibration: UUID, latest: _Latest) -> NoReturn:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        try:
            async with engine.begin() as connection:
                go_on = await jobs.note_progress(connection, calibration, latest.take())
        except DATABASE_GONE:
            continue  # progress is for people; whether the job is still ours is the heartbeat's business
        if not go_on:
            raise CalibrationStoppedError("cancelled on request")


async def _publish(engine: AsyncEngine, job: Calibration, inputs: Inputs, result: FitResult) -> Ending:
    """Version, its state, the trials and the job's end: one transaction."""
    request = inputs.request
    parent = request.active.version if request.active else None
    async with engine.begin() as connection:
        origin = versions.Origin(job.id, parent, datetime.now(UTC))
        document = await versions.publish(connection, _sourced(job, inputs, result.draft), origin)
        reason = await _decide(connection, job, request, result, document.version)
        ending = Ending("succeeded", reason, document.version, result.report_html, result.trials)
        if not await jobs.finish(connection, job.id, ending):
            # Raised inside the transaction, so that the version goes with it.
            raise CalibrationStoppedError("ended by another worker, or its robot is gone")
    return ending


def _sourced(job: Calibration, inputs: Inputs, draft: TwinDraft) -> TwinDraft:
    """The draft with what only the service knows: where its description and its data are."""
    reference, provenance = draft.description, draft.provenance
    href = f"/v1/robots/{job.robot}/description?sha256={reference.sha256}"
    recordings = tuple(str(recording) for recording in inputs.recordings)
    return draft.model_copy(
        update={
            "description": reference.model_copy(update={"href": href}),
            "provenance": provenance.model_copy(update={"recordings": recordings, "window": inputs.window}),
        }
    )


async def _decide(
    connection: AsyncConnection, job: Calibration, request: FitRequest, result: FitResult, version: int
) -> str:
    """Move the new version where its gate and the request say; returns what happened, for people."""
    acceptance = result.acceptance
    reason = acceptance.reason
    if not acceptance.accepted and request.active is not None:
        reason += f"; version {request.active.version} is kept"
    move = Move(f"calibration:{job.id}", f"{job.cause}; {reason}" if job.cause else reason)
    if not acceptance.accepted:
        await versions.reject(connection, job.robot, version, move)
        return reason
    if job.request.activate == "never":
        return acceptance.reason
    beaten = versions.Expected(frozenset({request.active.digest} if request.active else ()))
    try:
        await versions.activate(connection, job.robot, version, move, beaten)
    except versions.ActiveMovedError as error:
        return f"{acceptance.reason}; left a candidate: {error}"
    return acceptance.reason


async def _end(engine: AsyncEngine, job: Calibration, ending: Ending) -> Ending:
    async with engine.begin() as connection:
        await jobs.finish(connection, job.id, ending)
    return ending
