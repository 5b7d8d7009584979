"""What the exporter reads of robots and jobs: one look at the database, as cheap with ten thousand robots as can be."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, Select, and_, case, extract, func, null, select, true
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database.tables import (
    calibrations,
    connections,
    dead_letters,
    drift,
    recalibrations,
    recordings,
    robots,
    twin_versions,
)
from app.monitor.store import IMPLAUSIBLE_AHEAD
from app.registry.drift import STALE_AFTER_S

MAX_LETTERS: Final = 50_000
"""Dead letters that are counted."""

UNWATCHED: Final = "unwatched"
"""State of robots of whose active version nothing is known yet, and of those without one."""

_LIVE_WITHIN_NS: Final = 86_400 * 10**9
_IMPLAUSIBLE_NS: Final = int(IMPLAUSIBLE_AHEAD.total_seconds()) * 10**9


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the database.

    Attributes:
        robots: robot, fleet, version (active), state, score, worst_score, connection, last_ns; None: not known.
        counts: registered robots by state.
        unfinished: calibrations by state, with how long the oldest has been in it [s].
        letters: dead letters not stored since, by reason.
        proposed: recalibrations that wait for somebody.
    """

    robots: Sequence[Row[Any]]
    counts: Mapping[str, int]
    unfinished: Mapping[str, tuple[int, float]]
    letters: Mapping[str, int]
    proposed: int


async def read(engine: AsyncEngine, cap: int) -> Reading:
    """Look at all robots and jobs.

    Args:
        engine: of the database.
        cap: at most so many robots.
    """
    async with engine.connect() as connection:
        found = (await connection.execute(_robots(time.time_ns(), cap))).all()
        counts = (await connection.execute(_COUNTS)).all()
        unfinished = (await connection.execute(_UNFINISHED)).all()
        letters = (await connection.execute(_LETTERS)).all()
        proposed = (await connection.execute(_PROPOSED)).scalar_one()
    return Reading(
        robots=found,
        counts=_by_name(counts),
        unfinished={row.state: (row.number, float(row.age_s)) for row in unfinished},
        letters=_by_name(letters),
        proposed=proposed,
    )


def _by_name(rows: Iterable[Row[Any]]) -> Mapping[str, int]:
    return {row.name: row.number for row in rows}


_NUMBER: Final = func.count().label("number")
_ACTIVE: Final = and_(twin_versions.c.robot == robots.c.robot, twin_versions.c.state == "active")
# As `Drift.seen_at`: a monitor that is gone moves no states, and nothing that it said stays green.
_SEEN: Final = case(
    (drift.c.robot.is_(None), null()),
    (drift.c.telemetry_at > func.now() - timedelta(seconds=STALE_AFTER_S), drift.c.state),
    else_="stale",
)
_STATE: Final = func.coalesce(_SEEN, UNWATCHED)
# What is known of another version than the active one says nothing of how the robot is doing now.
_OF_ACTIVE: Final = and_(drift.c.robot == robots.c.robot, drift.c.version == twin_versions.c.version)


def _robots(now_ns: int, cap: int) -> Select[Any]:
    """As many robots as have series of their own: those heard of within a day, then the others, each by name.

    By name and not by how recently, so that who is in changes as little as it can.
    """
    latest = (
        select(recordings.c.last_ns)
        .where(recordings.c.robot == robots.c.robot, recordings.c.last_ns < now_ns + _IMPLAUSIBLE_NS)
        .order_by(recordings.c.last_ns.desc())
        .limit(1)
        .lateral("latest")
    )
    live = func.coalesce(latest.c.last_ns >= now_ns - _LIVE_WITHIN_NS, False)
    return (
        select(
            robots.c.robot,
            robots.c.fleet,
            twin_versions.c.version,
            _SEEN.label("state"),
            drift.c.score,
            drift.c.worst_score,
            connections.c.state.label("connection"),
            latest.c.last_ns,
        )
        .select_from(
            robots.outerjoin(twin_versions, _ACTIVE)
            .outerjoin(drift, _OF_ACTIVE)
            .outerjoin(connections, connections.c.robot == robots.c.robot)
            .outerjoin(latest, true())
        )
        .order_by(live.desc(), robots.c.robot)
        .limit(cap)
    )


_COUNTS: Final = (
    select(_STATE.label("name"), _NUMBER)
    .select_from(robots.outerjoin(twin_versions, _ACTIVE).outerjoin(drift, _OF_ACTIVE))
    .group_by(_STATE)
)
_SINCE: Final = case(
    (calibrations.c.state == "running", func.coalesce(calibrations.c.started_at, calibrations.c.created_at)),
    else_=calibrations.c.created_at,
)
_UNFINISHED: Final = (
    select(calibrations.c.state, _NUMBER, extract("epoch", func.max(func.now() - _SINCE)).label("age_s"))
    .where(calibrations.c.state.in_(("queued", "running")))
    .group_by(calibrations.c.state)
)
_PROPOSED: Final = select(func.count()).select_from(recalibrations).where(recalibrations.c.proposed_at.is_not(None))
# The newest alone: a flood of refused messages mustn't be what keeps the scrape from answering.
_NEWEST_LETTERS: Final = (
    select(dead_letters.c.reason)
    .where(dead_letters.c.replayed_at.is_(None))
    .order_by(dead_letters.c.id.desc())
    .limit(MAX_LETTERS)
    .subquery("letters")
)
_LETTERS: Final = select(_NEWEST_LETTERS.c.reason.label("name"), _NUMBER).group_by(_NEWEST_LETTERS.c.reason)
