"""The audit trail of a robot's twin versions: who moved what when, and why. Never changed, never deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import audit
from app.telemetry import RobotId


@dataclass(frozen=True, slots=True)
class Move:
    """Who moves a version, and why: what the audit trail keeps."""

    who: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A move as the audit trail has it."""

    id: int
    at: datetime
    who: str
    what: str
    old: str | None
    new: str | None
    reason: str


async def record_move(
    connection: AsyncConnection, robot: RobotId, move: Move, change: tuple[str, str | None, str | None]
) -> None:
    """Write a move down, in the transaction that makes it.

    Args:
        connection: in that transaction.
        robot: whose version.
        move: who and why.
        change: what was done, the version before and the version after.
    """
    what, old, new = change
    await connection.execute(
        insert(audit).values(robot=robot, who=move.who, what=what, old=old, new=new, reason=move.reason)
    )


async def list_moves(
    connection: AsyncConnection, robot: RobotId, *, before: int | None, limit: int
) -> Sequence[AuditEntry]:
    """The robot's audit trail below entry `before`, latest first."""
    query = select(audit).where(audit.c.robot == robot)
    if before is not None:
        query = query.where(audit.c.id < before)
    rows = await connection.execute(query.order_by(audit.c.id.desc()).limit(limit))
    return [AuditEntry(row.id, row.at, row.who, row.what, row.old, row.new, row.reason) for row in rows]
