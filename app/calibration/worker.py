"""The worker: claims one job after another and takes it from telemetry to a published version.

`calibrate_robot` is the story of one job, hop by hop. Whatever happens to a fit happens in its own process; whatever
happens to the worker leaves its job to another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID, uuid4

import structlog
from pgqueuer.domain.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId
from pgqueuer.models import Job
from pgqueuer.queries import EntrypointExecutionParameter
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import child, jobs, versions
from app.calibration.jobs import Calibration, Ending
from app.calibration.process import hard_limit_s, run_fit
from app.calibration.selection import load_request
from app.calibration.types import FitRequest, FitResult, Progress
from app.database.queue import queue_in
from app.errors import FitImpossibleError, TwincalError
from app.telemetry import RobotId

HEARTBEAT_TIMEOUT_S: Final = 30.0
"""A job whose worker hasn't been heard of for so long is given to another."""

MAX_ATTEMPTS: Final = 3
"""Workers a job may take down before it is given up."""

_POLL_S: Final = 1.0
_PROGRESS_S: Final = 0.5
_RETRY_S: Final = 2.0
_UNLIMITED: Final = EntrypointExecutionParameter(concurrency_limit=0)
_DATABASE_GONE: Final = (OSError, SQLAlchemyError)

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class CalibrationStoppedError(TwincalError):
    """A job that was cancelled, or ended by another worker, while it ran."""


@dataclass(slots=True)
class Worker:
    """One worker: one job at a time.

    Attributes:
        engine: the database.
        heartbeat_timeout_s: silence after which another worker takes a job over [s].
        entry: what a fit's process runs.
    """

    engine: AsyncEngine
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    entry: Callable[[Connection], None] = child.main
    _id: UUID = field(default_factory=uuid4)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; a job that is under way then goes back into the queue."""
        while not stop.is_set():
            try:
                job = await self._claim()
                if job is None:
                    await _wait(stop, _POLL_S)
                else:
                    await self._handle(job, stop)
            except Exception:  # noqa: BLE001 - the outermost loop: nothing a job does ends the worker
                _log.exception("worker_failed", retry_s=_RETRY_S)
                await _wait(stop, _RETRY_S)

    async def _claim(self) -> Job | None:
        async with self.engine.connect() as connection:
            queue = await queue_in(connection)
            claimed = await queue.dequeue(
                batch_size=1,
                entrypoints={QueueEntrypoint(jobs.ENTRYPOINT): _UNLIMITED},
                queue_manager_id=QueueManagerId(self._id),
                global_concurrency_limit=None,
                heartbeat_timeout=timedelta(seconds=self.heartbeat_timeout_s),
            )
        return claimed[0] if claimed else None

    async def _handle(self, job: Job, stop: asyncio.Event) -> None:
        calibration = UUID(bytes=job.payload or b"")
        work = asyncio.create_task(
            _alongside(calibrate_robot(self.engine, calibration, self.entry), self._beat(JobId(job.id)))
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await self._take_off_queue(job, work.result())
            else:
                await _cancelled(work)
                await self._give_back(job, calibration)
        finally:
            await _cancelled(work, stopping)

    async def _take_off_queue(self, job: Job, status: JOB_STATUS) -> None:
        async with self.engine.connect() as connection:
            await (await queue_in(connection)).log_jobs([(job, status, None)])

    async def _give_back(self, job: Job, calibration: UUID) -> None:
        async with self.engine.begin() as connection:
            await jobs.release(connection, calibration)
            await (await queue_in(connection)).retry_job(job, timedelta(0), None)

    async def _beat(self, job: JobId) -> NoReturn:
        heard = time.monotonic()
        while True:
            await asyncio.sleep(self.heartbeat_timeout_s / 4)
            try:
                async with self.engine.connect() as connection:
                    await (await queue_in(connection)).update_heartbeat([job])
                heard = time.monotonic()
            except _DATABASE_GONE:
                if time.monotonic() - heard > self.heartbeat_timeout_s:
                    raise  # somebody else may have the job by now


async def calibrate_robot(
    engine: AsyncEngine, calibration: UUID, entry: Callable[[Connection], None] = child.main
) -> JOB_STATUS:
    """One job, from the robot's telemetry to a published version; its end is written down whatever it is.

    Returns:
        How the queue's log calls that end.
    """
    async with engine.begin() as connection:
        job = await jobs.begin(connection, calibration)
    if job is None:
        return "canceled"
    log = _log.bind(calibration=str(calibration), robot=job.robot)
    log.info("calibration_started", attempt=job.attempts)
    try:
        _refuse_killer(job)
        request = await load_request(engine, job)
        result = await _fit(engine, job, request, entry)
        ending = await _publish(engine, job, request, result)
    except CalibrationStoppedError as error:
        ending = await _end(engine, job, Ending("cancelled", str(error)))
    except FitImpossibleError as error:
        ending = await _end(engine, job, Ending("failed", str(error), report_html=error.report_html or None))
    except TwincalError as error:
        ending = await _end(engine, job, Ending("failed", str(error)))
    log.info("calibration_ended", state=ending.state, version=ending.version, reason=ending.reason)
    return {"succeeded": "successful", "failed": "exception", "cancelled": "canceled"}[ending.state]


def _refuse_killer(job: Calibration) -> None:
    if job.attempts > MAX_ATTEMPTS:
        raise FitImpossibleError(f"given up: {MAX_ATTEMPTS} workers died while doing it")


async def _fit(
    engine: AsyncEngine, job: Calibration, request: FitRequest, entry: Callable[[Connection], None]
) -> FitResult:
    latest = _Latest()
    fit = run_fit(request, latest.put, hard_limit_s(request.budget_s), entry)
    return await _alongside(fit, _watch(engine, job.id, latest))


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
        except _DATABASE_GONE:
            continue  # progress is for people; whether the job is still ours is the heartbeat's business
        if not go_on:
            raise CalibrationStoppedError("cancelled on request")


async def _publish(engine: AsyncEngine, job: Calibration, request: FitRequest, result: FitResult) -> Ending:
    """Version, its state, the trials and the job's end: one transaction."""
    reference = result.draft.description
    href = f"/v1/robots/{job.robot}/description?sha256={reference.sha256}"
    draft = result.draft.model_copy(update={"description": reference.model_copy(update={"href": href})})
    parent = request.active.version if request.active else None
    async with engine.begin() as connection:
        origin = versions.Origin(job.id, parent, datetime.now(UTC))
        document = await versions.publish(connection, draft, origin)
        reason = await _decide(connection, job, request, result, document.version)
        ending = Ending("succeeded", reason, document.version, result.report_html, result.trials)
        if not await jobs.finish(connection, job.id, ending):
            # Raised inside the transaction, so that the version goes with it.
            raise CalibrationStoppedError("ended by another worker, or its robot is gone")
    return ending


async def _decide(connection: Any, job: Calibration, request: FitRequest, result: FitResult, version: int) -> str:
    """Move the new version where its gate and the request say; returns what happened, for people."""
    acceptance = result.acceptance
    move = versions.Move(f"calibration:{job.id}", acceptance.reason)
    robot = RobotId(job.robot)
    if not acceptance.accepted:
        await versions.reject(connection, robot, version, move)
        return acceptance.reason
    if job.request.activate == "never":
        return acceptance.reason
    beaten = versions.Expected(frozenset({request.active.digest} if request.active else ()))
    try:
        await versions.activate(connection, robot, version, move, beaten)
    except versions.ActiveMovedError as error:
        return f"{acceptance.reason}; left a candidate: {error}"
    return acceptance.reason


async def _end(engine: AsyncEngine, job: Calibration, ending: Ending) -> Ending:
    async with engine.begin() as connection:
        await jobs.finish(connection, job.id, ending)
    return ending


async def _alongside(work: Coroutine[Any, Any, _T], companion: Coroutine[Any, Any, NoReturn]) -> _T:
    """The result of `work`; the companion runs as long, and when it fails both end."""
    main, other = asyncio.create_task(work), asyncio.create_task(companion)
    try:
        await asyncio.wait({main, other}, return_when=asyncio.FIRST_COMPLETED)
        return main.result() if main.done() else other.result()
    finally:
        await _cancelled(main, other)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    waiting: Awaitable[bool] = stop.wait()
    try:
        await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        return
