"""Bring a database to the newest schema: Alembic, driven from here, so that a wheel needs no alembic.ini."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from asyncpg import PostgresError
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

import app
from app.database.engine import create_engine
from app.database.partitions import days_ahead, ensure_partitions
from app.database.queue import install_queue
from app.errors import ServiceError

DAYS_AHEAD: Final = 7
"""Partitions made ahead of their day by `upgrade`; ingest makes more as days pass."""

_MIGRATION_LOCK = 0x7477_6E63_0002


def upgrade(url: str) -> None:
    """Apply all migrations that are missing, make the partitions of the days to come, and bring the job queue's tables.

    Several may run at once (replicas that start together): one works, the others wait and find it done. For a program
    without a running event loop; inside one, await `upgrade_async`.

    Raises:
        ServiceError: if the database can't be reached or refuses.
    """
    asyncio.run(upgrade_async(url))


async def upgrade_async(url: str) -> None:
    """The same as `upgrade`, for callers inside an event loop."""
    engine = create_engine(url, pool_size=1)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            await connection.run_sync(_upgrade)
            await ensure_partitions(connection, days_ahead(DAYS_AHEAD))
        # The job queue's tables follow its library's release, not our revisions.
        await install_queue(url)
    except (OSError, SQLAlchemyError, PostgresError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()
        raise ServiceError(f"database: can't be migrated: {reason[0] if reason else type(error).__name__}") from error
    finally:
        await engine.dispose()


def head_revision() -> str:
    """The revision that `upgrade` leads to: what `/readyz` compares `current_revision` with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise ServiceError(f"{migrations_folder()}: holds no migrations")
    return head


async def current_revision(connection: AsyncConnection) -> str | None:
    """The revision the database is at; None before the first migration."""
    known = await connection.scalar(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
    if not known:
        return None
    revision: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def migrations_folder() -> Path:
    """Where the migrations are: inside the installed package, or beside it in a checkout."""
    package = Path(app.__file__).parent
    packaged = package / "migrations"
    return packaged if packaged.is_dir() else package.parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
