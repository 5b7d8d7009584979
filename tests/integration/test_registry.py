from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.tables import api_keys, audit, calibrations, twin_versions
from app.errors import ConflictError, DeclarationError, DescriptionError, InvalidInputError, NotFoundError
from app.registry import descriptions, fleets, keys, robots
from app.telemetry import FleetId
from app.twin.declaration import RobotDeclaration

URDF = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><mass value="{mass}"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/></joint>
</robot>
"""
LIGHT, HEAVY = (URDF.format(mass=mass).encode() for mass in (1, 2))


def _declaration(robot: str = "arm-1", fleet: str = "arms", **fields: Any) -> RobotDeclaration:
    return RobotDeclaration.model_validate({"schema": "twincal.robot/1", "robot": robot, "fleet": fleet} | fields)


async def test_a_robot_brings_its_fleet_and_comes_back_as_declared(connection: AsyncConnection) -> None:
    declared = _declaration(
        joints={"wrist": {"unit": "deg", "sign": -1}}, controller={"kind": "pd", "kp": {"wrist": 80}}
    )
    robot, created = await robots.put_robot(connection, declared)
    assert created
    assert robot == await robots.get_robot(connection, "arm-1")
    assert robot.declaration == declared
    assert (await fleets.get_fleet(connection, "arms")).document == {}


async def test_a_robot_is_declared_anew_in_place(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    changed, created = await robots.put_robot(connection, _declaration(effort_unit="mA"))
    assert not created
    assert changed.declaration.effort_unit == "mA"
    assert len(await robots.list_robots(connection)) == 1


async def test_a_robot_stays_in_its_fleet(connection: AsyncConnection) -> None:
    before, _ = await robots.put_robot(connection, _declaration())
    with pytest.raises(ConflictError, match=r"'arm-1' is in fleet 'arms' and stays there.*'legs'"):
        await robots.put_robot(connection, _declaration(fleet="legs"))
    assert await robots.get_robot(connection, "arm-1") == before


async def test_a_file_name_is_no_description_here(connection: AsyncConnection) -> None:
    with pytest.raises(DeclarationError, match=r"description: 'z1\.urdf' is a file's name"):
        await robots.put_robot(connection, _declaration(description="z1.urdf"))


async def test_an_unknown_digest_is_refused_and_a_known_one_becomes_the_robots_own(connection: AsyncConnection) -> None:
    with pytest.raises(DeclarationError, match=r"description\.sha256: no description"):
        await robots.put_robot(connection, _declaration(description={"sha256": "0" * 64}))
    digest = await descriptions.store_description(connection, LIGHT)
    assert digest == hashlib.sha256(LIGHT).hexdigest()
    robot, _ = await robots.put_robot(connection, _declaration(description={"sha256": digest}))
    assert robot.description_sha256 == digest
    again, _ = await robots.put_robot(connection, _declaration())
    assert again.description_sha256 == digest, "left out, it stays"


async def test_a_robot_without_a_description_uses_its_fleets(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    assert await descriptions.robot_description(connection, "arm-1") is None
    await descriptions.put_fleet_description(connection, "arms", LIGHT)
    shared = await descriptions.robot_description(connection, "arm-1")
    assert shared is not None
    assert shared.content == LIGHT
    assert shared == await descriptions.fleet_description(connection, "arms")
    own = await descriptions.put_robot_description(connection, "arm-1", HEAVY)
    assert await descriptions.robot_description(connection, "arm-1") == await descriptions.get_description(
        connection, own
    )
    assert await descriptions.put_robot_description(connection, "arm-1", HEAVY) == own, (
        "the same bytes, the same digest"
    )


async def test_a_declaration_is_held_against_the_description(connection: AsyncConnection) -> None:
    wrong = _declaration(joints={"sholder": {"sign": -1}})
    await fleets.put_fleet(connection, "arms")
    await descriptions.put_fleet_description(connection, "arms", LIGHT)
    with pytest.raises(DeclarationError, match=r"joints\.sholder: .*shoulder"):
        await robots.put_robot(connection, wrong)
    await robots.put_robot(connection, _declaration())
    with pytest.raises(DeclarationError, match=r"joints\.sholder: .*shoulder"):
        await robots.put_robot(connection, wrong)


async def test_a_broken_description_is_never_stored(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    with pytest.raises(DescriptionError):
        await descriptions.put_robot_description(connection, "arm-1", b"<robot")
    assert await descriptions.robot_description(connection, "arm-1") is None


async def test_what_is_not_there_is_named(connection: AsyncConnection) -> None:
    for asked in (
        robots.get_robot(connection, "ghost"),
        robots.delete_robot(connection, "ghost", "me"),
        descriptions.robot_description(connection, "ghost"),
        descriptions.put_robot_description(connection, "ghost", LIGHT),
    ):
        with pytest.raises(NotFoundError, match="no robot 'ghost'"):
            await asked
    for asked_of_fleet in (
        fleets.get_fleet(connection, "ghosts"),
        fleets.delete_fleet(connection, "ghosts"),
        descriptions.fleet_description(connection, "ghosts"),
        descriptions.put_fleet_description(connection, "ghosts", LIGHT),
    ):
        with pytest.raises(NotFoundError, match="no fleet 'ghosts'"):
            await asked_of_fleet


async def test_lists_page_by_id_and_by_fleet(connection: AsyncConnection) -> None:
    for robot, fleet in (("c", "x"), ("a", "y"), ("b", "x")):
        await robots.put_robot(connection, _declaration(robot, fleet))
    assert [r.robot for r in await robots.list_robots(connection, limit=2)] == ["a", "b"]
    assert [r.robot for r in await robots.list_robots(connection, after="b")] == ["c"]
    assert [r.robot for r in await robots.list_robots(connection, fleet="x")] == ["b", "c"]
    assert [f.fleet for f in await fleets.list_fleets(connection)] == ["x", "y"]
    assert [f.fleet for f in await fleets.list_fleets(connection, after="x")] == ["y"]


async def test_a_fleet_keeps_its_document_and_description_apart(connection: AsyncConnection) -> None:
    _, created = await fleets.put_fleet(connection, "arms", {"recalibrate": "nightly"})
    assert created
    digest = await descriptions.put_fleet_description(connection, "arms", LIGHT)
    fleet, created = await fleets.put_fleet(connection, "arms", {"recalibrate": "weekly"})
    assert not created
    assert (fleet.document, fleet.description_sha256) == ({"recalibrate": "weekly"}, digest)
    await robots.put_robot(connection, _declaration())
    assert (await fleets.get_fleet(connection, "arms")).document == {"recalibrate": "weekly"}


async def test_a_fleet_id_follows_the_grammar(connection: AsyncConnection) -> None:
    with pytest.raises(InvalidInputError, match="'a/b' is not an id"):
        await fleets.put_fleet(connection, "a/b")


async def test_a_fleet_with_robots_is_not_deleted(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    with pytest.raises(ConflictError, match=r"fleet 'arms' has robots \('arm-1'\)"):
        await fleets.delete_fleet(connection, "arms")
    await robots.delete_robot(connection, "arm-1", "me")
    await fleets.delete_fleet(connection, "arms")
    assert await fleets.list_fleets(connection) == []


async def test_a_deleted_robot_takes_its_twins_along_and_leaves_a_trail(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    await connection.execute(insert(twin_versions).values(robot="arm-1", version=1, document=b"{}", digest="d"))
    await robots.delete_robot(connection, "arm-1", "key:7")
    assert (await connection.execute(select(twin_versions))).all() == []
    trail = (await connection.execute(select(audit.c.robot, audit.c.who, audit.c.what, audit.c.old))).one()
    assert tuple(trail) == ("arm-1", "key:7", "robot deleted", "arms")


async def test_a_robot_that_is_being_calibrated_is_not_deleted(connection: AsyncConnection) -> None:
    await robots.put_robot(connection, _declaration())
    await connection.execute(insert(calibrations).values(robot="arm-1", state="running", request={}))
    with pytest.raises(ConflictError, match="is being calibrated"):
        await robots.delete_robot(connection, "arm-1", "me")


async def test_two_fleets_that_claim_a_robot_at_once_get_one_answer_each(engine: AsyncEngine) -> None:
    async def put(fleet: str) -> str:
        async with engine.begin() as connection:
            try:
                await robots.put_robot(connection, _declaration(fleet=fleet))
            except ConflictError:
                return "refused"
            return "registered"

    assert sorted(await asyncio.gather(put("left"), put("right"))) == ["refused", "registered"]


async def test_a_key_is_known_by_its_token_and_stored_without_it(connection: AsyncConnection) -> None:
    key, token = await keys.create_key(connection, {"read", "operate"})
    assert token.startswith("twincal_")
    assert len(token) == len("twincal_") + 43, "256 bits in base64"
    assert await keys.authenticate(connection, token) == key
    assert key.scopes == {"read", "operate"}
    stored = await connection.scalar(select(api_keys.c.token_sha256))
    assert stored == hashlib.sha256(token.encode()).digest()
    assert await connection.scalar(text("SELECT count(*) FROM api_keys k WHERE k::text LIKE '%twincal_%'")) == 0


@pytest.mark.parametrize("token", ["", "twincal_", "twincal_" + "A" * 43, "é\x00🤖"])
async def test_an_unknown_token_is_nobodys(connection: AsyncConnection, token: str) -> None:
    await keys.create_key(connection, {"admin"})
    assert await keys.authenticate(connection, token) is None


async def test_a_revoked_key_is_refused_at_once_and_for_good(connection: AsyncConnection) -> None:
    key, token = await keys.create_key(connection, {"read"})
    first = await keys.revoke_key(connection, key.id)
    assert await keys.authenticate(connection, token) is None
    assert (await keys.revoke_key(connection, key.id)).revoked_at == first.revoked_at
    assert await keys.list_keys(connection) == [first]
    with pytest.raises(NotFoundError, match="no key"):
        await keys.revoke_key(connection, uuid4())


async def test_a_key_expires(connection: AsyncConnection) -> None:
    key, token = await keys.create_key(connection, {"read"}, expires_at=datetime.now(UTC) + timedelta(days=1))
    assert await keys.authenticate(connection, token) == key
    await connection.execute(api_keys.update().values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    assert await keys.authenticate(connection, token) is None


async def test_a_key_that_could_do_nothing_or_never_is_not_made(connection: AsyncConnection) -> None:
    with pytest.raises(InvalidInputError, match="without a scope"):
        await keys.create_key(connection, set())
    unknown: Any = {"root"}
    with pytest.raises(InvalidInputError, match="'root' is not a scope"):
        await keys.create_key(connection, unknown)
    with pytest.raises(InvalidInputError, match="has passed"):
        await keys.create_key(connection, {"read"}, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidInputError, match="no time zone"):
        await keys.create_key(connection, {"read"}, expires_at=datetime(2090, 1, 1))  # noqa: DTZ001 - the point
    with pytest.raises(NotFoundError, match="no fleet 'ghosts'"):
        await keys.create_key(connection, {"read"}, FleetId("ghosts"))


async def test_keys_of_a_fleet_go_with_it(connection: AsyncConnection) -> None:
    await fleets.put_fleet(connection, "arms")
    key, token = await keys.create_key(connection, {"read"}, FleetId("arms"))
    assert key.fleet == "arms"
    await fleets.delete_fleet(connection, "arms")
    assert await keys.authenticate(connection, token) is None
