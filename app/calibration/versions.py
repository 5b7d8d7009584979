"""A robot's twin versions: published once, never changed; their state moves, and every move is in the audit trail.

Every move locks the robot's row first, so that two of them are one after the other and version numbers have no gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import Column, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.calibration.audit import Move, record_move
from app.database.tables import robots, twin_versions
from app.errors import ConflictError, NotFoundError
from app.telemetry import RobotId
from app.twin.document import TwinDocument, TwinDraft, seal, to_json

VersionState = Literal["candidate", "active", "retired", "rejected"]

_SUMMARY: Final[tuple[Column[Any], ...]] = (
    twin_versions.c.version,
    twin_versions.c.digest,
    twin_versions.c.state,
    twin_versions.c.calibration,
    twin_versions.c.created_at,
    twin_versions.c.state_changed_at,
)


class NoActiveTwinError(NotFoundError):
    """A robot that has no active version."""

    def __init__(self, robot: RobotId) -> None:
        super().__init__("active twin of robot", robot, "calibrate it, or ask for ?fallback=nominal")


class ActiveMovedError(ConflictError):
    """The active version is not the one the request was made for: somebody else was first."""

    def __init__(self, robot: RobotId, active: int | None) -> None:
        now = "none" if active is None else f"version {active}"
        super().__init__(f"the active twin of robot {robot!r} is {now} by now; read it again before moving it")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the active version must be for a move to go ahead.

    Attributes:
        digests: of which the active version's must be one; empty: there must be no active version; None: any will do,
            but there must be one.
    """

    digests: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A version as the list of versions shows it.

    Attributes:
        version: from 1, without gaps.
        digest: of its document.
        state: candidate, active, retired or rejected.
        calibration: the job that made it.
        created_at: when it was published.
        state_changed_at: when its state last moved.
    """

    version: int
    digest: str
    state: VersionState
    calibration: UUID | None
    created_at: datetime
    state_changed_at: datetime


@dataclass(frozen=True, slots=True)
class StoredTwin:
    """A version and its document's canonical JSON."""

    summary: VersionSummary
    document: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a version comes from.

    Attributes:
        calibration: the job that made it; None if it was imported.
        parent: the version that was active when it was fitted; None if none was.
        created_at: aware.
    """

    calibration: UUID | None
    parent: int | None
    created_at: datetime


async def publish(connection: AsyncConnection, draft: TwinDraft, origin: Origin) -> TwinDocument:
    """Give a draft the robot's next version and store it, as a candidate.

    Raises:
        NotFoundError: if the robot isn't registered.
    """
    robot = RobotId(draft.robot)
    await _lock(connection, robot)
    latest = await connection.scalar(select(func.max(twin_versions.c.version)).where(twin_versions.c.robot == robot))
    document = seal(draft, (latest or 0) + 1, origin.parent, origin.created_at)
    await connection.execute(
        insert(twin_versions).values(
            robot=robot,
            version=document.version,
            document=to_json(document),
            digest=document.digest,
            calibration=origin.calibration,
            created_at=origin.created_at,
        )
    )
    return document


async def activate(
    connection: AsyncConnection, robot: RobotId, version: int, move: Move, expected: Expected | None = None
) -> VersionSummary:
    """Make a version the one that is served; the one before it is retired. Promotion and roll-back alike.

    Activating what is active already changes nothing and leaves no entry.

    Args:
        connection: in a transaction.
        robot: whose.
        version: to become active, whatever its state.
        move: who and why.
        expected: what must be active now; None: whatever is.

    Raises:
        NotFoundError: if there is no such robot or version.
        ActiveMovedError: if something else is active than `expected`.
    """
    await _lock(connection, robot)
    active = await _active(connection, robot)
    if expected is not None and not _matches(active, expected):
        raise ActiveMovedError(robot, active.version if active else None)
    target = await summarise(connection, robot, version)
    if active is not None and active.version == version:
        return target
    if active is not None:
        await _set_state(connection, robot, active.version, "retired")
    await _set_state(connection, robot, version, "active")
    old = str(active.version) if active else None
    await record_move(connection, robot, move, ("activate", old, str(version)))
    return await summarise(connection, robot, version)


async def retire(connection: AsyncConnection, robot: RobotId, version: int, move: Move) -> VersionSummary:
    """Take a version out of service; the robot has no active one afterwards if it was that.

    Raises:
        NotFoundError: if there is no such robot or version.
    """
    return await _leave(connection, robot, version, "retired", move)


async def reject(connection: AsyncConnection, robot: RobotId, version: int, move: Move) -> VersionSummary:
    """Mark a candidate that didn't pass its gate.

    Raises:
        NotFoundError: if there is no such robot or version.
        ConflictError: if it is in service.
    """
    return await _leave(connection, robot, version, "rejected", move)


async def summarise(connection: AsyncConnection, robot: RobotId, version: int) -> VersionSummary:
    """One version without its document.

    Raises:
        NotFoundError: if the robot has no such version.
    """
    query = select(*_SUMMARY).where(twin_versions.c.robot == robot, twin_versions.c.version == version)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFoundError("twin version", f"{robot}/{version}")
    return _summary(row)


async def read_version(connection: AsyncConnection, robot: RobotId, version: int) -> StoredTwin:
    """One version with its document.

    Raises:
        NotFoundError: if the robot has no such version.
    """
    stored = await _read(connection, robot, twin_versions.c.version == version)
    if stored is None:
        raise NotFoundError("twin version", f"{robot}/{version}")
    return stored


async def read_active(connection: AsyncConnection, robot: RobotId) -> StoredTwin:
    """The version that is served.

    Raises:
        NoActiveTwinError: if none is.
    """
    stored = await _read(connection, robot, twin_versions.c.state == "active")
    if stored is None:
        raise NoActiveTwinError(robot)
    return stored


async def list_versions(
    connection: AsyncConnection, robot: RobotId, *, before: int | None, limit: int
) -> Sequence[VersionSummary]:
    """The robot's versions below `before`, newest first."""
    query = select(*_SUMMARY).where(twin_versions.c.robot == robot)
    if before is not None:
        query = query.where(twin_versions.c.version < before)
    rows = await connection.execute(query.order_by(twin_versions.c.version.desc()).limit(limit))
    return [_summary(row) for row in rows]


async def refers_to_description(connection: AsyncConnection, robot: RobotId, sha256: str) -> bool:
    """Whether a version of this robot was fitted to the description of this digest (lower-case hex)."""
    needle = f'"sha256":"{sha256}"'.encode()
    mentions = func.position(literal(needle).op("IN")(twin_versions.c.document)) > 0
    query = select(twin_versions.c.version).where(twin_versions.c.robot == robot, mentions).limit(1)
    return await connection.scalar(query) is not None


async def _leave(
    connection: AsyncConnection, robot: RobotId, version: int, state: VersionState, move: Move
) -> VersionSummary:
    await _lock(connection, robot)
    current = await summarise(connection, robot, version)
    if current.state == state:
        return current
    if state == "rejected" and current.state != "candidate":
        raise ConflictError(f"version {version} of robot {robot!r} is {current.state}; only a candidate is rejected")
    await _set_state(connection, robot, version, state)
    what = {"retired": "retire", "rejected": "reject"}[state]
    await record_move(connection, robot, move, (what, str(version), None))
    return await summarise(connection, robot, version)


async def _lock(connection: AsyncConnection, robot: RobotId) -> None:
    # NO KEY UPDATE: rows that refer to the robot may still be inserted meanwhile.
    query = select(robots.c.robot).where(robots.c.robot == robot).with_for_update(key_share=True)
    if (await connection.execute(query)).one_or_none() is None:
        raise NotFoundError("robot", robot)


async def _active(connection: AsyncConnection, robot: RobotId) -> VersionSummary | None:
    query = select(*_SUMMARY).where(twin_versions.c.robot == robot, twin_versions.c.state == "active")
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _summary(row)


async def _read(connection: AsyncConnection, robot: RobotId, condition: Any) -> StoredTwin | None:
    query = select(*_SUMMARY, twin_versions.c.document).where(twin_versions.c.robot == robot, condition)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else StoredTwin(_summary(row), bytes(row.document))


def _matches(active: VersionSummary | None, expected: Expected) -> bool:
    if expected.digests is None:
        return active is not None
    if not expected.digests:
        return active is None
    return active is not None and active.digest in expected.digests


async def _set_state(connection: AsyncConnection, robot: RobotId, version: int, state: VersionState) -> None:
    await connection.execute(
        update(twin_versions)
        .where(twin_versions.c.robot == robot, twin_versions.c.version == version)
        .values(state=state, state_changed_at=func.clock_timestamp())
    )


def _summary(row: Any) -> VersionSummary:
    return VersionSummary(
        version=row.version,
        digest=row.digest,
        state=row.state,
        calibration=row.calibration,
        created_at=row.created_at,
        state_changed_at=row.state_changed_at,
    )
