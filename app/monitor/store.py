"""What the monitor reads and writes: who is to be looked at, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, and_, delete, exists, false, func, or_, select, true
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import drift, drift_scores, fleets, recordings, robots, twin_versions
from app.registry.drift import STALE_AFTER_S, Drift, DriftPoint
from app.telemetry import FleetId, RobotId

IMPLAUSIBLE_AHEAD: Final = timedelta(days=1)
"""Telemetry stamped farther in the future than this is of a clock that is wrong, and says nothing about now."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DRIFT: Final = tuple(drift.c[name] for name in Drift.__slots__)


@dataclass(frozen=True, slots=True)
class Due:
    """A robot that something is to be said of.

    Attributes:
        robot: its id.
        fleet: its fleet.
        version: the active one.
        declared_at: when its declaration or own description last changed.
        description_sha256: of its own or its fleet's description; None: neither has one.
        last_ns: stamp of its latest sample, nanoseconds since the epoch.
        found: what was found last; None: never looked at.
    """

    robot: RobotId
    fleet: FleetId
    version: int
    declared_at: datetime
    description_sha256: str | None
    last_ns: int
    found: Drift | None


@dataclass(frozen=True, slots=True)
class Retained:
    """What robots and their neighbours are told over MQTT."""

    robot: RobotId
    fleet: FleetId
    version: int
    state: str
    score: float | None
    stamp: datetime


async def find_due(connection: AsyncConnection, now: datetime) -> list[Due]:
    """Robots with an active version of which there is new telemetry, or a new version, or none any more for a while.

    Those heard of last come first: a monitor that is new to a large fleet begins with who is there. One probe of an
    index for each robot with an active version; nothing is read of telemetry itself.
    """
    latest = (
        select(recordings.c.last_ns)
        .where(recordings.c.robot == twin_versions.c.robot, recordings.c.last_ns < _ns(now + IMPLAUSIBLE_AHEAD))
        .order_by(recordings.c.last_ns.desc())
        .limit(1)
        .lateral("latest")
    )
    known = [column.label(f"known_{column.name}") for column in _DRIFT]
    statement = (
        select(
            twin_versions.c.robot,
            robots.c.fleet,
            twin_versions.c.version.label("active"),
            robots.c.updated_at.label("declared_at"),
            func.coalesce(robots.c.description_sha256, fleets.c.description_sha256).label("description_sha256"),
            latest.c.last_ns,
            *known,
        )
        .join_from(twin_versions, robots, robots.c.robot == twin_versions.c.robot)
        .join(fleets, fleets.c.fleet == robots.c.fleet)
        .join(latest, true())
        .outerjoin(drift, drift.c.robot == twin_versions.c.robot)
        .where(
            twin_versions.c.state == "active",
            or_(
                drift.c.robot.is_(None),
                drift.c.version != twin_versions.c.version,
                drift.c.telemetry_ns.is_distinct_from(latest.c.last_ns),
                and_(drift.c.state != "stale", drift.c.telemetry_at < now - timedelta(seconds=STALE_AFTER_S)),
            ),
        )
        .order_by(latest.c.last_ns.desc())
    )
    return [_due(row) for row in await connection.execute(statement)]


async def save(connection: AsyncConnection, due: Due, found: Drift) -> bool:
    """Store what was found, unless another monitor has said something of the robot since `due` was read.

    Returns:
        Whether it was stored.
    """
    values = {name: getattr(found, name) for name in Drift.__slots__}
    statement = insert(drift).values(robot=due.robot, **values)
    unmoved = false() if due.found is None else drift.c.updated_at == due.found.updated_at
    statement = statement.on_conflict_do_update(index_elements=["robot"], set_=values, where=unmoved)
    return (await connection.execute(statement)).rowcount == 1


async def record(connection: AsyncConnection, robot: RobotId, point: DriftPoint) -> None:
    """Add a point to the robot's history."""
    values = {name: getattr(point, name) for name in DriftPoint.__slots__}
    statement = insert(drift_scores).values(robot=robot, **values)
    # A robot whose clock went back is at the same instant twice: the later one is what is the case.
    await connection.execute(statement.on_conflict_do_update(index_elements=["robot", "at"], set_=values))


async def forget_unserved(connection: AsyncConnection) -> list[tuple[FleetId, RobotId]]:
    """Drop what was found of robots that have no active version any more; gives them with their fleets."""
    active = exists().where(twin_versions.c.robot == drift.c.robot, twin_versions.c.state == "active")
    statement = delete(drift).where(drift.c.robot == robots.c.robot, ~active).returning(robots.c.fleet, drift.c.robot)
    return [(FleetId(fleet), RobotId(robot)) for fleet, robot in await connection.execute(statement)]


async def forget_old(connection: AsyncConnection, before: datetime) -> int:
    """Drop history from before an instant; gives how many points."""
    return (await connection.execute(delete(drift_scores).where(drift_scores.c.at < before))).rowcount


async def read_retained(connection: AsyncConnection) -> Sequence[Retained]:
    """What is to be said of every robot: for a broker that may have forgotten it."""
    d = drift.c
    statement = select(d.robot, robots.c.fleet, d.version, d.state, d.score, d.updated_at.label("stamp"))
    found = await connection.execute(statement.join(robots, robots.c.robot == d.robot))
    return [Retained(**row) for row in found.mappings()]


def instant(ns: int) -> datetime:
    """Nanoseconds since the epoch as an instant, to the microsecond below."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


def _ns(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def _due(row: Row[Any]) -> Due:
    known = row.known_version is not None
    return Due(
        robot=RobotId(row.robot),
        fleet=FleetId(row.fleet),
        version=row.active,
        declared_at=row.declared_at,
        description_sha256=row.description_sha256,
        last_ns=row.last_ns,
        found=Drift(**{name: getattr(row, f"known_{name}") for name in Drift.__slots__}) if known else None,
    )
