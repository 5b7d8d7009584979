"""What the monitor does about drifted robots: proposals, calibrations, and when neither."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import jobs, versions
from app.calibration.audit import Move
from app.calibration.jobs import Ending
from app.calibration.request import CalibrationRequest
from app.calibration.versions import Origin
from app.database.tables import audit, calibrations, drift
from app.monitor.recalibration import Decision, consider
from app.monitor.score import WindowScore
from app.monitor.state import DriftState, Standing
from app.registry.fleets import put_fleet
from app.registry.recalibrations import open_proposal
from app.telemetry import RobotId
from tests import entries
from tests.integration.ingesting import register
from tests.integration.serving import (
    ROBOT,
    client_of,
    ended,
    make_key,
    running_api,
    running_worker,
    store_motion,
)
from tests.integration.serving import register as register_by_rest
from tests.twins import CREATED, draft

S = 10**9
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
ARM = RobotId("arm-07")
AUTOMATIC = {"mode": "automatic", "cooldown_s": 600, "min_moving_s": 60}


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def scored(seconds: float, moving_s: float = 2.0) -> WindowScore:
    """What the monitor sees of a robot whose clock agrees with ours."""
    return WindowScore(round(at(seconds).timestamp()) * S, 3.4, 5.1, "elbow", {"elbow": 5.1}, moving_s, 1)


class Watch:
    """A monitor that has seen this much of a robot."""

    def __init__(self, engine: AsyncEngine, robot: RobotId = ARM, version: int = 1) -> None:
        self.engine, self.robot, self.version = engine, robot, version

    async def look(self, seconds: float, moving_s: float = 2.0, state: DriftState = "drifted") -> Decision:
        standing = Standing(state, NOW, {})
        async with self.engine.begin() as connection:
            return await consider(
                connection, self.robot, standing, scored(seconds, moving_s), self.version, at(seconds)
            )

    async def enough(self, seconds: float = 0.0) -> Decision:
        """Found to have drifted, then moving for more than a minute."""
        await self.look(seconds)
        return await self.look(seconds + 75.0, moving_s=75.0)


async def fleet(engine: AsyncEngine, policy: Mapping[str, Any] | None, *robots: RobotId) -> None:
    """Robots with an active twin, in a fleet of this policy."""
    async with engine.begin() as connection:
        await put_fleet(connection, "arms", {} if policy is None else {"recalibration": dict(policy)})
    for robot in robots or (ARM,):
        await register(engine, robot)
        await activate(engine, robot)


async def activate(engine: AsyncEngine, robot: RobotId = ARM) -> int:
    """A new version in service, however it came to be."""
    async with engine.begin() as connection:
        document = await versions.publish(connection, draft(robot=robot), Origin(None, None, CREATED))
        await versions.activate(connection, robot, document.version, Move("local"))
    return document.version


async def end(engine: AsyncEngine, decision: Decision, outcome: str, seconds: float) -> None:
    """End a job at a time of the test's own."""
    assert decision.calibration is not None
    async with engine.begin() as connection:
        job = await jobs.begin(connection, decision.calibration)
        assert job is not None
        version = None
        if outcome in {"rejected", "succeeded"}:
            document = await versions.publish(connection, draft(robot=job.robot), Origin(job.id, 1, CREATED))
            version = document.version
            if outcome == "rejected":
                await versions.reject(connection, job.robot, version, Move("test"))
            else:
                await versions.activate(connection, job.robot, version, Move("test"))
        state: Any = "failed" if outcome == "failed" else "succeeded"
        assert await jobs.finish(connection, job.id, Ending(state, "", version))
        await connection.execute(
            update(calibrations).where(calibrations.c.id == job.id).values(finished_at=at(seconds))
        )


async def trail(engine: AsyncEngine, robot: RobotId = ARM) -> list[tuple[str, str | None, str]]:
    """What the monitor did, by the audit trail."""
    query = select(audit).where(audit.c.robot == robot, audit.c.who == "monitor").order_by(audit.c.id)
    async with engine.connect() as connection:
        return [(row.what, row.old, row.reason) for row in await connection.execute(query)]


async def queued(engine: AsyncEngine) -> list[tuple[str, str]]:
    async with engine.connect() as connection:
        rows = await connection.execute(select(calibrations).order_by(calibrations.c.created_at))
        return [(row.robot, row.requested_by) for row in rows]


REASON = "drift score 3.4, worst joint elbow (5.1), since 2026-05-01 12:00:00 UTC; 75 s of new moving data"


# --- never, and propose -----------------------------------------------------------------------------------------------


async def test_a_fleet_that_never_wants_it_gets_nothing(engine: AsyncEngine) -> None:
    await fleet(engine, {"mode": "never"})
    assert (await Watch(engine).enough()).action == "nothing"
    assert await trail(engine) == []


@pytest.mark.parametrize("state", ["ok", "watch", "idle", "stale"])
async def test_a_robot_that_has_not_drifted_gets_nothing(engine: AsyncEngine, state: DriftState) -> None:
    await fleet(engine, AUTOMATIC)
    assert (await Watch(engine).look(0, 500.0, state)).action == "nothing"
    assert await queued(engine) == []


async def test_a_fleet_that_says_nothing_gets_one_proposal_once_there_is_enough_to_calibrate_from(
    engine: AsyncEngine,
) -> None:
    await fleet(engine, None)
    watch = Watch(engine)
    assert await watch.look(0, 500.0) == Decision("waiting", "0 s of new moving data, 120 s needed")
    assert (await watch.look(75, 75.0)).reason == "75 s of new moving data, 120 s needed"
    assert (await watch.look(200, 60.0)).action == "proposed"
    assert await watch.look(300, 60.0) == Decision("waiting", "proposed already")
    assert await trail(engine) == [("propose", "1", REASON.replace("75 s", "135 s"))]
    assert await queued(engine) == []


async def test_a_proposal_is_the_very_request_that_would_do_it(engine: AsyncEngine) -> None:
    await fleet(engine, {"min_moving_s": 60})
    await Watch(engine).enough()
    async with engine.connect() as connection:
        proposal = await open_proposal(connection, ARM)
    assert proposal is not None
    assert (proposal.reason, proposal.proposed_at) == (REASON, at(75))
    request = CalibrationRequest.model_validate(dict(proposal.request))
    assert request.window is not None
    assert (request.window.from_, request.window.to) == (NOW, at(75))


async def test_a_proposal_is_withdrawn_when_the_score_is_back_to_normal(engine: AsyncEngine) -> None:
    await fleet(engine, {"min_moving_s": 60})
    watch = Watch(engine)
    await watch.enough()
    assert (await watch.look(100, state="idle")).action == "nothing"
    async with engine.connect() as connection:
        assert await open_proposal(connection, ARM) is not None
    await watch.look(200, state="ok")
    async with engine.connect() as connection:
        assert await open_proposal(connection, ARM) is None
    assert (await trail(engine))[1:] == [("withdraw", "1", "proposal withdrawn: the drift score is back to normal")]


async def test_a_proposal_is_not_shown_once_another_version_is_active_and_then_withdrawn(engine: AsyncEngine) -> None:
    await fleet(engine, {"min_moving_s": 60})
    await Watch(engine).enough()
    await activate(engine)
    async with engine.connect() as connection:
        assert await open_proposal(connection, ARM) is None
    assert (await Watch(engine, version=2).look(100, state="ok")).action == "nothing"
    assert (await trail(engine))[1:] == [("withdraw", "1", "proposal withdrawn: version 2 is active now")]


async def test_a_proposal_is_withdrawn_by_a_calibration_that_came_to_nothing_and_made_again_after_the_rest(
    engine: AsyncEngine,
) -> None:
    await fleet(engine, {"min_moving_s": 60, "cooldown_s": 600})
    watch = Watch(engine)
    await watch.enough()
    async with engine.begin() as connection:
        job = await jobs.submit(connection, ARM, CalibrationRequest(), "key:somebody")
    await end(engine, Decision("queued", "", job.id), "rejected", 100.0)
    resting = await watch.look(110)
    assert resting.action == "waiting"
    assert resting.reason == "resting until 2026-05-01 12:21:40 UTC: the last calibration was rejected"
    assert (await watch.look(1301)).action == "proposed"
    assert [what for what, _, _ in await trail(engine)] == ["propose", "withdraw", "propose"]


# --- automatic --------------------------------------------------------------------------------------------------------


async def test_a_drifted_robot_is_calibrated_on_data_from_after_the_change(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC)
    watch = Watch(engine)
    assert (await watch.look(0, 500.0)).action == "waiting"
    decision = await watch.look(75, 75.0)
    assert (decision.action, decision.reason) == ("queued", REASON)
    assert decision.calibration is not None
    async with engine.connect() as connection:
        job = await jobs.read(connection, decision.calibration)
    assert (job.state, job.requested_by, job.cause) == ("queued", "monitor", f"recalibrated: {REASON}")
    assert job.request.window is not None
    assert (job.request.window.from_, job.request.window.to) == (NOW, at(75))
    assert job.request.activate == "if_better"
    assert await trail(engine) == [("calibrate", "1", f"{REASON}; calibration {job.id}")]


async def test_one_drift_is_calibrated_once(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC)
    watch = Watch(engine)
    decision = await watch.enough()
    assert await watch.look(100, 20.0) == Decision("waiting", f"calibration {decision.calibration} is queued")
    await end(engine, decision, "succeeded", 200.0)
    assert (await watch.look(5000, 500.0)).action == "nothing"  # a look at the old version, come late
    assert (await Watch(engine, version=2).look(5001, 500.0, "ok")).action == "nothing"
    assert len(await queued(engine)) == 1


async def test_a_version_that_drifts_anew_waits_for_the_cool_down_and_for_data_of_its_own(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC)
    await end(engine, await Watch(engine).enough(), "succeeded", 200.0)
    watch = Watch(engine, version=2)
    assert (await watch.look(210, 500.0)).reason == "0 s of new moving data, 60 s needed"
    assert (await watch.look(300, 60.0)).reason.startswith("resting until 2026-05-01 12:13:20 UTC")
    assert (await watch.look(799)).action == "waiting"
    assert (await watch.look(800)).action == "queued"


async def test_each_calibration_that_comes_to_nothing_doubles_the_rest(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC)
    watch = Watch(engine)
    decision, ended_s = await watch.enough(), 100.0
    for outcome, rest_s in (("rejected", 1200.0), ("failed", 2400.0), ("rejected", 4800.0)):
        await end(engine, decision, outcome, ended_s)
        assert (await watch.look(ended_s + rest_s - 1.0, 60.0)).action == "waiting"
        decision = await watch.look(ended_s + rest_s, 60.0)
        assert decision.action == "queued"
        ended_s += rest_s + 100.0


async def test_a_fleet_wide_change_raises_no_more_jobs_at_a_time_than_the_policy_allows(engine: AsyncEngine) -> None:
    robots = [RobotId(f"arm-{i:02d}") for i in range(12)]
    await fleet(engine, AUTOMATIC | {"max_in_flight": 3}, *robots)
    decisions = await asyncio.gather(*(Watch(engine, robot).enough() for robot in robots))
    chosen = [d for d in decisions if d.action == "queued"]
    assert len(chosen) == len(await queued(engine)) == 3
    assert {d.reason for d in decisions if d.action != "queued"} == {
        "3 calibrations of fleet 'arms' are under way, at most 3 may be"
    }
    await end(engine, chosen[0], "succeeded", 100.0)
    again = await asyncio.gather(*(Watch(engine, robot).look(120.0) for robot in robots))
    assert [d.action for d in again].count("queued") == 1


async def test_calibrations_that_people_ask_for_do_not_count_against_the_monitors(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC | {"max_in_flight": 1}, ARM, RobotId("arm-08"))
    async with engine.begin() as connection:
        await jobs.submit(connection, RobotId("arm-08"), CalibrationRequest(), "key:somebody")
    assert (await Watch(engine).enough()).action == "queued"


async def test_two_monitors_that_look_at_once_raise_one_job(engine: AsyncEngine) -> None:
    await fleet(engine, AUTOMATIC)
    await Watch(engine).look(0)
    decisions = await asyncio.gather(*(Watch(engine).look(75, 75.0) for _ in range(5)))
    assert [d.action for d in decisions].count("queued") == 1
    assert len(await queued(engine)) == 1


async def test_a_policy_that_becomes_automatic_takes_its_proposals_up(engine: AsyncEngine) -> None:
    await fleet(engine, {"min_moving_s": 60})
    watch = Watch(engine)
    await watch.enough()
    async with engine.begin() as connection:
        await put_fleet(connection, "arms", {"recalibration": AUTOMATIC})
    assert (await watch.look(100)).action == "queued"
    assert [what for what, _, _ in await trail(engine)] == ["propose", "withdraw", "calibrate"]


# --- by the service ---------------------------------------------------------------------------------------------------


async def test_the_audit_trail_of_a_recalibrated_robot_says_why(engine: AsyncEngine) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        await register_by_rest(api)
        answer = await api.put("/v1/fleets/arms", json={"recalibration": AUTOMATIC})
        assert answer.json()["recalibration"] == {"window_s": 3600, "budget_s": 300, "max_in_flight": 4} | AUTOMATIC
        await activate(engine, RobotId(ROBOT))
        await store_motion(engine)
        cause = f"recalibrated: {REASON}"
        async with running_worker(engine, entries.succeed):
            async with engine.begin() as connection:
                job = await jobs.submit(connection, RobotId(ROBOT), CalibrationRequest(), "monitor", cause)
            done = await ended(api, str(job.id))
        moves = (await api.get(f"/v1/robots/{ROBOT}/audit")).json()["items"]
    assert (done["requested_by"], done["cause"], done["version"]) == ("monitor", cause, 2)
    assert (moves[0]["what"], moves[0]["old"], moves[0]["new"]) == ("activate", "1", "2")
    assert moves[0]["reason"] == f"{cause}; gain 0.96 [0.95, 0.97]"


async def test_a_rejected_recalibration_leaves_the_old_version_active_and_says_so(engine: AsyncEngine) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        await register_by_rest(api)
        await activate(engine, RobotId(ROBOT))
        await store_motion(engine)
        cause = f"recalibrated: {REASON}"
        async with running_worker(engine, entries.be_worse):
            async with engine.begin() as connection:
                job = await jobs.submit(connection, RobotId(ROBOT), CalibrationRequest(), "monitor", cause)
            done = await ended(api, str(job.id))
        moves = (await api.get(f"/v1/robots/{ROBOT}/audit")).json()["items"]
        assert (await api.get(f"/v1/robots/{ROBOT}/twin")).headers["Twincal-Version"] == "1"
    assert done["reason"].endswith("not above 0; version 1 is kept")
    assert (moves[0]["what"], moves[0]["reason"]) == ("reject", f"{cause}; {done['reason']}")


async def test_the_drift_of_a_robot_shows_what_is_proposed_until_it_is_done(engine: AsyncEngine) -> None:
    await fleet(engine, {"min_moving_s": 60})
    async with engine.begin() as connection:
        await connection.execute(insert(drift).values(robot=ARM, version=1, state="drifted", since=NOW))
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        path = f"/v1/robots/{ARM}/drift"
        assert (await api.get(path)).json()["proposal"] is None
        await Watch(engine).enough()
        proposal = (await api.get(path)).json()["proposal"]
        assert (proposal["reason"], proposal["proposed_at"]) == (REASON, "2026-05-01T12:01:15Z")
        assert proposal["request"]["window"] == {"from": "2026-05-01T12:00:00Z", "to": "2026-05-01T12:01:15Z"}
        await activate(engine)
        assert (await api.get(path)).json()["proposal"] is None


async def test_a_policy_that_cannot_be_is_refused_by_its_field(engine: AsyncEngine) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        answer = await api.put("/v1/fleets/arms", json={"recalibration": {"mode": "automatic", "cooldown": 60}})
        assert answer.status_code == 422
        assert answer.json()["where"] == "body.recalibration.cooldown"
        default = (await api.put("/v1/fleets/arms")).json()["recalibration"]
    assert (default["mode"], default["cooldown_s"]) == ("propose", 3600)
