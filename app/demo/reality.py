"""MuJoCo plays reality: the engine that is fitted never makes its own data.

The physics runs in steps of 0.25 ms with MuJoCo's `implicitfast` integrator, contacts and joint limits off. Position
gain, velocity gain, damping, armature and friction loss are MuJoCo's own. Halving the step changes a 60 s run by less
than the encoders can see (tests/unit/test_demo_reality.py states the figure).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import mujoco
import mujoco.rollout
import numpy as np

from app.demo.arm import Gains
from app.demo.motion import Commands
from app.demo.truth import Truth
from app.telemetry import FloatArray, IntArray, Recording
from app.twin.description import Description, Joint

STEP_NS: Final = 250_000
SETTLE_S: Final = 3.0
"""Time the robot holds its first command before the recording starts."""
MAX_LATENCY_S: Final = 0.1
"""Of a command: for so long what was asked is remembered."""
# MuJoCo's friction loss is soft: a joint that should stick creeps with a speed of (1 - impedance)/impedance times the
# acceleration the friction prevents, times half the time constant. With these it is below 1e-7 rad/s on this arm.
_FRICTION_IMPEDANCE: Final = (0.9999, 0.9999, 0.001, 0.5, 2.0)
_FRICTION_TIME_CONSTANT_STEPS: Final = 2.0


def simulate(
    description: Description,
    gains: Mapping[str, Gains],
    truth: Truth,
    commands: Commands,
    *,
    step_ns: int = STEP_NS,
    name: str = "simulated",
) -> Recording:
    """Let a robot with a hidden truth follow commands, and record what its encoders say.

    The row at an instant holds the measurement taken and the command issued at that instant.

    Args:
        description: fixed base; revolute, continuous, prismatic and fixed joints.
        gains: of the position controller, by joint; continuous in time.
        truth: what the description doesn't say.
        commands: evenly spaced; the spacing is a multiple of `step_ns`.
        step_ns: of the physics.
        name: of the recording.

    Returns:
        Position, velocity and command_position of the commanded joints, joints in sorted order, times from 0.
    """
    return Reality(description, gains, truth, step_ns=step_ns).follow(commands, name)


class Reality:
    """A robot with a hidden truth that goes on from where it was: what it follows may come in pieces.

    Args:
        description: fixed base; revolute, continuous, prismatic and fixed joints.
        gains: of the position controller, by joint; continuous in time.
        truth: what the description doesn't say.
        step_ns: of the physics.
    """

    def __init__(
        self, description: Description, gains: Mapping[str, Gains], truth: Truth, *, step_ns: int = STEP_NS
    ) -> None:
        self._description, self._gains, self._step_ns = description, gains, step_ns
        self._rng = np.random.default_rng([truth.noise_seed, 11])
        self._state = self._past = np.empty(0)
        self.become(truth)

    def become(self, truth: Truth) -> None:
        """Be like this from now on, in mid-motion: positions and speeds stay, only what acts on them changes."""
        if truth.command_latency_s > MAX_LATENCY_S:
            raise ValueError(f"commands are remembered for {MAX_LATENCY_S} s, not for {truth.command_latency_s} s")
        self.truth = truth
        self._model = build_model(self._description, self._gains, truth, self._step_ns)
        self._joints = [self._model.joint(i).name for i in range(self._model.nq)]

    def follow(self, commands: Commands, name: str = "simulated") -> Recording:
        """Follow commands that begin where the last ones ended; before the first ones the robot settles.

        Args:
            commands: evenly spaced; the spacing is a multiple of the physics' step.
            name: of the recording.

        Returns:
            What its encoders say, at the commands' times; joints in sorted order.
        """
        stride = _stride(commands.t_ns, self._step_ns)
        asked = commands.position[:, [commands.names.index(joint) for joint in self._joints]]
        if not self._state.size:
            self._settle(asked[0], stride)
        targets = self._delayed(asked, stride)
        # State i is the one after i steps: row k is measured at state k * stride.
        states = np.vstack([self._state, self._step(targets)])
        rows = stride * np.arange(len(asked))
        nq = self._model.nq
        # A semi-implicit step's velocity belongs to its middle: the mean of two neighbours, to the row's instant.
        v = 0.5 * (states[rows, 1 + nq :] + states[rows + 1, 1 + nq :])
        return self._record(name, commands, (states[rows, 1 : 1 + nq], v))

    def _settle(self, first: FloatArray, stride: int) -> None:
        data = mujoco.MjData(self._model)
        data.qpos[:] = first
        self._state = np.zeros(mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_FULLPHYSICS))
        mujoco.mj_getState(self._model, data, self._state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        row_ns = stride * self._step_ns
        self._past = np.tile(first, (math.ceil(MAX_LATENCY_S * 1e9 / row_ns) + 1, 1))
        self._step(np.tile(first, (round(SETTLE_S * 1e9) // self._step_ns, 1)))

    def _step(self, targets: FloatArray) -> FloatArray:
        """States after each step, [time, q, v], shape (steps, 1 + 2 n); the last one is where the robot is now."""
        data = mujoco.MjData(self._model)
        states, _ = mujoco.rollout.rollout(self._model, data, self._state, targets)
        self._state = states[0, -1].copy()
        return np.asarray(states[0], dtype=np.float64)

    def _delayed(self, asked: FloatArray, stride: int) -> FloatArray:
        """Each physics step's mean of the held command, delayed: shape (T * stride, n)."""
        step_s = self._step_ns * 1e-9
        row_s = stride * step_s
        held = np.vstack([self._past, asked])
        integral = np.vstack([np.zeros((1, held.shape[1])), np.cumsum(held, axis=0) * row_s])
        at_s = row_s * (np.arange(len(held) + 1) - len(self._past))
        # A leapfrog step's force belongs to the instant the step begins at: the mean is centred there.
        edges_s = (np.arange(len(asked) * stride + 1) - 0.5) * step_s - self.truth.command_latency_s
        self._past = held[-len(self._past) :]
        columns = [np.diff(np.interp(edges_s, at_s, column)) / step_s for column in integral.T]
        return np.stack(columns, axis=1)

    def _record(self, name: str, commands: Commands, motion: tuple[FloatArray, FloatArray]) -> Recording:
        encoder, rng = self.truth.encoder, self._rng
        position = _measure(motion[0], encoder.position_noise_rad, encoder.position_step_rad, rng)
        velocity = _measure(motion[1], encoder.velocity_noise_rad_s, encoder.velocity_step_rad_s, rng)
        names = tuple(sorted(self._joints))
        columns = [self._joints.index(n) for n in names]
        asked = [commands.names.index(n) for n in names]
        return Recording(
            name=name,
            origin_ns=0,
            t_ns=commands.t_ns.copy(),
            names=names,
            channels={
                "position": position[:, columns],
                "velocity": velocity[:, columns],
                "command_position": commands.position[:, asked].copy(),
            },
            context={},
        )


def build_model(
    description: Description, gains: Mapping[str, Gains], truth: Truth, step_ns: int = STEP_NS
) -> mujoco.MjModel:
    """The true robot as a MuJoCo model; actuator i holds joint i, its control is the target angle."""
    return build_spec(description, gains, truth, step_ns).compile()


def build_spec(
    description: Description, gains: Mapping[str, Gains], truth: Truth, step_ns: int = STEP_NS
) -> mujoco.MjSpec:
    """What `build_model` compiles."""
    step_s = step_ns * 1e-9
    spec = mujoco.MjSpec()
    spec.option.timestep = step_s
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.gravity = [0.0, 0.0, -9.81]
    spec.option.disableflags = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    bodies = {description.root: _add_body(spec.worldbody, description, description.root, truth)}
    pending = list(description.joints.values())
    while pending:
        ready = [j for j in pending if j.parent in bodies]
        pending = [j for j in pending if j.parent not in bodies]
        for joint in ready:
            body = _add_body(bodies[joint.parent], description, joint.child, truth)
            body.pos = joint.origin_m
            body.quat = _quaternion(joint.rotation)
            bodies[joint.child] = body
            if joint.type != "fixed":
                _add_joint(spec, body, joint, (gains[joint.name], truth, step_s))
    return spec


def _add_body(parent: mujoco.MjsBody, description: Description, link: str, truth: Truth) -> mujoco.MjsBody:
    body = parent.add_body(name=link)
    inertial = description.links[link]
    if inertial.mass_kg > 0.0:
        scale = truth.mass_scale.get(link, 1.0)
        inertia = scale * inertial.inertia_kg_m2
        body.explicitinertial = True
        body.mass = scale * inertial.mass_kg
        body.ipos = inertial.com_m
        body.fullinertia = inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    return body


def _add_joint(spec: mujoco.MjSpec, body: mujoco.MjsBody, joint: Joint, physics: tuple[Gains, Truth, float]) -> None:
    gains, truth, step_s = physics
    drive = truth.drivetrains[joint.name]
    kind = mujoco.mjtJoint.mjJNT_SLIDE if joint.type == "prismatic" else mujoco.mjtJoint.mjJNT_HINGE
    damping = drive.viscous_damping_nm_s_per_rad
    # implicitfast takes damping at the step's end; half a step of it off the inertia makes that the step's middle, and
    # the whole scheme second order: (M - dt D/2)(v' - v) = dt (tau - D v') is M (v' - v) = dt (tau - D (v + v')/2).
    half_step_kg_m2 = 0.5 * step_s * (damping + gains.kd_nm_s_per_rad)
    body.add_joint(
        name=joint.name,
        type=kind,
        axis=joint.axis,
        limited=mujoco.mjtLimited.mjLIMITED_FALSE,
        damping=damping,
        armature=drive.armature_kg_m2 - half_step_kg_m2,
        frictionloss=drive.coulomb_friction_nm,
        solref_friction=[_FRICTION_TIME_CONSTANT_STEPS * step_s, 1.0],
        solimp_friction=_FRICTION_IMPEDANCE,
    )
    actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
    actuator.gainprm[0] = gains.kp_nm_per_rad
    actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    actuator.biasprm[:3] = [0.0, -gains.kp_nm_per_rad, -gains.kd_nm_s_per_rad]


def _quaternion(rotation: FloatArray) -> FloatArray:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation, dtype=np.float64).ravel())
    return quaternion


def _stride(t_ns: IntArray, step_ns: int) -> int:
    spacing = np.unique(np.diff(t_ns))
    if len(spacing) != 1 or spacing[0] % step_ns:
        raise ValueError(f"commands must be evenly spaced, by a multiple of {step_ns} ns")
    return int(spacing[0]) // step_ns


def _measure(values: FloatArray, noise: float, step: float, rng: np.random.Generator) -> FloatArray:
    noisy = values + noise * rng.standard_normal(values.shape)
    return np.asarray(np.round(noisy / step) * step if step > 0.0 else noisy, dtype=np.float64)
