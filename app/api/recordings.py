"""Recordings: what each boot of a robot sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.access import Reader
from app.api.context import ApiContext
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot
from app.api.route import ApiRoute
from app.errors import InvalidInputError
from app.registry import recordings as registry
from app.registry.recordings import RecordingSummary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

router = APIRouter(prefix="/v1/robots/{robot}", tags=["recordings"], route_class=ApiRoute)


class RecordingView(BaseModel):
    """A recording: telemetry from one boot of the robot."""

    id: UUID = Field(description="what a calibration names it by")
    boot_id: str = Field(description="as the robot sent it; empty holds what came without one")
    name: str = Field(description="for people")
    first_at: datetime = Field(description="instant of its first sample, to the microsecond")
    last_at: datetime = Field(description="instant of its last sample, to the microsecond")
    first_ns: int = Field(description="instant of its first sample [ns since the Unix epoch]")
    last_ns: int = Field(description="instant of its last sample [ns since the Unix epoch]")
    duration_s: float = Field(description="from first to last sample [s]")
    samples: int = Field(description="rows over all its messages, before those of one instant are merged")

    @classmethod
    def of(cls, recording: RecordingSummary) -> RecordingView:
        """The view of a recording."""
        first, last = recording.span.from_ns, recording.span.to_ns - 1
        return cls(
            id=recording.id,
            boot_id=recording.boot_id,
            name=recording.title,
            first_at=_instant(first),
            last_at=_instant(last),
            first_ns=first,
            last_ns=last,
            duration_s=(last - first) * 1e-9,
            samples=recording.samples,
        )


@router.get("/recordings", summary="A robot's recordings, latest first")
async def list_recordings(
    robot: RobotPath, context: ApiContext, who: Reader, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[RecordingView]:
    """A new `boot_id` begins a new one."""
    after = _parse(cursor)
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        found = await registry.list_recordings(connection, registered.robot, after, limit)
    last = encode_cursor(found[-1].span.to_ns, str(found[-1].id)) if len(found) == limit else None
    return Page(items=[RecordingView.of(recording) for recording in found], next=last)


def _parse(cursor: str | None) -> tuple[int, UUID] | None:
    key = decode_cursor(cursor, int, str)
    if key is None:
        return None
    try:
        return int(key[0]), UUID(str(key[1]))
    except ValueError as error:
        raise InvalidInputError("cursor", "is not a cursor of this list", "`next` of the page before") from error


def _instant(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
