"""The audit trail: who moved what when."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.access import Reader
from app.api.context import ApiContext
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot
from app.api.route import ApiRoute
from app.calibration import audit

router = APIRouter(prefix="/v1/robots/{robot}", tags=["twins"], route_class=ApiRoute)


class Entry(BaseModel):
    """One move."""

    at: datetime
    who: str = Field(description="key:<id>, calibration:<id>, monitor, or local")
    what: str = Field(description="what was done, e.g. activate")
    old: str | None = Field(description="version before; null if there was none")
    new: str | None = Field(description="version after; null if there is none")
    reason: str


@router.get("/audit", summary="Who moved what when, latest first")
async def list_audit(
    robot: RobotPath, context: ApiContext, who: Reader, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[Entry]:
    """Every change of a version's state."""
    key = decode_cursor(cursor, int)
    before = None if key is None else int(key[0])
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        found = await audit.list_moves(connection, registered.robot, before=before, limit=limit)
    last = encode_cursor(found[-1].id) if len(found) == limit else None
    items = [Entry(at=m.at, who=m.who, what=m.what, old=m.old, new=m.new, reason=m.reason) for m in found]
    return Page(items=items, next=last)
