"""The examples do what they say, as programs of their own against real services."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy.ext.asyncio import AsyncEngine

from app.registry.recordings import list_recordings, load_recording
from tests.integration.ingesting import FLEET, ingesting, new_id, stored, wait_for_samples
from tests.integration.ingesting import register as register_robot
from tests.integration.serving import ROBOT, client_of, make_key, register, running_api
from tests.integration.test_api import publish

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 60.0


async def run(name: str, *arguments: str, key: str = "") -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", str(EXAMPLES / name), *arguments],
        env=os.environ | {"TWINCAL_KEY": key},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


async def test_the_publisher_s_samples_are_stored_at_the_rate_it_names(
    engine: AsyncEngine, database_url: str, mqtt_url: str
) -> None:
    robot = new_id("robot")
    await register_robot(engine, robot)
    async with ingesting(database_url, mqtt_url):
        where = ("--mqtt-url", mqtt_url, "--fleet", FLEET, "--robot", robot)
        done = await run("publish_telemetry.py", *where, "--seconds", "1")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"200 samples published as {FLEET}/{robot}\n"
        await wait_for_samples(database_url, robot, 200)
    state = await stored(database_url, robot)
    assert (state.messages, state.samples, state.letters) == (4, 200, [])
    async with engine.connect() as connection:
        (summary,) = await list_recordings(connection, robot)
        recording = await load_recording(connection, robot, summary.id)
    assert recording.names == ("elbow", "shoulder")
    assert set(np.diff(recording.t_ns)) == {5_000_000}
    np.testing.assert_allclose(
        recording.channels["command_position"][:, 1], 0.6 * np.sin(1.3 * recording.t_ns * 1e-9), atol=1e-12
    )


async def test_a_training_job_fetches_a_twin_once_and_again_when_another_is_active(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        where = ("--url", url, "--robot", ROBOT, "--cache", str(tmp_path / "twins"))
        missing = await run("fetch_twin.py", *where, key=token)
        assert (missing.returncode, missing.stderr.startswith("404 ")) == (1, True)
        await register(api)
        first = await publish(engine)
        await activate(api, first.version)
        outputs = [(await run("fetch_twin.py", *where, key=token)).stdout.splitlines()[0] for _ in range(2)]
        assert [line.rpartition(", ")[2] for line in outputs] == ["new", "as before"]
        second = await publish(engine, 0.3)
        await activate(api, second.version)
        third = (await run("fetch_twin.py", *where, key=token)).stdout.splitlines()[0]
        assert third.startswith(f"{ROBOT}: version {second.version}, grade ")
        assert third.endswith(", new")
        served = await api.get(f"/v1/robots/{ROBOT}/twin")
        assert (tmp_path / "twins" / f"{ROBOT}.json").read_bytes() == served.content
        refused = await run("fetch_twin.py", *where, key="wrong")
        assert (refused.returncode, refused.stderr.startswith("401 ")) == (1, True)


async def activate(api: httpx.AsyncClient, version: int) -> None:
    (await api.post(f"/v1/robots/{ROBOT}/twins/{version}/activate")).raise_for_status()
