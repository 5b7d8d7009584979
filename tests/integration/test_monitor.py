"""The drift monitor on a real database: planted robots, their telemetry through the real writer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import versions
from app.calibration.audit import Move
from app.database.tables import drift, drift_scores
from app.monitor.store import instant
from app.registry.drift import STALE_AFTER_S
from tests.integration.ingesting import eventually
from tests.integration.watching import (
    FRICTION,
    HALF_A_VERDICT_S,
    TRUTH,
    drift_of,
    monitoring,
    store,
    until_drift,
    until_seen,
    watched_robot,
)


async def test_a_robot_like_its_twin_is_ok_and_one_whose_friction_rose_has_drifted(
    engine: AsyncEngine, database_url: str
) -> None:
    healthy, worn = await watched_robot(engine, "healthy"), await watched_robot(engine, "worn")
    async with monitoring(engine):
        for robot in (healthy, worn):
            await robot.work(database_url, 30.0)
        before = await until_drift(engine, worn.robot, "ok", state="ok")
        assert before.score is not None
        assert 0.5 < before.score < 1.5
        assert before.worst_joint == "hinge"
        await worn.work(database_url, 30.0, friction=1.5 * TRUTH[FRICTION])
        await healthy.work(database_url, 30.0)
        after = await until_drift(engine, worn.robot, "drifted", state="drifted")
        assert after.score is not None
        assert after.score > 3.0
        assert (after.worst_joint, after.per_joint["hinge"], after.version) == ("hinge", after.worst_score, 1)
        healthy_now = await until_seen(engine, healthy)
    assert healthy_now.state == "ok"


async def test_a_monitor_that_starts_again_goes_on_where_the_last_one_was(
    engine: AsyncEngine, database_url: str
) -> None:
    robot = await watched_robot(engine, "worn")
    async with monitoring(engine):
        # Too little for a verdict: half of it before the monitor ends, half after.
        await robot.work(database_url, HALF_A_VERDICT_S, friction=2.0 * TRUTH[FRICTION])
        before = await until_drift(engine, robot.robot, "watched", state="watch")
    async with monitoring(engine):
        await robot.work(database_url, HALF_A_VERDICT_S, friction=2.0 * TRUTH[FRICTION])
        after = await until_drift(engine, robot.robot, "drifted", state="drifted")
    assert before.scored_ns is not None
    assert after.scored_ns is not None
    assert after.scored_ns > before.scored_ns


async def test_telemetry_from_while_no_monitor_was_there_is_judged_afterwards(
    engine: AsyncEngine, database_url: str
) -> None:
    robot = await watched_robot(engine, "worn")
    await robot.work(database_url, 40.0, friction=2.0 * TRUTH[FRICTION])
    async with monitoring(engine):
        found = await until_drift(engine, robot.robot, "drifted", state="drifted")
    assert found.telemetry_ns == robot.last_ns


async def test_a_message_delivered_twice_or_late_changes_nothing(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "steady")
    first, second = robot.messages(robot.motion(12.0)), robot.messages(robot.motion(12.0))
    late = first.pop(3)
    await store(database_url, first)
    async with monitoring(engine):
        before = await until_drift(engine, robot.robot, "ok", state="ok")
        await store(database_url, [late, *first])
        await store(database_url, second)
        after = await until_seen(engine, robot)
    assert (before.state, after.state, after.reason) == ("ok", "ok", None)


async def test_a_robot_that_stands_still_is_idle_and_keeps_its_last_score(
    engine: AsyncEngine, database_url: str
) -> None:
    robot = await watched_robot(engine, "resting")
    async with monitoring(engine):
        await robot.work(database_url, 10.0, still=True)
        still = await until_drift(engine, robot.robot, "idle", state="idle")
        assert (still.score, still.scored_at, still.reason) == (None, None, None)
        await robot.work(database_url, 10.0)
        moved = await until_drift(engine, robot.robot, "ok", state="ok")
        for _ in range(2):
            await robot.work(database_url, 10.0, still=True)
            await until_seen(engine, robot)
        rests = await until_seen(engine, robot)
    assert moved.score is not None
    assert (rests.worst_joint, rests.scored_at is not None) == ("hinge", True)
    assert rests.scored_at is not None
    assert instant(rests.scored_ns or 0) > rests.scored_at


async def test_a_new_version_starts_anew(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "renewed")
    worn = 2.0 * TRUTH[FRICTION]
    async with monitoring(engine):
        await robot.work(database_url, 40.0, friction=worn)
        await until_drift(engine, robot.robot, "drifted", state="drifted", version=1)
        await robot.serve(engine, robot.draft({**TRUTH, FRICTION: worn}))
        fresh = await until_drift(engine, robot.robot, "looked at with version 2", version=2)
        assert (fresh.state, fresh.score, fresh.recorded_at) == ("idle", None, None)
        await robot.work(database_url, 20.0, friction=worn)
        renewed = await until_drift(engine, robot.robot, "ok", state="ok", version=2)
    assert renewed.score is not None
    assert renewed.score < 1.5


async def test_a_robot_whose_version_is_withdrawn_is_forgotten(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "withdrawn")
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
        async with engine.begin() as connection:
            await versions.retire(connection, robot.robot, 1, Move("test"))

        async def forgotten() -> bool:
            return await drift_of(engine, robot.robot) is None

        await eventually(forgotten, "nothing is said of it")


async def test_a_robot_that_falls_silent_is_stale(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "silent")
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
        # A minute passes.
        async with engine.begin() as connection:
            aged = drift.c.telemetry_at - timedelta(seconds=STALE_AFTER_S)
            await connection.execute(update(drift).values(telemetry_at=aged, updated_at=func.clock_timestamp()))
        await until_drift(engine, robot.robot, "stale", state="stale")
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok again", state="ok")


async def test_history_has_a_point_a_change_and_one_now_and_then_and_is_forgotten_in_time(
    engine: AsyncEngine, database_url: str
) -> None:
    robot = await watched_robot(engine, "remembered")
    old = {"robot": robot.robot, "version": 1, "state": "ok"}
    async with engine.begin() as connection:
        ages = [timedelta(days=91), timedelta(days=89)]
        await connection.execute(insert(drift_scores), [old | {"at": datetime.now(UTC) - age} for age in ages])
    async with monitoring(engine, history_s=3600.0):
        for _ in range(3):
            await robot.work(database_url, 8.0)
            await until_seen(engine, robot)
        await robot.work(database_url, 30.0, friction=3.0 * TRUTH[FRICTION])
        await until_drift(engine, robot.robot, "drifted", state="drifted")
    async with engine.connect() as connection:
        found = (await connection.execute(select(drift_scores).order_by(drift_scores.c.at))).all()
    assert found[0].at > datetime.now(UTC) - timedelta(days=90)
    states = [point.state for point in found[1:]]
    assert states[0] == "ok"
    assert states[-1] == "drifted"
    assert all(a != b for a, b in pairwise(states)), states
    assert found[-1].per_joint["hinge"] == found[-1].worst_score
