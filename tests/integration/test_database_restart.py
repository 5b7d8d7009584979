"""A database that goes away and comes back is no reason to lose a job, a worker or the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database.engine import create_engine
from app.database.migrate import upgrade_async
from app.embedded.postgres import EmbeddedPostgres
from tests import entries
from tests.integration.serving import (
    ROBOT,
    client_of,
    ended,
    make_key,
    register,
    running_api,
    running_worker,
    store_motion,
    until,
)


@pytest.fixture
def server(service_dir: Path) -> EmbeddedPostgres:
    """A server of this test's own, which it may stop."""
    return EmbeddedPostgres(service_dir / "restarted", settings={"fsync": "off"})


@pytest.fixture
async def own_engine(server: EmbeddedPostgres) -> AsyncIterator[AsyncEngine]:
    await asyncio.to_thread(server.start)
    engine = create_engine(server.url)
    try:
        await upgrade_async(server.url)
        yield engine
    finally:
        await engine.dispose()
        await asyncio.to_thread(server.stop)


async def test_a_fit_goes_on_over_a_restart_of_the_database(server: EmbeddedPostgres, own_engine: AsyncEngine) -> None:
    _, token = await make_key(own_engine)
    async with running_api(own_engine) as url, client_of(url, token) as api:
        await register(api)
        await store_motion(own_engine)
        async with running_worker(own_engine, entries.hang) as worker:
            job = (await api.post(f"/v1/robots/{ROBOT}/calibrations")).json()["id"]
            await until(api, job, lambda now: bool(now["trials"]))
            await asyncio.to_thread(server.stop)
            assert (await api.get("/livez")).status_code == 200
            assert (await api.get("/readyz")).status_code == 503
            await asyncio.to_thread(server.start)
            assert (await api.get("/readyz")).status_code == 200
            assert (await api.get(f"/v1/calibrations/{job}")).json()["state"] == "running"
            await api.delete(f"/v1/calibrations/{job}")
            assert (await ended(api, job))["state"] == "cancelled"
            assert not worker.done()
