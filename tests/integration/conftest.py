"""Real services for the tests: each worker of pytest-xdist starts its own Postgres and brokers on free ports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.engine import create_engine
from app.database.migrate import upgrade
from app.embedded.broker import BrokerKind, EmbeddedBroker, find_mosquitto
from app.embedded.postgres import EmbeddedPostgres

_TEMPLATE = "template_twincal"
_numbers = count(1)


def _with_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _administer(url: str, statement: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(execute())


@pytest.fixture(scope="session")
def postgres(service_dir: Path) -> Iterator[EmbeddedPostgres]:
    """The session's server, with a migrated template database."""
    bin_dir = os.environ.get("TWINCAL_POSTGRES_BIN")
    # Nothing here outlives the run: what is on disk needn't survive a power cut.
    settings = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    with EmbeddedPostgres(service_dir / "postgres", Path(bin_dir) if bin_dir else None, settings) as server:
        _administer(server.url, f"CREATE DATABASE {_TEMPLATE}")
        upgrade(_with_database(server.url, _TEMPLATE))
        yield server


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database of the test's own, with the newest schema and no rows."""
    name = f"test_{next(_numbers)}"
    _administer(postgres.url, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    yield _with_database(postgres.url, name)
    _administer(postgres.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database of the test's own without any table."""
    name = f"test_{next(_numbers)}"
    _administer(postgres.url, f"CREATE DATABASE {name} TEMPLATE template0")
    yield _with_database(postgres.url, name)
    _administer(postgres.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on the test's own database."""
    engine = create_engine(database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def connection(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection in a transaction."""
    async with engine.begin() as connection:
        yield connection


@pytest.fixture(scope="session", params=["mosquitto", "iotcore"])
def broker(request: pytest.FixtureRequest, service_dir: Path) -> Iterator[EmbeddedBroker]:
    """A running broker of each kind: a test that asks for it runs with both."""
    kind = cast("BrokerKind", request.param)
    if kind == "mosquitto" and find_mosquitto() is None:
        pytest.skip("NO MOSQUITTO ON THIS MACHINE: nothing is tested against it (apt-get install mosquitto)")
    with EmbeddedBroker(service_dir / f"broker-{kind}", kind) as running:
        yield running


@pytest.fixture(scope="session")
def mqtt_url(service_dir: Path) -> Iterator[str]:
    """The broker that `twincal up` would start here. Shared by the session's tests: use ids of your own."""
    with EmbeddedBroker(service_dir / "broker") as running:
        yield running.url
