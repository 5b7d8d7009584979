"""Calibration jobs from request to served twin, and everything that may go wrong on the way."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration.jobs import read
from app.calibration.selection import LEAD_S, load_inputs
from app.database.tables import trials
from app.twin.document import read_document
from tests import entries
from tests.integration.serving import (
    ROBOT,
    client_of,
    ended,
    make_key,
    register,
    running_api,
    running_worker,
    store_motion,
    store_stillness,
    until,
)


@pytest.fixture
async def api(engine: AsyncEngine) -> AsyncIterator[httpx.AsyncClient]:
    """An administrator's client of a running API that knows the robot."""
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as client:
        await register(client)
        yield client


async def start(api: httpx.AsyncClient, **body: Any) -> str:
    answer = await api.post(f"/v1/robots/{ROBOT}/calibrations", json=body)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/v1/calibrations/{job['id']}"
    return str(job["id"])


async def test_a_calibration_goes_from_request_to_served_twin(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    recording = await store_motion(engine)
    async with running_worker(engine, entries.succeed):
        job = await ended(api, await start(api, recordings=[str(recording)], seed=3))
    assert (job["state"], job["version"], job["progress"]) == ("succeeded", 1, 1.0)
    assert job["reason"] == "gain 0.96 [0.95, 0.97]"
    served = await api.get(f"/v1/robots/{ROBOT}/twin")
    twin = read_document(served.content)
    assert (twin.version, twin.provenance.parent) == (1, None)
    assert twin.provenance.recordings == (str(recording),)
    assert twin.description.href == f"/v1/robots/{ROBOT}/description?sha256={'0' * 64}"
    report = await api.get(f"/v1/calibrations/{job['id']}/report")
    assert (report.status_code, report.text) == (200, "<!doctype html><title>fit</title>")


async def test_the_trials_are_kept_with_their_structure_and_values(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api))
    async with engine.connect() as connection:
        rows = (await connection.execute(select(trials).order_by(trials.c.number))).all()
    assert [(r.number, r.structure, r.params, r.value, r.state) for r in rows] == [
        (0, {"friction": "coulomb+viscous"}, {"robot/command_latency_s": 0.01}, 1.5, "complete"),
        (1, {"friction": "viscous"}, {"robot/command_latency_s": 0.02}, None, "failed"),
    ]


async def test_a_second_fit_names_the_version_it_beat(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api, seed=1))
        await ended(api, await start(api, seed=2))
    twin = (await api.get(f"/v1/robots/{ROBOT}/twin")).json()
    assert (twin["version"], twin["provenance"]["parent"]) == (2, 1)
    states = {v["version"]: v["state"] for v in (await api.get(f"/v1/robots/{ROBOT}/twins")).json()["items"]}
    assert states == {1: "retired", 2: "active"}


async def test_a_twin_that_is_no_better_is_published_but_rejected(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.be_worse):
        job = await ended(api, await start(api))
    assert (job["state"], job["version"]) == ("succeeded", 1)
    assert "not above 0" in job["reason"]
    assert (await api.get(f"/v1/robots/{ROBOT}/twin")).status_code == 404
    assert (await api.get(f"/v1/robots/{ROBOT}/twins")).json()["items"][0]["state"] == "rejected"
    assert (await api.get(f"/v1/robots/{ROBOT}/audit")).json()["items"][0]["what"] == "reject"


async def test_a_twin_that_is_not_to_be_activated_stays_a_candidate(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api, activate="never"))
    assert (await api.get(f"/v1/robots/{ROBOT}/twins")).json()["items"][0]["state"] == "candidate"


async def test_a_fit_that_finds_nothing_fails_with_its_reason_and_report(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.find_nothing):
        job = await ended(api, await start(api))
    assert (job["state"], job["reason"], job["version"]) == ("failed", "the robot is idle: no joint moved", None)
    assert (await api.get(f"/v1/calibrations/{job['id']}/report")).text.endswith("<title>idle</title>")


async def test_a_fit_that_is_killed_is_one_failed_job_and_the_worker_lives(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.crash_once) as worker:
        killed = await ended(api, await start(api, seed=666))
        after = await ended(api, await start(api, seed=1))
        assert not worker.done()
    assert (killed["state"], after["state"]) == ("failed", "succeeded")
    assert "killed by SIGKILL" in killed["reason"]


async def test_a_running_calibration_is_cancelled_and_its_process_ends(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.hang):
        calibration = await start(api)
        running = await until(api, calibration, lambda job: bool(job["trials"]))
        assert (running["state"], running["stage"], running["progress"], running["best"]) == (
            "running",
            "search",
            0.25,
            0.5,
        )
        assert (await api.delete(f"/v1/calibrations/{calibration}")).status_code == 200
        job = await ended(api, calibration)
        assert (job["state"], job["reason"]) == ("cancelled", "cancelled on request")
        assert multiprocessing.active_children() == []


async def test_a_queued_calibration_is_cancelled_at_once_and_never_begun(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine)
    first = await start(api)
    assert (await api.delete(f"/v1/calibrations/{first}")).json()["state"] == "cancelled"
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api))
    job = (await api.get(f"/v1/calibrations/{first}")).json()
    assert (job["state"], job["version"], job["started_at"]) == ("cancelled", None, None)


async def test_cancelling_what_has_succeeded_is_a_conflict(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.succeed):
        job = await ended(api, await start(api))
    answer = await api.delete(f"/v1/calibrations/{job['id']}")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:twincal:problem:conflict")


async def test_the_job_of_a_killed_worker_is_done_by_another(
    api: httpx.AsyncClient, engine: AsyncEngine, database_url: str
) -> None:
    await store_motion(engine)
    program = (
        "import asyncio, sys; from app.calibration.worker import Worker; from app.database.engine import create_engine;"
        "from tests import entries; engine = create_engine(sys.argv[1]);"
        "asyncio.run(Worker(engine, 2.0, entries.hang).run(asyncio.Event()))"
    )
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, database_url, stderr=asyncio.subprocess.DEVNULL
    )
    calibration = await start(api)
    await until(api, calibration, lambda job: bool(job["trials"]))
    os.kill(doomed.pid, signal.SIGKILL)
    await doomed.wait()
    async with running_worker(engine, entries.succeed, heartbeat_timeout_s=2.0):
        job = await ended(api, calibration)
    assert (job["state"], job["version"]) == ("succeeded", 1)


async def test_a_worker_told_to_stop_gives_its_job_back_at_once(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    async with running_worker(engine, entries.hang):
        calibration = await start(api)
        await until(api, calibration, lambda job: bool(job["trials"]))
    assert (await api.get(f"/v1/calibrations/{calibration}")).json()["state"] == "queued"
    async with running_worker(engine, entries.succeed):
        assert (await ended(api, calibration))["state"] == "succeeded"


async def test_two_workers_never_take_the_same_job(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    jobs = [await start(api, seed=i, activate="never") for i in range(4)]
    async with running_worker(engine, entries.succeed), running_worker(engine, entries.succeed):
        states = [(await ended(api, job))["state"] for job in jobs]
    assert states == ["succeeded"] * 4
    versions = (await api.get(f"/v1/robots/{ROBOT}/twins")).json()["items"]
    assert sorted(v["version"] for v in versions) == [1, 2, 3, 4]


async def test_the_default_window_is_the_hour_before_the_robot_last_moved(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await store_motion(engine, "long ago")
    moved = await store_motion(engine, "this morning", start_s=10_000.0)
    await store_stillness(engine, "since then", seconds=60.0, start_s=20_000.0)
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api))
    provenance = (await api.get(f"/v1/robots/{ROBOT}/twin")).json()["provenance"]
    assert provenance["recordings"] == [str(moved)]
    assert provenance["window"][1].startswith("2026-02-02T05:26:43.9")


@pytest.mark.parametrize(("begin", "lead_s"), [("2026-02-02T02:40:01Z", LEAD_S), ("2026-02-02T02:00:00Z", None)])
async def test_where_a_window_begins_within_a_recording_the_first_moment_is_not_fitted(
    api: httpx.AsyncClient, engine: AsyncEngine, begin: str, lead_s: float | None
) -> None:
    await store_motion(engine)
    window = {"from": begin, "to": "2026-02-02T04:00:00Z"}
    calibration = UUID(await start(api, window=window))
    async with engine.connect() as connection:
        job = await read(connection, calibration)
    assert (await load_inputs(engine, job)).request.from_s == lead_s


async def test_a_robot_that_never_moved_is_told_so(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_stillness(engine, "still", seconds=30.0, start_s=0.0)
    async with running_worker(engine, entries.succeed):
        job = await ended(api, await start(api))
    assert job["state"] == "failed"
    assert "has not moved" in job["reason"]


async def test_a_held_out_recording_is_not_fitted_though_the_window_covers_it(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    fitted = await store_motion(engine, "a")
    held = await store_motion(engine, "b", start_s=100.0)
    window = {"from": "2026-02-02T00:00:00Z", "to": "2026-02-03T00:00:00Z"}
    async with running_worker(engine, entries.succeed):
        await ended(api, await start(api, window=window, holdout={"recordings": [str(held)]}))
    twin = (await api.get(f"/v1/robots/{ROBOT}/twin")).json()
    assert twin["provenance"]["recordings"] == [str(fitted), str(held)]


async def test_events_tell_progress_and_end_with_the_job(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await store_motion(engine)
    calibration = await start(api)
    events: list[tuple[str, dict[str, Any]]] = []
    events_url = f"/v1/calibrations/{calibration}/events"
    async with running_worker(engine, entries.succeed), api.stream("GET", events_url) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        kind = ""
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((kind, orjson.loads(line.removeprefix("data: "))))
    assert (events[0][0], events[0][1]["state"]) == ("progress", "queued")
    assert (events[-1][0], events[-1][1]["state"], events[-1][1]["version"]) == ("end", "succeeded", 1)


async def test_a_robot_without_a_description_is_a_conflict_of_its_own_type(engine: AsyncEngine) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        await register(api, description=None)
        answer = await api.post(f"/v1/robots/{ROBOT}/calibrations")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:twincal:problem:no-description")


async def test_an_unknown_recording_is_refused_before_the_job_is_queued(api: httpx.AsyncClient) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    answer = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"recordings": [unknown]})
    assert (answer.status_code, answer.json()["where"]) == (422, "recordings.0")
    assert (await api.get(f"/v1/robots/{ROBOT}/calibrations")).json()["items"] == []
