"""The simulated robots' stream, in each payload, through the real broker into the real database."""

from __future__ import annotations

import asyncio
import time
from typing import get_args

import numpy as np
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.demo.dialects import Dialect
from app.demo.fleet import expected_samples
from app.demo.robots import RobotSpec, on_duty, record, run_robot
from app.errors import ServiceError
from app.registry.recordings import RecordingSummary, list_recordings, load_recording
from app.telemetry import FleetId, Recording, RobotId
from tests.integration.ingesting import (
    FLEET,
    RobotClient,
    eventually,
    ingest_process,
    ingesting,
    new_id,
    query,
    register,
    stored,
    wait_for_samples,
)

DURATION_S = 3.0
START_DEADLINE_S = 60.0
# What 4-byte floats keep of angles up to 4 rad; JSON keeps all.
TOLERANCE_RAD = {"msgpack": 2.4e-7, "json": 0.0, "ros": 0.0}


def spec_of(dialect: Dialect, speed: float) -> RobotSpec:
    return RobotSpec(FleetId(FLEET), RobotId(new_id(dialect)), dialect, 3, 1, DURATION_S, speed)


async def stored_recording(engine: AsyncEngine, robot: str) -> Recording:
    async with engine.connect() as connection:
        (summary,) = await list_recordings(connection, robot)
        return await load_recording(connection, robot, summary.id)


def assert_same(arrived: Recording, sent: Recording, tolerance_rad: float) -> None:
    """Every row once, each value as it was measured and asked."""
    np.testing.assert_array_equal(arrived.t_ns, sent.t_ns)
    order = [arrived.names.index(name) for name in sent.names]
    for channel in ("position", "command_position"):
        difference = np.abs(arrived.channels[channel][:, order] - sent.channels[channel])
        assert difference.max() <= tolerance_rad


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_what_a_robot_measured_and_was_asked_is_in_the_database(
    engine: AsyncEngine, database_url: str, mqtt_url: str, dialect: Dialect
) -> None:
    spec = spec_of(dialect, speed=100.0)
    await register(engine, spec.robot)
    async with ingesting(database_url, mqtt_url):
        await asyncio.to_thread(run_robot, spec, mqtt_url)
        await wait_for_samples(database_url, spec.robot, expected_samples(spec))
    assert (await stored(database_url, spec.robot)).samples == expected_samples(spec)
    assert_same(await stored_recording(engine, spec.robot), record(spec), TOLERANCE_RAD[dialect])


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_an_ingester_killed_in_the_middle_of_the_stream_loses_no_sample_and_stores_none_twice(
    engine: AsyncEngine, database_url: str, mqtt_url: str, dialect: Dialect
) -> None:
    spec, herald = spec_of(dialect, speed=1.0), new_id("herald")
    for robot in (spec.robot, herald):
        await register(engine, robot)
    name, total = new_id("ingest"), expected_samples(spec)
    async with ingesting(database_url, mqtt_url, name):
        pass  # the session is at the broker from now on
    with ingest_process(database_url, mqtt_url, name) as process:
        # Another robot's message tells that the process has got as far as storing.
        with RobotClient(mqtt_url, herald) as client:
            await wait_for_samples(database_url, herald, client.send_batches(1, "boot"), START_DEADLINE_S)
        moving = asyncio.create_task(asyncio.to_thread(run_robot, spec, mqtt_url))

        async def is_in_mid_stream() -> bool:
            assert process.poll() is None, "the ingester ended by itself"
            return (await stored(database_url, spec.robot)).samples > 0

        await eventually(is_in_mid_stream, "some are stored")
        process.kill()
        process.wait()
    before = (await stored(database_url, spec.robot)).samples
    async with ingesting(database_url, mqtt_url, name):
        await moving
        await wait_for_samples(database_url, spec.robot, total)
    assert 0 < before < total, "it was killed in the middle"
    state = await stored(database_url, spec.robot)
    assert (state.samples, state.letters) == (total, [])
    assert_same(await stored_recording(engine, spec.robot), record(spec), TOLERANCE_RAD[dialect])


async def recordings_of(engine: AsyncEngine, robot: str) -> list[RecordingSummary]:
    async with engine.connect() as connection:
        return await list_recordings(connection, robot)


async def test_a_robot_at_work_tells_the_present_without_a_gap_wears_when_told_and_leaves_in_good_order(
    engine: AsyncEngine, database_url: str, mqtt_url: str
) -> None:
    spec = spec_of("json", speed=100.0)
    await register(engine, spec.robot)
    first = expected_samples(spec)
    async with ingesting(database_url, mqtt_url):
        with on_duty([spec], mqtt_url) as (robot,):
            await wait_for_samples(database_url, spec.robot, first, START_DEADLINE_S)
            assert len(await recordings_of(engine, spec.robot)) == 1, "nothing is done before it is sent to work"
            sent_at_ns = time.time_ns()
            robot.orders.work.set()
            await wait_for_samples(database_url, spec.robot, first + 100, START_DEADLINE_S)
            robot.orders.wear.set()
            await wait_for_samples(database_url, spec.robot, first + 300, START_DEADLINE_S)
            latest, _ = await recordings_of(engine, spec.robot)
            assert time.time_ns() - latest.span.to_ns < 5e9, "it tells what is"
            robot.orders.leave.set()
            robot.process.join(START_DEADLINE_S)
            assert robot.process.exitcode == 0
            worn_at_ns = robot.orders.worn_at_ns.value

        async def has_said_goodbye() -> bool:
            states = await query(database_url, "SELECT state FROM connections WHERE robot = $1", spec.robot)
            return states == [("OFFLINE",)]

        await eventually(has_said_goodbye, "the robot's connection is OFFLINE")
        latest, _ = await recordings_of(engine, spec.robot)
        async with engine.connect() as connection:
            work = await load_recording(connection, spec.robot, latest.id)
    assert sent_at_ns <= work.origin_ns <= worn_at_ns <= latest.span.to_ns
    assert np.unique(np.diff(work.t_ns)).tolist() == [5_000_000]
    speed = np.abs(np.diff(work.channels["command_position"], axis=0)) / 0.005
    assert speed.max() > 0.3


def test_a_robot_without_a_broker_says_so() -> None:
    with pytest.raises(ServiceError, match=r"^broker mqtt://127\.0\.0\.1:1: .*refused"):
        run_robot(spec_of("json", 100.0), "mqtt://127.0.0.1:1")
