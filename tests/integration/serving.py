"""A running API, a running worker, and a robot with telemetry, for the tests of both."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any, Final
from uuid import UUID

import httpx
import numpy as np
import uvicorn
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.app import create_app
from app.api.context import ApiOptions
from app.calibration import child
from app.calibration.worker import Worker
from app.database.engine import raw_connection
from app.database.tables import recordings
from app.database.telemetry import BatchOrigin, BatchRow, pack
from app.registry.keys import Scope, create_key
from app.telemetry import FleetId, RobotId, SampleBatch

DEADLINE_S: Final = 30.0
START_NS: Final = 1_770_000_000 * 10**9
ROBOT: Final = "arm-07"
DECLARATION: Final[dict[str, Any]] = {
    "schema": "twincal.robot/1",
    "robot": ROBOT,
    "fleet": "arms",
    "controller": {"kind": "pd", "kp": 40.0, "kd": 2.0},
}


def _link(name: str) -> str:
    return (
        f'<link name="{name}"><inertial><origin xyz="0 0 0.1"/><mass value="1.0"/>'
        '<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.005"/></inertial></link>'
    )


def _joint(name: str, parent: str, child_link: str) -> str:
    return (
        f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child_link}"/>'
        '<origin xyz="0 0 0.2"/><axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="50" velocity="10"/></joint>'
    )


URDF: Final = (
    '<?xml version="1.0"?><robot name="arm"><link name="base"/>'
    + _link("upper")
    + _link("lower")
    + _joint("shoulder", "base", "upper")
    + _joint("elbow", "upper", "lower")
    + "</robot>"
).encode()


@asynccontextmanager
async def running_api(engine: AsyncEngine, options: ApiOptions | None = None) -> AsyncIterator[str]:
    """The API on a free port; gives its URL. The engine is the caller's and outlives it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            create_app(engine, options), lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not server.started:  # noqa: ASYNC110 - the server has no event for it
                    await asyncio.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def client_of(url: str, token: str | None) -> AsyncIterator[httpx.AsyncClient]:
    """A client with this key."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=DEADLINE_S) as client:
        yield client


async def make_key(engine: AsyncEngine, scope: Scope = "admin", fleet: str | None = None) -> tuple[UUID, str]:
    async with engine.begin() as connection:
        key, token = await create_key(connection, [scope], None if fleet is None else FleetId(fleet))
    return key.id, token


@asynccontextmanager
async def running_worker(
    engine: AsyncEngine, entry: Callable[[Connection], None] = child.main, heartbeat_timeout_s: float = 30.0
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker of this process; stopped in good order."""
    stop = asyncio.Event()
    worker = asyncio.create_task(Worker(engine, heartbeat_timeout_s, entry).run(stop))
    try:
        yield worker
    finally:
        stop.set()
        await asyncio.wait_for(worker, DEADLINE_S)


async def store_motion(
    engine: AsyncEngine, boot_id: str = "boot-1", seconds: float = 4.0, start_s: float = 0.0
) -> UUID:
    """A recording of the robot swinging both joints; gives its id."""
    rate_hz = 100
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    command = np.stack([0.5 * np.sin(3.0 * t), 0.4 * np.sin(5.0 * t)], axis=1)
    return await _store(engine, boot_id, command, START_NS + int(start_s * 1e9), rate_hz)


async def store_stillness(engine: AsyncEngine, boot_id: str, seconds: float, start_s: float) -> UUID:
    """A recording of the robot standing still; gives its id."""
    return await _store(engine, boot_id, np.zeros((int(seconds * 10), 2)), START_NS + int(start_s * 1e9), 10)


async def _store(engine: AsyncEngine, boot_id: str, command: Any, start_ns: int, rate_hz: int) -> UUID:
    measured = np.roll(command, 2, axis=0)
    dt_ns = np.arange(len(command), dtype=np.int64) * (10**9 // rate_hz)
    channels = {"position": measured, "command_position": command}
    batch = SampleBatch(start_ns, dt_ns, ("shoulder", "elbow"), channels)  # type: ignore[arg-type]  # keys are channels
    row = pack(batch, BatchOrigin(RobotId(ROBOT), "joints", start_ns + 10**7, boot_id, 0))
    async with engine.begin() as connection:
        values = {"robot": ROBOT, "boot_id": boot_id, "first_ns": row.first_ns, "last_ns": row.last_ns}
        statement = insert(recordings).values(samples=row.sample_count, **values).returning(recordings.c.id)
        recording: UUID = (await connection.execute(statement)).scalar_one()
        raw = await raw_connection(connection)
        await raw.copy_records_to_table("telemetry_batches", records=[row], columns=BatchRow._fields)
    return recording


async def register(client: httpx.AsyncClient, description: bytes | None = URDF) -> None:
    """Register the robot, with its description if there is to be one."""
    answer = await client.put(f"/v1/robots/{ROBOT}", json=DECLARATION)
    assert answer.is_success, answer.text
    if description is not None:
        answer = await client.put(f"/v1/robots/{ROBOT}/description", content=description)
        assert answer.is_success, answer.text


async def ended(client: httpx.AsyncClient, calibration: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
    """The job once it has ended."""
    return await until(client, calibration, lambda job: job["finished_at"] is not None, deadline_s)


async def until(
    client: httpx.AsyncClient,
    calibration: str,
    condition: Callable[[dict[str, Any]], bool],
    deadline_s: float = DEADLINE_S,
) -> dict[str, Any]:
    """The job once it is as wished."""
    deadline = time.monotonic() + deadline_s
    while True:
        job: dict[str, Any] = (await client.get(f"/v1/calibrations/{calibration}")).raise_for_status().json()
        if condition(job):
            return job
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {job}"
        await asyncio.sleep(0.05)
