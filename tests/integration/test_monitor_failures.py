"""What is wrong with one robot, or with what comes after its score, costs the others nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog.testing import capture_logs

from app.database.tables import drift, drift_scores, robots, twin_versions
from app.errors import ConflictError
from app.monitor.look import conclude
from app.monitor.recalibration import Decision
from app.monitor.score import WindowScore
from app.monitor.state import Standing
from app.monitor.store import find_due, save
from app.registry.descriptions import put_robot_description
from app.telemetry import RobotId
from tests.integration.serving import URDF
from tests.integration.watching import (
    TRUTH,
    WatchedRobot,
    drift_of,
    monitoring,
    store,
    until_drift,
    until_seen,
    watched_robot,
)

Poison = Callable[[AsyncEngine, WatchedRobot], Awaitable[None]]


async def undecodable_declaration(engine: AsyncEngine, robot: WatchedRobot) -> None:
    async with engine.begin() as connection:
        await connection.execute(
            update(robots)
            .where(robots.c.robot == robot.robot)
            .values(declaration={"schema": "twincal.robot/0"}, updated_at=func.clock_timestamp())
        )


async def another_description(engine: AsyncEngine, robot: WatchedRobot) -> None:
    async with engine.begin() as connection:
        await put_robot_description(connection, robot.robot, URDF)


async def no_baseline(engine: AsyncEngine, robot: WatchedRobot) -> None:
    await robot.serve(engine, robot.draft(windowed=False))


async def damaged_document(engine: AsyncEngine, robot: WatchedRobot) -> None:
    async with engine.begin() as connection:
        mine = twin_versions.c.robot == robot.robot
        await connection.execute(update(twin_versions).where(mine).values(document=b'{"schema": "twincal.twin/1"'))


async def no_commands(engine: AsyncEngine, robot: WatchedRobot) -> None:
    robot.records = ("position",)


@pytest.mark.parametrize(
    ("poison", "kind", "reason"),
    [
        (undecodable_declaration, "declaration", "schema: 'twincal.robot/0' is not usable"),
        (another_description, "version", "belongs to description"),
        (no_baseline, "version", "quality.windowed: version 2 has no baseline"),
        (damaged_document, "version", "not JSON"),
        (no_commands, "telemetry", "command_position is missing"),
    ],
)
async def test_a_robot_that_cannot_be_watched_says_why_once_and_costs_the_others_nothing(
    engine: AsyncEngine, database_url: str, poison: Poison, kind: str, reason: str
) -> None:
    sick, healthy = await watched_robot(engine, "sick"), await watched_robot(engine, "healthy")
    await poison(engine, sick)
    with capture_logs() as logs:
        async with monitoring(engine):
            for _ in range(2):
                for robot in (sick, healthy):
                    await robot.work(database_url, 10.0)
                found = await until_seen(engine, sick)
                well = await until_drift(engine, healthy.robot, "ok", state="ok", telemetry_ns=healthy.last_ns)
    assert found.reason is not None
    assert reason in found.reason
    assert (found.score, found.state, well.reason) == (None, "idle", None)
    said = [entry for entry in logs if entry.get("robot") == sick.robot]
    assert [(entry["kind"], entry["reason"]) for entry in said] == [(kind, found.reason)]


async def test_a_robot_that_is_put_right_is_watched_again(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "healed")
    await undecodable_declaration(engine, robot)
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "refused", found=lambda drift: drift.reason is not None)
        await robot.register(engine)
        await robot.work(database_url, 10.0)
        found = await until_drift(engine, robot.robot, "ok", state="ok", reason=None)
    assert found.score is not None


async def test_a_twin_that_diverges_is_a_drift_and_no_failure(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "wild")
    await robot.serve(engine, robot.draft({**TRUTH, "joint/hinge/viscous_damping_nm_s_per_rad": -500.0}))
    async with monitoring(engine):
        await robot.work(database_url, 40.0)
        found = await until_drift(engine, robot.robot, "drifted", state="drifted")
    assert found.score is not None
    assert found.score > 1000.0


async def test_what_fails_after_the_score_leaves_the_score(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "stored")
    scores: list[WindowScore | None] = []

    async def refuse(
        connection: AsyncConnection,
        name: RobotId,
        standing: Standing,
        score: WindowScore | None,
        version: int,
        now: datetime,
    ) -> Decision:
        stored = await connection.scalar(select(drift.c.state).where(drift.c.robot == name))
        assert (stored, version) == (standing.state, 1)
        await connection.execute(update(drift).where(drift.c.robot == name).values(reason="never seen"))
        scores.append(score)
        msg = "no calibration today"
        raise ConflictError(msg)

    async with monitoring(engine, react=refuse):
        await robot.work(database_url, 10.0)
        found = await until_drift(engine, robot.robot, "ok", state="ok")
    assert (found.reason, len(scores) > 0) == (None, True)
    async with engine.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(drift_scores)) == 1


async def test_a_bug_is_one_robots_reason_and_not_the_monitors_end(engine: AsyncEngine, database_url: str) -> None:
    sick, healthy = await watched_robot(engine, "sick"), await watched_robot(engine, "healthy")

    async def fail(
        connection: AsyncConnection,
        name: RobotId,
        standing: Standing,
        score: WindowScore | None,
        version: int,
        now: datetime,
    ) -> Decision:
        if name == sick.robot:
            raise ZeroDivisionError
        return Decision("nothing")

    with capture_logs() as logs:
        async with monitoring(engine, react=fail):
            for robot in (sick, healthy):
                await robot.work(database_url, 10.0)
            await until_drift(engine, healthy.robot, "ok", state="ok")
            await healthy.work(database_url, 10.0)
            await until_seen(engine, healthy)
    assert await drift_of(engine, sick.robot) is None
    assert [entry["kind"] for entry in logs if entry.get("robot") == sick.robot] == ["unexpected"]


async def test_two_monitors_that_saw_the_same_do_not_store_it_twice(engine: AsyncEngine, database_url: str) -> None:
    robot = await watched_robot(engine, "contested")
    await store(database_url, robot.messages(robot.motion(10.0)))
    now = datetime.now().astimezone()
    async with engine.begin() as connection:
        (due,) = await find_due(connection, now)
    seen = conclude(due, [], now, now)
    async with engine.begin() as connection:
        assert await save(connection, due, seen.found)
        assert not await save(connection, due, replace(seen.found, state="drifted"))
    async with engine.begin() as connection:
        (again,) = await find_due(connection, now) or [replace(due, found=seen.found)]
        assert await save(connection, again, replace(seen.found, state="watch"))
