"""Drifts under way: what the monitor knows of each, and what it proposes about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import recalibrations, twin_versions
from app.telemetry import RobotId


@dataclass(frozen=True, slots=True)
class NewData:
    """Telemetry from after a change, by the robot's clock, nanoseconds since the epoch.

    Attributes:
        from_ns: where it begins.
        to_ns: how far it was scored.
        moved: (end_ns, moving_s), oldest first: in the stretch that ended there the robot moved for so long.
    """

    from_ns: int
    to_ns: int
    moved: tuple[tuple[int, float], ...] = ()

    @property
    def moving_s(self) -> float:
        """How long the robot moved in it [s]."""
        return sum(seconds for _, seconds in self.moved)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A calibration that the monitor proposes.

    Attributes:
        reason: for people.
        request: the body of `POST /v1/robots/{robot}/calibrations` that would do it.
        proposed_at: when.
    """

    reason: str
    request: Mapping[str, Any]
    proposed_at: datetime


@dataclass(frozen=True, slots=True)
class Episode:
    """One drift of one version, as long as it lasts.

    Attributes:
        version: that no longer fits.
        since: when it was found to have drifted.
        evidence: how far, in words.
        data: from after the change.
        proposal: what the monitor proposes; None: nothing, or not yet.
    """

    version: int
    since: datetime
    evidence: str
    data: NewData
    proposal: Proposal | None = None


async def read_episode(connection: AsyncConnection, robot: RobotId) -> Episode | None:
    """The robot's drift under way, if any."""
    row = (await connection.execute(select(recalibrations).where(recalibrations.c.robot == robot))).one_or_none()
    if row is None:
        return None
    moved = tuple((int(end_ns), float(seconds)) for end_ns, seconds in row.moved)
    proposal = None if row.proposed_at is None else Proposal(row.reason, row.request, row.proposed_at)
    return Episode(row.version, row.since, row.evidence, NewData(row.from_ns, row.to_ns, moved), proposal)


async def save_episode(connection: AsyncConnection, robot: RobotId, episode: Episode) -> None:
    """Write down what is known of a robot's drift now."""
    proposal = episode.proposal
    values = {
        "version": episode.version,
        "since": episode.since,
        "evidence": episode.evidence,
        "from_ns": episode.data.from_ns,
        "to_ns": episode.data.to_ns,
        "moved": [list(stretch) for stretch in episode.data.moved],
        "reason": None if proposal is None else proposal.reason,
        "request": None if proposal is None else dict(proposal.request),
        "proposed_at": None if proposal is None else proposal.proposed_at,
        "updated_at": func.now(),
    }
    statement = insert(recalibrations).values(robot=robot, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["robot"], set_=values))


async def forget_episode(connection: AsyncConnection, robot: RobotId) -> None:
    """The drift is over."""
    await connection.execute(delete(recalibrations).where(recalibrations.c.robot == robot))


async def open_proposal(connection: AsyncConnection, robot: RobotId) -> Proposal | None:
    """What the monitor proposes about the robot's active version; None: nothing."""
    query = (
        select(recalibrations.c.reason, recalibrations.c.request, recalibrations.c.proposed_at)
        .join(
            twin_versions,
            (twin_versions.c.robot == recalibrations.c.robot) & (twin_versions.c.version == recalibrations.c.version),
        )
        .where(recalibrations.c.robot == robot, recalibrations.c.proposed_at.is_not(None))
        .where(twin_versions.c.state == "active")
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Proposal(row.reason, row.request, row.proposed_at)
