"""Calibration jobs: ask for one, watch it, stop it, read its report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.access import Operator, Reader
from app.api.auth import Principal
from app.api.context import ApiContext
from app.api.errors import UnauthenticatedError
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot, require_description
from app.api.route import ApiRoute
from app.calibration import jobs
from app.calibration.jobs import Calibration, CalibrationState
from app.calibration.request import CalibrationRequest
from app.calibration.selection import check_recordings
from app.errors import InvalidInputError, NotFoundError
from app.twin.declaration import check_against
from app.twin.description import parse_urdf

_POLL_S: Final = 0.5
_REPORT_HEADERS: Final = {
    # The report holds its pictures and styles inline and runs nothing.
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox",
    "Cache-Control": "private, no-cache",
}

router = APIRouter(prefix="/v1", tags=["calibrations"], route_class=ApiRoute)


class CalibrationView(BaseModel):
    """A calibration job."""

    id: UUID
    robot: str
    state: CalibrationState = Field(description="queued, running, succeeded, failed or cancelled")
    progress: float = Field(description="of the whole job, 0 to 1")
    stage: str = Field(description="what it is doing")
    trials: int = Field(description="of the search, so far")
    best: float | None = Field(description="lowest objective so far; null before the first trial")
    reason: str | None = Field(description="why it failed, or what the gate said about its version")
    version: int | None = Field(description="the twin version it published")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    request: CalibrationRequest = Field(description="what was asked for")
    requested_by: str = Field(description="key:<id>, monitor, or local")
    cause: str = Field(description="why it was asked for; empty where nobody said")

    @classmethod
    def of(cls, job: Calibration) -> CalibrationView:
        """The view of a job."""
        return cls(**{name: getattr(job, name) for name in cls.model_fields})


@router.post(
    "/robots/{robot}/calibrations",
    status_code=HTTPStatus.ACCEPTED,
    summary="Calibrate a robot's twin",
    response_description="the job, queued; watch it at its Location",
)
async def start_calibration(
    robot: RobotPath, context: ApiContext, who: Operator, response: Response, body: CalibrationRequest | None = None
) -> CalibrationView:
    """Fit the twin to the robot's telemetry, by default that of the last hour with motion.

    409 `no-description` if neither the robot nor its fleet has a description.
    """
    async with context.engine.begin() as connection:
        registered = await find_robot(connection, robot, who)
        stored = await require_description(connection, registered)
        check_against(registered.declaration, parse_urdf(stored.content))
        wanted = body or CalibrationRequest()
        await check_recordings(connection, registered.robot, wanted)
        job = await jobs.submit(connection, registered.robot, wanted, who.name)
    response.headers["Location"] = f"/v1/calibrations/{job.id}"
    return CalibrationView.of(job)


@router.get("/robots/{robot}/calibrations", summary="A robot's calibrations, newest first")
async def list_calibrations(
    robot: RobotPath, context: ApiContext, who: Reader, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[CalibrationView]:
    """Finished ones too."""
    before = _parse(cursor)
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        found = await jobs.list_of_robot(connection, registered.robot, before=before, limit=limit)
    last = encode_cursor(found[-1].created_at.isoformat(), str(found[-1].id)) if len(found) == limit else None
    return Page(items=[CalibrationView.of(job) for job in found], next=last)


@router.get("/calibrations/{calibration}", summary="How a calibration stands")
async def read_calibration(calibration: UUID, context: ApiContext, who: Reader) -> CalibrationView:
    """State, progress, and when it has ended why and with which version."""
    async with context.engine.connect() as connection:
        return CalibrationView.of(await _find(connection, calibration, who))


@router.delete("/calibrations/{calibration}", summary="Cancel a calibration")
async def cancel_calibration(calibration: UUID, context: ApiContext, who: Operator) -> CalibrationView:
    """A queued one ends at once, a running one within a second or two; 409 if it has ended otherwise already."""
    async with context.engine.begin() as connection:
        await _find(connection, calibration, who)
        return CalibrationView.of(await jobs.cancel(connection, calibration))


@router.get("/calibrations/{calibration}/report", summary="A calibration's report", response_class=HTMLResponse)
async def read_report(calibration: UUID, context: ApiContext, who: Reader) -> HTMLResponse:
    """HTML for people; 404 as long as there is none."""
    async with context.engine.connect() as connection:
        await _find(connection, calibration, who)
        report = await jobs.read_report(connection, calibration)
    if report is None:
        raise NotFoundError("report of calibration", str(calibration), "it has none yet, or ended before it made one")
    return HTMLResponse(report, headers=_REPORT_HEADERS)


async def _watched(calibration: UUID, context: ApiContext, who: Reader) -> Calibration:
    # Before the stream begins, so that an unknown job is a 404 and not an empty stream.
    async with context.engine.connect() as connection:
        return await _find(connection, calibration, who)


@router.get("/calibrations/{calibration}/events", summary="Watch a calibration", response_class=EventSourceResponse)
async def watch_calibration(
    request: Request, context: ApiContext, who: Reader, job: Annotated[Calibration, Depends(_watched)]
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `progress` whenever something changed, then one `end`; both carry the job as JSON."""
    seen: CalibrationView | None = None
    while True:
        view = CalibrationView.of(job)
        if view != seen:
            seen = view
            yield ServerSentEvent(event="end" if job.finished else "progress", data=view)
        if job.finished:
            return
        await asyncio.sleep(_POLL_S)
        try:
            # Asked again each time: a key revoked meanwhile ends the stream.
            who = await context.authenticator.authenticate(request.headers.get("Authorization"))
            async with context.engine.connect() as connection:
                job = await _find(connection, job.id, who)
        except (UnauthenticatedError, NotFoundError):
            return


async def _find(connection: AsyncConnection, calibration: UUID, who: Principal) -> Calibration:
    """The job, if its robot exists for `who`."""
    unknown = NotFoundError("calibration", str(calibration))
    job = await jobs.read(connection, calibration)
    try:
        await find_robot(connection, job.robot, who)
    except NotFoundError as error:
        raise unknown from error
    return job


def _parse(cursor: str | None) -> tuple[datetime, UUID] | None:
    key = decode_cursor(cursor, str, str)
    if key is None:
        return None
    try:
        return datetime.fromisoformat(str(key[0])), UUID(str(key[1]))
    except ValueError as error:
        raise InvalidInputError("cursor", "is not a cursor of this list", "`next` of the page before") from error
