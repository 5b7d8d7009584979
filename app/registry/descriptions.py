"""Robot descriptions, kept by the digest of their bytes: a robot's own, or else its fleet's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import descriptions, fleets, robots
from app.errors import NotFoundError
from app.twin.description import parse_urdf

URDF_MEDIA_TYPE: Final = "application/xml"


@dataclass(frozen=True, slots=True)
class StoredDescription:
    """An uploaded description.

    Attributes:
        sha256: hex digest of `content`.
        content: the bytes as they were uploaded.
        media_type: what they are.
        created_at: when they were first uploaded.
    """

    sha256: str
    content: bytes
    media_type: str
    created_at: datetime


async def store_description(connection: AsyncConnection, content: bytes) -> str:
    """Validate a URDF and keep it; the same bytes are kept once.

    Returns:
        Its digest: lower-case hex SHA-256.

    Raises:
        DescriptionError: naming the line, link or joint at fault.
    """
    sha256 = parse_urdf(content).sha256
    statement = insert(descriptions).values(sha256=sha256, content=content, media_type=URDF_MEDIA_TYPE)
    await connection.execute(statement.on_conflict_do_nothing())
    return sha256


async def get_description(connection: AsyncConnection, sha256: str) -> StoredDescription:
    """An uploaded description by its digest.

    Raises:
        NotFoundError: if there is none.
    """
    row = (await connection.execute(select(descriptions).where(descriptions.c.sha256 == sha256))).one_or_none()
    if row is None:
        raise NotFoundError("description", sha256, "upload it first")
    return _description(row)


async def put_robot_description(connection: AsyncConnection, robot: str, content: bytes) -> str:
    """Validate a URDF and make it the robot's own; returns its digest.

    It isn't held against the declaration, so that either may be replaced first; `put_robot` and calibrations do that.

    Raises:
        NotFoundError: if there is no such robot.
        DescriptionError: naming the line, link or joint at fault.
    """
    sha256 = await store_description(connection, content)
    change = update(robots).where(robots.c.robot == robot).values(description_sha256=sha256, updated_at=func.now())
    if (await connection.execute(change)).rowcount == 0:
        raise NotFoundError("robot", robot)
    return sha256


async def put_fleet_description(connection: AsyncConnection, fleet: str, content: bytes) -> str:
    """Validate a URDF and make it that of the fleet's robots without one of their own; returns its digest.

    Raises:
        NotFoundError: if there is no such fleet.
        DescriptionError: naming the line, link or joint at fault.
    """
    sha256 = await store_description(connection, content)
    change = update(fleets).where(fleets.c.fleet == fleet).values(description_sha256=sha256, updated_at=func.now())
    if (await connection.execute(change)).rowcount == 0:
        raise NotFoundError("fleet", fleet)
    return sha256


async def robot_description(connection: AsyncConnection, robot: str) -> StoredDescription | None:
    """The robot's own description, or else its fleet's; None if neither has one.

    Raises:
        NotFoundError: if there is no such robot.
    """
    chosen = func.coalesce(robots.c.description_sha256, fleets.c.description_sha256)
    statement = (
        select(*descriptions.c)
        .select_from(robots.join(fleets, fleets.c.fleet == robots.c.fleet))
        .outerjoin(descriptions, descriptions.c.sha256 == chosen)
        .where(robots.c.robot == robot)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise NotFoundError("robot", robot)
    return None if row.sha256 is None else _description(row)


async def fleet_description(connection: AsyncConnection, fleet: str) -> StoredDescription | None:
    """The fleet's description; None if it has none.

    Raises:
        NotFoundError: if there is no such fleet.
    """
    statement = (
        select(*descriptions.c)
        .select_from(fleets)
        .outerjoin(descriptions, descriptions.c.sha256 == fleets.c.description_sha256)
        .where(fleets.c.fleet == fleet)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        raise NotFoundError("fleet", fleet)
    return None if row.sha256 is None else _description(row)


def _description(row: Row[Any]) -> StoredDescription:
    return StoredDescription(row.sha256, row.content, row.media_type, row.created_at)
