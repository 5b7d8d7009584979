"""Robot descriptions (URDF): validated by our own parser, kept by digest, one a robot or one for its fleet."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.access import Administrator, Reader
from app.api.conditional import entity_tag, not_modified
from app.api.context import ApiContext
from app.api.registered import FleetPath, RobotPath, description_href, find_fleet, find_robot
from app.api.route import DescriptionRoute
from app.calibration import versions
from app.errors import NotFoundError
from app.registry import descriptions as registry
from app.registry.descriptions import StoredDescription
from app.registry.robots import Robot

router = APIRouter(prefix="/v1", tags=["descriptions"], route_class=DescriptionRoute)

_URDF: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "the URDF, meshes left out",
        "content": {"application/xml": _URDF, "application/octet-stream": _URDF},
    }
}
_CONTENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "the bytes that were uploaded", "content": {"application/xml": _URDF}},
    304: {"description": "you have it"},
}
_DIGEST: Final = r"^[0-9a-f]{64}$"

IfNoneMatch = Annotated[str | None, Header(description="entity tags you have: 304 if one is current")]
Digest = Annotated[
    str | None, Query(pattern=_DIGEST, description="one that a twin refers to, rather than the present one")
]


class Uploaded(BaseModel):
    """A description that was taken."""

    sha256: str = Field(description="of the uploaded bytes, hex: what a declaration may name")
    href: str = Field(description="where it is, now and later")


@router.put(
    "/robots/{robot}/description",
    summary="Upload a robot's description",
    openapi_extra=_BODY,
)
async def put_robot_description(
    robot: RobotPath, request: Request, context: ApiContext, who: Administrator
) -> Uploaded:
    """422 `invalid-description` names the line, link or joint at fault."""
    content = await request.body()
    async with context.engine.begin() as connection:
        await find_robot(connection, robot, who)
        sha256 = await registry.put_robot_description(connection, robot, content)
    return Uploaded(sha256=sha256, href=description_href(robot, sha256))


@router.get("/robots/{robot}/description", summary="A robot's description", response_class=Response, responses=_CONTENT)
async def read_robot_description(
    robot: RobotPath, context: ApiContext, who: Reader, sha256: Digest = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Its own, or else its fleet's; 404 if there is neither."""
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        if sha256 is None:
            stored = await registry.robot_description(connection, robot)
            if stored is None:
                raise NotFoundError("description of robot", robot, "PUT one here or for its fleet")
        else:
            stored = await _by_digest(connection, registered, sha256)
    return _answer(stored, if_none_match)


@router.put(
    "/fleets/{fleet}/description",
    summary="Upload a fleet's description",
    openapi_extra=_BODY,
)
async def put_fleet_description(
    fleet: FleetPath, request: Request, context: ApiContext, who: Administrator
) -> Uploaded:
    """That of its robots that have none of their own."""
    content = await request.body()
    async with context.engine.begin() as connection:
        await find_fleet(connection, fleet, who)
        sha256 = await registry.put_fleet_description(connection, fleet, content)
    return Uploaded(sha256=sha256, href=f"/v1/fleets/{fleet}/description")


@router.get("/fleets/{fleet}/description", summary="A fleet's description", response_class=Response, responses=_CONTENT)
async def read_fleet_description(
    fleet: FleetPath, context: ApiContext, who: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """404 if it has none."""
    async with context.engine.connect() as connection:
        await find_fleet(connection, fleet, who)
        stored = await registry.fleet_description(connection, fleet)
    if stored is None:
        raise NotFoundError("description of fleet", fleet, "PUT one here")
    return _answer(stored, if_none_match)


async def _by_digest(connection: AsyncConnection, robot: Robot, sha256: str) -> StoredDescription:
    """A description of this robot's past or present: digests are no way to read another fleet's."""
    unknown = NotFoundError(f"description of robot {robot.robot!r}", sha256)
    current = await registry.robot_description(connection, robot.robot)
    if current is not None and current.sha256 == sha256:
        return current
    if not await versions.refers_to_description(connection, robot.robot, sha256):
        raise unknown
    return await registry.get_description(connection, sha256)


def _answer(stored: StoredDescription, if_none_match: str | None) -> Response:
    headers = {
        "ETag": entity_tag(f"sha256:{stored.sha256}", "urdf"),
        "Cache-Control": "private, no-cache",
        # Uploaded XML must never be a page of ours.
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": 'attachment; filename="robot.urdf"',
    }
    if not_modified(if_none_match, headers["ETag"]):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(stored.content, media_type=stored.media_type, headers=headers)
