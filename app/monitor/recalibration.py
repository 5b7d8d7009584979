"""What is done about a robot that has drifted: nothing, a proposal or a calibration, as its fleet's policy has it.

A calibration that the monitor asks for goes the way of any other: the same queue, the same gate. It is fitted on data
from after the change alone, which is why the monitor waits for enough of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.telemetry import RobotId

if TYPE_CHECKING:
    from app.monitor.score import WindowScore
    from app.monitor.state import Standing

Action = Literal["nothing", "waiting", "proposed", "queued"]
"""`waiting`: it has drifted, and what must come first hasn't; `proposed`, `queued`: done just now."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was done about a standing, just now.

    Attributes:
        action: nothing, waiting, proposed or queued.
        reason: for people; empty where there is nothing to say.
        calibration: the job that was queued.
    """

    action: Action
    reason: str = ""
    calibration: UUID | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A calibration that the monitor proposes and nobody has asked for yet.

    Attributes:
        robot: whose.
        version: the active version, which it would replace.
        since: when the drift began.
        reason: for people.
        request: the body of `POST /v1/robots/{robot}/calibrations` that would do it.
        created_at: when it was proposed.
    """

    robot: RobotId
    version: int
    since: datetime
    reason: str
    request: dict[str, object]
    created_at: datetime


async def consider(
    connection: AsyncConnection,
    robot: RobotId,
    standing: Standing,
    score: WindowScore | None,
    version: int,
    now: datetime,
) -> Decision:
    """Do what the policy of the robot's fleet says about a new standing, in the caller's transaction.

    Args:
        connection: in the transaction that stores the standing.
        robot: registered.
        standing: the new one.
        score: what it was made of; None where there was nothing new to score.
        version: the robot's active version, which was scored.
        now: aware.
    """
    return Decision("nothing")


async def open_proposal(connection: AsyncConnection, robot: RobotId) -> Proposal | None:
    """What the monitor proposes for the robot's active version, if anything."""
    return None
