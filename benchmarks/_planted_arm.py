"""A seven-joint arm with a known inside, played by MuJoCo: the KUKA iiwa that comes with PyBullet, motors added."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pybullet_data

from app.demo.arm import Drivetrain, Gains
from app.demo.motion import Commands, excitation
from app.demo.truth import Encoder, Truth
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf

_URDF: Final = "kuka_iiwa/model.urdf"
_SPEED_RAD_S: Final = 2.5
"""Highest speed the motion asks for, roughly the arm's own; its description says 10 rad/s."""
_JOINTS: Final = tuple(f"lbr_iiwa_joint_{number}" for number in range(1, 8))
LINKS: Final = tuple(f"lbr_iiwa_link_{number}" for number in range(1, 8))

_SIZES: Final = ("large", "large", "medium", "medium", "small", "small", "smallest")
_GAINS: Final = {
    "large": Gains(600.0, 50.0),
    "medium": Gains(350.0, 22.0),
    "small": Gains(80.0, 3.0),
    "smallest": Gains(40.0, 1.5),
}
_TYPICAL: Final = {
    "large": Drivetrain(5.0, 6.0, 0.9),
    "medium": Drivetrain(3.5, 4.0, 0.5),
    "small": Drivetrain(0.8, 0.6, 0.06),
    "smallest": Drivetrain(0.5, 0.4, 0.04),
}
GAINS: Final[Mapping[str, Gains]] = {name: _GAINS[size] for name, size in zip(_JOINTS, _SIZES, strict=True)}
_FACTOR: Final = 2.0
"""Friction, damping and armature lie within this factor of what is typical (log-uniform)."""
_MASS: Final = 0.2
"""Masses lie within this share of the description's (uniform)."""


def arm() -> Description:
    """Its description."""
    text = (Path(pybullet_data.getDataPath()) / _URDF).read_text()
    return parse_urdf(text.replace('velocity="10"', f'velocity="{_SPEED_RAD_S}"').encode())


def declaration(**fit: Any) -> RobotDeclaration:
    """Its declaration, gains included, with a `fit` block."""
    kp = {name: gains.kp_nm_per_rad for name, gains in GAINS.items()}
    kd = {name: gains.kd_nm_s_per_rad for name, gains in GAINS.items()}
    return RobotDeclaration.model_validate(
        {
            "schema": "twincal.robot/1",
            "robot": "planted",
            "fleet": "bench",
            "controller": {"kind": "pd", "kp": kp, "kd": kd},
            "fit": fit,
        }
    )


def known_shape(description: Description) -> dict[str, float]:
    """Centres of mass as they are, for `fit.frozen`; inertias follow the masses by themselves."""
    return {
        f"link/{name}/com_{axis}_m": float(com)
        for name in LINKS
        for axis, com in zip("xyz", description.links[name].com_m, strict=True)
    }


def draw(description: Description, seed: int, *, latency_s: float, encoder: Encoder) -> Truth:
    """The inside of one arm.

    Args:
        description: of the arm.
        seed: of the draw.
        latency_s: of its commands.
        encoder: of every joint.
    """
    rng = np.random.default_rng([seed, 41])

    def spread(typical: float) -> float:
        return typical * math.exp(rng.uniform(-1.0, 1.0) * math.log(_FACTOR))

    drivetrains = {}
    for name, size in zip(_JOINTS, _SIZES, strict=True):
        typical = _TYPICAL[size]
        drivetrains[name] = Drivetrain(
            spread(typical.coulomb_friction_nm),
            spread(typical.viscous_damping_nm_s_per_rad),
            spread(typical.armature_kg_m2),
        )
    scale = {name: float(rng.uniform(1.0 - _MASS, 1.0 + _MASS)) for name in LINKS if name in description.links}
    return Truth(drivetrains, scale, latency_s, encoder, noise_seed=seed)


def motion(description: Description, seed: int, seconds: float, rate_hz: int = 200) -> Commands:
    """Position commands that move every joint, slowly and quickly; between 200 rows a second they are interpolated."""
    slow = excitation(description, seed, seconds)
    period_ns = round(1e9 / rate_hz)
    t_ns = period_ns * np.arange(round(seconds * rate_hz), dtype=np.int64)
    columns = [np.interp(t_ns, slow.t_ns, column) for column in slow.position.T]
    return Commands(t_ns, slow.names, np.stack(columns, axis=1))
