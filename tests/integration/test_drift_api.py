"""`GET /v1/robots/{robot}/drift`: what the monitor found, as far as it still holds, and how it came to that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database.tables import drift, drift_scores, fleets
from app.registry.drift import STALE_AFTER_S
from app.telemetry import RobotId
from tests.integration.serving import client_of, make_key, running_api
from tests.integration.watching import (
    FLEET,
    FRICTION,
    TRUTH,
    WatchedRobot,
    monitoring,
    until_drift,
    until_seen,
    watched_robot,
)

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def api(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    _, token = await make_key(engine, "read")
    async with running_api(engine) as url, client_of(url, token) as client:
        yield client


async def ask(api: httpx.AsyncClient, robot: WatchedRobot, **query: Any) -> dict[str, Any]:
    answer = await api.get(f"/v1/robots/{robot.robot}/drift", params=query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def remember(engine: AsyncEngine, robot: WatchedRobot, scores: list[float], every_s: float) -> None:
    """A history from `BEGIN` on."""
    points = [
        {
            "robot": robot.robot,
            "at": BEGIN + timedelta(seconds=every_s * i),
            "version": 1,
            "state": "ok",
            "score": score,
            "worst_score": score,
            "worst_joint": "hinge",
            "per_joint": {"hinge": score},
        }
        for i, score in enumerate(scores)
    ]
    async with engine.begin() as connection:
        await connection.execute(insert(drift_scores), points)


async def test_drift_is_served_now_and_over_time(
    engine: AsyncEngine, database_url: str, api: httpx.AsyncClient
) -> None:
    robot = await watched_robot(engine, "arm-07")
    async with monitoring(engine):
        await robot.work(database_url, 20.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
        await robot.work(database_url, 30.0, friction=2.0 * TRUTH[FRICTION])
        found = await until_drift(engine, robot.robot, "drifted", state="drifted")
        found = await until_seen(engine, robot)
    told = await ask(api, robot)
    assert found.score is not None
    assert found.score > 2.0
    assert (told["robot"], told["version"], told["state"], told["reason"]) == ("arm-07", 1, "drifted", None)
    assert (told["score"], told["worst_score"], told["worst_joint"]) == (found.score, found.worst_score, "hinge")
    assert told["per_joint"] == {"hinge": found.worst_score}
    times = {name: datetime.fromisoformat(told[name]) for name in ("since", "scored_at", "telemetry_at")}
    assert times == {"since": found.since, "scored_at": found.scored_at, "telemetry_at": found.telemetry_at}
    points = told["history"]["items"]
    assert (points[0]["state"], points[-1]["state"], told["history"]["next"]) == ("ok", "drifted", None)
    assert points[-1]["score"] == told["score"]
    assert [point["at"] for point in points] == sorted(point["at"] for point in points)


async def test_a_monitor_that_is_gone_gives_no_green_light(
    engine: AsyncEngine, database_url: str, api: httpx.AsyncClient
) -> None:
    robot = await watched_robot(engine, "arm-07")
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
        before = await until_seen(engine, robot)
    assert (await ask(api, robot))["state"] == "ok"
    async with engine.begin() as connection:
        aged = drift.c.telemetry_at - timedelta(seconds=STALE_AFTER_S)
        await connection.execute(update(drift).values(telemetry_at=aged))
    silent = await ask(api, robot)
    assert (silent["state"], silent["score"], silent["reason"]) == ("stale", before.score, None)
    assert before.telemetry_at is not None
    assert datetime.fromisoformat(silent["since"]) == before.telemetry_at
    await robot.work(database_url, 10.0)
    unwatched = await ask(api, robot)
    assert unwatched["state"] == "stale"
    assert "is `twincal monitor` running?" in unwatched["reason"]


async def test_a_version_that_was_never_looked_at_is_neither_ok_nor_what_the_one_before_was(
    engine: AsyncEngine, database_url: str, api: httpx.AsyncClient
) -> None:
    robot = await watched_robot(engine, "arm-07")
    never = await ask(api, robot)
    assert (never["state"], never["score"], never["history"]["items"]) == ("stale", None, [])
    assert never["reason"] == "the monitor has not looked at version 1 yet"
    async with monitoring(engine):
        await robot.work(database_url, 10.0)
        await until_drift(engine, robot.robot, "ok", state="ok")
    await robot.serve(engine)
    new = await ask(api, robot)
    assert (new["version"], new["state"], new["score"], new["worst_joint"]) == (2, "idle", None, None)
    assert new["reason"] == "the monitor has not looked at version 2 yet"
    assert {point["version"] for point in new["history"]["items"]} == {1}


async def test_history_comes_by_pages_and_each_point_once(engine: AsyncEngine, api: httpx.AsyncClient) -> None:
    robot = await watched_robot(engine, "arm-07")
    await remember(engine, robot, [1.0 + i / 100 for i in range(25)], 10.0)
    period = {"from": BEGIN.isoformat(), "to": (BEGIN + timedelta(seconds=240)).isoformat()}
    seen: list[float] = []
    history = (await ask(api, robot, limit=10, **period))["history"]
    while True:
        seen += [point["score"] for point in history["items"]]
        if history["next"] is None:
            break
        history = (await ask(api, robot, limit=10, cursor=history["next"]))["history"]
    assert (history["every_s"], seen) == (0, [1.0 + i / 100 for i in range(24)])


async def test_a_long_period_is_thinned_and_no_peak_vanishes(engine: AsyncEngine, api: httpx.AsyncClient) -> None:
    robot = await watched_robot(engine, "arm-07")
    scores = [1.0] * 3000
    scores[1234] = 7.0
    await remember(engine, robot, scores, 10.0)
    period = {"from": BEGIN.isoformat(), "to": (BEGIN + timedelta(seconds=30_000)).isoformat()}
    whole = (await ask(api, robot, **period))["history"]
    assert whole["every_s"] == 60
    assert len(whole["items"]) == 500
    assert [point["score"] for point in whole["items"]].count(7.0) == 1
    pages, history = [], (await ask(api, robot, limit=200, **period))["history"]
    pages += history["items"]
    while history["next"] is not None:
        history = (await ask(api, robot, limit=200, cursor=history["next"]))["history"]
        pages += history["items"]
    assert pages == whole["items"]


async def test_what_is_asked_wrongly_is_named(engine: AsyncEngine, api: httpx.AsyncClient) -> None:
    robot = await watched_robot(engine, "arm-07")
    later = {"from": BEGIN.isoformat(), "to": (BEGIN - timedelta(hours=1)).isoformat()}
    for query, where in (
        (later, "from"),
        ({"from": "2026-03-01T12:00:00"}, "query.from"),
        ({"to": "yesterday"}, "query.to"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"limit": 0}, "query.limit"),
    ):
        answer = await api.get(f"/v1/robots/{robot.robot}/drift", params=query)
        assert (answer.status_code, answer.json()["where"]) == (422, where), answer.text
    for extreme in ({"from": "0001-01-01T00:00:00+14:00"}, {"to": "9999-12-31T23:59:59-14:00"}):
        assert (await api.get(f"/v1/robots/{robot.robot}/drift", params=extreme)).status_code == 200


async def test_no_robot_no_twin_and_another_fleet_are_404_each_of_its_type(
    engine: AsyncEngine, api: httpx.AsyncClient
) -> None:
    await watched_robot(engine, "arm-07")
    untwinned = WatchedRobot(RobotId("arm-08"))
    await untwinned.register(engine)
    for name, kind in (("arm-08", "no-active-twin"), ("arm-09", "not-found")):
        answer = await api.get(f"/v1/robots/{name}/drift")
        assert (answer.status_code, answer.json()["type"]) == (404, f"urn:twincal:problem:{kind}")
    async with engine.begin() as connection:
        await connection.execute(insert(fleets).values(fleet="others"))
    for fleet, status in ((FLEET, 200), ("others", 404)):
        _, token = await make_key(engine, "read", fleet)
        answer = await api.get("/v1/robots/arm-07/drift", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status
    assert (await api.get("/v1/robots/arm-07/drift", headers={"Authorization": ""})).status_code == 401
