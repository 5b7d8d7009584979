"""Robots, commands and small judges for the tests of the twin's physics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pybullet
import pybullet_data

from app.telemetry import Channel, FloatArray
from app.twin import dynamics
from app.twin.actuator import COMMAND_COLUMNS, ENABLED, KD_SCALE, KP_SCALE, LIMIT_SCALE, TARGET
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf
from app.twin.document import NormalPrior
from app.twin.model import PLAIN, Structure, TwinModel, build_model
from app.twin.parameters import ParameterSpec, Slot
from app.twin.rollout import Motion, rollout

ALL_COMMANDS: frozenset[Channel] = frozenset(
    {"position", "command_position", "command_velocity", "command_effort"},
)

PENDULUM = """<robot name="pendulum"><link name="base"/>
<link name="rod"><inertial><origin xyz="{com}"/><mass value="{mass}"/>
<inertia ixx="{inertia}" iyy="{inertia}" izz="{inertia}" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="{type}"><parent link="base"/><child link="rod"/><axis xyz="{axis}"/>
<limit lower="-1000" upper="1000" effort="0" velocity="0"/></joint></robot>"""

TWO_LINK = """<robot name="two link"><link name="base"/>
<link name="upper"><inertial><origin xyz="0.2 0 0.01"/><mass value="1.2"/>
<inertia ixx="0.002" iyy="0.02" izz="0.02" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
<link name="lower"><inertial><origin xyz="0.15 0.01 0"/><mass value="0.8"/>
<inertia ixx="0.001" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/>
<origin xyz="0 0 0.5"/><axis xyz="0 1 0"/></joint>
<joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/>
<origin xyz="0.4 0 0"/><axis xyz="0 1 0"/></joint></robot>"""


def pendulum(
    *, com: str = "0 0 0", mass: float = 1.0, inertia: float = 0.1, axis: str = "0 0 1", kind: str = "revolute"
) -> Description:
    """One body on one joint; about its centre of mass and a vertical axis unless told otherwise."""
    text = PENDULUM.format(com=com, mass=mass, inertia=inertia, axis=axis, type=kind)
    return parse_urdf(text.encode())


def two_link() -> Description:
    """An arm of two links in a vertical plane, the upper one's inertia off its axes."""
    return parse_urdf(TWO_LINK.encode())


def read(path: Path) -> Description:
    return parse_urdf(path.read_bytes())


def from_pybullet(name: str) -> Description:
    """A description that comes with PyBullet."""
    return read(Path(pybullet_data.getDataPath()) / name)


def model_of(
    description: Description,
    controller: Mapping[str, Any] | None = None,
    *,
    logged: Sequence[str] | None = None,
    channels: frozenset[Channel] = ALL_COMMANDS,
    structure: Structure = PLAIN,
    also: Sequence[str] = (),
    **declared: Any,
) -> TwinModel:
    """The twin's model of a robot that declares this; all of its joints logged unless told otherwise."""
    declaration = RobotDeclaration.model_validate(
        {
            "schema": "twincal.robot/1",
            "robot": "r",
            "fleet": "f",
            "controller": dict(controller or {"kind": "none"}),
            **declared,
        }
    )
    joints = description.joints if logged is None else logged
    return build_model(description, declaration, set(joints), channels, structure, also)


def lossless(description: Description, controller: Mapping[str, Any] | None = None, **joint: float) -> TwinModel:
    """A model without armature, damping, friction, offset and latency, but for what is given of every joint."""
    nothing = {
        "armature_kg_m2": 0.0,
        "viscous_damping_nm_s_per_rad": 0.0,
        "coulomb_friction_nm": 0.0,
        "encoder_offset_rad": 0.0,
    }
    frozen = {f"joint/*/{name}": value for name, value in {**nothing, **joint}.items()}
    return model_of(description, controller, fit={"frozen": {**frozen, "robot/command_latency_s": 0.0}})


def rolled(model: TwinModel, motion: Motion, values: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Positions and velocities of the compiled rollout, at the fit's first guess unless told, shape (K, n) each."""
    trajectory = rollout(model, [motion], (model.initial() if values is None else values)[None])[0]
    return trajectory.position[0], trajectory.velocity[0]


def commands(rows: int, n: int, target: FloatArray | float = 0.0) -> FloatArray:
    """Enabled position commands at full gains and limits, shape (rows, n, 7)."""
    command = np.zeros((rows, n, COMMAND_COLUMNS))
    command[:, :, [KP_SCALE, KD_SCALE, ENABLED, LIMIT_SCALE]] = 1.0
    command[:, :, TARGET] = target
    return command


def sweeping(n: int, seconds: float, *, amplitude: float = 0.4, rate_hz: float = 50.0, seed: int = 0) -> Motion:
    """Sines of several joints at once, as a log of `rate_hz` holds them, watched at uneven times."""
    draw = np.random.default_rng(seed)
    t = np.arange(0.0, seconds, 1.0 / rate_hz)
    frequency, phase = draw.uniform(0.2, 1.5, n), draw.uniform(0, 2 * np.pi, n)
    target = amplitude * np.sin(2 * np.pi * frequency * t[:, None] + phase)
    t_out = np.sort(draw.uniform(0.0, seconds, 200))
    t_out[-1] = seconds
    return Motion(t, commands(len(t), n, target), t_out, 0.0, target[0].copy(), np.zeros(n))


def watched(t_out: FloatArray, command: FloatArray, q0: FloatArray, v0: FloatArray | None = None) -> Motion:
    """One held row of commands from time 0."""
    return Motion(np.zeros(1), command, t_out, 0.0, q0, np.zeros_like(q0) if v0 is None else v0)


def mass_and_bias(model: TwinModel, values: FloatArray, q: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mass matrix and bias torques of the compiled dynamics at many states, shapes (P, n, n) and (P, n)."""
    states, n = q.shape
    lanes, nb = dynamics.LANES, len(model.mechanism.bodies)
    space = dynamics.space_for(nb, n)
    parameters = model.pack(np.repeat(values[None, :], lanes, axis=0))
    inertial = parameters.inertial.reshape(nb, 10 * lanes)
    M, h = np.zeros((states, n, n)), np.zeros((states, n))
    for first in range(0, states, lanes):
        lane = np.minimum(np.arange(first, first + lanes), states - 1)
        dynamics.mass_and_bias(
            model.tree,
            inertial,
            parameters.gravity,
            np.ascontiguousarray(q[lane].T),
            np.ascontiguousarray(v[lane].T),
            space,
        )
        M[lane], h[lane] = np.moveaxis(space.M, 2, 0), space.h.T
    return M, h


def pybullet_mass_and_bias(client: int, body: int, q: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same of a loaded body, at one state of all its moving joints in PyBullet's order."""
    M = pybullet.calculateMassMatrix(body, q.tolist(), physicsClientId=client)
    h = pybullet.calculateInverseDynamics(body, q.tolist(), v.tolist(), [0.0] * len(q), physicsClientId=client)
    return np.array(M), np.array(h)


def with_rows(model: TwinModel, rows: Mapping[int, float | Sequence[float]]) -> TwinModel:
    """The model with further joint parameters (`friction.TORQUE_LIMIT` and its kin) at these values."""
    added = [
        _held(row, dof, float(value))
        for row, given in rows.items()
        for dof, value in enumerate(np.broadcast_to(given, model.mechanism.n))
    ]
    return replace(model, specs=(*model.specs, *added))


def _held(row: int, dof: int, value: float) -> ParameterSpec:
    prior = NormalPrior(normal=(value, 1.0))
    slot = Slot("joint", row, dof)
    return ParameterSpec(
        f"row/{row}/{dof}", slot, value, value, prior, (0.0, np.inf), "linear", fitted=False, source="declared"
    )
