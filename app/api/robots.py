"""Robots: registered by their declaration, `twincal.robot/1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.access import Administrator, Reader
from app.api.context import ApiContext
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot
from app.api.route import ApiRoute
from app.errors import DeclarationError, NotFoundError
from app.registry import robots as registry
from app.registry.connections import ConnectionState, RobotConnection, connections_of
from app.registry.robots import Robot
from app.telemetry import parse_fleet_id
from app.twin.declaration import RobotDeclaration

router = APIRouter(prefix="/v1/robots", tags=["robots"], route_class=ApiRoute)


class ConnectionView(BaseModel):
    """What a robot last said of its connection to the broker."""

    state: ConnectionState = Field(description="ONLINE; OFFLINE: it left; CONNECTIONBROKEN: the broker lost it")
    stamp: datetime = Field(description="the latest that the robot gave")
    received_at: datetime = Field(description="when we heard of it")


class RobotView(BaseModel):
    """A robot as registered."""

    robot: str
    fleet: str
    declaration: dict[str, Any] = Field(description="its `twincal.robot/1`, as it was put")
    description_sha256: str | None = Field(description="its own description; null: its fleet's")
    connection: ConnectionView | None = Field(description="null: it never said anything of it")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, robot: Robot, connection: RobotConnection | None) -> RobotView:
        """The view of a robot."""
        return cls(
            robot=robot.robot,
            fleet=robot.fleet,
            declaration=robot.declaration.model_dump(mode="json", by_alias=True, exclude_unset=True),
            description_sha256=robot.description_sha256,
            connection=None if connection is None else ConnectionView(**asdict(connection)),
            created_at=robot.created_at,
            updated_at=robot.updated_at,
        )


# Read as plain JSON, so that what is wrong with it is said in the declaration's own words.
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RobotDeclaration"}}},
    }
}


@router.put("/{robot}", summary="Register a robot", responses={201: {"model": RobotView}}, openapi_extra=_BODY)
async def put_robot(
    robot: RobotPath, context: ApiContext, who: Administrator, response: Response, body: dict[str, Any]
) -> RobotView:
    """201 if it is new, 200 if its declaration is replaced. A fleet named for the first time is made on the way."""
    declaration = RobotDeclaration.model_validate({"robot": robot, **body})
    if declaration.robot != robot:
        raise DeclarationError("robot", f"{declaration.robot!r} is not the robot of this address", repr(robot))
    who.require_fleet(declaration.fleet)
    async with context.engine.begin() as connection:
        try:
            await find_robot(connection, robot, who)
        except NotFoundError:
            # Another fleet's robot is no more there for this key than one that isn't; only, its id is taken.
            if who.fleet is not None and await _is_taken(connection, robot):
                raise
        stored, created = await registry.put_robot(connection, declaration)
        (view,) = await _views(connection, [stored])
    if created:
        response.status_code = HTTPStatus.CREATED
    return view


@router.get("", summary="All robots")
async def list_robots(
    context: ApiContext,
    who: Reader,
    fleet: Annotated[str | None, Query(description="only this fleet's")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[RobotView]:
    """By id; a key bound to a fleet sees that one's."""
    key = decode_cursor(cursor, str)
    if fleet is not None:
        who.require_fleet(parse_fleet_id(fleet))
    async with context.engine.connect() as connection:
        after = None if key is None else str(key[0])
        found = await registry.list_robots(connection, fleet or who.fleet, after, limit)
        views = await _views(connection, found)
    last = encode_cursor(found[-1].robot) if len(found) == limit else None
    return Page(items=views, next=last)


@router.get("/{robot}", summary="One robot")
async def read_robot(robot: RobotPath, context: ApiContext, who: Reader) -> RobotView:
    """Its declaration, where it belongs and whether it is connected."""
    async with context.engine.connect() as connection:
        (view,) = await _views(connection, [await find_robot(connection, robot, who)])
    return view


@router.delete("/{robot}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a robot")
async def delete_robot(robot: RobotPath, context: ApiContext, who: Administrator) -> None:
    """With its telemetry, calibrations and twins; its audit trail stays. 409 while it is being calibrated."""
    async with context.engine.begin() as connection:
        await find_robot(connection, robot, who)
        await registry.delete_robot(connection, robot, who.name)


async def _views(connection: AsyncConnection, found: Sequence[Robot]) -> list[RobotView]:
    known = await connections_of(connection, [robot.robot for robot in found])
    return [RobotView.of(robot, known.get(robot.robot)) for robot in found]


async def _is_taken(connection: Any, robot: str) -> bool:
    try:
        await registry.get_robot(connection, robot)
    except NotFoundError:
        return False
    return True
