"""The twin in PyBullet: the world that is served and that judges every twin. The only module that imports PyBullet.

PyBullet knows neither armature nor dry friction nor latency. Each step takes its mass matrix and bias torques, solves
the implicit step of `actuator.step_velocity`, and injects the torque that gives the solution: τ' = M q̈ + h. PyBullet's
own damping, motors and limits are off.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pybullet

from app.errors import SimulationError
from app.telemetry import FloatArray, IntArray
from app.twin import friction
from app.twin.actuator import (
    COMMAND_COLUMNS,
    average_command,
    continued_velocity,
    friction_bounds,
    held_torque,
    step_velocity,
    ticks,
)
from app.twin.backlash import grips, starting_gap
from app.twin.command_lag import LAGGED_COLUMNS, lag_start, smooth_command
from app.twin.description import Description, Joint, Link
from app.twin.kernel import DIVERGED_RAD_S
from app.twin.mechanism import displacement
from app.twin.model import TIMESTEP_S, TwinModel
from app.twin.rollout import Motion
from app.twin.urdf_writer import write_urdf

ENGINE_VERSION = "3.2.7"


@dataclass(frozen=True, slots=True)
class LoadedBody:
    """A loaded robot.

    Attributes:
        client: physics client.
        uid: body.
        indices: PyBullet indices of its moving joints, in PyBullet's order.
        jacobian: their rates per rate of the twin's degrees of freedom, shape (len(indices), n).
        inverse: the twin's rates from theirs, shape (n, len(indices)).
        shift: their positions at q = 0 [rad or m], shape (len(indices),).
    """

    client: int
    uid: int
    indices: tuple[int, ...]
    jacobian: FloatArray
    inverse: FloatArray
    shift: FloatArray


def simulate(model: TwinModel, motion: Motion, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Roll one parameter set out in PyBullet.

    Args:
        model: the robot.
        motion: what to simulate.
        values: shape (K,), see `TwinModel.names`.

    Returns:
        Measured positions [rad or m] and velocities at `motion.t_out_s`, shape (K, n) each.

    Raises:
        SimulationError: when PyBullet refuses the model or a joint diverges.
    """
    with loaded(model, values) as body:
        return _run(Stepper(model, values, body), motion)


@contextmanager
def loaded(model: TwinModel, values: FloatArray) -> Iterator[LoadedBody]:
    """The robot in a PyBullet of its own, as long as the context lasts; nothing in it moves by itself.

    Args:
        model: the robot.
        values: its parameters, shape (K,).

    Raises:
        SimulationError: when PyBullet refuses the model.
    """
    description = _welded(model)
    # PyBullet's inverse dynamics turns gravity by the rotation of the base's inertial, though its own step doesn't.
    # The inertial of a fixed base has no part in anything: it gets one without a rotation.
    links = {**model.links(values), description.root: Link(description.root, 1.0, np.zeros(3), np.eye(3))}
    urdf = write_urdf(description, links)
    client = pybullet.connect(pybullet.DIRECT)
    try:
        with tempfile.TemporaryDirectory(prefix="twincal-") as folder:
            # A fresh name each time: PyBullet caches files by name.
            path = Path(folder) / f"{os.urandom(8).hex()}.urdf"
            path.write_bytes(urdf)
            gravity = model.pack(values[None, :]).gravity[:, 0].tolist()
            yield _load(client, str(path), model, gravity)
    finally:
        pybullet.disconnect(client)


def _load(client: int, path: str, model: TwinModel, gravity: Sequence[float]) -> LoadedBody:
    pybullet.setPhysicsEngineParameter(enableFileCaching=0, physicsClientId=client)
    pybullet.setGravity(*gravity, physicsClientId=client)
    pybullet.setTimeStep(TIMESTEP_S, physicsClientId=client)
    flags = pybullet.URDF_USE_INERTIA_FROM_FILE
    try:
        uid = pybullet.loadURDF(path, useFixedBase=True, flags=flags, physicsClientId=client)
    except pybullet.error as error:
        raise SimulationError(
            f"PyBullet refuses the description of {model.mechanism.description.name!r}: {error}"
        ) from error
    moving: dict[str, int] = {}
    for index in range(-1, pybullet.getNumJoints(uid, physicsClientId=client)):
        # One parameter a call: PyBullet drops some of those given together.
        for quantity in ("linearDamping", "angularDamping"):
            pybullet.changeDynamics(uid, index, **{quantity: 0.0}, physicsClientId=client)
        if index < 0:
            continue
        pybullet.changeDynamics(uid, index, jointDamping=0.0, physicsClientId=client)
        info = pybullet.getJointInfo(uid, index, physicsClientId=client)
        if info[2] != pybullet.JOINT_FIXED:
            # Every joint starts with a velocity motor that acts like huge friction.
            pybullet.setJointMotorControl2(uid, index, pybullet.VELOCITY_CONTROL, force=0.0, physicsClientId=client)
            moving[info[1].decode()] = index
    return _keyed_by_name(client, uid, moving, model)


def _keyed_by_name(client: int, uid: int, moving: dict[str, int], model: TwinModel) -> LoadedBody:
    mechanism = model.mechanism
    jacobian = np.zeros((len(moving), mechanism.n))
    shift = np.zeros(len(moving))
    row_of = {name: row for row, name in enumerate(moving)}
    for b, part in enumerate(mechanism.bodies):
        row = row_of[part.joint.name]
        jacobian[row, mechanism.dof[b]] = mechanism.ratio[b]
        shift[row] = mechanism.shift[b]
    return LoadedBody(
        client, uid, tuple(moving.values()), jacobian, np.asarray(np.linalg.pinv(jacobian), dtype=np.float64), shift
    )


def _welded(model: TwinModel) -> Description:
    """The description with locked joints fixed where they are held, and a known payload in its link."""
    description = model.mechanism.description
    joints = {name: _held(joint, model.mechanism.locked.get(name)) for name, joint in description.joints.items()}
    return replace(description, joints=joints)


def _held(joint: Joint, position: float | None) -> Joint:
    if position is None:
        return joint
    turn, slide = displacement(joint, position)
    return replace(
        joint,
        type="fixed",
        origin_m=joint.origin_m + joint.rotation @ slide,
        rotation=joint.rotation @ turn,
        mimic=None,
    )


class Stepper:
    """A loaded twin between steps.

    Attributes:
        q: true joint positions, encoder offsets left aside [rad or m], of the motors where there is backlash, shape
            (n,).
        v: joint velocities half a step earlier; at the very start, those of the start [rad/s or m/s], shape (n,).
        steps: how many were made.
        joint: parameters, shape (JOINT_ROWS, n).
        latency_s: of commands.
        lag_s: time constant of the controller's lag.
        gap: link − motor where there is backlash [rad or m], shape (n,).
        grip: how much of the last step motors carried their links along, 0 to 1, shape (n,).
    """

    def __init__(self, model: TwinModel, values: FloatArray, body: LoadedBody) -> None:
        parameters = model.pack(values[None, :])
        n = model.mechanism.n
        self.model, self.body = model, body
        self.joint = np.ascontiguousarray(parameters.joint[:, :, 0])
        self.latency_s = float(parameters.latency[0])
        self.lag_s = float(parameters.lag[0])
        self.command = np.zeros((n, COMMAND_COLUMNS))
        self.work = np.zeros((2 * n + 4, n))
        self.bound, self.v_next = np.zeros((2, n))
        self.grip = np.ones(n)
        self._lagged = np.zeros((n, LAGGED_COLUMNS))
        self.begin(np.zeros(n), np.zeros(n))

    def begin(self, q: FloatArray, v: FloatArray) -> None:
        """Put the joints somewhere, with no past."""
        self.q, self.v, self._v_before = q, v, v
        self.gap = starting_gap(self.joint[friction.BACKLASH], v)
        self._sensed = self.joint.copy()
        self.steps, self._row = 0, 0
        self.held, self.next_held = np.full(len(q), np.nan), np.full(len(q), np.nan)
        self._reset(q, v)

    @property
    def position(self) -> FloatArray:
        """What the encoders read [rad or m], shape (n,)."""
        position: FloatArray = self.q + self.joint[friction.OFFSET] + self.gap
        return position

    def advance(self, t: float, t_s: FloatArray, command: FloatArray) -> float:
        """Make one step.

        Args:
            t: at its start [s].
            t_s: row k of the command holds on [t_s[k], t_s[k+1]), the last after it, shape (T,).
            command: see `actuator.COMMAND_COLUMNS`, shape (T, n, 7); rows that held before don't change.

        Returns:
            How long the velocities took from the old ones to the new ones [s]: the first step is half as long.
        """
        q, v = self.q, self.v
        length = 0.5 * TIMESTEP_S if self.steps == 0 else TIMESTEP_S
        ahead = 0.5 if self.steps > 1 else float(self.steps)
        v_now = np.array([continued_velocity(*pair, ahead) for pair in zip(v, self._v_before, strict=True)])
        end = t + 0.5 * TIMESTEP_S - self.latency_s
        self._row, _ = average_command(t_s, command, self._row, end - length, end, self.command)
        if self.lag_s > 0.0:
            if self.steps == 0:
                lag_start(t_s, command, end - length, self.lag_s, self._lagged)
            smooth_command(self.command, self._lagged, self.lag_s, length)
        self._sensed[friction.OFFSET] = self.joint[friction.OFFSET] + self.gap
        grips(self.gap, v_now, self.joint[friction.BACKLASH], length, self.grip)
        self._sample(t, q, v_now)
        self._step(length, q, v, v_now)
        q_next, v_next = self._state()
        v_next[self.v_next == 0.0] = 0.0  # PyBullet brings a joint to rest up to rounding: at rest is at rest
        half = 0.5 * self.joint[friction.BACKLASH]
        self.gap = np.clip(self.gap - TIMESTEP_S * v_next, -half, half)
        self.q, self.v, self._v_before = q_next, v_next, v
        self.steps += 1
        return length

    def _reset(self, q: FloatArray, v: FloatArray) -> None:
        body = self.body
        positions, rates = body.jacobian @ q + body.shift, body.jacobian @ v
        for index, position, rate in zip(body.indices, positions, rates, strict=True):
            pybullet.resetJointState(body.uid, index, position, rate, physicsClientId=body.client)

    def _state(self) -> tuple[FloatArray, FloatArray]:
        """The twin's coordinates of what PyBullet's joints do; a mimic joint must still follow its master."""
        body = self.body
        states = pybullet.getJointStates(body.uid, body.indices, physicsClientId=body.client)
        positions = np.array([state[0] for state in states]) - body.shift
        rates = np.array([state[1] for state in states])
        if not np.all(np.abs(rates) < DIVERGED_RAD_S):
            raise SimulationError("the twin diverges in PyBullet: a joint passes 90 rad/s")
        return body.inverse @ positions, body.inverse @ rates

    def _step(self, length: float, q: FloatArray, v: FloatArray, v_now: FloatArray) -> None:
        body = self.body
        q_all = (body.jacobian @ q + body.shift).tolist()
        M_all = np.array(pybullet.calculateMassMatrix(body.uid, q_all, physicsClientId=body.client))
        M = body.jacobian.T @ M_all @ body.jacobian
        h = body.jacobian.T @ self._bias(q_all, v_now)
        state: IntArray = np.sign(v).astype(np.int64)
        friction_bounds(v_now, h, self.joint, length, self.bound)
        step_velocity(
            M,
            h,
            q,
            v,
            self.bound,
            self._sensed,
            self.command,
            self.held,
            self.grip,
            length,
            state,
            self.v_next,
            self.work,
        )
        # PyBullet's own step takes its bias torques at v, whatever length ours had.
        acceleration = body.jacobian @ ((self.v_next - v) / TIMESTEP_S)
        torque = M_all @ acceleration + self._bias(q_all, v)
        pybullet.setJointMotorControlArray(
            body.uid, body.indices, pybullet.TORQUE_CONTROL, forces=torque.tolist(), physicsClientId=body.client
        )
        pybullet.stepSimulation(physicsClientId=body.client)

    def _bias(self, q_all: list[float], v: FloatArray) -> FloatArray:
        """PyBullet's gravity, Coriolis and centrifugal torques at all of its moving joints."""
        body = self.body
        v_all, zeros = (body.jacobian @ v).tolist(), [0.0] * len(q_all)
        return np.array(pybullet.calculateInverseDynamics(body.uid, q_all, v_all, zeros, physicsClientId=body.client))

    def _sample(self, t: float, q: FloatArray, v_now: FloatArray) -> None:
        """What a controller with a rate holds from now on."""
        if self.model.rate_hz == 0.0:
            return
        self.held = self.next_held.copy()
        if ticks(self.model.rate_hz, t, TIMESTEP_S, self.steps):
            sampled = np.zeros_like(q)
            held_torque(q, self.grip * v_now, self._sensed, self.command, sampled)
            self.held = sampled if self.steps == 0 else 0.5 * (self.next_held + sampled)
            self.next_held = sampled


def _run(stepper: Stepper, motion: Motion) -> tuple[FloatArray, FloatArray]:
    """Step until all outputs are written."""
    offset, half, t_out = stepper.joint[friction.OFFSET], 0.5 * stepper.joint[friction.BACKLASH], motion.t_out_s
    positions, velocities = np.full((2, len(t_out), len(offset)), np.nan)
    stepper.begin(motion.q0 - offset - starting_gap(2.0 * half, motion.v0), motion.v0.copy())
    k_q, k_v = 0, 0
    while k_v < len(t_out):
        t = motion.begin_s + stepper.steps * TIMESTEP_S
        q, v, gap = stepper.q, stepper.v, stepper.gap
        length = stepper.advance(t, motion.t_s, motion.command)
        v_next = stepper.v
        while k_q < len(t_out) and t_out[k_q] <= t + TIMESTEP_S:
            moved = (t_out[k_q] - t) * v_next
            positions[k_q] = q + moved + offset + np.clip(gap - moved, -half, half)
            k_q += 1
        middle = t + 0.5 * TIMESTEP_S
        while k_v < len(t_out) and t_out[k_v] <= middle:
            velocities[k_v] = stepper.grip * (v + (1.0 - (middle - t_out[k_v]) / length) * (v_next - v))
            k_v += 1
    return positions, velocities
