"""Calibration jobs: asked for, queued, watched, cancelled and finished.

The row in `calibrations` is the truth people see; the queue only says whose turn it is. A job's end and what it
published are one transaction, and only the first one to end a job does, so that a worker given up for dead can't
publish twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import orjson
from sqlalchemy import Row, and_, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.calibration.request import CalibrationRequest
from app.calibration.types import Progress, TrialRecord
from app.database.engine import raw_connection
from app.database.queue import queue_in
from app.database.tables import calibrations, trials
from app.errors import ConflictError, NotFoundError
from app.telemetry import RobotId

ENTRYPOINT: Final = "calibration"
"""The queue's name for our kind of job."""

CalibrationState = Literal["queued", "running", "succeeded", "failed", "cancelled"]

_LIVE: Final = ("queued", "running")
_COLUMNS: Final = tuple(column for column in calibrations.c if column.name != "report_html")


@dataclass(frozen=True, slots=True)
class Calibration:
    """A job as it stands.

    Attributes:
        id: the job's.
        robot: whose twin is calibrated.
        state: queued, running, succeeded, failed or cancelled.
        stage: what it is doing.
        progress: 0 to 1.
        trials: of the search, so far.
        best: lowest objective so far.
        reason: why it failed, or what the gate said about its version.
        version: what it published.
        request: what was asked for.
        requested_by: who asked.
        cause: why, for people; empty where nobody said.
        cancel_requested: whether somebody asked it to stop.
        attempts: times a worker began it.
        created_at: when it was asked for.
        started_at: when a worker first began it.
        finished_at: when it ended.
    """

    id: UUID
    robot: RobotId
    state: CalibrationState
    stage: str
    progress: float
    trials: int
    best: float | None
    reason: str | None
    version: int | None
    request: CalibrationRequest
    requested_by: str
    cause: str
    cancel_requested: bool
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def finished(self) -> bool:
        """Whether nothing about it changes any more."""
        return self.state not in _LIVE


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends.

    Attributes:
        state: succeeded, failed or cancelled.
        reason: for people.
        version: what it published.
        report_html: for people.
        trials: every trial of its search.
    """

    state: Literal["succeeded", "failed", "cancelled"]
    reason: str
    version: int | None = None
    report_html: str | None = None
    trials: tuple[TrialRecord, ...] = ()


async def submit(
    connection: AsyncConnection, robot: RobotId, request: CalibrationRequest, requested_by: str, cause: str = ""
) -> Calibration:
    """Write a job down and queue it, both or neither.

    Args:
        connection: in a transaction.
        robot: registered.
        request: what is asked for.
        requested_by: who asks.
        cause: why, for people; what becomes of its version is told with it.
    """
    body = request.model_dump(mode="json", by_alias=True)
    statement = (
        insert(calibrations)
        .values(robot=robot, request=body, requested_by=requested_by, cause=cause)
        .returning(*_COLUMNS)
    )
    calibration = _calibration((await connection.execute(statement)).one())
    queue = await queue_in(connection)
    await queue.enqueue(ENTRYPOINT, calibration.id.bytes)
    return calibration


async def read(connection: AsyncConnection, calibration: UUID) -> Calibration:
    """One job.

    Raises:
        NotFoundError: if there is none of that id.
    """
    row = (await connection.execute(select(*_COLUMNS).where(calibrations.c.id == calibration))).one_or_none()
    if row is None:
        raise NotFoundError("calibration", str(calibration))
    return _calibration(row)


async def read_report(connection: AsyncConnection, calibration: UUID) -> str | None:
    """The HTML report of a job, None as long as it has none."""
    report: str | None = await connection.scalar(
        select(calibrations.c.report_html).where(calibrations.c.id == calibration)
    )
    return report


async def list_of_robot(
    connection: AsyncConnection, robot: RobotId, *, before: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Calibration]:
    """The robot's jobs, newest first, from just before `before` (creation and id of the last one seen)."""
    query = select(*_COLUMNS).where(calibrations.c.robot == robot)
    if before is not None:
        at, identifier = before
        created_at, same = (
            calibrations.c.created_at,
            and_(calibrations.c.created_at == at, calibrations.c.id < identifier),
        )
        query = query.where(or_(created_at < at, same))
    query = query.order_by(calibrations.c.created_at.desc(), calibrations.c.id.desc()).limit(limit)
    return [_calibration(row) for row in await connection.execute(query)]


async def cancel(connection: AsyncConnection, calibration: UUID) -> Calibration:
    """Stop a job: a queued one at once, a running one as soon as its worker hears of it.

    Cancelling a cancelled job changes nothing.

    Raises:
        NotFoundError: if there is none of that id.
        ConflictError: if it has succeeded or failed already.
    """
    ended = and_(calibrations.c.id == calibration, calibrations.c.state == "queued")
    await connection.execute(
        update(calibrations).where(ended).values(state="cancelled", finished_at=func.now(), cancel_requested=True)
    )
    asked = and_(calibrations.c.id == calibration, calibrations.c.state == "running")
    await connection.execute(update(calibrations).where(asked).values(cancel_requested=True))
    job = await read(connection, calibration)
    if job.state in {"succeeded", "failed"}:
        raise ConflictError(f"calibration {calibration} has {job.state} already")
    return job


async def begin(connection: AsyncConnection, calibration: UUID) -> Calibration | None:
    """Take a job up, for the first time or after its worker died; None if there is nothing left to do."""
    statement = (
        update(calibrations)
        .where(calibrations.c.id == calibration, calibrations.c.state.in_(_LIVE))
        .values(
            state="running",
            stage="loading data",
            progress=0.0,
            trials=0,
            best=None,
            attempts=calibrations.c.attempts + 1,
            started_at=func.coalesce(calibrations.c.started_at, func.now()),
        )
        .returning(*_COLUMNS)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else _calibration(row)


async def release(connection: AsyncConnection, calibration: UUID) -> None:
    """Give a running job back untouched: its worker is told to stop before the job is done."""
    await connection.execute(
        update(calibrations)
        .where(calibrations.c.id == calibration, calibrations.c.state == "running")
        .values(state="queued", stage="", progress=0.0, attempts=calibrations.c.attempts - 1)
    )


async def note_progress(connection: AsyncConnection, calibration: UUID, progress: Progress | None) -> bool:
    """Write down how far a job is; true if it is to go on, false if it was cancelled or ended by another worker."""
    running = and_(calibrations.c.id == calibration, calibrations.c.state == "running")
    statement: Any = select(calibrations.c.cancel_requested).where(running)
    if progress is not None:
        statement = (
            update(calibrations)
            .where(running)
            .values(
                stage=progress.stage,
                progress=min(max(progress.fraction, 0.0), 1.0),
                trials=progress.trials,
                best=_finite(progress.best),
            )
            .returning(calibrations.c.cancel_requested)
        )
    row = (await connection.execute(statement)).one_or_none()
    return row is not None and not row.cancel_requested


async def finish(connection: AsyncConnection, calibration: UUID, ending: Ending) -> bool:
    """End a running job; false if it has ended already, and then nothing may be committed on its behalf."""
    values: dict[str, Any] = {
        "state": ending.state,
        "reason": ending.reason,
        "version": ending.version,
        "report_html": ending.report_html,
        "finished_at": func.now(),
    }
    if ending.state == "succeeded":
        values |= {"progress": 1.0, "stage": "done"}
    statement = (
        update(calibrations)
        .where(calibrations.c.id == calibration, calibrations.c.state == "running")
        .values(**values)
        .returning(calibrations.c.id)
    )
    if (await connection.execute(statement)).one_or_none() is None:
        return False
    await _copy_trials(connection, calibration, ending.trials)
    return True


async def _copy_trials(connection: AsyncConnection, calibration: UUID, records: tuple[TrialRecord, ...]) -> None:
    if not records:
        return
    rows = [
        (
            calibration,
            t.number,
            orjson.dumps(t.structure).decode(),
            orjson.dumps(t.parameters).decode(),
            _finite(t.value),
            t.state,
        )
        for t in records
    ]
    columns = ("calibration", "number", "structure", "params", "value", "state")
    raw = await raw_connection(connection)
    await raw.copy_records_to_table(trials.name, records=rows, columns=columns)


def _finite(value: float | None) -> float | None:
    """None for what JSON can't hold; Postgres would keep it and every reader would trip over it."""
    return value if value is not None and math.isfinite(value) else None


def _calibration(row: Row[Any]) -> Calibration:
    return Calibration(
        id=row.id,
        robot=RobotId(row.robot),
        state=row.state,
        stage=row.stage,
        progress=row.progress,
        trials=row.trials,
        best=row.best,
        reason=row.reason,
        version=row.version,
        request=CalibrationRequest.model_validate(row.request),
        requested_by=row.requested_by,
        cause=row.cause,
        cancel_requested=row.cancel_requested,
        attempts=row.attempts,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
