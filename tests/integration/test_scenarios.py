"""Scenarios by REST and from a shell beside the database: the same ones, streamed, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import versions
from app.calibration.audit import Move
from app.calibration.versions import Origin
from app.telemetry import RobotId
from app.twin.description import parse_urdf
from app.twin.document import DescriptionRef, TwinDocument, TwinDraft
from tests.integration.serving import DECLARATION, ROBOT, URDF, client_of, make_key, register, running_api
from tests.integration.test_api import problem
from tests.integration.test_services import twincal
from tests.scenarios import arm_draft, choice_of, chunk_records, origin_of
from tests.twins import CREATED

PAYLOAD = {"kind": "payload", "link": "elbow_link", "mass_kg": {"uniform": [0, 2]}}


@pytest.fixture
async def url(engine: AsyncEngine) -> AsyncIterator[str]:
    async with running_api(engine) as url:
        yield url


@pytest.fixture
async def api(engine: AsyncEngine, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A reader's client; the robot is registered and has no twin yet."""
    async with client_of(url, (await make_key(engine))[1]) as client:
        await register(client)
    async with client_of(url, (await make_key(engine, "read"))[1]) as client:
        yield client


async def activate(engine: AsyncEngine, draft: TwinDraft) -> TwinDocument:
    async with engine.begin() as connection:
        document = await versions.publish(connection, draft, Origin(None, None, CREATED))
        await versions.activate(connection, RobotId(draft.robot), document.version, Move("test", ""))
    return document


async def ask(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await api.post("/v1/scenarios", json={"robot": ROBOT, "n": 50, "seed": 7, **body})


async def test_the_active_twin_s_scenarios_come_as_they_are_drawn_without_a_server(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    twin = await activate(engine, arm_draft())
    answer = await ask(api, overlays=[PAYLOAD])
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["scenarios"] == chunk_records(origin_of(choice_of(n=50, overlays=[PAYLOAD]), twin))
    assert answer.json()["twins"][0]["digest"] == twin.digest


async def test_each_format_has_its_media_type_and_its_content(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await activate(engine, arm_draft())
    lines = await ask(api, format="ndjson", n=20_000)
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["index"] for line in lines.text.splitlines()] == list(range(20_000))
    table = await ask(api, format="parquet")
    assert table.headers["content-type"] == "application/vnd.apache.parquet"
    assert parquet.read_table(pa.BufferReader(table.content)).num_rows == 50
    archive = await ask(api, format="npz")
    assert (archive.headers["content-type"], archive.content[:2]) == ("application/zip", b"PK")
    assert (await ask(api, format="parquet")).content == table.content


async def test_a_version_may_be_named_and_keeps_its_scenarios(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await activate(engine, arm_draft())
    first = (await ask(api)).json()["scenarios"]
    await activate(engine, arm_draft(seed=1))
    assert (await ask(api)).json()["scenarios"][0]["keys"]["version"] == 2
    assert (await ask(api, version=1)).json()["scenarios"] == first
    problem(await ask(api, version=3), 404, "not-found")


async def test_a_link_of_the_description_may_carry_a_load_though_it_has_no_parameters(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    described = DescriptionRef(sha256=parse_urdf(URDF).sha256, href=None)
    await activate(engine, arm_draft().model_copy(update={"description": described}))
    assert (await ask(api, overlays=[{**PAYLOAD, "link": "base"}])).status_code == 200
    refused = problem(await ask(api, overlays=[{**PAYLOAD, "link": "nose"}]), 422, "invalid-input")
    assert (refused["where"], refused["remedy"]) == ("overlays.0.link", "it has base, upper, lower")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"n": 1_000_001}, "body.n"),
        ({"overlays": [{**PAYLOAD, "mass_kg": {"uniform": [-1, 2]}}]}, "body.overlays.0.payload.mass_kg"),
        ({"format": "usda"}, "body.format"),
        ({"fleet": "arms"}, "body"),
        ({"robot": "no/robot"}, "body.robot"),
    ],
)
async def test_a_bad_request_names_its_field(api: httpx.AsyncClient, body: dict[str, Any], where: str) -> None:
    assert problem(await ask(api, **body), 422, "invalid-request")["where"] == where


async def test_a_robot_or_fleet_without_an_active_twin_is_a_problem_of_its_own(api: httpx.AsyncClient) -> None:
    problem(await ask(api), 404, "no-active-twin")
    problem(await ask(api, robot=None, fleet="arms"), 404, "no-active-twin")
    problem(await ask(api, robot="arm-99"), 404, "not-found")
    problem(await ask(api, robot=None, fleet="legs"), 404, "not-found")


async def test_for_a_fleet_s_key_another_fleet_s_robots_do_not_exist(
    api: httpx.AsyncClient, engine: AsyncEngine, url: str
) -> None:
    await activate(engine, arm_draft())
    async with client_of(url, (await make_key(engine))[1]) as admin:
        await admin.put("/v1/fleets/others", json={})
    async with client_of(url, (await make_key(engine, "read", "others"))[1]) as stranger:
        problem(await ask(stranger), 404, "not-found")
        problem(await ask(stranger, robot=None, fleet="arms"), 404, "not-found")
    async with client_of(url, (await make_key(engine, "read", "arms"))[1]) as own:
        assert (await ask(own)).status_code == 200
    async with client_of(url, None) as nobody:
        problem(await ask(nobody), 401, "unauthenticated")


async def test_a_fleet_s_scenarios_are_its_robots_and_say_who_has_none(
    api: httpx.AsyncClient, engine: AsyncEngine, url: str
) -> None:
    async with client_of(url, (await make_key(engine))[1]) as admin:
        for robot in ("arm-08", "arm-09"):
            (await admin.put(f"/v1/robots/{robot}", json={**DECLARATION, "robot": robot})).raise_for_status()
    twins = [await activate(engine, arm_draft(robot=robot)) for robot in (ROBOT, "arm-09")]
    answer = (await ask(api, robot=None, fleet="arms", n=200)).json()
    assert (answer["fleet"], answer["without_twin"]) == ("arms", ["arm-08"])
    assert answer["scenarios"] == chunk_records(origin_of(choice_of(n=200), *twins, fleet="arms"))
    assert {scenario["keys"]["robot"] for scenario in answer["scenarios"]} == {ROBOT, "arm-09"}


async def test_robots_of_different_kinds_do_not_fit_one_table(
    api: httpx.AsyncClient, engine: AsyncEngine, url: str
) -> None:
    async with client_of(url, (await make_key(engine))[1]) as admin:
        (await admin.put("/v1/robots/arm-08", json={**DECLARATION, "robot": "arm-08"})).raise_for_status()
    await activate(engine, arm_draft())
    await activate(engine, arm_draft(["hip"], robot="arm-08"))
    refused = problem(await ask(api, robot=None, fleet="arms", format="npz"), 422, "invalid-input")
    assert (refused["where"], refused["remedy"]) == ("format", "json or ndjson")
    assert (await ask(api, robot=None, fleet="arms", format="ndjson")).status_code == 200


async def test_a_question_may_carry_an_idempotency_key_and_is_answered_each_time(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await activate(engine, arm_draft())
    body = {"robot": ROBOT, "n": 10, "format": "ndjson"}
    answers = [await api.post("/v1/scenarios", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content


async def test_the_shell_gives_the_same_lines_as_the_api(
    api: httpx.AsyncClient, engine: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    await activate(engine, arm_draft())
    served = await ask(api, format="ndjson")
    options = ("-n", "50", "--seed", "7", "--format", "ndjson")
    for whose in (("--robot", ROBOT, "--version", "1"), ("--fleet", "arms")):
        done = await asyncio.to_thread(twincal, database_url, "scenarios", *whose, *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.encode() == served.content
    missing = await asyncio.to_thread(twincal, database_url, "scenarios", "--robot", "arm-99", *options)
    assert (missing.returncode, missing.stderr) == (2, "twincal: no robot 'arm-99'\n")
