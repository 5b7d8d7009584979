"""The worker: claims one job after another and runs each to its end.

Whatever happens to the worker leaves its job to another one: while a job is under way its heartbeat is written, and one
whose heartbeat has stopped is claimed again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Final, NoReturn
from uuid import UUID, uuid4

import structlog
from pgqueuer.domain.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId
from pgqueuer.models import Job
from pgqueuer.queries import EntrypointExecutionParameter
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import child, jobs
from app.calibration.alongside import alongside, cancelled
from app.calibration.calibrate import DATABASE_GONE, calibrate_robot
from app.calibration.jobs import Ending
from app.database.queue import queue_in

HEARTBEAT_TIMEOUT_S: Final = 30.0
"""A job whose worker hasn't been heard of for so long is given to another."""

_POLL_S: Final = 1.0
_RETRY_S: Final = 2.0
_UNLIMITED: Final = EntrypointExecutionParameter(concurrency_limit=0)
_IN_QUEUE_WORDS: Final[dict[str, JOB_STATUS]] = {
    "succeeded": "successful",
    "failed": "exception",
    "cancelled": "canceled",
}

_log = structlog.get_logger(__name__)


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
        async with self.engine.begin() as connection:
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
            alongside(calibrate_robot(self.engine, calibration, self.entry), self._beat(JobId(job.id)))
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await self._take_off_queue(job, work.result())
            else:
                await cancelled(work)
                await self._give_back(job, calibration)
        finally:
            await cancelled(work, stopping)

    async def _take_off_queue(self, job: Job, ending: Ending | None) -> None:
        status = _IN_QUEUE_WORDS["cancelled" if ending is None else ending.state]
        async with self.engine.begin() as connection:
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
                async with self.engine.begin() as connection:
                    await (await queue_in(connection)).update_heartbeat([job])
                heard = time.monotonic()
            except DATABASE_GONE:
                if time.monotonic() - heard > self.heartbeat_timeout_s:
                    raise  # somebody else may have the job by now


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
