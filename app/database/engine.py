"""Connections: SQLAlchemy's pool on asyncpg, and asyncpg itself for COPY."""

from __future__ import annotations

from typing import Any, Final, cast

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.errors import ServiceError

_POOL_SIZE: Final = 5
_POOL_OVERFLOW: Final = 10
_POOL_WAIT_S: Final = 10.0
_CONNECT_WAIT_S: Final = 10.0
_DRIVERS: Final = frozenset({"postgresql", "postgres", "postgresql+asyncpg"})


def create_engine(url: str, *, pool_size: int = _POOL_SIZE, pre_ping: bool = True) -> AsyncEngine:
    """An engine with a pool of connections; none is opened yet.

    Args:
        url: `postgresql://user:password@host:port/database`.
        pool_size: connections kept; half as many again, and at least ten, may be opened besides when all are in use.
        pre_ping: whether a connection is tried before it is given out: a server that was restarted leaves dead ones in
            the pool, and one round trip finds out. Without it the first that meets one of them fails.

    Raises:
        ServiceError: if the URL isn't Postgres'. The message never holds the password.
    """
    return create_async_engine(
        _with_driver(url),
        pool_size=pool_size,
        max_overflow=max(_POOL_OVERFLOW, pool_size // 2),
        pool_timeout=_POOL_WAIT_S,
        pool_pre_ping=pre_ping,
        json_serializer=_to_json,
        json_deserializer=orjson.loads,
        connect_args={"timeout": _CONNECT_WAIT_S, "server_settings": {"application_name": "twincal", "jit": "off"}},
    )


async def raw_connection(connection: AsyncConnection) -> asyncpg.Connection[Any]:
    """The asyncpg connection beneath, in the same transaction: for COPY, which SQLAlchemy has no word for."""
    raw = await connection.get_raw_connection()
    driver = cast("asyncpg.Connection[Any]", raw.driver_connection)
    if not driver.is_in_transaction():
        # SQLAlchemy sends BEGIN with its own first statement: without one, a COPY would commit by itself.
        await connection.execute(text("SELECT 1"))
    return driver


def plain_url(url: str) -> str:
    """The same URL for asyncpg and libraries that speak it, without SQLAlchemy's driver name."""
    return _with_driver(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _with_driver(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ServiceError("database URL: can't be read (postgresql://user:password@host:port/database)") from error
    if parsed.drivername not in _DRIVERS:
        raise ServiceError(f"database URL: {parsed.drivername!r} is not Postgres (postgresql://…)")
    return parsed.set(drivername="postgresql+asyncpg")


def _to_json(value: object) -> str:
    return orjson.dumps(value).decode()
