"""Robots: who is registered, in which fleet, declared how."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, literal_column, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import audit, calibrations, recordings, robots, telemetry_batches, unstamped_messages
from app.errors import ConflictError, DeclarationError, NotFoundError
from app.registry.descriptions import StoredDescription, fleet_description, get_description, robot_description
from app.registry.fleets import ensure_fleet
from app.telemetry import FleetId, RobotId
from app.twin.declaration import DescriptionReference, RobotDeclaration, check_against
from app.twin.description import parse_urdf


@dataclass(frozen=True, slots=True)
class Robot:
    """A robot as registered.

    Attributes:
        robot: its id.
        fleet: the fleet it stays in.
        declaration: what was declared of it.
        description_sha256: its own description; None: its fleet's.
        created_at: when it was first registered.
        updated_at: when it was last changed.
    """

    robot: RobotId
    fleet: FleetId
    declaration: RobotDeclaration
    description_sha256: str | None
    created_at: datetime
    updated_at: datetime


async def put_robot(connection: AsyncConnection, declaration: RobotDeclaration) -> tuple[Robot, bool]:
    """Register a robot or replace its declaration; a fleet named for the first time is made on the way.

    A declaration with a description's digest makes that the robot's own; without one, the robot keeps what it has. What
    is declared is held against the description, if there is one yet.

    Returns:
        The robot, and whether it is new.

    Raises:
        DeclarationError: if the description is a file's name or an unknown digest, or contradicts the declaration.
        ConflictError: if the robot is in another fleet.
    """
    digest = _digest(declaration)
    await _check(connection, declaration, digest)
    await ensure_fleet(connection, declaration.fleet)
    statement = upsert(robots).values(
        robot=declaration.robot,
        fleet=declaration.fleet,
        declaration=declaration.model_dump(mode="json", by_alias=True, exclude_unset=True),
        description_sha256=digest,
    )
    new = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=["robot"],
        set_={
            "declaration": new.declaration,
            "description_sha256": func.coalesce(new.description_sha256, robots.c.description_sha256),
            "updated_at": func.now(),
        },
        # In the statement itself, so that two registrations at once can't move it either.
        where=robots.c.fleet == new.fleet,
    )
    created: ColumnElement[bool] = literal_column("(xmax = 0)").label("created")
    row = (await connection.execute(statement.returning(*robots.c, created))).one_or_none()
    if row is None:
        fleet = await connection.scalar(select(robots.c.fleet).where(robots.c.robot == declaration.robot))
        raise ConflictError(
            f"robot {declaration.robot!r} is in fleet {fleet!r} and stays there, so it can't be in "
            f"{declaration.fleet!r} (robot ids are unique across fleets)"
        )
    return _robot(row), bool(row.created)


async def get_robot(connection: AsyncConnection, robot: str) -> Robot:
    """One robot.

    Raises:
        NotFoundError: if there is none of this id.
    """
    row = (await connection.execute(select(robots).where(robots.c.robot == robot))).one_or_none()
    if row is None:
        raise NotFoundError("robot", robot)
    return _robot(row)


async def list_robots(
    connection: AsyncConnection, fleet: str | None = None, after: str | None = None, limit: int = 100
) -> list[Robot]:
    """Robots by id.

    Args:
        connection: to the database.
        fleet: only this fleet's; None: all.
        after: id of the last one already seen.
        limit: at most so many.
    """
    statement = select(robots).order_by(robots.c.robot).limit(limit)
    if fleet is not None:
        statement = statement.where(robots.c.fleet == fleet)
    if after is not None:
        statement = statement.where(robots.c.robot > after)
    return [_robot(row) for row in await connection.execute(statement)]


async def delete_robot(connection: AsyncConnection, robot: str, who: str) -> None:
    """Delete a robot with its telemetry, calibrations and twins; its audit trail and dead letters stay.

    Args:
        connection: to the database.
        robot: its id.
        who: for the audit trail.

    Raises:
        NotFoundError: if there is none of this id.
        ConflictError: if a calibration of it is queued or running.
    """
    row = (
        await connection.execute(select(robots.c.fleet).where(robots.c.robot == robot).with_for_update())
    ).one_or_none()
    if row is None:
        raise NotFoundError("robot", robot)
    unfinished = select(calibrations.c.id).where(
        calibrations.c.robot == robot, calibrations.c.state.in_(["queued", "running"])
    )
    job = await connection.scalar(unfinished.limit(1))
    if job is not None:
        raise ConflictError(f"robot {robot!r} is being calibrated (job {job}); cancel that first")
    for table in (telemetry_batches, recordings, unstamped_messages, robots):
        await connection.execute(delete(table).where(table.c.robot == robot))
    await connection.execute(insert(audit).values(robot=robot, who=who, what="robot deleted", old=row.fleet))


def _digest(declaration: RobotDeclaration) -> str | None:
    description = declaration.description
    if isinstance(description, str):
        raise DeclarationError(
            "description",
            f"{description!r} is a file's name, which means nothing here",
            "left out, or the sha256 of an uploaded description",
        )
    return description.sha256 if isinstance(description, DescriptionReference) else None


async def _check(connection: AsyncConnection, declaration: RobotDeclaration, digest: str | None) -> None:
    """Hold the declaration against the description that it would be used with, where there is one."""
    stored: StoredDescription | None = None
    if digest is not None:
        try:
            stored = await get_description(connection, digest)
        except NotFoundError as error:
            raise DeclarationError("description.sha256", str(error)) from error
    else:
        # A robot that is new has its fleet's, and a fleet that is new has none.
        for find, identifier in ((robot_description, declaration.robot), (fleet_description, declaration.fleet)):
            with suppress(NotFoundError):
                stored = stored or await find(connection, identifier)
    if stored is not None:
        check_against(declaration, parse_urdf(stored.content))


def _robot(row: Row[Any]) -> Robot:
    return Robot(
        robot=RobotId(row.robot),
        fleet=FleetId(row.fleet),
        declaration=RobotDeclaration.model_validate(row.declaration),
        description_sha256=row.description_sha256,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
