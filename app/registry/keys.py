"""API keys: bearer tokens of 256 random bits, of which only the SHA-256 is kept.

The tokens are random, so a slow password hash would protect nothing and cost every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID

from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import api_keys, fleets
from app.errors import InvalidInputError, NotFoundError
from app.telemetry import FleetId

Scope = Literal["read", "operate", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Each may do what those before it may."""

TOKEN_PREFIX: Final = "twincal_"  # noqa: S105 - what every token begins with, no secret
"""What people and secret scanners know a key by."""

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as kept: everything but the token.

    Attributes:
        id: names it without being it.
        scopes: as it was made; an implied scope isn't listed.
        fleet: the only fleet it knows; None: every fleet.
        created_at: when it was made.
        expires_at: from when on it is refused; None: never.
        revoked_at: since when it is refused; None: it isn't.
    """

    id: UUID
    scopes: frozenset[Scope]
    fleet: FleetId | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


async def create_key(
    connection: AsyncConnection,
    scopes: Collection[Scope],
    fleet: FleetId | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key.

    Returns:
        The key, and its token, which can't be had again.

    Raises:
        InvalidInputError: for an unknown scope or none, or an expiry without time zone or in the past.
        NotFoundError: if there is no such fleet.
    """
    _check(scopes, expires_at)
    if fleet is not None and await connection.scalar(select(fleets.c.fleet).where(fleets.c.fleet == fleet)) is None:
        raise NotFoundError("fleet", fleet)
    token = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    statement = insert(api_keys).values(
        token_sha256=_digest(token), scopes=[s for s in SCOPES if s in scopes], fleet=fleet, expires_at=expires_at
    )
    row = (await connection.execute(statement.returning(*api_keys.c))).one()
    return _key(row), token


async def authenticate(connection: AsyncConnection, token: str) -> ApiKey | None:
    """The key of a token; None if it is unknown, expired or revoked."""
    digest = _digest(token)
    usable = (api_keys.c.revoked_at.is_(None)) & (
        api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > func.now())
    )
    row = (await connection.execute(select(api_keys).where(api_keys.c.token_sha256 == digest, usable))).one_or_none()
    # Looked up by digest, so that the index's timing tells nothing about a token; compared again in constant time, so
    # that this doesn't rest on how an index compares.
    if row is None or not hmac.compare_digest(row.token_sha256, digest):
        return None
    return _key(row)


async def list_keys(connection: AsyncConnection, after: UUID | None = None, limit: int = 100) -> list[ApiKey]:
    """Keys by id, those expired and revoked included.

    Args:
        connection: to the database.
        after: id of the last one already seen.
        limit: at most so many.
    """
    statement = select(api_keys).order_by(api_keys.c.id).limit(limit)
    if after is not None:
        statement = statement.where(api_keys.c.id > after)
    return [_key(row) for row in await connection.execute(statement)]


async def revoke_key(connection: AsyncConnection, key: UUID) -> ApiKey:
    """Refuse a key from now on; revoking it again changes nothing.

    Raises:
        NotFoundError: if there is none of this id.
    """
    statement = update(api_keys).where(api_keys.c.id == key)
    statement = statement.values(revoked_at=func.coalesce(api_keys.c.revoked_at, func.now()))
    row = (await connection.execute(statement.returning(*api_keys.c))).one_or_none()
    if row is None:
        raise NotFoundError("key", str(key))
    return _key(row)


def _check(scopes: Collection[Scope], expires_at: datetime | None) -> None:
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidInputError("scopes", f"{scope!r} is not a scope", f"one of {', '.join(SCOPES)}")
    if not scopes:
        raise InvalidInputError("scopes", "a key without a scope can do nothing", f"one of {', '.join(SCOPES)}")
    if expires_at is None:
        return
    if expires_at.tzinfo is None:
        raise InvalidInputError("expires_at", "has no time zone", f"{expires_at.isoformat()}Z")
    if expires_at <= datetime.now(UTC):
        raise InvalidInputError("expires_at", f"{expires_at.isoformat()} has passed", "an instant to come")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.id,
        scopes=frozenset(row.scopes),
        fleet=None if row.fleet is None else FleetId(row.fleet),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
