"""Fleets: what their robots share."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.access import Administrator, Reader
from app.api.context import ApiContext
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import FleetPath, find_fleet
from app.api.route import ApiRoute
from app.registry import fleets as registry
from app.registry.fleets import Fleet
from app.registry.recalibration_policy import RecalibrationPolicy
from app.telemetry import parse_fleet_id

router = APIRouter(prefix="/v1/fleets", tags=["fleets"], route_class=ApiRoute)


class FleetBody(BaseModel):
    """A fleet as it is put."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field(default="", max_length=200, description="for people")
    recalibration: RecalibrationPolicy = Field(
        default=RecalibrationPolicy(), description="what is done about a robot that has drifted"
    )


class FleetView(FleetBody):
    """A fleet as registered."""

    fleet: str
    description_sha256: str | None = Field(description="description of its robots that have none of their own")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, fleet: Fleet) -> FleetView:
        """The view of a fleet."""
        return cls(
            **fleet.document,
            fleet=fleet.fleet,
            description_sha256=fleet.description_sha256,
            created_at=fleet.created_at,
            updated_at=fleet.updated_at,
        )


@router.put("/{fleet}", summary="Register a fleet", responses={201: {"model": FleetView}})
async def put_fleet(
    fleet: FleetPath, context: ApiContext, who: Administrator, response: Response, body: FleetBody | None = None
) -> FleetView:
    """201 if it is new, 200 if it was there and is replaced."""
    who.require_fleet(parse_fleet_id(fleet))
    document = (body or FleetBody()).model_dump(mode="json", exclude_unset=True)
    async with context.engine.begin() as connection:
        stored, created = await registry.put_fleet(connection, fleet, document)
    if created:
        response.status_code = HTTPStatus.CREATED
    return FleetView.of(stored)


@router.get("", summary="All fleets")
async def list_fleets(
    context: ApiContext, who: Reader, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[FleetView]:
    """By id; a key bound to a fleet sees that one."""
    key = decode_cursor(cursor, str)
    async with context.engine.connect() as connection:
        if who.fleet is not None:
            return Page(items=[FleetView.of(await find_fleet(connection, who.fleet, who))], next=None)
        found = await registry.list_fleets(connection, None if key is None else str(key[0]), limit)
    last = encode_cursor(found[-1].fleet) if len(found) == limit else None
    return Page(items=[FleetView.of(fleet) for fleet in found], next=last)


@router.get("/{fleet}", summary="One fleet")
async def read_fleet(fleet: FleetPath, context: ApiContext, who: Reader) -> FleetView:
    """What its robots share."""
    async with context.engine.connect() as connection:
        return FleetView.of(await find_fleet(connection, fleet, who))


@router.delete("/{fleet}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a fleet")
async def delete_fleet(fleet: FleetPath, context: ApiContext, who: Administrator) -> None:
    """409 while it has robots. Keys bound to it go with it."""
    async with context.engine.begin() as connection:
        await find_fleet(connection, fleet, who)
        await registry.delete_fleet(connection, fleet)
