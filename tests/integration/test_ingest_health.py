"""The ingester says whether it lives and whether it can work, and why not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.database.migrate import upgrade_async
from app.embedded.broker import EmbeddedBroker
from app.embedded.postgres import EmbeddedPostgres
from app.errors import ServiceError
from app.ingest.broker import BrokerAddress
from app.ingest.health import HealthServer
from app.ingest.service import IngestOptions, IngestService
from app.ingest.session import SessionOptions
from tests.integration.ingesting import eventually, ingesting, new_id

OK = {"broker": "ok", "database": "ok"}


@asynccontextmanager
async def asked(service: IngestService) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the worker's own port."""
    with HealthServer("127.0.0.1", 0, service.readiness) as server:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=20.0) as client:
            yield client


async def readiness(client: httpx.AsyncClient) -> tuple[int, dict[str, Any]]:
    answer = await client.get("/readyz")
    body: dict[str, Any] = answer.json()
    assert body["ready"] == (answer.status_code == 200)
    return answer.status_code, body["parts"]


async def test_an_ingester_at_work_is_alive_and_ready_and_shows_its_metrics(database_url: str, mqtt_url: str) -> None:
    async with ingesting(database_url, mqtt_url) as service, asked(service) as client:
        assert await readiness(client) == (200, OK)
        alive = await client.get("/livez")
        assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
        assert "twincal_ingest_messages_total" in (await client.get("/metrics")).text
        assert (await client.get("/elsewhere")).status_code == 404


async def test_without_a_broker_it_is_alive_but_not_ready_and_says_why(database_url: str) -> None:
    session = SessionOptions(BrokerAddress.parse("mqtt://127.0.0.1:1"), client_id=new_id("ingest"))
    service = IngestService(IngestOptions(database_url, session))
    running = asyncio.create_task(service.run())
    async with asked(service) as client:

        async def said() -> bool:
            status, parts = await readiness(client)
            assert status == 503
            return "refused" in parts["broker"] and parts["database"] == "ok"

        await eventually(said, "the reason")
        assert (await client.get("/livez")).status_code == 200
    service.stop()
    await asyncio.wait_for(running, 20.0)


async def test_a_broker_that_goes_away_and_comes_back_is_seen(database_url: str, service_dir: Path) -> None:
    with EmbeddedBroker(service_dir / new_id("broker")) as broker:
        async with ingesting(database_url, broker.url) as service, asked(service) as client:
            await asyncio.to_thread(broker.stop)

            async def is_not_ready() -> bool:
                return (await readiness(client))[0] == 503

            async def is_ready() -> bool:
                return (await readiness(client))[0] == 200

            await eventually(is_not_ready, "the broker is missed")
            await asyncio.to_thread(broker.start)
            await eventually(is_ready, "the broker is found again", 60.0)


async def test_a_database_that_goes_away_is_seen_though_no_message_comes(mqtt_url: str, service_dir: Path) -> None:
    with EmbeddedPostgres(service_dir / new_id("postgres"), None, {"fsync": "off"}) as server:
        await upgrade_async(server.url)
        async with ingesting(server.url, mqtt_url) as service, asked(service) as client:
            assert await readiness(client) == (200, OK)
            await asyncio.to_thread(server.stop)
            status, parts = await readiness(client)
            assert (status, parts["broker"]) == (503, "ok")
            assert parts["database"] != "ok"
            assert (await client.get("/livez")).status_code == 200
            await asyncio.to_thread(server.start)
            assert await readiness(client) == (200, OK)


async def test_a_commit_that_fails_is_not_ready_though_the_database_answers(database_url: str, mqtt_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("ALTER DATABASE " + database_url.rpartition("/")[2] + " SET search_path TO nowhere")
    await connection.close()
    session = SessionOptions(BrokerAddress.parse(mqtt_url), client_id=new_id("ingest"))
    service = IngestService(IngestOptions(database_url, session))
    running = asyncio.create_task(service.run())
    async with asked(service) as client:

        async def said() -> bool:
            status, parts = await readiness(client)
            return status == 503 and "telemetry_batches" in parts["database"]

        try:
            await eventually(said, "the reason")
        finally:
            service.stop()
            with pytest.raises(ServiceError, match="telemetry_batches"):
                await asyncio.wait_for(running, 20.0)


async def test_a_port_that_is_taken_is_one_clear_line(database_url: str, mqtt_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        session = SessionOptions(BrokerAddress.parse(mqtt_url), client_id=new_id("ingest"))
        service = IngestService(IngestOptions(database_url, session))
        with pytest.raises(ServiceError, match=f"can't listen on 127.0.0.1:{port}"):
            HealthServer("127.0.0.1", port, service.readiness)
