from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.engine import create_engine, plain_url, raw_connection
from app.database.migrate import current_revision, head_revision, upgrade_async
from app.database.tables import metadata
from app.errors import ServiceError

REPOSITORY = Path(__file__).parents[2]


def _differences(connection: Connection) -> list[object]:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name in metadata.tables

    context = MigrationContext.configure(
        connection, opts={"include_name": ours, "compare_type": True, "compare_server_default": True}
    )
    return list(compare_metadata(context, metadata))


async def test_the_migrations_make_exactly_the_tables_that_the_code_knows(connection: AsyncConnection) -> None:
    assert await connection.run_sync(_differences) == []


async def test_a_migrated_database_is_at_the_head_and_a_new_one_at_none(
    empty_database_url: str, connection: AsyncConnection
) -> None:
    assert await current_revision(connection) == head_revision()
    engine = create_engine(empty_database_url)
    async with engine.connect() as empty:
        assert await current_revision(empty) is None
    await engine.dispose()


async def test_replicas_that_migrate_at_once_all_succeed(empty_database_url: str) -> None:
    await asyncio.gather(*(upgrade_async(empty_database_url) for _ in range(4)))
    engine = create_engine(empty_database_url)
    async with engine.connect() as connection:
        assert await current_revision(connection) == head_revision()
    await engine.dispose()


async def test_an_unreachable_database_is_one_clear_line_without_the_password() -> None:
    with pytest.raises(ServiceError, match="database: can't be migrated") as refused:
        await upgrade_async("postgresql://someone:s3cret@127.0.0.1:1/nowhere")
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://me:s3cret@here/db", "no url at all"])
def test_a_url_of_something_else_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ServiceError, match="postgresql://") as refused:
        create_engine(url)
    assert "s3cret" not in str(refused.value)


def test_every_spelling_of_the_url_becomes_a_plain_one() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        assert plain_url(f"{scheme}://me:s3cret@here:5432/db") == "postgresql://me:s3cret@here:5432/db"


async def test_a_raw_connection_is_in_the_transaction_from_its_first_call(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        raw = await raw_connection(connection)
        await raw.copy_records_to_table("fleets", records=[("arms",)], columns=["fleet"])
        await connection.rollback()
        assert await connection.scalar(text("SELECT count(*) FROM fleets")) == 0


async def test_a_robot_has_at_most_one_active_version(connection: AsyncConnection) -> None:
    await connection.execute(text("INSERT INTO fleets (fleet) VALUES ('arms')"))
    await connection.execute(text("INSERT INTO robots (robot, fleet, declaration) VALUES ('a', 'arms', '{}')"))
    insert = text(
        "INSERT INTO twin_versions (robot, version, document, digest, state) VALUES ('a', :n, '', '', :state)"
    )
    await connection.execute(insert, [{"n": 1, "state": "retired"}, {"n": 2, "state": "active"}])
    with pytest.raises(IntegrityError, match="twin_versions_active_key"):
        await connection.execute(insert, {"n": 3, "state": "active"})


@pytest.mark.slow
def test_an_installed_wheel_brings_its_migrations(tmp_path: Path) -> None:
    """Build the wheel and ask a Python that sees nothing but it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    ask = (
        "from app.database.migrate import head_revision, migrations_folder; print(migrations_folder(), head_revision())"
    )
    answer = subprocess.run(
        [sys.executable, "-P", "-c", ask],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert answer == [str(tmp_path / "site" / "app" / "migrations"), head_revision()]
