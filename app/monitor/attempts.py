"""The calibrations a robot had lately, and how long it rests from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import calibrations, robots, twin_versions
from app.telemetry import FleetId, RobotId

LONGEST_BACK_OFF_S: Final = 86_400.0
SHORTEST_BACK_OFF_S: Final = 60.0
"""Also where there is no cool-down: what fails at once must not be tried at once, again and again."""

_LOOK_BACK: Final = 12
"""Jobs looked back at: with so many in a row that came to nothing the back-off has long reached its longest."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A calibration of the robot, whoever asked for it.

    Attributes:
        id: the job's.
        outcome: how it stands; rejected where its version didn't pass the gate.
        finished_at: None while it is queued or running.
    """

    id: UUID
    outcome: Literal["queued", "running", "succeeded", "rejected", "failed", "cancelled"]
    finished_at: datetime | None

    @property
    def in_words(self) -> str:
        """What became of it: was rejected, failed."""
        return f"was {self.outcome}" if self.outcome in {"rejected", "cancelled"} else self.outcome


def rest_until(attempts: Sequence[Attempt], cooldown_s: float) -> datetime | None:
    """When the next calibration may be asked for; None: there was none to rest from.

    Args:
        attempts: finished ones, the latest end first.
        cooldown_s: after one that came to something [s]. It doubles with each in a row that didn't.
    """
    if not attempts or attempts[0].finished_at is None:
        return None
    vain = next((i for i, attempt in enumerate(attempts) if attempt.outcome == "succeeded"), len(attempts))
    seconds = cooldown_s
    if vain:
        longest = max(cooldown_s, LONGEST_BACK_OFF_S)
        seconds = min(max(cooldown_s, SHORTEST_BACK_OFF_S) * 2.0**vain, longest)
    return attempts[0].finished_at + timedelta(seconds=seconds)


async def recent_attempts(connection: AsyncConnection, robot: RobotId) -> list[Attempt]:
    """The robot's latest calibrations: unfinished ones, then by their end, the latest first."""
    query = (
        select(
            calibrations.c.id,
            calibrations.c.finished_at,
            calibrations.c.state,
            twin_versions.c.state.label("twin_state"),
        )
        .outerjoin(
            twin_versions,
            (twin_versions.c.robot == calibrations.c.robot) & (twin_versions.c.version == calibrations.c.version),
        )
        .where(calibrations.c.robot == robot)
        .order_by(calibrations.c.created_at.desc())
        .limit(_LOOK_BACK)
    )
    rows = (await connection.execute(query)).all()
    attempts = [Attempt(r.id, "rejected" if r.twin_state == "rejected" else r.state, r.finished_at) for r in rows]
    far = datetime.max.replace(tzinfo=UTC)
    return sorted(attempts, key=lambda attempt: attempt.finished_at or far, reverse=True)


async def in_flight(connection: AsyncConnection, fleet: FleetId, requested_by: str) -> int:
    """How many calibrations of a fleet's robots somebody has queued or running."""
    jobs = calibrations.join(robots, robots.c.robot == calibrations.c.robot)
    query = select(func.count()).select_from(jobs).where(calibrations.c.state.in_(["queued", "running"]))
    query = query.where(calibrations.c.requested_by == requested_by, robots.c.fleet == fleet)
    return int(await connection.scalar(query) or 0)
