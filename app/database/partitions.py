"""Days of telemetry: made ahead, made late without losing what the default partition took in, dropped when old."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

PARENT: Final = "telemetry_batches"
DEFAULT_PARTITION: Final = "telemetry_batches_default"
"""Takes in what falls on a day that has no partition yet, so that nothing is refused."""

_DAY_NS = 86_400 * 10**9
_EPOCH = date(1970, 1, 1)
_NAME = re.compile(rf"{PARENT}_(\d{{8}})")
# Any constant of our own: whoever holds it makes or drops partitions, and others wait.
_PARTITIONS_LOCK = 0x7477_6E63_0001


def day_of(stamp_ns: int) -> date:
    """The UTC day of an instant, i.e. its partition."""
    return _EPOCH + timedelta(days=stamp_ns // _DAY_NS)


def days_ahead(count: int, today: date | None = None) -> list[date]:
    """Yesterday, today (UTC) and the `count` days after it."""
    first = (today or datetime.now(UTC).date()) - timedelta(days=1)
    return [first + timedelta(days=i) for i in range(count + 2)]


async def ensure_partitions(connection: AsyncConnection, days: Iterable[date]) -> list[date]:
    """Make the partitions of these days that aren't there yet; to be called inside a transaction.

    Rows of such a day that the default partition holds move to the new one. Writers of other days don't wait.

    Args:
        connection: in a transaction of its own: locks last until it ends.
        days: UTC days.

    Returns:
        The days that were made.
    """
    wanted = sorted(set(days))
    # Read first: on all but one call a day there is nothing to do, and nothing to lock.
    if not set(wanted) - set(await list_partitions(connection)):
        return []
    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _PARTITIONS_LOCK})
    missing = [day for day in wanted if day not in await list_partitions(connection)]
    for day in missing:
        await _make(connection, day)
    return missing


async def list_partitions(connection: AsyncConnection) -> list[date]:
    """The days that have a partition, in order."""
    names = await connection.scalars(
        text("SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
             "WHERE i.inhparent = CAST(:parent AS regclass) ORDER BY c.relname"),
        {"parent": PARENT},
    )  # fmt: skip
    found = (_NAME.fullmatch(name) for name in names)
    return [datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match]


async def drop_partitions_before(connection: AsyncConnection, day: date) -> list[date]:
    """Drop whole days older than `day`, and what the default partition holds of them; returns the days dropped."""
    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _PARTITIONS_LOCK})
    old = [found for found in await list_partitions(connection) if found < day]
    for found in old:
        await connection.execute(text(f"DROP TABLE {_name(found)}"))
    await connection.execute(
        text(f"DELETE FROM {DEFAULT_PARTITION} WHERE stamp_ns < :before"),  # noqa: S608 - a constant of ours
        {"before": _start_ns(day)},
    )
    return old


def _name(day: date) -> str:
    return f"{PARENT}_{day:%Y%m%d}"


def _start_ns(day: date) -> int:
    return (day - _EPOCH).days * _DAY_NS


async def _make(connection: AsyncConnection, day: date) -> None:
    """Make one day beside the table and attach it.

    CREATE TABLE … PARTITION OF would lock the whole table against writers, and would fail while the default partition
    holds rows of the day; ATTACH locks only the default partition, from which we have moved those rows.
    """
    name, start, end = _name(day), _start_ns(day), _start_ns(day + timedelta(days=1))
    within = f"stamp_ns >= {start} AND stamp_ns < {end}"
    move = f"WITH moved AS (DELETE FROM {DEFAULT_PARTITION} WHERE {within} RETURNING *)"  # noqa: S608 - numbers of ours
    for statement in (
        f"CREATE TABLE {name} (LIKE {PARENT} INCLUDING ALL)",
        # Saves ATTACH a scan of the new partition.
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_day CHECK ({within})",
        f"LOCK TABLE {DEFAULT_PARTITION} IN ACCESS EXCLUSIVE MODE",
        f"{move} INSERT INTO {name} TABLE moved",
        f"ALTER TABLE {PARENT} ATTACH PARTITION {name} FOR VALUES FROM ({start}) TO ({end})",
        f"ALTER TABLE {name} DROP CONSTRAINT {name}_day",
    ):
        await connection.execute(text(statement))
