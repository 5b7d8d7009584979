"""The twins that a request for scenarios is about, from the database; for the route and for the command line."""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.auth import Principal
from app.api.registered import find_fleet, find_robot
from app.calibration import versions
from app.calibration.versions import NoActiveTwinError
from app.errors import NotFoundError
from app.registry.descriptions import get_description
from app.registry.robots import Robot, list_robots
from app.scenario.generate import Source, source_of
from app.scenario.records import Origin
from app.scenario.request import ScenarioRequest
from app.telemetry import FleetId
from app.twin.description import parse_urdf
from app.twin.document import TwinDocument, read_document

_PAGE: Final = 500


class NoActiveTwinInFleetError(NoActiveTwinError):
    """A fleet none of whose robots has an active version."""

    def __init__(self, fleet: FleetId) -> None:
        NotFoundError.__init__(self, "active twin in fleet", fleet, "calibrate one of its robots")


async def stored_origin(connection: AsyncConnection, request: ScenarioRequest, who: Principal) -> Origin:
    """What the scenarios are drawn from.

    Args:
        connection: to the database.
        request: for a robot or a fleet.
        who: asks; what is another fleet's isn't there.

    Raises:
        NotFoundError: if there is no such robot, fleet or version.
        NoActiveTwinError: if the robot has no active version, or no robot of the fleet has one.
        InvalidInputError: naming the field that asks for what a robot doesn't have.
    """
    if request.robot is not None:
        twin = await _read(connection, await find_robot(connection, request.robot, who), request)
        return Origin(request, (await _source(connection, twin, request, {}),))
    assert request.fleet is not None
    fleet = (await find_fleet(connection, request.fleet, who)).fleet
    links: dict[str, tuple[str, ...] | None] = {}
    sources, without = [], []
    for robot in await _robots(connection, fleet):
        try:
            twin = await _read(connection, robot, request)
        except NoActiveTwinError:
            without.append(str(robot.robot))
            continue
        sources.append(await _source(connection, twin, request, links))
    if not sources:
        raise NoActiveTwinInFleetError(fleet)
    return Origin(request, tuple(sources), fleet, tuple(without))


async def _robots(connection: AsyncConnection, fleet: FleetId) -> list[Robot]:
    robots: list[Robot] = []
    while page := await list_robots(connection, fleet, robots[-1].robot if robots else None, _PAGE):
        robots += page
    return robots


async def _read(connection: AsyncConnection, robot: Robot, request: ScenarioRequest) -> TwinDocument:
    if request.version == "active":
        stored = await versions.read_active(connection, robot.robot)
    else:
        stored = await versions.read_version(connection, robot.robot, request.version)
    return read_document(stored.document)


async def _source(
    connection: AsyncConnection,
    twin: TwinDocument,
    request: ScenarioRequest,
    links: dict[str, tuple[str, ...] | None],
) -> Source:
    """The twin, held against the request with all links of its description; `links` remembers these by digest."""
    sha256 = twin.description.sha256
    if sha256 not in links:
        try:
            content = (await get_description(connection, sha256)).content
        except NotFoundError:  # a twin that was imported without one
            links[sha256] = None
        else:
            links[sha256] = tuple(parse_urdf(content).links)
    return source_of(twin, request, links[sha256])
