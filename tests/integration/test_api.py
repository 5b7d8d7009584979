"""The REST interface against a real database and server: what it gives, what it refuses, and in what words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.context import ApiOptions
from app.calibration import versions
from app.calibration.versions import Origin
from app.database.engine import create_engine
from app.registry.keys import create_key, revoke_key
from app.twin.document import TwinDocument, read_document
from tests.integration.serving import (
    DECLARATION,
    ROBOT,
    URDF,
    client_of,
    make_key,
    register,
    running_api,
    store_motion,
)
from tests.twins import CREATED, draft

PROBLEM = "application/problem+json"


@pytest.fixture
async def url(engine: AsyncEngine) -> AsyncIterator[str]:
    async with running_api(engine) as url:
        yield url


@pytest.fixture
async def api(engine: AsyncEngine, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """An administrator's client; the robot is registered."""
    _, token = await make_key(engine)
    async with client_of(url, token) as client:
        await register(client)
        yield client


async def publish(engine: AsyncEngine, value: float = 0.21) -> TwinDocument:
    async with engine.begin() as connection:
        return await versions.publish(connection, draft(value, robot=ROBOT), Origin(None, None, CREATED))


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem in an answer, which is of this kind."""
    assert answer.headers["content-type"] == PROBLEM
    content: dict[str, Any] = answer.json()
    assert (answer.status_code, content["status"], content["type"]) == (status, status, f"urn:twincal:problem:{kind}")
    return content


# Twins


async def test_the_active_twin_is_served_byte_for_byte_with_a_strong_tag(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    document = await publish(engine)
    assert (await api.post(f"/v1/robots/{ROBOT}/twins/1/activate")).json()["state"] == "active"
    answer = await api.get(f"/v1/robots/{ROBOT}/twin")
    assert read_document(answer.content) == document
    assert answer.headers["ETag"] == f'"{document.digest}.json"'
    pinned = await api.get(f"/v1/robots/{ROBOT}/twins/1")
    assert (pinned.content, pinned.headers["ETag"]) == (answer.content, answer.headers["ETag"])
    assert "immutable" in pinned.headers["Cache-Control"]


@pytest.mark.parametrize("wrap", ["{}", "W/{}", '"other", {}', "*"])
async def test_what_the_client_has_already_is_304_without_a_body(
    api: httpx.AsyncClient, engine: AsyncEngine, wrap: str
) -> None:
    await publish(engine)
    await api.post(f"/v1/robots/{ROBOT}/twins/1/activate")
    tag = (await api.get(f"/v1/robots/{ROBOT}/twin")).headers["ETag"]
    answer = await api.get(f"/v1/robots/{ROBOT}/twin", headers={"If-None-Match": wrap.format(tag)})
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag)


async def test_another_version_is_not_what_the_client_has(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await publish(engine)
    await publish(engine, 0.3)
    await api.post(f"/v1/robots/{ROBOT}/twins/1/activate")
    old = (await api.get(f"/v1/robots/{ROBOT}/twin")).headers["ETag"]
    await api.post(f"/v1/robots/{ROBOT}/twins/2/activate")
    answer = await api.get(f"/v1/robots/{ROBOT}/twin", headers={"If-None-Match": old})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)


async def test_a_robot_without_a_twin_is_404_of_its_own_type(api: httpx.AsyncClient) -> None:
    problem(await api.get(f"/v1/robots/{ROBOT}/twin"), 404, "no-active-twin")
    problem(await api.get("/v1/robots/arm-99/twin"), 404, "not-found")


async def test_the_nominal_twin_stands_in_when_asked_for(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"/v1/robots/{ROBOT}/twin?fallback=nominal")
    twin = answer.json()
    assert (answer.status_code, twin["version"], twin["quality"], twin["provenance"]) == (200, 0, None, None)
    gain = twin["parameters"]["joint/elbow/kp_nm_per_rad"]
    assert (gain["value"], gain["source"], gain["verdict"]) == (40.0, "declared", None)
    assert twin["parameters"]["joint/elbow/coulomb_friction_nm"]["value"] == 0.0
    described = await api.get(twin["description"]["href"])
    assert described.content == URDF
    again = await api.get(
        f"/v1/robots/{ROBOT}/twin?fallback=nominal", headers={"If-None-Match": answer.headers["ETag"]}
    )
    assert again.status_code == 304


async def test_of_twenty_clients_that_promote_at_once_one_wins_and_the_others_get_412(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    await publish(engine)
    await api.post(f"/v1/robots/{ROBOT}/twins/1/activate")
    for i in range(20):
        await publish(engine, 1.0 + i)
    tag = (await api.get(f"/v1/robots/{ROBOT}/twin")).headers["ETag"]
    answers = await asyncio.gather(
        *(api.post(f"/v1/robots/{ROBOT}/twins/{n}/activate", headers={"If-Match": tag}) for n in range(2, 22))
    )
    assert sorted(a.status_code for a in answers) == [200] + [412] * 19
    lost = next(a for a in answers if a.status_code == 412)
    problem(lost, 412, "active-version-moved")
    entries = (await api.get(f"/v1/robots/{ROBOT}/audit")).json()["items"]
    assert [e["old"] for e in entries] == ["1", None]


async def test_a_first_promotion_may_insist_that_nothing_is_active(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await publish(engine)
    await publish(engine, 0.3)
    first = {"If-None-Match": "*"}
    assert (await api.post(f"/v1/robots/{ROBOT}/twins/1/activate", headers=first)).status_code == 200
    answer = await api.post(f"/v1/robots/{ROBOT}/twins/2/activate", headers=first)
    problem(answer, 412, "active-version-moved")


async def test_a_precondition_that_cannot_be_read_is_refused(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    await publish(engine)
    answer = await api.post(f"/v1/robots/{ROBOT}/twins/1/activate", headers={"If-Match": "no quotes"})
    assert problem(answer, 422, "invalid-input")["where"] == "If-Match"


async def test_versions_page_by_cursor_without_gap_or_repeat(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    for i in range(5):
        await publish(engine, 1.0 + i)
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await api.get(f"/v1/robots/{ROBOT}/twins", params=query)).json()
        seen += [v["version"] for v in page["items"]]
        cursor = page["next"]
    assert seen == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("cursor", ["x", "e30", "WyJhIl0", "WzFd" * 50])
async def test_a_cursor_that_is_not_ours_is_refused(api: httpx.AsyncClient, cursor: str) -> None:
    answer = await api.get(f"/v1/robots/{ROBOT}/twins", params={"cursor": cursor})
    assert problem(answer, 422, "invalid-input")["where"] == "cursor"


# Fleets, robots, descriptions


async def test_a_robot_is_registered_once_and_replaced_after(engine: AsyncEngine, url: str) -> None:
    _, token = await make_key(engine)
    async with client_of(url, token) as api:
        first = await api.put(f"/v1/robots/{ROBOT}", json=DECLARATION)
        again = await api.put(f"/v1/robots/{ROBOT}", json=DECLARATION)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["declaration"] == DECLARATION
        assert (await api.get("/v1/robots", params={"fleet": "arms"})).json()["items"] == [again.json()]
        assert (await api.get("/v1/fleets")).json()["items"][0]["fleet"] == "arms"


async def test_a_declaration_s_fault_is_named_by_its_path(api: httpx.AsyncClient) -> None:
    body = DECLARATION | {"joints": {"elbow": {"unit": "furlong"}}}
    content = problem(await api.put(f"/v1/robots/{ROBOT}", json=body), 422, "invalid-declaration")
    assert content["where"] == "joints.elbow.unit"
    assert "furlong" in content["detail"]


async def test_a_declaration_of_another_robot_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.put("/v1/robots/arm-08", json=DECLARATION)
    assert problem(answer, 422, "invalid-declaration")["where"] == "robot"


async def test_a_file_name_is_no_description(api: httpx.AsyncClient) -> None:
    answer = await api.put(f"/v1/robots/{ROBOT}", json=DECLARATION | {"description": "../../etc/passwd"})
    assert problem(answer, 422, "invalid-declaration")["where"] == "description"


@pytest.mark.parametrize("robot", ["-arm", "a" * 65, "arm 7", "arm%2F7", "arm\u00e9"])
async def test_an_id_outside_the_grammar_is_refused(api: httpx.AsyncClient, robot: str) -> None:
    answer = await api.get(f"/v1/robots/{robot}")
    assert answer.status_code in {404, 422}
    assert answer.headers["content-type"] == PROBLEM


async def test_a_robot_s_fleet_does_not_change(api: httpx.AsyncClient) -> None:
    problem(await api.put(f"/v1/robots/{ROBOT}", json=DECLARATION | {"fleet": "others"}), 409, "conflict")


async def test_a_broken_urdf_is_refused_naming_what_is_at_fault(api: httpx.AsyncClient) -> None:
    broken = URDF.replace(b'<mass value="1.0"/>', b'<mass value="-1.0"/>', 1)
    content = problem(await api.put(f"/v1/robots/{ROBOT}/description", content=broken), 422, "invalid-description")
    assert "upper" in content["where"]
    cut = await api.put(f"/v1/robots/{ROBOT}/description", content=URDF[:200])
    problem(cut, 422, "invalid-description")
    assert (await api.get(f"/v1/robots/{ROBOT}/description")).content == URDF


async def test_a_fleet_s_description_serves_its_robots_without_one(engine: AsyncEngine, url: str) -> None:
    _, token = await make_key(engine)
    async with client_of(url, token) as api:
        await register(api, description=None)
        problem(await api.get(f"/v1/robots/{ROBOT}/description"), 404, "not-found")
        uploaded = (await api.put("/v1/fleets/arms/description", content=URDF)).json()
        answer = await api.get(f"/v1/robots/{ROBOT}/description", params={"sha256": uploaded["sha256"]})
        assert answer.content == URDF
        assert (await api.get(uploaded["href"])).content == URDF


async def test_a_description_of_nobody_s_twin_can_not_be_read_by_digest(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"/v1/robots/{ROBOT}/description", params={"sha256": "0" * 64})
    problem(answer, 404, "not-found")


async def test_a_past_description_stays_readable_while_a_version_refers_to_it(
    api: httpx.AsyncClient, engine: AsyncEngine
) -> None:
    old = (await api.get(f"/v1/robots/{ROBOT}/description")).headers["ETag"].strip('"').split(":")[1].split(".")[0]
    twin = draft(robot=ROBOT)
    twin = twin.model_copy(update={"description": twin.description.model_copy(update={"sha256": old})})
    async with engine.begin() as connection:
        await versions.publish(connection, twin, Origin(None, None, CREATED))
    await api.put(f"/v1/robots/{ROBOT}/description", content=URDF.replace(b'name="arm"', b'name="arm2"'))
    answer = await api.get(f"/v1/robots/{ROBOT}/description", params={"sha256": old})
    assert answer.content == URDF


async def test_a_fleet_with_robots_is_not_deleted(api: httpx.AsyncClient) -> None:
    problem(await api.delete("/v1/fleets/arms"), 409, "conflict")
    assert (await api.delete(f"/v1/robots/{ROBOT}")).status_code == 204
    assert (await api.delete("/v1/fleets/arms")).status_code == 204


async def test_recordings_are_listed_latest_first(api: httpx.AsyncClient, engine: AsyncEngine) -> None:
    old = await store_motion(engine, "first")
    new = await store_motion(engine, "second", start_s=100.0)
    items = (await api.get(f"/v1/robots/{ROBOT}/recordings")).json()["items"]
    assert [i["id"] for i in items] == [str(new), str(old)]
    assert (items[1]["boot_id"], items[1]["samples"], items[1]["duration_s"]) == ("first", 400, 3.99)
    page = (await api.get(f"/v1/robots/{ROBOT}/recordings", params={"limit": 1})).json()
    rest = (await api.get(f"/v1/robots/{ROBOT}/recordings", params={"limit": 1, "cursor": page["next"]})).json()
    assert [i["id"] for i in rest["items"]] == [str(old)]


# Requests that are wrong


async def test_every_field_at_fault_is_named(api: httpx.AsyncClient) -> None:
    body = {"budget_s": -1, "seed": "x", "colour": "red"}
    content = problem(await api.post(f"/v1/robots/{ROBOT}/calibrations", json=body), 422, "invalid-request")
    assert {e["where"] for e in content["errors"]} == {"body.budget_s", "body.seed", "body.colour"}


@pytest.mark.parametrize("text", ['{"budget_s": NaN}', '{"budget_s": 1e400}', "{", "[" * 100_000])
async def test_what_is_not_json_is_refused(api: httpx.AsyncClient, text: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await api.post(f"/v1/robots/{ROBOT}/calibrations", content=text, headers=headers)
    problem(answer, 400, "malformed-json")


async def test_a_naive_instant_is_refused(api: httpx.AsyncClient) -> None:
    window = {"from": "2026-01-05T08:00:00", "to": "2026-01-05T09:00:00Z"}
    answer = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"window": window})
    assert problem(answer, 422, "invalid-request")["where"] == "body.window.from"


async def test_a_body_beyond_its_limit_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.put(f"/v1/robots/{ROBOT}", content=b" " * 300_000)
    assert "262144 bytes" in problem(answer, 413, "too-large")["detail"]

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * 1_000_000

    problem(await api.put(f"/v1/robots/{ROBOT}/description", content=chunks()), 413, "too-large")


async def test_a_description_of_a_megabyte_is_taken(api: httpx.AsyncClient) -> None:
    padded = URDF.replace(b"</robot>", b"<!--" + b" " * 1_000_000 + b"--></robot>")
    assert (await api.put(f"/v1/robots/{ROBOT}/description", content=padded)).status_code == 200


async def test_nobody_s_body_is_read(url: str) -> None:
    async with client_of(url, None) as client:
        problem(await client.put(f"/v1/robots/{ROBOT}/description", content=b" " * 100_000), 401, "unauthenticated")


async def test_unknown_paths_and_methods_are_problems_too(api: httpx.AsyncClient) -> None:
    problem(await api.get("/v1/nothing"), 404, "no-such-path")
    problem(await api.post(f"/v1/robots/{ROBOT}/twin"), 405, "method-not-allowed")


# Repeats


async def test_a_post_repeated_under_its_key_is_done_once(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "nightly-1"}
    send = [api.post(f"/v1/robots/{ROBOT}/calibrations", json={"seed": 1}, headers=headers) for _ in range(3)]
    answers = [await one for one in send]
    assert {a.status_code for a in answers} == {202}
    assert len({a.json()["id"] for a in answers}) == 1
    assert answers[2].headers["Location"] == answers[0].headers["Location"]
    assert len((await api.get(f"/v1/robots/{ROBOT}/calibrations")).json()["items"]) == 1


async def test_of_repeats_at_once_one_is_done(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "nightly-2"}
    answers = await asyncio.gather(
        *(api.post(f"/v1/robots/{ROBOT}/calibrations", json={}, headers=headers) for _ in range(8))
    )
    assert {a.status_code for a in answers} <= {202, 409}
    assert len((await api.get(f"/v1/robots/{ROBOT}/calibrations")).json()["items"]) == 1


async def test_a_key_used_for_another_request_is_a_conflict(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "nightly-3"}
    await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"seed": 1}, headers=headers)
    answer = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"seed": 2}, headers=headers)
    problem(answer, 409, "idempotency-key-reused")


async def test_a_refused_request_may_be_corrected_under_its_key(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "nightly-4"}
    wrong = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"seed": -1}, headers=headers)
    right = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={"seed": 1}, headers=headers)
    assert (wrong.status_code, right.status_code) == (422, 202)


async def test_keys_of_others_do_not_meet(api: httpx.AsyncClient, engine: AsyncEngine, url: str) -> None:
    headers = {"Idempotency-Key": "nightly-5"}
    first = await api.post(f"/v1/robots/{ROBOT}/calibrations", json={}, headers=headers)
    _, token = await make_key(engine)
    async with client_of(url, token) as other:
        second = await other.post(f"/v1/robots/{ROBOT}/calibrations", json={}, headers=headers)
    assert first.json()["id"] != second.json()["id"]


async def test_a_new_key_s_token_is_not_kept_for_repeats(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "new-key"}
    first = await api.post("/v1/keys", json={"scopes": ["read"]}, headers=headers)
    assert (first.status_code, first.headers["Cache-Control"]) == (201, "no-store")
    again = await api.post("/v1/keys", json={"scopes": ["read"]}, headers=headers)
    problem(again, 409, "idempotency-key-reused")
    assert first.json()["token"] not in again.text


# Keys


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic dXNlcjpwYXNz", "Bearer", ""])
async def test_without_a_valid_key_nothing_is_answered(url: str, header: str | None) -> None:
    async with client_of(url, None) as client:
        answer = await client.get("/v1/fleets", headers={} if header is None else {"Authorization": header})
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    problem(answer, 401, "unauthenticated")


async def test_a_scope_holds_those_below_it_and_no_more(api: httpx.AsyncClient, engine: AsyncEngine, url: str) -> None:
    async with client_of(url, (await make_key(engine, "read"))[1]) as reader:
        assert (await reader.get(f"/v1/robots/{ROBOT}")).status_code == 200
        problem(await reader.post(f"/v1/robots/{ROBOT}/calibrations"), 403, "forbidden")
    async with client_of(url, (await make_key(engine, "operate"))[1]) as operator:
        assert (await operator.post(f"/v1/robots/{ROBOT}/calibrations")).status_code == 202
        problem(await operator.put(f"/v1/robots/{ROBOT}", json=DECLARATION), 403, "forbidden")
        problem(await operator.get("/v1/keys"), 403, "forbidden")


async def test_for_a_fleet_s_key_nothing_of_another_fleet_exists(
    api: httpx.AsyncClient, engine: AsyncEngine, url: str
) -> None:
    await publish(engine)
    job = (await api.post(f"/v1/robots/{ROBOT}/calibrations")).json()["id"]
    await api.put("/v1/fleets/others", json={})
    _, token = await make_key(engine, "admin", "others")
    async with client_of(url, token) as stranger:
        for method, path in (
            ("GET", f"/v1/robots/{ROBOT}"),
            ("DELETE", f"/v1/robots/{ROBOT}"),
            ("GET", f"/v1/robots/{ROBOT}/twin"),
            ("GET", f"/v1/robots/{ROBOT}/twins"),
            ("GET", f"/v1/robots/{ROBOT}/twins/1"),
            ("POST", f"/v1/robots/{ROBOT}/twins/1/activate"),
            ("GET", f"/v1/robots/{ROBOT}/description"),
            ("PUT", f"/v1/robots/{ROBOT}/description"),
            ("GET", f"/v1/robots/{ROBOT}/recordings"),
            ("GET", f"/v1/robots/{ROBOT}/audit"),
            ("POST", f"/v1/robots/{ROBOT}/calibrations"),
            ("GET", f"/v1/robots/{ROBOT}/calibrations"),
            ("GET", f"/v1/calibrations/{job}"),
            ("DELETE", f"/v1/calibrations/{job}"),
            ("GET", f"/v1/calibrations/{job}/events"),
            ("GET", f"/v1/calibrations/{job}/report"),
            ("GET", "/v1/fleets/arms"),
            ("PUT", "/v1/fleets/arms"),
            ("DELETE", "/v1/fleets/arms"),
            ("GET", "/v1/fleets/arms/description"),
            ("GET", "/v1/robots?fleet=arms"),
        ):
            answer = await stranger.request(method, path)
            assert answer.status_code == 404, (method, path, answer.text)
        assert (await stranger.put(f"/v1/robots/{ROBOT}", json=DECLARATION)).status_code == 404
        taken = await stranger.put(f"/v1/robots/{ROBOT}", json=DECLARATION | {"fleet": "others"})
        assert taken.status_code == 404
        assert (await stranger.get("/v1/robots")).json()["items"] == []
        assert [f["fleet"] for f in (await stranger.get("/v1/fleets")).json()["items"]] == ["others"]
        unknown = await stranger.get("/v1/robots/arm-99")
        hidden = await stranger.get(f"/v1/robots/{ROBOT}")
        assert hidden.text.replace(ROBOT, "arm-99") == unknown.text
    assert (await api.get(f"/v1/calibrations/{job}")).json()["state"] == "queued"


async def test_a_fleet_s_administrator_makes_keys_of_that_fleet_alone(
    api: httpx.AsyncClient, engine: AsyncEngine, url: str
) -> None:
    _, token = await make_key(engine, "admin", "arms")
    async with client_of(url, token) as bound:
        problem(await bound.post("/v1/keys", json={"scopes": ["admin"]}), 403, "forbidden")
        problem(await bound.post("/v1/keys", json={"scopes": ["read"], "fleet": "others"}), 404, "not-found")
        made = (await bound.post("/v1/keys", json={"scopes": ["read"], "fleet": "arms"})).json()
        assert (await bound.delete(f"/v1/keys/{made['id']}")).status_code == 200
        foreign, _ = await make_key(engine)
        problem(await bound.delete(f"/v1/keys/{foreign}"), 404, "not-found")
        problem(await bound.get("/v1/keys"), 403, "forbidden")


async def test_a_revocation_holds_within_a_second(engine: AsyncEngine, url: str) -> None:
    key, token = await make_key(engine, "read")
    async with client_of(url, token) as client:
        assert (await client.get("/v1/fleets")).status_code == 200
        async with engine.begin() as connection:
            await revoke_key(connection, key)
        revoked = time.monotonic()
        while (await client.get("/v1/fleets")).status_code == 200:
            assert time.monotonic() - revoked < 1.0
        assert time.monotonic() - revoked < 1.0


async def test_an_expired_key_is_refused(engine: AsyncEngine, url: str) -> None:
    async with engine.begin() as connection:
        expiry = datetime.now(UTC) + timedelta(seconds=0.2)
        _, token = await create_key(connection, ["read"], None, expiry)
    async with client_of(url, token) as client:
        deadline = time.monotonic() + 5
        while (await client.get("/v1/fleets")).status_code == 200:
            assert time.monotonic() < deadline
        problem(await client.get("/v1/fleets"), 401, "unauthenticated")


async def test_keys_are_listed_without_their_tokens(api: httpx.AsyncClient) -> None:
    made = (await api.post("/v1/keys", json={"scopes": ["operate"]})).json()
    listed = await api.get("/v1/keys")
    assert made["token"] not in listed.text
    assert {"operate"} in [set(k["scopes"]) for k in listed.json()["items"]]


# Without keys, on this machine


async def test_a_local_service_without_keys_answers_this_machine_s_own_programs_alone(engine: AsyncEngine) -> None:
    async with running_api(engine, ApiOptions(insecure_local=True)) as url, client_of(url, None) as client:
        assert (await client.get("/v1/fleets")).status_code == 200
        assert (await client.get("/v1/fleets", headers={"Origin": url})).status_code == 200
        rebound = await client.get("/v1/fleets", headers={"Host": "evil.example:80"})
        problem(rebound, 403, "forbidden")
        page = await client.post("/v1/keys", headers={"Origin": "https://evil.example"}, json={"scopes": ["admin"]})
        problem(page, 403, "forbidden")
        problem(await client.get("/v1/fleets", headers={"Host": "[::1"}), 403, "forbidden")


# Operations


async def test_liveness_and_readiness(url: str) -> None:
    async with client_of(url, None) as client:
        assert (await client.get("/livez")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json() == {
            "ready": True,
            "parts": {"database": "ok", "schema": "ok", "queue": "ok"},
        }


async def test_without_its_database_the_service_is_alive_but_not_ready() -> None:
    nowhere = create_engine("postgresql://nobody:nothing@127.0.0.1:1/none")
    async with running_api(nowhere) as url, client_of(url, "twincal_some") as client:
        assert (await client.get("/livez")).status_code == 200
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert answer.json()["parts"]["database"].startswith("can't be reached")
        refused = await client.get("/v1/fleets")
        assert problem(refused, 503, "unavailable")["detail"].startswith("the database")
        assert "Retry-After" in refused.headers
    await nowhere.dispose()


async def test_a_database_that_was_never_migrated_is_not_ready(empty_database_url: str) -> None:
    empty = create_engine(empty_database_url)
    async with running_api(empty) as url, client_of(url, None) as client:
        answer = await client.get("/readyz")
    await empty.dispose()
    parts = answer.json()["parts"]
    assert (answer.status_code, parts["database"], parts["queue"]) == (503, "ok", "not installed (twincal migrate)")
    assert "twincal migrate" in parts["schema"]


async def test_metrics_need_a_key_and_count_by_route_not_by_path(api: httpx.AsyncClient, url: str) -> None:
    async with client_of(url, None) as nobody:
        problem(await nobody.get("/metrics"), 401, "unauthenticated")
    await api.get(f"/v1/robots/{ROBOT}")
    text = (await api.get("/metrics")).text
    assert 'twincal_api_request_seconds_count{method="GET",route="/v1/robots/{robot}",status="2xx"}' in text
    assert ROBOT not in text


async def test_every_answer_has_its_id_and_may_not_be_sniffed(api: httpx.AsyncClient) -> None:
    one, two = await api.get("/v1/fleets"), await api.get("/v1/nothing")
    assert one.headers["X-Content-Type-Options"] == two.headers["X-Content-Type-Options"] == "nosniff"
    assert one.headers["X-Request-Id"] != two.headers["X-Request-Id"]


async def test_the_openapi_document_describes_what_is_read_and_refused(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert {"RobotDeclaration", "TwinDocument", "CalibrationRequest", "Problem"} <= set(schemas)
    put = document["paths"]["/v1/robots/{robot}"]["put"]
    assert put["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/RobotDeclaration")
    assert PROBLEM in put["responses"]["4XX"]["content"]
    assert "[s]" in schemas["CalibrationRequest"]["properties"]["budget_s"]["description"]
