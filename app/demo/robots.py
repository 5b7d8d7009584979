"""Simulated robots: each a process of its own that moves, measures and publishes over MQTT as a real one would."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Final

from app.demo.arm import GAINS, arm_urdf
from app.demo.connection import RobotConnection
from app.demo.dialects import ROWS_PER_BATCH, Dialect, Message, messages
from app.demo.motion import RATE_HZ, excitation, work
from app.demo.reality import Reality, simulate
from app.demo.truth import Truth, draw_truth
from app.errors import ServiceError
from app.telemetry import FleetId, Recording, RobotId
from app.twin.description import Description, parse_urdf

FRICTION_RISE: Final = 1.5
"""What wears in a robot that is told to: dry and viscous friction of every joint, as when its grease stiffens."""
PIECE_NS: Final = round(ROWS_PER_BATCH / RATE_HZ * 1e9)
"""At work a robot's physics goes on by so much at a time: one message."""
LEAVE_DEADLINE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RobotSpec:
    """One robot of the simulated fleet; picklable.

    Attributes:
        fleet: the fleet's id.
        robot: the robot's id.
        dialect: the payload it speaks.
        seed: of the fleet: truths and motions follow from it.
        index: which robot of the fleet.
        duration_s: how long it moves to be calibrated.
        speed: how many times faster than real time it tells that; its work it tells as it happens.
    """

    fleet: FleetId
    robot: RobotId
    dialect: Dialect
    seed: int
    index: int
    duration_s: float
    speed: float

    @property
    def motion_seed(self) -> int:
        """Of what it is asked to do."""
        return self.seed * 1000 + self.index

    def truth(self, description: Description) -> Truth:
        """What it is really like, before anything wears."""
        return draw_truth(description, self.seed, self.index)


@dataclass(frozen=True, slots=True)
class Orders:
    """What a robot's process is told from outside, and says back; nobody but the demonstration sees this.

    Attributes:
        told: set by the robot once all of its first motion is published.
        work: go to work.
        wear: let friction rise in mid-motion.
        leave: end in good order.
        worn_at_ns: set by the robot: stamp of the first sample with the risen friction, 0 before.
    """

    told: Event
    work: Event
    wear: Event
    leave: Event
    worn_at_ns: Synchronized[int]

    @classmethod
    def new(cls, context: SpawnContext) -> Orders:
        """Nothing asked yet."""
        return cls(context.Event(), context.Event(), context.Event(), context.Event(), context.Value("q", 0))


@dataclass(frozen=True, slots=True)
class Robot:
    """A robot's process and what it can be told."""

    spec: RobotSpec
    process: BaseProcess
    orders: Orders

    def check(self) -> None:
        """Notice a robot that has ended, which none does by itself.

        Raises:
            ServiceError: naming it.
        """
        if self.process.exitcode is not None:
            raise ServiceError(f"the simulated robot {self.spec.robot} ended with exit code {self.process.exitcode}")

    def leave(self) -> None:
        """Let it end in good order, or else end it."""
        if self.process.pid is None:
            return
        self.orders.leave.set()
        self.orders.work.set()
        self.process.join(LEAVE_DEADLINE_S)
        self.process.terminate()
        self.process.join()


@contextmanager
def on_duty(specs: Sequence[RobotSpec], mqtt_url: str) -> Iterator[tuple[Robot, ...]]:
    """The robots as processes of their own; whatever happens, none outlives the demonstration."""
    context = multiprocessing.get_context("spawn")
    robots = []
    for spec in specs:
        orders = Orders.new(context)
        process = context.Process(target=_be_robot, args=(spec, mqtt_url, orders), name=spec.robot, daemon=True)
        robots.append(Robot(spec, process, orders))
    try:
        for robot in robots:
            robot.process.start()
        yield tuple(robots)
    finally:
        for robot in robots:
            robot.orders.leave.set()  # all at once, so that they leave together
        for robot in robots:
            robot.leave()


def record(spec: RobotSpec) -> Recording:
    """What the robot measures while it makes its first motion: the same for the same spec."""
    description = parse_urdf(arm_urdf())
    motion = excitation(description, spec.motion_seed, spec.duration_s)
    return simulate(description, GAINS, spec.truth(description), motion, name=spec.robot)


def run_robot(spec: RobotSpec, mqtt_url: str) -> None:
    """Make the first motion, publish all of it, and leave in good order.

    Raises:
        ServiceError: if the broker can't be reached or doesn't acknowledge.
    """
    recording = record(spec)
    with RobotConnection(spec.fleet, spec.robot, mqtt_url) as connection:
        _tell(spec, recording, connection)


def _be_robot(spec: RobotSpec, mqtt_url: str, orders: Orders) -> None:
    """Be a robot in a process of its own, which ends with its parent however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        recording = record(spec)
        with RobotConnection(spec.fleet, spec.robot, mqtt_url) as connection:
            _tell(spec, recording, connection)
            orders.told.set()
            orders.work.wait()
            connection.publish_paced(_shift(spec, orders, time.time_ns()), speed=1.0)
    except ServiceError as error:
        sys.exit(f"{spec.robot}: {error}")


def _tell(spec: RobotSpec, recording: Recording, connection: RobotConnection) -> None:
    """Publish a recording. Its stamps end about now: the motion is told as if it had just been made."""
    # What is told faster than it happened must have begun earlier, or its stamps would lie in the future.
    origin_ns = time.time_ns() - int(recording.t_ns[-1])
    connection.publish_paced(messages(recording, spec.dialect, origin_ns, _boot_id(spec, origin_ns)), spec.speed)


def _shift(spec: RobotSpec, orders: Orders, origin_ns: int) -> Iterator[Message]:
    """Work until told to leave: a message is due when its last sample is taken, so that stamps are the present.

    The physics goes on a piece at a time while it is told; what `wear` asks for happens between two pieces.
    """
    description = parse_urdf(arm_urdf())
    truth = spec.truth(description)
    # Another day's noise than the first motion's.
    reality = Reality(description, GAINS, replace(truth, noise_seed=truth.noise_seed + 1))
    boot_id = _boot_id(spec, origin_ns)
    for piece, commands in enumerate(work(description, spec.motion_seed, ROWS_PER_BATCH)):
        if orders.leave.is_set():
            return
        start_ns = piece * PIECE_NS
        if orders.wear.is_set() and not orders.worn_at_ns.value:
            reality.become(reality.truth.with_friction(FRICTION_RISE))
            orders.worn_at_ns.value = origin_ns + start_ns
        recording = reality.follow(commands)
        for message in messages(recording, spec.dialect, origin_ns + start_ns, boot_id, first_seq=piece):
            yield replace(message, due_ns=start_ns + message.due_ns)


def _boot_id(spec: RobotSpec, origin_ns: int) -> str:
    return f"demo-{spec.seed}-{origin_ns}"


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
