from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta

import numpy as np
from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.partitions import day_of, days_ahead, drop_partitions_before, ensure_partitions, list_partitions
from app.database.tables import telemetry_batches
from app.database.telemetry import BatchOrigin, BatchRow, pack
from app.telemetry import RobotId, SampleBatch

DAY_NS = 86_400 * 10**9
LATE = date(2020, 2, 29)
LATE_NS = (LATE - date(1970, 1, 1)).days * DAY_NS


def _row(stamp_ns: int, seq: int = 1) -> BatchRow:
    batch = SampleBatch(stamp_ns, np.array([0]), ("a",), {"position": np.array([[0.5]])})
    return pack(batch, BatchOrigin(RobotId("arm"), "joints", stamp_ns + 1, "boot", seq))


async def _store(connection: AsyncConnection, *rows: BatchRow) -> int:
    statement = insert(telemetry_batches).on_conflict_do_nothing()
    return (await connection.execute(statement.values([row._asdict() for row in rows]))).rowcount


async def _places(connection: AsyncConnection) -> dict[str, int]:
    rows = await connection.execute(
        text(
            "SELECT tableoid::regclass::text AS place, count(*) AS number FROM telemetry_batches GROUP BY 1 ORDER BY 1"
        )
    )
    return {row.place: row.number for row in rows}


def test_a_day_begins_with_its_first_nanosecond_in_utc() -> None:
    assert day_of(LATE_NS) == LATE
    assert day_of(LATE_NS - 1) == date(2020, 2, 28)
    assert day_of(LATE_NS + DAY_NS - 1) == LATE


def test_days_ahead_begin_with_yesterday() -> None:
    assert days_ahead(1, date(2025, 1, 1)) == [date(2024, 12, 31), date(2025, 1, 1), date(2025, 1, 2)]


async def test_migration_makes_the_days_to_come(connection: AsyncConnection) -> None:
    made = await list_partitions(connection)
    assert len(made) == 9
    assert made[0] <= datetime.now().astimezone().date() <= made[-1]


async def test_a_row_whose_day_has_no_partition_is_stored(connection: AsyncConnection) -> None:
    assert await _store(connection, _row(LATE_NS)) == 1
    assert await _places(connection) == {"telemetry_batches_default": 1}


async def test_a_repeat_is_stored_once_also_in_the_default_partition(connection: AsyncConnection) -> None:
    assert await _store(connection, _row(LATE_NS), _row(LATE_NS), _row(LATE_NS, seq=2)) == 2
    assert await _store(connection, _row(LATE_NS)) == 0


async def test_a_day_made_late_takes_its_rows_out_of_the_default_partition(connection: AsyncConnection) -> None:
    await _store(connection, _row(LATE_NS - 1), _row(LATE_NS), _row(LATE_NS + DAY_NS - 1), _row(LATE_NS + DAY_NS))
    assert await ensure_partitions(connection, [LATE]) == [LATE]
    assert await _places(connection) == {"telemetry_batches_20200229": 2, "telemetry_batches_default": 2}
    assert await ensure_partitions(connection, [LATE]) == []
    assert await _store(connection, _row(LATE_NS)) == 0, "a repeat finds the row where it was moved to"


async def test_ingesters_that_make_the_same_days_at_once_all_succeed(engine: AsyncEngine) -> None:
    days = [LATE + timedelta(days=i) for i in range(3)]

    async def make() -> list[date]:
        async with engine.begin() as connection:
            return await ensure_partitions(connection, days)

    made = await asyncio.gather(*(make() for _ in range(4)))
    assert sorted(day for each in made for day in each) == days


async def test_writers_go_on_while_a_day_is_being_made(engine: AsyncEngine) -> None:
    today_ns = (await _first_day_ns(engine)) + DAY_NS
    async with engine.connect() as maker, engine.begin() as writer:
        await ensure_partitions(maker, [LATE])
        await writer.execute(text("SET LOCAL lock_timeout = '2s'"))
        assert await _store(writer, _row(today_ns)) == 1
        await maker.commit()


async def _first_day_ns(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return ((await list_partitions(connection))[0] - date(1970, 1, 1)).days * DAY_NS


async def test_old_days_are_dropped_whole_and_the_default_partition_is_cleared(connection: AsyncConnection) -> None:
    await ensure_partitions(connection, [LATE])
    await _store(connection, _row(LATE_NS), _row(LATE_NS - 5 * DAY_NS), _row(LATE_NS + 5 * DAY_NS))
    assert await drop_partitions_before(connection, LATE + timedelta(days=2)) == [LATE]
    assert await _places(connection) == {"telemetry_batches_default": 1}
