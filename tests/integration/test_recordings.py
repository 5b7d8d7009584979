from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from sqlalchemy import insert, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import raw_connection
from app.database.tables import recordings as recordings_table
from app.database.tables import telemetry_batches
from app.database.telemetry import MAX_BATCH_SPAN_NS, BatchOrigin, BatchRow, pack
from app.errors import NotFoundError
from app.registry.recordings import (
    Span,
    get_recording,
    last_sample_ns,
    list_recordings,
    load_batches,
    load_recording,
    load_window,
)
from app.telemetry import Recording, RobotId, SampleBatch, assemble_recording

START_NS = 1_750_000_000_123_456_789
MS = 1_000_000
ROBOT = RobotId("arm-1")
EVER = Span(-(2**80), 2**80)


def _log(rows: int = 40, seed: int = 7) -> SampleBatch:
    """Float64 noise with gaps: what no narrower type or rounding would bring back."""
    random = np.random.default_rng(seed)
    position = random.normal(size=(rows, 2))
    position[rows // 2, 1] = np.nan
    return SampleBatch(
        START_NS,
        np.arange(rows, dtype=np.int64) * MS,
        ("shoulder", "elbow"),
        {"position": position, "command_position": random.normal(size=(rows, 2)).astype(np.float32).astype(float)},
        {"supply_v": random.normal(size=rows)},
    )


def _messages(log: SampleBatch, size: int, boot_id: str = "boot-1") -> list[BatchRow]:
    rows = []
    for seq, start in enumerate(range(0, len(log), size)):
        part = slice(start, start + size)
        stamp_ns = log.stamp_ns + int(log.dt_ns[start])
        batch = SampleBatch(
            stamp_ns,
            log.dt_ns[part] - log.dt_ns[start],
            log.names,
            {name: values[part] for name, values in log.channels.items()},
            {name: values[part] for name, values in log.context.items()},
        )
        rows.append(pack(batch, BatchOrigin(ROBOT, "joints", stamp_ns + 20 * MS, boot_id, seq)))
    return rows


async def _store(connection: AsyncConnection, rows: list[BatchRow]) -> None:
    """By COPY, as ingest does, and the recordings beside it."""
    raw = await raw_connection(connection)
    await raw.copy_records_to_table("telemetry_batches", records=rows, columns=BatchRow._fields)
    for boot_id in {row.boot_id for row in rows}:
        own = [row for row in rows if row.boot_id == boot_id]
        values: dict[str, Any] = {
            "robot": ROBOT,
            "boot_id": boot_id,
            "first_ns": min(row.first_ns for row in own),
            "last_ns": max(row.last_ns for row in own),
            "samples": sum(row.sample_count for row in own),
        }
        await connection.execute(insert(recordings_table).values(values))


def _same(one: Recording, other: Recording) -> bool:
    return one.digest() == other.digest() and one.origin_ns == other.origin_ns


@pytest.mark.parametrize("size", [1, 7, 40])
async def test_a_recording_comes_back_bit_for_bit_however_it_was_cut(connection: AsyncConnection, size: int) -> None:
    log = _log()
    await _store(connection, _messages(log, size))
    (summary,) = await list_recordings(connection, ROBOT)
    loaded = await load_recording(connection, ROBOT, summary.id)
    assert _same(loaded, assemble_recording("the log", [log]))
    assert loaded.name == "boot-1"
    assert summary.span == Span(START_NS, START_NS + 39 * MS + 1)
    assert summary.samples == 40


async def test_messages_come_back_in_the_order_of_their_receipt(connection: AsyncConnection) -> None:
    early, late = _messages(_log(2), 1)
    await _store(connection, [early._replace(received_ns=200), late._replace(received_ns=100)])
    assert [b.stamp_ns for b in await load_batches(connection, ROBOT, EVER)] == [late.stamp_ns, early.stamp_ns]


async def test_a_window_cuts_messages_that_reach_over_its_ends(connection: AsyncConnection) -> None:
    log = _log()
    await _store(connection, _messages(log, 7))
    span = Span(START_NS + 10 * MS, START_NS + 20 * MS)
    (window,) = await load_window(connection, ROBOT, span)
    assert window.origin_ns == span.from_ns
    np.testing.assert_array_equal(window.t_ns, np.arange(10) * MS)
    np.testing.assert_array_equal(window.channels["position"], log.channels["position"][10:20][:, ::-1])
    np.testing.assert_array_equal(window.context["supply_v"], log.context["supply_v"][10:20])


async def test_a_window_over_a_reboot_holds_a_recording_for_each_boot(connection: AsyncConnection) -> None:
    first, second = _log(5, seed=1), _log(5, seed=2)
    after = SampleBatch(START_NS + 10 * MS, second.dt_ns, second.names, second.channels, second.context)
    await _store(connection, _messages(first, 2, "b-first") + _messages(after, 2, "a-second"))
    window = await load_window(connection, ROBOT, EVER)
    assert [recording.name for recording in window] == ["b-first", "a-second"]
    assert _same(window[0], assemble_recording("", [first]))
    assert _same(window[1], assemble_recording("", [after]))
    assert await load_window(connection, ROBOT, Span(START_NS + 5 * MS, START_NS + 10 * MS)) == []
    assert await load_window(connection, "another", EVER) == []


async def test_a_sample_a_day_from_its_messages_stamp_is_found_by_its_own_time(connection: AsyncConnection) -> None:
    batch = SampleBatch(
        START_NS,
        np.array([-MAX_BATCH_SPAN_NS, 0, MAX_BATCH_SPAN_NS]),
        ("a",),
        {"position": np.array([[1.0], [2.0], [3.0]])},
    )
    await _store(connection, [pack(batch, BatchOrigin(ROBOT, "joints", START_NS, "boot", 1))])
    for value, offset_ns in ((1.0, -MAX_BATCH_SPAN_NS), (2.0, 0), (3.0, MAX_BATCH_SPAN_NS)):
        at_ns = START_NS + offset_ns
        (found,) = await load_batches(connection, ROBOT, Span(at_ns, at_ns + 1))
        assert found.channels["position"].tolist() == [[value]]


async def test_recordings_page_from_the_latest(connection: AsyncConnection) -> None:
    for number, boot_id in enumerate(("a", "b", "c")):
        log = _log(2)
        later = SampleBatch(START_NS + number * 1000 * MS, log.dt_ns, log.names, log.channels, log.context)
        await _store(connection, _messages(later, 2, boot_id))
    page = await list_recordings(connection, ROBOT, limit=2)
    assert [r.boot_id for r in page] == ["c", "b"]
    rest = await list_recordings(connection, ROBOT, after=(page[-1].span.to_ns, page[-1].id))
    assert [r.boot_id for r in rest] == ["a"]
    assert await last_sample_ns(connection, ROBOT) == page[0].span.to_ns - 1
    assert await last_sample_ns(connection, "another") is None


async def test_a_recording_of_another_robot_is_not_found(connection: AsyncConnection) -> None:
    await _store(connection, _messages(_log(2), 2))
    (summary,) = await list_recordings(connection, ROBOT)
    assert await get_recording(connection, ROBOT, summary.id) == summary
    with pytest.raises(NotFoundError, match="no recording of robot 'arm-2'"):
        await load_recording(connection, "arm-2", summary.id)
    with pytest.raises(NotFoundError):
        await get_recording(connection, ROBOT, uuid4())


async def test_a_search_by_robot_and_time_reads_no_other_days_and_uses_the_key(connection: AsyncConnection) -> None:
    days = [START_NS + day * MAX_BATCH_SPAN_NS for day in range(12)]
    rows = [pack(SampleBatch(d, np.array([0]), ("a",), {}), BatchOrigin(ROBOT, "s", d, "b", 1)) for d in days]
    await connection.execute(upsert(telemetry_batches).values([row._asdict() for row in rows]))
    await connection.execute(text("SET LOCAL enable_seqscan = off"))
    plan = await connection.scalars(
        text("EXPLAIN SELECT data FROM telemetry_batches WHERE robot = 'arm-1' AND stamp_ns >= :a AND stamp_ns < :b"),
        {"a": 0, "b": MAX_BATCH_SPAN_NS},
    )
    lines = "\n".join(plan)
    assert "telemetry_batches_default" in lines
    assert "telemetry_batches_2" not in lines, "days outside the window are left out"
    assert "telemetry_batches_default_pkey" in lines
