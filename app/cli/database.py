"""The database a command works on, and its failures in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from app.cli.addresses import database_url
from app.errors import ServiceError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_T = TypeVar("_T")


def in_transaction(action: Callable[[AsyncConnection], Awaitable[_T]]) -> _T:
    """Run something in one transaction on that database.

    Raises:
        ServiceError: if the database can't be reached or refuses.
    """
    from asyncpg import PostgresError
    from sqlalchemy.exc import SQLAlchemyError

    from app.database.engine import create_engine

    async def run() -> _T:
        engine = create_engine(database_url(), pool_size=1)
        try:
            async with engine.begin() as connection:
                return await action(connection)
        finally:
            await engine.dispose()

    try:
        return asyncio.run(run())
    except (OSError, PostgresError, SQLAlchemyError) as error:
        raise ServiceError(f"database: {' '.join(str(getattr(error, 'orig', None) or error).split())}") from error
