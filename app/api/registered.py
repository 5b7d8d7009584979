"""Robots and fleets as a request may see them: what is another fleet's isn't there."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path
from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.auth import Principal
from app.api.errors import NoDescriptionError
from app.errors import NotFoundError
from app.registry.descriptions import StoredDescription, robot_description
from app.registry.fleets import Fleet, get_fleet
from app.registry.robots import Robot, get_robot
from app.twin.declaration import check_against
from app.twin.description import parse_urdf
from app.twin.document import NominalTwin
from app.twin.nominal import nominal_twin

_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,63}$"
_GRAMMAR: Final = "1 to 64 characters of A-Z a-z 0-9 _ . : - beginning with a letter or digit"

RobotPath = Annotated[str, Path(pattern=_ID, description=f"id of the robot: {_GRAMMAR}", examples=["arm-07"])]
FleetPath = Annotated[str, Path(pattern=_ID, description=f"id of the fleet: {_GRAMMAR}", examples=["arms"])]


async def find_robot(connection: AsyncConnection, robot: str, who: Principal) -> Robot:
    """A robot, if it exists for `who`.

    Raises:
        NotFoundError: if not, in the same words whether it isn't there or is another fleet's.
    """
    found = await get_robot(connection, robot)
    if not who.sees(found.fleet):
        raise NotFoundError("robot", robot)
    return found


async def find_fleet(connection: AsyncConnection, fleet: str, who: Principal) -> Fleet:
    """A fleet, if it exists for `who`.

    Raises:
        NotFoundError: if not, in the same words whether it isn't there or another key's.
    """
    found = await get_fleet(connection, fleet)
    who.require_fleet(found.fleet)
    return found


async def require_description(connection: AsyncConnection, robot: Robot) -> StoredDescription:
    """The description a robot is calibrated with.

    Raises:
        NoDescriptionError: if neither it nor its fleet has one.
    """
    stored = await robot_description(connection, robot.robot)
    if stored is None:
        raise NoDescriptionError(robot.robot)
    return stored


def description_href(robot: str, sha256: str) -> str:
    """Where a robot's description of this digest is, now and later."""
    return f"/v1/robots/{robot}/description?sha256={sha256}"


async def nominal_of(connection: AsyncConnection, robot: Robot) -> NominalTwin:
    """What the robot's description and declaration alone say.

    Raises:
        NoDescriptionError: if there is no description.
        DeclarationError: if the two don't fit each other.
    """
    stored = await require_description(connection, robot)
    description = parse_urdf(stored.content)
    check_against(robot.declaration, description)
    return nominal_twin(robot.declaration, description, description_href(robot.robot, stored.sha256))
