"""The job queue's tables and queries: PgQueuer in our database, on our connections, in our transactions."""

from __future__ import annotations

from typing import Any, Final

import asyncpg
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel
from pgqueuer.queries import Queries
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import plain_url, raw_connection

CHANNEL: Final = Channel("ch_pgqueuer")
"""Postgres notifies here whenever the queue changes."""

# Every name spelled out: the library reads whatever isn't from bare environment variables such as FUNCTION or TRIGGER.
_SETTINGS: Final = DBSettings.model_validate(
    {
        "prefix": "",
        "db_schema": None,
        "channel": CHANNEL,
        "function": "fn_pgqueuer_changed",
        "statistics_table": "pgqueuer_statistics",
        "queue_status_type": "pgqueuer_status",
        "queue_table": "pgqueuer",
        "queue_table_log": "pgqueuer_log",
        "trigger": "tg_pgqueuer_changed",
        "schedules_table": "pgqueuer_schedules",
        "durability": "durable",
        "widen_id": True,
    }
)

# Any constant will do: it keeps two migrations at once from creating the same tables.
_INSTALL_LOCK: Final = 0x7477_696E_6A6F_6273


def queue_on(connection: asyncpg.Connection[Any]) -> Queries:
    """The queue as seen through one asyncpg connection, inside whatever transaction that is in."""
    queries = Queries.from_asyncpg_connection(connection)
    queries.qbe = QueryBuilderEnvironment(_SETTINGS)
    queries.qbq = QueryQueueBuilder(_SETTINGS)
    return queries


async def queue_in(connection: AsyncConnection) -> Queries:
    """The queue on `connection`: what is done there lasts when the caller commits, and not before.

    The transaction begins with SQLAlchemy's own first statement; without one the queue's statements may or may not be
    in it (the pool's ping begins one). So commit always, and execute something first where both must be one step.
    """
    return queue_on(await raw_connection(connection))


async def install_queue(url: str) -> None:
    """Create the queue's tables, or bring them up to the library's release.

    Args:
        url: `postgresql://…`.
    """
    connection = await asyncpg.connect(plain_url(url))
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _INSTALL_LOCK)
        queue = queue_on(connection)
        if await queue.schema_is_installed():
            await queue.apply_upgrade()
        else:
            await queue.install()
    finally:
        await connection.close()
