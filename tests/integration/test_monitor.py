"""The drift monitor on a real database: planted robots, their telemetry through the real writer."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from tests.integration.watching import FRICTION, TRUTH, monitoring, until_drift, watched_robot


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
        healthy_now = await until_drift(
            engine, healthy.robot, "seen to the end", found=lambda drift: drift.telemetry_ns >= healthy.next_ns - 10**7
        )
    assert healthy_now.state == "ok"
