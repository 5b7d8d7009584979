"""The hidden truth of a simulated robot: what a calibration has to find without being told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.demo.arm import TYPICAL, Drivetrain
from app.twin.description import Description

FACTOR_RANGE: Final = 3.0
"""Friction, damping and armature lie within this factor of their typical value, either way (log-uniform)."""
MASS_RANGE: Final = 0.2
"""Masses lie within this share of the description's, either way (uniform)."""
LATENCY_RANGE_S: Final = (0.002, 0.030)
"""Command latency [s] (uniform)."""
NOISE_RANGE_RAD: Final = (0.00007, 0.00014)
"""Standard deviation of an encoder's noise [rad] (log-uniform around 0.1 mrad)."""
ENCODER_BITS: Final = (14, 15, 16)
"""Resolutions of encoders, in bits per turn."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """How joint positions and velocities are measured: Gaussian noise, then rounding to a step; 0 is none.

    Attributes:
        position_noise_rad: standard deviation.
        position_step_rad: rounding.
        velocity_noise_rad_s: standard deviation.
        velocity_step_rad_s: rounding.
    """

    position_noise_rad: float
    position_step_rad: float
    velocity_noise_rad_s: float
    velocity_step_rad_s: float


PERFECT_ENCODER: Final = Encoder(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Truth:
    """What one robot is really like, where its description doesn't say or is wrong.

    Attributes:
        drivetrains: by joint.
        mass_scale: true mass over described mass by link; inertia scales along, the centre of mass stays.
        command_latency_s: how much later than its stamp a command takes effect.
        encoder: noise and rounding of every joint's measurement.
        noise_seed: of the measurement noise.
    """

    drivetrains: Mapping[str, Drivetrain]
    mass_scale: Mapping[str, float]
    command_latency_s: float
    encoder: Encoder
    noise_seed: int

    def with_friction(self, factor: float) -> Truth:
        """The same robot with dry and viscous friction of every joint so many times what they are."""
        return replace(
            self,
            drivetrains={
                joint: replace(
                    drive,
                    coulomb_friction_nm=factor * drive.coulomb_friction_nm,
                    viscous_damping_nm_s_per_rad=factor * drive.viscous_damping_nm_s_per_rad,
                )
                for joint, drive in self.drivetrains.items()
            },
        )

    def parameters(self, description: Description) -> dict[str, float]:
        """The truth under the parameter names of a twin document, in the units those names end in."""
        values: dict[str, float] = {"robot/command_latency_s": self.command_latency_s}
        for joint, drive in self.drivetrains.items():
            values[f"joint/{joint}/coulomb_friction_nm"] = drive.coulomb_friction_nm
            values[f"joint/{joint}/viscous_damping_nm_s_per_rad"] = drive.viscous_damping_nm_s_per_rad
            values[f"joint/{joint}/armature_kg_m2"] = drive.armature_kg_m2
            values[f"joint/{joint}/encoder_offset_rad"] = 0.0
        for link, scale in self.mass_scale.items():
            body = description.links[link]
            values[f"link/{link}/mass_kg"] = scale * body.mass_kg
            for axis, com in zip("xyz", body.com_m, strict=True):
                values[f"link/{link}/com_{axis}_m"] = float(com)
        return values


def nominal_truth(description: Description) -> Truth:
    """The robot its description promises: no friction, no damping, no armature, no latency, a perfect encoder."""
    moving = [j for j in description.joints.values() if j.type != "fixed"]
    return Truth(
        drivetrains={j.name: Drivetrain(0.0, 0.0, 0.0) for j in moving},
        mass_scale=dict.fromkeys(description.links, 1.0),
        command_latency_s=0.0,
        encoder=PERFECT_ENCODER,
        noise_seed=0,
    )


def draw_truth(description: Description, seed: int, robot_index: int) -> Truth:
    """Draw the hidden truth of one robot of the demonstration fleet from the ranges stated in this module.

    Args:
        description: of the demonstration arm (`app.demo.arm`).
        seed: of the fleet.
        robot_index: which robot of it; robots of one fleet differ from each other.
    """
    rng = np.random.default_rng([seed, robot_index])

    def spread(typical: float) -> float:
        return typical * math.exp(rng.uniform(-1.0, 1.0) * math.log(FACTOR_RANGE))

    drivetrains = {
        joint: Drivetrain(
            spread(typical.coulomb_friction_nm),
            spread(typical.viscous_damping_nm_s_per_rad),
            spread(typical.armature_kg_m2),
        )
        for joint, typical in TYPICAL.items()
    }
    mass_scale = {
        name: float(rng.uniform(1.0 - MASS_RANGE, 1.0 + MASS_RANGE))
        for name, link in description.links.items()
        if link.mass_kg > 0.0
    }
    latency_s = float(rng.uniform(*LATENCY_RANGE_S))
    noise_rad = math.exp(rng.uniform(math.log(NOISE_RANGE_RAD[0]), math.log(NOISE_RANGE_RAD[1])))
    step_rad = 2.0 * math.pi / 2.0 ** int(rng.choice(ENCODER_BITS))
    # A drive's speed estimate: twenty times the position's figures, per second.
    encoder = Encoder(noise_rad, step_rad, 20.0 * noise_rad, 5.0 * step_rad)
    return Truth(drivetrains, mass_scale, latency_s, encoder, noise_seed=int(rng.integers(2**31)))
