"""How robots' active versions fit them: what the monitor found last, and over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import DateTime, Interval, Row, func, literal, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import drift, drift_scores

DriftState = Literal["ok", "watch", "drifted", "idle", "stale"]

STALE_AFTER_S: Final = 60.0
"""A robot that nobody has seen telemetry of for so long is stale, whatever was said of it before [s]."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What the monitor found last of a robot.

    Attributes:
        version: the version it was about.
        state: then; see `seen_at` for what is left of it now.
        since: when it came into that state.
        scored_at: end of the telemetry that was judged last, by the robot's clock; None: nothing was judged yet.
        scored_ns: end of the latest window looked at, moving or not, nanoseconds since the epoch.
        score: multiple of the version's baseline; None: nothing moved enough to judge.
        worst_score: of `worst_joint`.
        worst_joint: the joint that is farthest off.
        per_joint: score of each joint that moved.
        memory: what the monitor carries on.
        telemetry_ns: stamp of the latest sample when it last looked.
        telemetry_at: when that was first seen, by our clock.
        recorded_at: end of the latest window in the history.
        reason: why the robot can't be watched; None while it can.
        updated_at: when the monitor last had something to say.
    """

    version: int
    state: DriftState
    since: datetime
    scored_at: datetime | None
    scored_ns: int | None
    score: float | None
    worst_score: float | None
    worst_joint: str | None
    per_joint: Mapping[str, float]
    memory: Mapping[str, float]
    telemetry_ns: int | None
    telemetry_at: datetime | None
    recorded_at: datetime | None
    reason: str | None
    updated_at: datetime

    def seen_at(self, now: datetime) -> tuple[DriftState, datetime]:
        """State and when it began, for whoever reads it now.

        A monitor that is gone moves no states: what it said last goes stale with the telemetry it last saw.
        """
        if self.telemetry_at is None:
            return "stale", self.since
        stale_at = self.telemetry_at + timedelta(seconds=STALE_AFTER_S)
        if self.state != "stale" and now > stale_at:
            return "stale", stale_at
        return self.state, self.since


@dataclass(frozen=True, slots=True)
class DriftPoint:
    """A robot's drift at one time.

    Attributes:
        at: the window's end.
        version: that was active.
        state: of the robot after this window.
        score: multiple of the version's baseline; None: nothing moved enough to judge.
        worst_score: of `worst_joint`.
        worst_joint: the joint that was farthest off.
        per_joint: score of each joint that moved.
    """

    at: datetime
    version: int
    state: DriftState
    score: float | None
    worst_score: float | None
    worst_joint: str | None
    per_joint: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of history, and how densely to read it.

    Attributes:
        from_at: its begin, included.
        to_at: its end, not included.
        every_s: of each stretch of so many seconds only the point with the highest score; 0: every point.
    """

    from_at: datetime
    to_at: datetime
    every_s: int = 0


_POINT: Final = tuple(drift_scores.c[name] for name in DriftPoint.__slots__)


async def read_drift(connection: AsyncConnection, robot: str) -> Drift | None:
    """What the monitor found last; None if it never looked at the robot."""
    row = (await connection.execute(select(drift).where(drift.c.robot == robot))).one_or_none()
    return None if row is None else drift_of(row)


async def read_history(
    connection: AsyncConnection, robot: str, period: Period, after: datetime | None, limit: int
) -> list[DriftPoint]:
    """A robot's drift over time, the earliest first.

    Args:
        connection: to the database.
        robot: its id.
        period: which part.
        after: instant of the last point already seen.
        limit: at most so many.
    """
    s = drift_scores.c
    width = timedelta(seconds=period.every_s)
    begin = period.from_at
    if after is not None:
        # Of its own stretch `after` is the one point: the next begins with the next stretch.
        begin = period.from_at + ((after - period.from_at) // width + 1) * width if width else after
    wanted = (s.robot == robot, s.at > begin if after and not width else s.at >= begin, s.at < period.to_at)
    points = select(*_POINT).where(*wanted)
    if width:
        stretch = func.date_bin(literal(width, Interval), s.at, literal(period.from_at, DateTime(timezone=True)))
        binned = points.add_columns(stretch.label("stretch")).subquery("binned").c
        # The highest score of each: a peak mustn't vanish because somebody looks from far away.
        worst_first = (binned.stretch, binned.score.desc().nulls_last(), binned.at)
        kept = select(*(binned[name] for name in DriftPoint.__slots__)).ext(distinct_on(binned.stretch))
        points = select(kept.order_by(*worst_first).subquery("kept"))
    found = await connection.execute(points.order_by("at").limit(limit))
    return [DriftPoint(**row) for row in found.mappings()]


async def has_more_points(connection: AsyncConnection, robot: str, period: Period, number: int) -> bool:
    """Whether a period has more points than a number, counted no farther."""
    s = drift_scores.c
    within = (s.robot == robot, s.at >= period.from_at, s.at < period.to_at)
    some = select(s.at).where(*within).limit(number + 1).subquery()
    found: int | None = await connection.scalar(select(func.count()).select_from(some))
    return (found or 0) > number


def drift_of(row: Row[Any]) -> Drift:
    """A row of `drift`, or of a query that has its columns."""
    return Drift(**{name: getattr(row, name) for name in Drift.__slots__})
