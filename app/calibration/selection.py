"""Which telemetry a calibration is about: recordings by id, a window, or the last hour in which the robot moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import numpy as np
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.calibration import versions
from app.calibration.jobs import Calibration
from app.calibration.request import DEFAULT_HOLDOUT_FRACTION, CalibrationRequest
from app.calibration.types import FitRequest
from app.calibration.versions import NoActiveTwinError
from app.errors import FitImpossibleError, InvalidInputError, NotFoundError
from app.registry.descriptions import robot_description
from app.registry.recordings import (
    RecordingSummary,
    Span,
    get_recording,
    list_recordings,
    load_batches,
    recordings_within,
)
from app.registry.robots import get_robot
from app.telemetry import Recording, assemble_recording
from app.twin.declaration import RobotDeclaration, check_against
from app.twin.description import Description, parse_urdf
from app.twin.document import TwinDocument, read_document
from app.twin.joint_map import apply_joint_map

WINDOW_NS: Final = 3600 * 10**9
"""Length of the default window: the last hour with motion."""

LEAD_S: Final = 0.2
"""What is left unfitted where a window begins within a recording [s]: commands from before still reach the robot, and
aren't there. Fitted all the same, the latency gets too short and every damping too high."""

MOTION: Final = 0.01
"""A joint that comes no farther than this from where it ends hasn't moved [rad or m]."""

_LOOK_BACK: Final = 50
"""Recordings searched for motion; a robot idle for longer is told so."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Inputs:
    """All a fit needs, and where it came from.

    Attributes:
        request: for the fit.
        recordings: ids of the recordings in it, those held out last.
        window: the stretch of time they were cut to; None if they were named.
    """

    request: FitRequest
    recordings: tuple[UUID, ...]
    window: tuple[datetime, datetime] | None


async def load_inputs(engine: AsyncEngine, job: Calibration) -> Inputs:
    """Read what a job is about from the database.

    Raises:
        NotFoundError: if the robot, its description or a recording is gone.
        DeclarationError: if declaration and description don't fit each other.
        FitImpossibleError: if there is no telemetry in the window, or no motion at all.
    """
    async with engine.connect() as connection:
        declaration, description, active = await _load_twin(connection, job)
        held = [await get_recording(connection, job.robot, i) for i in job.request.holdout.recordings or ()]
        chosen, span = await _choose(connection, job, declaration)
        chosen = [summary for summary in chosen if summary.id not in {h.id for h in held}]
        train = [await _load(connection, summary, span) for summary in chosen]
        holdout = [await _load(connection, summary, None) for summary in held]
    fitted = [(s, r) for s, r in zip(chosen, train, strict=True) if r is not None]
    if not fitted:
        raise FitImpossibleError("the window holds no telemetry of this robot besides what is held out")
    begins_within = span is not None and any(summary.span.from_ns < span.from_ns for summary, _ in fitted)
    request = FitRequest(
        declaration=declaration,
        description=description,
        train=tuple(recording for _, recording in fitted),
        holdout=tuple(recording for recording in holdout if recording is not None),
        seed=job.request.seed,
        budget_s=job.request.budget_s,
        active=active,
        from_s=LEAD_S if begins_within else None,
        holdout_fraction=job.request.holdout.fraction or DEFAULT_HOLDOUT_FRACTION,
    )
    ids = tuple(summary.id for summary, _ in fitted) + tuple(summary.id for summary in held)
    return Inputs(request, ids, None if span is None else (_instant(span.from_ns), _instant(span.to_ns)))


async def check_recordings(connection: AsyncConnection, robot: str, request: CalibrationRequest) -> None:
    """Check that every recording a request names is the robot's.

    Raises:
        InvalidInputError: naming the field.
    """
    named = {"recordings": request.recordings, "holdout.recordings": request.holdout.recordings}
    for field, recordings in named.items():
        for i, recording in enumerate(recordings or ()):
            try:
                await get_recording(connection, robot, recording)
            except NotFoundError as error:
                raise InvalidInputError(
                    f"{field}.{i}", str(error), f"an id from /v1/robots/{robot}/recordings"
                ) from error


async def _load_twin(
    connection: AsyncConnection, job: Calibration
) -> tuple[RobotDeclaration, Description, TwinDocument | None]:
    declaration = (await get_robot(connection, job.robot)).declaration
    stored = await robot_description(connection, job.robot)
    if stored is None:
        raise NotFoundError("description of robot", job.robot, "upload one for it or its fleet")
    description = parse_urdf(stored.content)
    check_against(declaration, description)
    try:
        active = read_document((await versions.read_active(connection, job.robot)).document)
    except NoActiveTwinError:
        active = None
    return declaration, description, active


async def _choose(
    connection: AsyncConnection, job: Calibration, declaration: RobotDeclaration
) -> tuple[list[RecordingSummary], Span | None]:
    """The recordings to fit, and what to cut them to."""
    if job.request.recordings is not None:
        return [await get_recording(connection, job.robot, i) for i in job.request.recordings], None
    if job.request.window is not None:
        span = Span(_ns(job.request.window.from_), _ns(job.request.window.to))
    else:
        moved_ns = await _last_motion_ns(connection, job, declaration)
        span = Span(moved_ns - WINDOW_NS, moved_ns + 1)
    return await recordings_within(connection, job.robot, span), span


async def _load(connection: AsyncConnection, summary: RecordingSummary, span: Span | None) -> Recording | None:
    batches = await load_batches(connection, summary.robot, span or summary.span, summary.boot_id)
    return assemble_recording(summary.title, batches) if batches else None


async def _last_motion_ns(connection: AsyncConnection, job: Calibration, declaration: RobotDeclaration) -> int:
    """When the robot last moved, as far back as `_LOOK_BACK` recordings, an hour at a time."""
    found = await list_recordings(connection, job.robot, limit=_LOOK_BACK)
    if not found:
        raise FitImpossibleError(f"robot {job.robot!r} has sent no telemetry yet")
    for summary in found:
        to_ns = summary.span.to_ns
        while to_ns > summary.span.from_ns:
            span = Span(max(to_ns - WINDOW_NS, summary.span.from_ns), to_ns)
            recording = await _load(connection, summary, span)
            moved = None if recording is None else last_motion_ns(apply_joint_map(declaration, recording))
            if moved is not None:
                return moved
            to_ns = span.from_ns
    raise FitImpossibleError(
        f"robot {job.robot!r} has not moved: no joint left its place by {MOTION:g} rad (m) in its last recordings"
    )


def last_motion_ns(recording: Recording) -> int | None:
    """The last instant at which a joint was away from where the recording leaves it; None if none ever was.

    Args:
        recording: in SI.
    """
    position = recording.channels.get("position")
    if position is None:
        return None
    known = ~np.isnan(position)
    rows = np.where(known, np.arange(len(position))[:, None], -1).max(axis=0)
    final = np.where(rows >= 0, position[rows, np.arange(position.shape[1])], np.nan)
    away = (np.abs(position - final) > MOTION).any(axis=1)
    if not away.any():
        return None
    return recording.origin_ns + int(recording.t_ns[np.flatnonzero(away)[-1]])


def _ns(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def _instant(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
