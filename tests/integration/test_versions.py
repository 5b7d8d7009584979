"""Versions in a real database: immutable, numbered without gaps, moved by one at a time, every move on record."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import versions
from app.calibration.audit import Move
from app.calibration.versions import ActiveMovedError, Expected, NoActiveTwinError, Origin
from app.database.tables import audit, fleets, robots, twin_versions
from app.errors import ConflictError, NotFoundError
from app.telemetry import RobotId
from app.twin.document import TwinDocument, read_document
from tests.twins import CREATED, draft

ROBOT = RobotId("arm-07")
OPERATOR = Move("key:operator", "looks better")


@pytest.fixture(autouse=True)
async def registered(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(insert(fleets).values(fleet="arms"))
        await connection.execute(insert(robots).values(robot=ROBOT, fleet="arms", declaration={}))


async def publish(engine: AsyncEngine, value: float = 0.21) -> TwinDocument:
    async with engine.begin() as connection:
        return await versions.publish(connection, draft(value), Origin(None, None, CREATED))


async def activate(engine: AsyncEngine, version: int, expected: Expected | None = None) -> None:
    async with engine.begin() as connection:
        await versions.activate(connection, ROBOT, version, OPERATOR, expected)


async def states(engine: AsyncEngine) -> dict[int, str]:
    async with engine.connect() as connection:
        return {v.version: v.state for v in await versions.list_versions(connection, ROBOT, before=None, limit=100)}


async def trail(engine: AsyncEngine) -> list[tuple[str, str | None, str | None]]:
    async with engine.connect() as connection:
        rows = await connection.execute(select(audit).where(audit.c.robot == ROBOT).order_by(audit.c.id))
        return [(row.what, row.old, row.new) for row in rows]


async def test_a_published_version_reads_back_byte_for_byte(engine: AsyncEngine) -> None:
    document = await publish(engine)
    async with engine.connect() as connection:
        stored = await versions.read_version(connection, ROBOT, document.version)
    assert (document.version, stored.summary.state) == (1, "candidate")
    assert read_document(stored.document) == document


async def test_twenty_publications_at_once_are_numbered_without_gaps(engine: AsyncEngine) -> None:
    documents = await asyncio.gather(*(publish(engine, 0.1 + i) for i in range(20)))
    assert sorted(d.version for d in documents) == list(range(1, 21))


async def test_of_twenty_promotions_at_once_one_wins_and_the_trail_has_one_entry(engine: AsyncEngine) -> None:
    first = await publish(engine)
    await activate(engine, first.version)
    candidates = [await publish(engine, 0.1 + i) for i in range(20)]
    expected = Expected(frozenset({first.digest}))
    outcomes = await asyncio.gather(
        *(activate(engine, c.version, expected) for c in candidates), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, ActiveMovedError)]
    assert (outcomes.count(None), len(lost)) == (1, 19)
    winner = candidates[outcomes.index(None)].version
    assert [v for v, state in (await states(engine)).items() if state == "active"] == [winner]
    assert (await trail(engine))[1:] == [("activate", str(first.version), str(winner))]


async def test_activating_retires_the_version_before_and_rolls_back(engine: AsyncEngine) -> None:
    for value in (0.1, 0.2):
        await activate(engine, (await publish(engine, value)).version)
    assert await states(engine) == {1: "retired", 2: "active"}
    await activate(engine, 1)
    assert await states(engine) == {1: "active", 2: "retired"}
    assert await trail(engine) == [("activate", None, "1"), ("activate", "1", "2"), ("activate", "2", "1")]


async def test_activating_the_active_version_again_leaves_no_entry(engine: AsyncEngine) -> None:
    await publish(engine)
    await activate(engine, 1)
    await activate(engine, 1)
    assert await trail(engine) == [("activate", None, "1")]


async def test_a_first_promotion_can_insist_on_being_the_first(engine: AsyncEngine) -> None:
    await publish(engine)
    await publish(engine, 0.3)
    await activate(engine, 1, Expected(frozenset()))
    with pytest.raises(ActiveMovedError, match="version 1 by now"):
        await activate(engine, 2, Expected(frozenset()))


async def test_insisting_on_an_active_version_fails_where_there_is_none(engine: AsyncEngine) -> None:
    await publish(engine)
    with pytest.raises(ActiveMovedError, match="is none by now"):
        await activate(engine, 1, Expected(None))


async def test_retiring_the_active_version_leaves_none(engine: AsyncEngine) -> None:
    await publish(engine)
    await activate(engine, 1)
    async with engine.begin() as connection:
        await versions.retire(connection, ROBOT, 1, OPERATOR)
    async with engine.connect() as connection:
        with pytest.raises(NoActiveTwinError):
            await versions.read_active(connection, ROBOT)


async def test_only_a_candidate_is_rejected(engine: AsyncEngine) -> None:
    await publish(engine)
    await activate(engine, 1)
    async with engine.begin() as connection:
        with pytest.raises(ConflictError, match="only a candidate"):
            await versions.reject(connection, ROBOT, 1, OPERATOR)


async def test_the_database_itself_allows_one_active_version_only(engine: AsyncEngine) -> None:
    await publish(engine)
    await publish(engine, 0.3)
    with pytest.raises(IntegrityError, match="twin_versions_active_key"):
        async with engine.begin() as connection:
            await connection.execute(twin_versions.update().values(state="active"))


async def test_a_version_of_an_unknown_robot_is_not_found(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        with pytest.raises(NotFoundError, match="no robot 'arm-99'"):
            await versions.publish(connection, draft(robot="arm-99"), Origin(None, None, CREATED))
        with pytest.raises(NotFoundError, match="arm-07/5"):
            await versions.read_version(connection, ROBOT, 5)
