"""Idempotency-Key: the same POST sent again, by the same caller under the same key, is answered, not done again.

Answers are kept for a day. A refused request isn't remembered: it did nothing, and may be sent again corrected. A key
whose request never got its answer (the service died) is free again after a minute.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response
from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.errors import IdempotencyError, problem_response
from app.database.tables import idempotency_keys
from app.errors import InvalidInputError

HEADER: Final = "Idempotency-Key"
_MAX_KEY_LENGTH: Final = 200
_KEPT: Final = timedelta(days=1)
_ABANDONED: Final = timedelta(minutes=1)
_KEPT_HEADERS: Final = ("content-type", "location", "etag")

# A SQL expression, so that every replica of the service goes by the database's clock.
_now: Final = func.clock_timestamp()


@dataclass(frozen=True, slots=True)
class Claim:
    """A request under its key.

    Attributes:
        owner: who asks; keys of others don't meet this one.
        key: as sent.
        request_sha256: of method, path and body.
    """

    owner: str
    key: str
    request_sha256: bytes


async def claim_of(request: Request, owner: str) -> Claim | None:
    """The claim a request makes; None without the header.

    Raises:
        InvalidInputError: if the key isn't printable ASCII of a sensible length.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not (0 < len(key) <= _MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise InvalidInputError(HEADER, "is not a key", f"1 to {_MAX_KEY_LENGTH} printable ASCII characters")
    sha = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    sha.update(await request.body())
    return Claim(owner, key, sha.digest())


async def begin(engine: AsyncEngine, claim: Claim) -> Response | None:
    """Take the key; the kept answer if the same request was answered before, None if it is to be done now.

    Raises:
        IdempotencyError: if the key belongs to another request, or to this one and it isn't answered yet.
    """
    mine = and_(idempotency_keys.c.owner == claim.owner, idempotency_keys.c.key == claim.key)
    abandoned = and_(idempotency_keys.c.status.is_(None), idempotency_keys.c.created_at < _now - _ABANDONED)
    async with engine.begin() as connection:
        await connection.execute(
            delete(idempotency_keys).where(or_(idempotency_keys.c.expires_at < _now, and_(mine, abandoned)))
        )
        taken = await connection.scalar(
            insert(idempotency_keys)
            .values(owner=claim.owner, key=claim.key, request_sha256=claim.request_sha256, expires_at=_now + _KEPT)
            .on_conflict_do_nothing()
            .returning(idempotency_keys.c.key)
        )
        if taken is not None:
            return None
        row = (await connection.execute(select(idempotency_keys).where(mine))).one()
    if bytes(row.request_sha256) != claim.request_sha256:
        raise IdempotencyError(f"{HEADER} {claim.key!r} was used for another request")
    if row.status is None:
        raise IdempotencyError(f"the first request under {HEADER} {claim.key!r} is still being answered")
    return Response(bytes(row.body), status_code=row.status, headers=row.headers)


async def keep(engine: AsyncEngine, claim: Claim, answer: Response) -> None:
    """Remember the answer; of one that mustn't be stored (a new key's secret) only that it was given."""
    if answer.headers.get("cache-control") == "no-store":
        answer = problem_response(IdempotencyError("that was answered once; its secret is not shown again"))
    headers = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    async with engine.begin() as connection:
        await connection.execute(
            update(idempotency_keys)
            .where(_held_by(claim))
            .values(status=answer.status_code, headers=headers, body=bytes(answer.body))
        )


async def forget(engine: AsyncEngine, claim: Claim) -> None:
    """Free the key: its request was refused and did nothing."""
    async with engine.begin() as connection:
        await connection.execute(delete(idempotency_keys).where(_held_by(claim)))


def _held_by(claim: Claim) -> Any:
    return and_(idempotency_keys.c.owner == claim.owner, idempotency_keys.c.key == claim.key)
