"""Fleets: what their robots share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import fleets, robots
from app.errors import ConflictError, NotFoundError
from app.telemetry import FleetId, parse_fleet_id


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet as registered.

    Attributes:
        fleet: its id.
        document: priors and recalibration policy, as the API validated them.
        description_sha256: the description of its robots that have none of their own.
        created_at: when it was first registered.
        updated_at: when it was last changed.
    """

    fleet: FleetId
    document: Mapping[str, Any]
    description_sha256: str | None
    created_at: datetime
    updated_at: datetime


async def put_fleet(
    connection: AsyncConnection, fleet: str, document: Mapping[str, Any] | None = None
) -> tuple[Fleet, bool]:
    """Register a fleet or replace its document.

    Returns:
        The fleet, and whether it is new.

    Raises:
        InvalidInputError: if the id isn't one.
    """
    statement = insert(fleets).values(fleet=parse_fleet_id(fleet), document=dict(document or {}))
    statement = statement.on_conflict_do_update(
        index_elements=["fleet"], set_={"document": statement.excluded.document, "updated_at": func.now()}
    )
    # A row that this very statement inserted was never locked or updated: xmax is 0.
    created: ColumnElement[bool] = literal_column("(xmax = 0)").label("created")
    row = (await connection.execute(statement.returning(*fleets.c, created))).one()
    return _fleet(row), bool(row.created)


async def ensure_fleet(connection: AsyncConnection, fleet: FleetId) -> None:
    """Register a fleet with nothing in it, unless it is there."""
    await connection.execute(insert(fleets).values(fleet=fleet).on_conflict_do_nothing())


async def get_fleet(connection: AsyncConnection, fleet: str) -> Fleet:
    """One fleet.

    Raises:
        NotFoundError: if there is none of this id.
    """
    row = (await connection.execute(select(fleets).where(fleets.c.fleet == fleet))).one_or_none()
    if row is None:
        raise NotFoundError("fleet", fleet)
    return _fleet(row)


async def list_fleets(connection: AsyncConnection, after: str | None = None, limit: int = 100) -> list[Fleet]:
    """Fleets by id.

    Args:
        connection: to the database.
        after: id of the last one already seen.
        limit: at most so many.
    """
    statement = select(fleets).order_by(fleets.c.fleet).limit(limit)
    if after is not None:
        statement = statement.where(fleets.c.fleet > after)
    return [_fleet(row) for row in await connection.execute(statement)]


async def delete_fleet(connection: AsyncConnection, fleet: str) -> None:
    """Delete a fleet without robots; keys bound to it go with it.

    Raises:
        NotFoundError: if there is none of this id.
        ConflictError: if it has robots.
    """
    # Locked, so that no robot joins it meanwhile: joining needs a lock on the same row.
    found = await connection.scalar(select(fleets.c.fleet).where(fleets.c.fleet == fleet).with_for_update())
    if found is None:
        raise NotFoundError("fleet", fleet)
    some = list(await connection.scalars(select(robots.c.robot).where(robots.c.fleet == fleet).limit(4)))
    if some:
        names = ", ".join(repr(name) for name in some[:3]) + (", …" if len(some) > 3 else "")
        raise ConflictError(f"fleet {fleet!r} has robots ({names}); delete them first")
    await connection.execute(delete(fleets).where(fleets.c.fleet == fleet))


def _fleet(row: Row[Any]) -> Fleet:
    return Fleet(FleetId(row.fleet), row.document, row.description_sha256, row.created_at, row.updated_at)
