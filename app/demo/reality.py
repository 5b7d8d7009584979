"""MuJoCo plays reality: the engine that is fitted never makes its own data.

The physics runs in steps of 0.25 ms with MuJoCo's `implicitfast` integrator, contacts and joint limits off. Position
gain, velocity gain, damping, armature and friction loss are MuJoCo's own. Halving the step changes a 60 s run by less
than the encoders can see (tests/unit/test_demo_reality.py states the figure).
"""

from __future__ import annotations

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
    model = build_model(description, gains, truth, step_ns)
    stride = _stride(commands.t_ns, step_ns)
    settle = round(SETTLE_S * 1e9) // step_ns
    targets = _delayed_targets(commands, truth.command_latency_s, step_ns, settle, stride)
    data = mujoco.MjData(model)
    order = [commands.names.index(model.joint(i).name) for i in range(model.nq)]
    targets = targets[:, order]
    data.qpos[:] = targets[0]
    start = np.zeros(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS))
    mujoco.mj_getState(model, data, start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    states, _ = mujoco.rollout.rollout(model, data, start, targets)
    # A state is [time, q, v]; state i is the one after step i, so row k of the log is state settle + k * stride - 1.
    rows = settle - 1 + stride * np.arange(len(commands.t_ns))
    q = states[0, rows, 1 : 1 + model.nq]
    # Velocities of a semi-implicit step belong to its middle: the mean of two neighbours belongs to the row's instant.
    after = np.minimum(rows + 1, states.shape[1] - 1)
    v = 0.5 * (states[0, rows, 1 + model.nq :] + states[0, after, 1 + model.nq :])
    return _record(name, commands, truth, [model.joint(i).name for i in range(model.nq)], (q, v))


def build_model(
    description: Description, gains: Mapping[str, Gains], truth: Truth, step_ns: int = STEP_NS
) -> mujoco.MjModel:
    """The true robot as a MuJoCo model; actuator i holds joint i, its control is the target angle."""
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
    return spec.compile()


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


def _delayed_targets(commands: Commands, latency_s: float, step_ns: int, settle: int, stride: int) -> FloatArray:
    """Each physics step's mean of the held command, delayed: shape (settle + T * stride, n)."""
    row_s = stride * step_ns * 1e-9
    rows = len(commands.t_ns)
    held = np.vstack([np.zeros((1, commands.position.shape[1])), np.cumsum(commands.position, axis=0) * row_s])
    integral_at_s = np.arange(rows + 1) * row_s
    # A leapfrog step's force belongs to the instant the step begins at: the mean is centred there.
    edges_s = (np.arange(-settle, rows * stride + 1) - 0.5) * (step_ns * 1e-9) - latency_s
    columns = []
    for joint in range(commands.position.shape[1]):
        inside = np.interp(edges_s, integral_at_s, held[:, joint])
        before = np.minimum(edges_s, 0.0) * commands.position[0, joint]  # the first command holds before its row
        columns.append(np.diff(inside + before) / (step_ns * 1e-9))
    return np.stack(columns, axis=1)


def _record(
    name: str, commands: Commands, truth: Truth, joints: list[str], motion: tuple[FloatArray, FloatArray]
) -> Recording:
    rng = np.random.default_rng([truth.noise_seed, 11])
    encoder = truth.encoder
    position = _measure(motion[0], encoder.position_noise_rad, encoder.position_step_rad, rng)
    velocity = _measure(motion[1], encoder.velocity_noise_rad_s, encoder.velocity_step_rad_s, rng)
    names = tuple(sorted(joints))
    columns = [joints.index(n) for n in names]
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


def _measure(values: FloatArray, noise: float, step: float, rng: np.random.Generator) -> FloatArray:
    noisy = values + noise * rng.standard_normal(values.shape)
    return np.asarray(np.round(noisy / step) * step if step > 0.0 else noisy, dtype=np.float64)
