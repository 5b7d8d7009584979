"""Parameters that a twin has only where its declaration names them: most robots need none of them.

A pattern of `fit.free`, `fit.frozen` or `fit.prior` that matches no parameter every twin has brings those it matches
here; one that matches both, like `*`, speaks of the usual ones alone.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import numpy as np

from app.telemetry import Channel
from app.twin import friction
from app.twin.declaration import Controller, Payload
from app.twin.document import NormalPrior
from app.twin.mechanism import Mechanism
from app.twin.parameters import ParameterSpec, Slot, freeze, lognormal
from app.twin.priors import scales_of

MOTOR_SPREAD: Final = 1.0
TORQUE_CONSTANT_SPREAD: Final = 0.5
TILT_SD_RAD: Final = 0.05
TILT_MAX_RAD: Final = 0.7
PAYLOAD_SHARE: Final = 0.1
"""Standard deviation of a payload nothing is known of, as a share of the mass that moves."""
PAYLOAD_SPREAD: Final = 0.5
"""And of one that is declared, as a share of it."""
PAYLOAD_COM_SD_M: Final = 0.1
INERTIA_SPREAD: Final = 0.3
_NO_LOAD_RAD_S, _NO_LOAD_M_S = 10.0, 1.0
_ALIGNED: Final = 1e-6
_COMPONENTS: Final = ("xx", "yy", "zz", "xy", "xz", "yz")


def motor_specs(mechanism: Mechanism, controller: Controller, channels: AbstractSet[Channel]) -> list[ParameterSpec]:
    """Torque limit, no-load speed and torque constant of every joint, as far as its controller has them."""
    specs: list[ParameterSpec] = []
    torques = scales_of(mechanism).torque_nm.tolist()
    for dof, (name, torque) in enumerate(zip(mechanism.joints, torques, strict=True)):
        joint = mechanism.description.joints[name]
        slides = joint.type == "prismatic"
        path, unit, speed = f"joint/{name}/", "n" if slides else "nm", "m_s" if slides else "rad_s"
        if controller.kind in ("pd", "velocity", "torque"):
            limit = joint.effort_limit or 3.0 * torque
            specs.append(
                _positive(f"{path}torque_limit_{unit}", Slot("joint", friction.TORQUE_LIMIT, dof), limit, MOTOR_SPREAD)
            )
            fastest = joint.velocity_limit or (_NO_LOAD_M_S if slides else _NO_LOAD_RAD_S)
            specs.append(_positive(f"{path}no_load_speed_{speed}", Slot("no_load", 0, dof), fastest, MOTOR_SPREAD))
        if controller.kind in ("pd", "torque") and "command_effort" in channels:
            slot = Slot("joint", friction.TORQUE_CONSTANT, dof)
            specs.append(_positive(f"{path}torque_constant_{unit}_per_unit", slot, 1.0, TORQUE_CONSTANT_SPREAD))
    return specs


def tilt_specs() -> list[ParameterSpec]:
    """How the base is mounted."""
    return [
        _linear(f"robot/tilt_{name}_rad", Slot("tilt", row, 0), 0.0, TILT_SD_RAD, (-TILT_MAX_RAD, TILT_MAX_RAD))
        for row, name in enumerate(("roll", "pitch"))
    ]


def unfelt_tilts(mechanism: Mechanism) -> set[str]:
    """Names of tilts that no joint feels but by their square.

    Tilting a little adds gravity along a horizontal axis of the base. Joints that all turn about that axis, whatever
    their positions, and slides across it, feel none of it.
    """
    to_base: list[np.ndarray[tuple[int, int], np.dtype[np.float64]]] = []
    for rotation, parent in zip(mechanism.rotation, mechanism.parent.tolist(), strict=True):
        to_base.append(rotation if parent < 0 else to_base[parent] @ rotation)
    axes = np.array([turn[:, 2] for turn in to_base])
    along = np.abs(axes)
    slides = mechanism.prismatic == 1
    unfelt = np.where(slides[:, None], along < _ALIGNED, along > 1.0 - _ALIGNED).all(axis=0)
    return {name for name, axis in (("robot/tilt_roll_rad", 1), ("robot/tilt_pitch_rad", 0)) if unfelt[axis]}


def payload_specs(mechanism: Mechanism, declared: Payload | None) -> list[ParameterSpec]:
    """Mass and centre of an unknown load, about what is declared of it."""
    moving = sum(body.link.mass_kg + float(body.rest[0]) for body in mechanism.bodies)
    mass = 0.0 if declared is None else declared.mass_kg
    sd = max(PAYLOAD_SPREAD * mass, PAYLOAD_SHARE * moving if mass == 0.0 else 0.0)
    com = (0.0, 0.0, 0.0) if declared is None else declared.com_m
    specs = [_linear("robot/payload_mass_kg", Slot("load", 0, 0), mass, sd, (0.0, mass + 20.0 * sd))]
    specs[0] = replace(specs[0], initial=mass or 0.3 * sd)
    for row, (axis, at) in enumerate(zip("xyz", com, strict=True), start=1):
        bounds = (at - 10.0 * PAYLOAD_COM_SD_M, at + 10.0 * PAYLOAD_COM_SD_M)
        specs.append(_linear(f"robot/payload_com_{axis}_m", Slot("load", row, 0), at, PAYLOAD_COM_SD_M, bounds))
    return specs


def inertia_specs(mechanism: Mechanism) -> list[ParameterSpec]:
    """Inertia of each body's primary link about its centre of mass, in the link's axes."""
    specs = []
    for index, body in enumerate(mechanism.bodies):
        link = body.link
        if not link.inertia_kg_m2.any():
            continue  # a point mass stays one
        diagonal = np.diag(link.inertia_kg_m2).tolist()
        six = [*diagonal, *(float(link.inertia_kg_m2[a, b]) for a, b in ((0, 1), (0, 2), (1, 2)))]
        across = [math.sqrt(diagonal[a] * diagonal[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
        for row, (name, value) in enumerate(zip(_COMPONENTS, six, strict=True)):
            size = diagonal[row] if row < 3 else across[row - 3]
            bounds = (0.05 * size, 10.0 * size) if row < 3 else (-5.0 * size, 5.0 * size)
            slot = Slot("inertia", row, index)
            specs.append(_linear(f"link/{link.name}/inertia_{name}_kg_m2", slot, value, INERTIA_SPREAD * size, bounds))
    return specs


def held(spec: ParameterSpec) -> ParameterSpec:
    """The parameter as it is until something asks to fit it."""
    return freeze(spec, spec.initial, "prior")


def _positive(name: str, slot: Slot, median: float, spread: float) -> ParameterSpec:
    prior, reach = lognormal(median, spread), math.exp(5.0 * spread)
    bounds = (median / reach, median * reach)
    return ParameterSpec(name, slot, median, median, prior, bounds, "log", fitted=True, source="prior")


def _linear(name: str, slot: Slot, nominal: float, sd: float, bounds: tuple[float, float]) -> ParameterSpec:
    prior = NormalPrior(normal=(nominal, sd))
    return ParameterSpec(name, slot, nominal, nominal, prior, bounds, "linear", fitted=True, source="prior")
