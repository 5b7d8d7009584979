"""Twins: what training jobs call. Every answer of a version has a strong entity tag and never changes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import BaseModel, Field

from app.api.access import Operator, Reader
from app.api.conditional import Expectation, entity_tag, not_modified
from app.api.context import ApiContext
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot, nominal_of
from app.api.route import ApiRoute
from app.calibration import versions
from app.calibration.audit import Move
from app.calibration.versions import NoActiveTwinError, VersionState, VersionSummary
from app.twin.document import TwinDocument, to_json

_JSON: Final = "application/json"
# Anyone may keep it, but must ask whether another version is active by now; the answer to that is a cheap 304.
_ACTIVE: Final = "private, no-cache"
_PINNED: Final = "private, max-age=31536000, immutable"

router = APIRouter(prefix="/v1/robots/{robot}", tags=["twins"], route_class=ApiRoute)

VersionPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="number of the version")]
Format = Annotated[Literal["json"], Query(description="of the document")]
IfNoneMatch = Annotated[str | None, Header(description="entity tags you have: 304 if one is current")]


class VersionView(BaseModel):
    """A version in the list of versions."""

    version: int
    state: VersionState = Field(description="candidate, active, retired or rejected")
    digest: str = Field(description="of its document")
    calibration: UUID | None = Field(description="the job that made it")
    created_at: datetime
    state_changed_at: datetime
    href: str

    @classmethod
    def of(cls, robot: str, summary: VersionSummary) -> VersionView:
        """The view of a version."""
        return cls(
            version=summary.version,
            state=summary.state,
            digest=summary.digest,
            calibration=summary.calibration,
            created_at=summary.created_at,
            state_changed_at=summary.state_changed_at,
            href=f"/v1/robots/{robot}/twins/{summary.version}",
        )


class Activation(BaseModel):
    """Why a version is moved."""

    reason: str = Field(default="", max_length=1000, description="for the audit trail")


@router.get("/twin", summary="The robot's active twin", response_model=TwinDocument, responses={304: {}})
async def read_active_twin(
    robot: RobotPath,
    context: ApiContext,
    who: Reader,
    format: Format = "json",  # noqa: A002 - the query's own name
    fallback: Annotated[
        Literal["nominal"] | None,
        Query(description="what to answer when no version is active; nominal: description and declaration alone"),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """404 `no-active-twin` if there is none and no fallback was asked for."""
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        try:
            stored = await versions.read_active(connection, registered.robot)
        except NoActiveTwinError:
            if fallback is None:
                raise
            nominal = await nominal_of(connection, registered)
            return _answer(nominal.digest, to_json(nominal), if_none_match, _ACTIVE)
    return _answer(stored.summary.digest, stored.document, if_none_match, _ACTIVE, stored.summary.version)


@router.get("/twins", summary="All versions of the robot's twin, newest first")
async def list_twins(
    robot: RobotPath, context: ApiContext, who: Reader, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[VersionView]:
    """With their states; the documents are at their `href`."""
    key = decode_cursor(cursor, int)
    before = None if key is None else min(int(key[0]), 2**31 - 1)
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        found = await versions.list_versions(connection, registered.robot, before=before, limit=limit)
    last = encode_cursor(found[-1].version) if len(found) == limit else None
    return Page(items=[VersionView.of(robot, summary) for summary in found], next=last)


@router.get("/twins/{version}", summary="One version", response_model=TwinDocument, responses={304: {}})
async def read_twin(
    robot: RobotPath,
    version: VersionPath,
    context: ApiContext,
    who: Reader,
    format: Format = "json",  # noqa: A002 - the query's own name
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Whatever its state; the same bytes for ever."""
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        stored = await versions.read_version(connection, registered.robot, version)
    return _answer(stored.summary.digest, stored.document, if_none_match, _PINNED, version)


@router.post("/twins/{version}/activate", summary="Promote a version, or roll back to one")
async def activate_twin(
    robot: RobotPath,
    version: VersionPath,
    context: ApiContext,
    who: Operator,
    expected: Expectation,
    body: Activation | None = None,
) -> VersionView:
    """The version that was active is retired.

    With If-Match only if the version you saw is still the active one: otherwise 412 `active-version-moved`. Without
    it, whatever is active.
    """
    move = Move(who.name, body.reason if body else "")
    async with context.engine.begin() as connection:
        registered = await find_robot(connection, robot, who)
        summary = await versions.activate(connection, registered.robot, version, move, expected)
    return VersionView.of(robot, summary)


def _answer(
    digest: str, document: bytes, if_none_match: str | None, cache_control: str, version: int | None = None
) -> Response:
    headers = {"ETag": entity_tag(digest, "json"), "Cache-Control": cache_control, "Vary": "Accept, Authorization"}
    if version is not None:
        headers["Twincal-Version"] = str(version)
    if not_modified(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(document, media_type=_JSON, headers=headers)
