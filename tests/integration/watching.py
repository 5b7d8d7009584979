"""Robots whose truth is known, their telemetry through the real writer, and a monitor that watches them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from sqlalchemy.ext.asyncio import AsyncEngine

from app.calibration import versions
from app.calibration.audit import Move
from app.calibration.versions import Origin
from app.database.engine import create_engine
from app.ingest.broker import BrokerAddress
from app.ingest.encode import encode_msgpack
from app.ingest.intake import Accepted, Intake, Message
from app.ingest.packet import Limits
from app.ingest.replay import split
from app.ingest.writer import Writer
from app.monitor.service import POOL_SIZE, Monitor, MonitorOptions
from app.monitor.state import DRIFTED_S
from app.monitor.watch import Consider
from app.registry.descriptions import put_robot_description
from app.registry.drift import Drift, read_drift
from app.registry.robots import put_robot
from app.telemetry import CHANNELS, Channel, FleetId, Recording, RobotId
from app.twin.declaration import RobotDeclaration
from app.twin.document import (
    Covariance,
    DescriptionRef,
    Parameter,
    Structure,
    TwinDocument,
    TwinDraft,
    WindowedErrors,
)
from app.twin.model import TwinModel, build_model
from tests.integration.ingesting import eventually
from tests.planted import LEVEL, declare, follow, level_joint, swings
from tests.twins import draft

FLEET: Final = FleetId("watched")
NOISE_RAD: Final = 2e-4
FRICTION: Final = "joint/hinge/coulomb_friction_nm"
TRUTH: Final[Mapping[str, float]] = {
    FRICTION: 0.3,
    "joint/hinge/viscous_damping_nm_s_per_rad": 0.1,
    "joint/hinge/armature_kg_m2": 0.01,
    "joint/hinge/encoder_offset_rad": 0.0,
    "robot/command_latency_s": 0.0,
}
RATE_HZ: Final = 100.0
PAUSE_NS: Final = 5 * 10**8
HALF_A_VERDICT_S: Final = 0.8 * DRIFTED_S
"""Of motion of a worn robot: enough to be watched by, and only twice that to be called drifted by [s]."""


@dataclass
class WatchedRobot:
    """A robot of one joint: what its twin holds, and telemetry of it as it is, or was with another friction.

    Its telemetry begins `age_s` before now and goes on from where it ended, so that it can be sent faster than it would
    have been measured.
    """

    robot: RobotId
    fleet: FleetId = FLEET
    controller: Mapping[str, Any] = field(default_factory=lambda: {"kind": "pd", "kp": 40.0, "kd": 1.0})
    next_ns: int = 0
    last_ns: int = 0
    seq: int = 0
    boot_id: str = "boot-1"
    records: tuple[Channel, ...] = ("position", "command_position")

    @property
    def declaration(self) -> RobotDeclaration:
        return declare(self.controller).model_copy(update={"robot": self.robot, "fleet": self.fleet})

    @property
    def model(self) -> TwinModel:
        return build_model(level_joint(), self.declaration, {"hinge"}, set(CHANNELS))

    def draft(self, truth: Mapping[str, float] = TRUTH, *, windowed: bool = True) -> TwinDraft:
        """A twin with these values, and what windows of a healthy robot come to as its baseline."""
        model = self.model
        parameters = {
            name: Parameter(
                value=float(value), sd=None, interval90=None, verdict=None, source="fit", nominal=0.0, prior=None,
                bounds=None,
            )
            for name, value in zip(model.names, model.values(truth), strict=True)
        }  # fmt: skip
        small = draft(robot=self.robot)
        baseline = WindowedErrors(window_s=2.0, rmse={"hinge": 1.2 * NOISE_RAD})
        return small.model_copy(
            update={
                "fleet": self.fleet,
                "description": DescriptionRef(sha256=level_joint().sha256, href=None),
                "structure": Structure(friction="coulomb+viscous", controller="pd", lag="delay", backlash=False),
                "parameters": parameters,
                "covariance": Covariance(names=(), transform={}, matrix=()),
                "sensors": {},
                "quality": small.quality.model_copy(update={"windowed": baseline if windowed else None}),
            }
        )

    async def register(self, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await put_robot(connection, self.declaration)
            await put_robot_description(connection, self.robot, level_joint_urdf())

    async def serve(self, engine: AsyncEngine, twin: TwinDraft | None = None) -> TwinDocument:
        """Publish a twin and make it the active one."""
        origin = Origin(None, None, datetime.now(UTC))
        async with engine.begin() as connection:
            document = await versions.publish(connection, twin or self.draft(), origin)
            await versions.activate(connection, self.robot, document.version, Move("test"))
        return document

    def motion(self, seconds: float, *, friction: float = TRUTH[FRICTION], still: bool = False) -> Recording:
        rows = int(seconds * RATE_HZ)
        targets = np.zeros((rows, 1)) if still else swings(np.arange(rows) / RATE_HZ, 1, seed=self.seq)
        values = self.model.values({**TRUTH, FRICTION: friction})
        moved = follow(self.model, values, targets, rate_hz=RATE_HZ, noise_sd=NOISE_RAD, seed=self.seq)
        return replace(moved, channels={channel: moved.channels[channel] for channel in self.records})

    def messages(self, recording: Recording, age_s: float = 55.0) -> list[Message]:
        """A recording as the robot would send it after what it sent before."""
        origin_ns = self.next_ns or time.time_ns() - int(age_s * 1e9)
        sent = []
        for batch in split(recording, 50, origin_ns):
            topic = f"twincal/v1/{self.fleet}/{self.robot}/telemetry/joints"
            sent.append(Message(topic, encode_msgpack(batch, self.boot_id, self.seq), None, time.time_ns()))
            self.seq += 1
        self.last_ns = origin_ns + int(recording.t_ns[-1])
        # Each piece begins at rest in its own place: the pause tells that nobody saw how the robot got there.
        self.next_ns = self.last_ns + PAUSE_NS
        return sent

    async def work(
        self, database_url: str, seconds: float, *, friction: float = TRUTH[FRICTION], still: bool = False
    ) -> None:
        """Move, or stand still, for a while: all of it in the database at once."""
        recording = await asyncio.to_thread(self.motion, seconds, friction=friction, still=still)
        await store(database_url, self.messages(recording))


def level_joint_urdf() -> bytes:
    return LEVEL.format(com="0 0 0", axis="0 0 1").encode()


async def store(database_url: str, messages: list[Message]) -> None:
    """Messages into the database by the ingester's own hands."""
    intake = Intake(Limits())
    async with Writer(database_url, intake) as writer:
        examined = [intake.examine(message) for message in messages]
        assert all(isinstance(item, Accepted) for item in examined), examined
        outcome = await writer.store(examined)
    assert not outcome.refused


async def watched_robot(engine: AsyncEngine, name: str, **fields: Any) -> WatchedRobot:
    """A registered robot with an active twin that is as it is."""
    robot = WatchedRobot(RobotId(name), **fields)
    await robot.register(engine)
    await robot.serve(engine)
    return robot


@asynccontextmanager
async def monitoring(
    engine: AsyncEngine, mqtt_url: str | None = None, react: Consider | None = None, **options: Any
) -> AsyncIterator[Monitor]:
    """A monitor in this process, on connections of its own as the command line makes them; ended in good order."""
    broker = None if mqtt_url is None else BrokerAddress.parse(mqtt_url)
    told = MonitorOptions(**({"interval_s": 0.2, "history_s": 0.0, "broker": broker} | options))
    stop = asyncio.Event()
    own = create_engine(engine.url.render_as_string(hide_password=False), pool_size=POOL_SIZE, pre_ping=False)
    monitor = Monitor(own, told) if react is None else Monitor(own, told, react)
    task = asyncio.create_task(monitor.run(stop))
    try:
        yield monitor
    finally:
        stop.set()
        await asyncio.wait_for(task, 20.0)
        await own.dispose()


async def until_seen(engine: AsyncEngine, robot: WatchedRobot) -> Drift:
    """What the monitor says once it has looked at all that the robot sent."""
    return await until_drift(engine, robot.robot, "seen to the end", telemetry_ns=robot.last_ns)


async def drift_of(engine: AsyncEngine, robot: str) -> Drift | None:
    async with engine.connect() as connection:
        return await read_drift(connection, robot)


async def until_drift(engine: AsyncEngine, robot: str, what: str, **wanted: Any) -> Drift:
    """What the monitor says of a robot once it is as wished: fields by name, or `found=` a condition."""
    condition = wanted.pop("found", lambda _: True)
    last: Drift | None = None

    async def there() -> bool:
        nonlocal last
        last = await drift_of(engine, robot)
        return last is not None and all(getattr(last, k) == v for k, v in wanted.items()) and bool(condition(last))

    try:
        await eventually(there, f"{robot}: {what}")
    except AssertionError as error:
        raise AssertionError(f"{error}; last: {last}") from None
    assert last is not None
    return last
