"""Recordings of robots whose truth is known: made by the compiled rollout, by PyBullet or by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.calibration.dataset import Dataset, Split, make_dataset
from app.telemetry import Channel, FloatArray, Recording
from app.twin.actuator import FEED_FORWARD, TARGET
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf
from app.twin.model import TwinModel
from app.twin.rollout import Motion, rollout
from tests.physics import commands

LEVEL = """<robot name="level"><link name="base"/>
<link name="bar"><inertial><origin xyz="{com}"/><mass value="2.0"/>
<inertia ixx="0.02" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="revolute"><parent link="base"/><child link="bar"/><axis xyz="{axis}"/>
<limit lower="-3" upper="3" effort="0" velocity="0"/></joint></robot>"""


def level_joint() -> Description:
    """One joint about a vertical axis, its link balanced: 0.02 kg·m² and no gravity."""
    return parse_urdf(LEVEL.format(com="0 0 0", axis="0 0 1").encode())


def hanging_joint() -> Description:
    """The same about a horizontal axis, its link's centre of mass 0.1 m below it."""
    return parse_urdf(LEVEL.format(com="0 0 -0.1", axis="0 1 0").encode())


def declare(controller: Mapping[str, Any] | None = None, **fields: Any) -> RobotDeclaration:
    """A declaration; position controlled with declared gains unless told otherwise."""
    return RobotDeclaration.model_validate(
        {
            "schema": "twincal.robot/1",
            "robot": "r",
            "fleet": "f",
            "controller": dict(controller or {"kind": "pd", "kp": 40.0, "kd": 1.0}),
            **fields,
        }
    )


def only(*patterns: str, **frozen: float) -> dict[str, Any]:
    """A `fit` block that frees these parameters alone; the others keep the given values, or 0."""
    held = {"joint/*/armature_kg_m2": 0.0, "joint/*/viscous_damping_*": 0.0, "joint/*/coulomb_friction_*": 0.0}
    held |= {"joint/*/encoder_offset_*": 0.0, "robot/command_latency_s": 0.0}
    return {"frozen": held | frozen, "free": list(patterns)}


def log(
    name: str,
    t_s: FloatArray | Sequence[float],
    joints: Sequence[str] = ("hinge",),
    /,
    context: Any = None,
    **channels: Any,
) -> Recording:
    """A recording by hand; a channel's values have shape (T,) or (T, n), its columns follow `joints`."""
    order = sorted(range(len(joints)), key=lambda i: joints[i])
    known: dict[Channel, FloatArray] = {
        channel: np.asarray(values, dtype=np.float64).reshape(len(t_s), -1)[:, order].copy()  # type: ignore[misc]
        for channel, values in channels.items()
    }
    t_ns = np.round(np.asarray(t_s) * 1e9).astype(np.int64)
    return Recording(name, int(t_ns[0]), t_ns - t_ns[0], tuple(joints[i] for i in order), known, dict(context or {}))


def swings(t_s: FloatArray, joints: int, seed: int = 0, amplitude: float = 0.6) -> FloatArray:
    """Position commands that move every joint slowly and quickly, shape (T, n)."""
    draw = np.random.default_rng(seed)
    total = np.zeros((len(t_s), joints))
    for frequency in (0.3, 0.7, 1.3, 2.2):
        phase = draw.uniform(0.0, 2.0 * np.pi, joints)
        total += amplitude / 4.0 / (frequency / 0.7) ** 0.5 * np.sin(2.0 * np.pi * frequency * t_s[:, None] + phase)
    return np.asarray(total - total[0])


def follow(
    model: TwinModel,
    values: FloatArray,
    targets: FloatArray,
    *,
    rate_hz: float = 100.0,
    noise_sd: float = 0.0,
    seed: int = 0,
    name: str = "planted",
) -> Recording:
    """What a robot with these parameters measures while it follows position (or torque) commands, shape (T, n)."""
    rows, n = targets.shape
    t_s = np.arange(rows) / rate_hz
    torque = model.controller == "torque"
    command = commands(rows, n)
    command[:, :, FEED_FORWARD if torque else TARGET] = targets
    start = np.zeros(n) if torque else targets[0]
    trajectory = rollout(model, [Motion(t_s, command, t_s, 0.0, start, np.zeros(n))], values[None, :])[0]
    assert not trajectory.diverged.any()
    noise = np.random.default_rng([seed, 3]).standard_normal((rows, n))
    asked: Channel = "command_effort" if torque else "command_position"
    channels = {"position": trajectory.position[0] + noise_sd * noise, asked: targets}
    return log(name, t_s, model.joints, **channels)


def dataset_of(
    description: Description,
    declaration: RobotDeclaration,
    *train: Recording,
    holdout: Sequence[Recording] = (),
    split: Split | None = None,
) -> Dataset:
    """The dataset a fit of these recordings works on."""
    return make_dataset(description, declaration, train, holdout, split or Split())
