"""What robots last said of their connection to the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import connections

ConnectionState = Literal["ONLINE", "OFFLINE", "CONNECTIONBROKEN"]


@dataclass(frozen=True, slots=True)
class RobotConnection:
    """How a robot's connection stands.

    Attributes:
        state: ONLINE; OFFLINE: it left; CONNECTIONBROKEN: the broker lost it.
        stamp: the robot's own, the latest it gave.
        received_at: when we heard of the state, by our clock.
    """

    state: ConnectionState
    stamp: datetime
    received_at: datetime


async def connections_of(connection: AsyncConnection, robots: Iterable[str]) -> Mapping[str, RobotConnection]:
    """The connections of these robots, of those that ever said anything of theirs."""
    rows = await connection.execute(select(connections).where(connections.c.robot.in_(list(robots))))
    return {row.robot: RobotConnection(row.state, row.stamp, row.received_at) for row in rows}
