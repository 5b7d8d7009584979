"""Keys: bearer tokens, shown once."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from app.api.access import Administrator
from app.api.auth import Principal
from app.api.context import ApiContext
from app.api.errors import ForbiddenError
from app.api.paging import DEFAULT_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.route import ApiRoute
from app.errors import InvalidInputError, NotFoundError
from app.registry import keys as registry
from app.registry.keys import ApiKey, Scope
from app.telemetry import FleetId, parse_fleet_id

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=ApiRoute)


class KeyRequest(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)] = Field(
        description="each may do what those before it may: read, operate, admin"
    )
    fleet: str | None = Field(default=None, description="the only fleet that exists for it; null: all do")
    expires_at: AwareDatetime | None = Field(default=None, description="from when on it is refused; null: never")


class KeyView(BaseModel):
    """A key without its token."""

    id: UUID
    scopes: list[Scope]
    fleet: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey) -> KeyView:
        """The view of a key."""
        return cls(
            id=key.id,
            scopes=[scope for scope in registry.SCOPES if scope in key.scopes],
            fleet=key.fleet,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
        )


class NewKeyView(KeyView):
    """A key with its token, which is shown this once."""

    token: str = Field(description="send it as Authorization: Bearer <token>")


@router.post("", status_code=HTTPStatus.CREATED, summary="Make a key")
async def create_key(body: KeyRequest, context: ApiContext, who: Administrator, response: Response) -> NewKeyView:
    """A key bound to a fleet makes keys bound to the same."""
    fleet = None if body.fleet is None else parse_fleet_id(body.fleet)
    _stay_inside(who, fleet)
    async with context.engine.begin() as connection:
        key, token = await registry.create_key(connection, body.scopes, fleet, body.expires_at)
    response.headers["Cache-Control"] = "no-store"
    return NewKeyView(**KeyView.of(key).model_dump(), token=token)


@router.get("", summary="All keys, those expired and revoked too")
async def list_keys(
    context: ApiContext, who: Administrator, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[KeyView]:
    """By id, without their tokens. A key bound to a fleet may not."""
    _stay_inside(who, None)
    key = decode_cursor(cursor, str)
    async with context.engine.connect() as connection:
        found = await registry.list_keys(connection, None if key is None else _parse(str(key[0])), limit)
    last = encode_cursor(str(found[-1].id)) if len(found) == limit else None
    return Page(items=[KeyView.of(k) for k in found], next=last)


@router.delete("/{key}", summary="Revoke a key")
async def revoke_key(key: UUID, context: ApiContext, who: Administrator) -> KeyView:
    """It is refused within a second."""
    async with context.engine.begin() as connection:
        revoked = await registry.revoke_key(connection, key)
        if who.fleet is not None and revoked.fleet != who.fleet:
            # Raised inside the transaction, which takes the revocation back.
            raise NotFoundError("key", str(key))
    return KeyView.of(revoked)


def _stay_inside(who: Principal, fleet: FleetId | None) -> None:
    if who.fleet is None:
        return
    if fleet is None:
        raise ForbiddenError(f"this key is bound to fleet {who.fleet!r} and may not act on keys of all fleets")
    who.require_fleet(fleet)


def _parse(identifier: str) -> UUID:
    try:
        return UUID(identifier)
    except ValueError as error:
        raise InvalidInputError("cursor", "is not a cursor of this list", "`next` of the page before") from error
