"""The demonstration arm: its description, its declared controller, and what such a joint typically is like inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, slots=True)
class Gains:
    """A joint's declared position controller: torque = kp (command - measured) - kd · measured velocity.

    Attributes:
        kp_nm_per_rad: position gain.
        kd_nm_s_per_rad: velocity gain.
    """

    kp_nm_per_rad: float
    kd_nm_s_per_rad: float


@dataclass(frozen=True, slots=True)
class Drivetrain:
    """What a joint's motor and gear add to the rigid body.

    Attributes:
        coulomb_friction_nm: dry friction.
        viscous_damping_nm_s_per_rad: friction per speed.
        armature_kg_m2: the rotor's inertia seen at the joint.
    """

    coulomb_friction_nm: float
    viscous_damping_nm_s_per_rad: float
    armature_kg_m2: float


# Damping ratios of 0.5 to 0.8 with the arm half stretched: what a maker would ship without gravity compensation.
GAINS: Final[Mapping[str, Gains]] = {
    "base_yaw": Gains(450.0, 40.0),
    "shoulder_pitch": Gains(600.0, 50.0),
    "elbow_pitch": Gains(350.0, 22.0),
    "forearm_roll": Gains(60.0, 2.5),
    "wrist_pitch": Gains(60.0, 2.5),
    "wrist_roll": Gains(40.0, 1.5),
}

# The centres of the ranges from which hidden truths are drawn, of the size of harmonic drives in arms of this class.
TYPICAL: Final[Mapping[str, Drivetrain]] = {
    "base_yaw": Drivetrain(5.0, 6.0, 0.9),
    "shoulder_pitch": Drivetrain(5.0, 6.0, 0.9),
    "elbow_pitch": Drivetrain(3.5, 4.0, 0.5),
    "forearm_roll": Drivetrain(0.8, 0.6, 0.06),
    "wrist_pitch": Drivetrain(0.8, 0.6, 0.06),
    "wrist_roll": Drivetrain(0.5, 0.4, 0.04),
}


def arm_urdf() -> bytes:
    """The arm's URDF: six revolute joints, fixed base, no meshes, and a massless `tool0` at the flange."""
    return (files("app.demo") / "arm.urdf").read_bytes()
