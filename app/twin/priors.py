"""Which parameters a robot has, and what is believed of each before its data are seen.

Widths come from the robot itself: the gravity torque and inertia each joint carries with the chain stretched. They are
wide, an order of magnitude or so; a robot that is known better says so in its declaration.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from app.telemetry import Channel, FloatArray
from app.twin import friction
from app.twin.declaration import Controller
from app.twin.description import Joint
from app.twin.document import LognormalPrior, NormalPrior
from app.twin.mechanism import Mechanism
from app.twin.parameters import ParameterSpec, Slot, freeze
from app.twin.structure import PLAIN, Structure

HALF_NORMAL_MEDIAN = 0.6745
ARMATURE_SPREAD = 1.5
GAIN_SPREAD = 1.2
MASS_SPREAD = 0.3
COM_SPREAD = 0.2
"""Of the link's size."""
_BRISK_RAD_S2 = 10.0
_SMALLEST_LINK_M = 0.01  # a point mass at its link's origin has no size of its own
ENCODER_OFFSET_SD = 0.02
LATENCY_SD_S = 0.05
LATENCY_MAX_S = 0.25
LAG_SD_S = 0.03
LAG_MAX_S = 0.5
STRIBECK_SPREAD = 1.0
LOAD_FRICTION_SD = 0.1
LOAD_FRICTION_MAX = 0.9
_STRIBECK_RAD_S, _STRIBECK_M_S = 0.05, 0.02
_BACKLASH_RAD, _BACKLASH_M = 0.01, 0.0005
_BACKLASH_REACH = 20.0


@dataclass(frozen=True, slots=True)
class Scales:
    """Orders of magnitude of a mechanism.

    Attributes:
        torque_nm: of each joint; what its inertia needs where gravity asks for less, shape (n,).
        inertia_kg_m2: of each joint, shape (n,).
    """

    torque_nm: FloatArray
    inertia_kg_m2: FloatArray


def scales_of(mechanism: Mechanism) -> Scales:
    """Gravity torque and inertia of each joint with the chain stretched.

    Distal joints, whose motors rarely shrink as fast as their load, are pulled towards the largest.
    """
    torque, inertia = np.zeros(mechanism.n), np.zeros(mechanism.n)
    for b, body in enumerate(mechanism.bodies):
        mass = body.link.mass_kg + body.rest[0]
        own = float(np.trace(body.link.inertia_kg_m2)) / 3.0
        distance = float(np.linalg.norm(body.rotation @ body.link.com_m + body.origin_m))
        k = b
        while k >= 0:
            dof, ratio = mechanism.dof[k], abs(mechanism.ratio[k])
            arm = 1.0 if mechanism.prismatic[k] else distance
            torque[dof] += ratio * mass * 9.81 * arm
            inertia[dof] += ratio**2 * (mass * arm**2 + own)
            distance += float(np.linalg.norm(mechanism.origin_m[k]))
            k = int(mechanism.parent[k])
    inertia = np.maximum(inertia, 1e-7)
    # A balanced joint, or one that turns about a vertical axis, still has a motor that moves it.
    torque = np.maximum(torque, _BRISK_RAD_S2 * inertia)
    return Scales(np.sqrt(torque * torque.max()), inertia**0.25 * inertia.max() ** 0.75)


def kd_is_damping(controller: Controller, channels: AbstractSet[Channel]) -> bool:
    """Whether nothing in the data tells the velocity gain from viscous damping."""
    return controller.kind == "pd" and controller.kd is None and not {"command_velocity", "command_kd"} & channels


def default_specs(
    mechanism: Mechanism, controller: Controller, channels: AbstractSet[Channel], structure: Structure = PLAIN
) -> tuple[ParameterSpec, ...]:
    """Every parameter of a robot with its default prior.

    Args:
        mechanism: what moves.
        controller: what was declared of it.
        channels: what the data hold.
        structure: which laws there are besides the plain ones.
    """
    scales = scales_of(mechanism)
    specs: list[ParameterSpec] = []
    for dof in range(mechanism.n):
        specs += _joint(mechanism, dof, scales)
        specs += _laws(mechanism, dof, float(scales.torque_nm[dof]), structure)
        joint = mechanism.description.joints[mechanism.joints[dof]]
        specs += _motor(joint, dof, controller, channels, float(scales.torque_nm[dof]))
    specs += _links(mechanism)
    latency = _linear("robot/command_latency_s", Slot("latency", 0, 0), 0.0, LATENCY_SD_S, high=LATENCY_MAX_S)
    latency = replace(latency, initial=0.01)
    specs.append(freeze(latency, 0.0, "prior") if controller.kind == "none" else latency)
    if structure.lag == "delay+lag" and controller.kind != "none":
        lag = _linear("robot/controller_lag_s", Slot("lag", 0, 0), 0.0, LAG_SD_S, high=LAG_MAX_S)
        specs.append(replace(lag, initial=0.3 * LAG_SD_S))
    return tuple(specs)


def _joint(mechanism: Mechanism, dof: int, scales: Scales) -> list[ParameterSpec]:
    """Armature, friction and encoder offset of a joint."""
    name = mechanism.joints[dof]
    joint = mechanism.description.joints[name]
    slides = joint.type == "prismatic"
    torque = float(scales.torque_nm[dof])
    path = f"joint/{name}/"
    armature = path + ("armature_kg" if slides else "armature_kg_m2")
    damping = path + ("viscous_damping_n_s_per_m" if slides else "viscous_damping_nm_s_per_rad")
    coulomb = path + ("coulomb_friction_n" if slides else "coulomb_friction_nm")
    offset = path + ("encoder_offset_m" if slides else "encoder_offset_rad")
    inertia = 0.5 * float(scales.inertia_kg_m2[dof])
    return [
        _log(armature, _at(friction.ARMATURE, dof), inertia, ARMATURE_SPREAD),
        _friction(damping, _at(friction.DAMPING, dof), joint.damping or 0.0, 0.3 * torque),
        _friction(coulomb, _at(friction.COULOMB, dof), joint.friction or 0.0, 0.3 * torque),
        replace(_linear(offset, _at(friction.OFFSET, dof), 0.0, ENCODER_OFFSET_SD), bounds=(-1.0, 1.0)),
    ]


def _laws(mechanism: Mechanism, dof: int, torque: float, structure: Structure) -> list[ParameterSpec]:
    """What friction and transmission of a joint have beyond a plain twin's."""
    name = mechanism.joints[dof]
    joint = mechanism.description.joints[name]
    slides = joint.type == "prismatic"
    path = f"joint/{name}/"
    specs = []
    if structure.stribeck:
        # Breakaway friction below the Coulomb friction is none: a prior that begins at 0 holds the plain law.
        breakaway = path + ("breakaway_friction_n" if slides else "breakaway_friction_nm")
        spec = _friction(breakaway, _at(friction.BREAKAWAY, dof), joint.friction or 0.0, 0.4 * torque)
        velocity = path + ("stribeck_velocity_m_s" if slides else "stribeck_velocity_rad_s")
        median = _STRIBECK_M_S if slides else _STRIBECK_RAD_S
        specs += [
            replace(spec, initial=1.5 * spec.initial),
            _log(velocity, _at(friction.STRIBECK, dof), median, STRIBECK_SPREAD),
        ]
    if structure.load:
        share = _linear(path + "load_friction", _at(friction.LOAD, dof), 0.0, LOAD_FRICTION_SD, high=LOAD_FRICTION_MAX)
        specs.append(replace(share, initial=0.2 * LOAD_FRICTION_SD))
    if structure.backlash:
        sd = _BACKLASH_M if slides else _BACKLASH_RAD
        gap = path + ("backlash_m" if slides else "backlash_rad")
        gap_spec = _linear(gap, _at(friction.BACKLASH, dof), 0.0, sd, high=_BACKLASH_REACH * sd)
        specs.append(replace(gap_spec, initial=0.3 * sd))
    return specs


def _motor(
    joint: Joint, dof: int, controller: Controller, channels: AbstractSet[Channel], torque: float
) -> list[ParameterSpec]:
    """Gains and limits of a joint's motor controller, declared or to be fitted."""
    name, slides = joint.name, joint.type == "prismatic"
    path = f"joint/{name}/"
    unit, angle = ("n", "m") if slides else ("nm", "rad")
    kp = _log(path + f"kp_{unit}_per_{angle}", _at(friction.KP, dof), 20.0 * torque, GAIN_SPREAD)
    kd = _log(path + f"kd_{unit}_s_per_{angle}", _at(friction.KD, dof), torque, GAIN_SPREAD)
    kp = _declared(kp, controller.kp_of(name), in_log="command_kp" in channels)
    kd = _declared(kd, controller.kd_of(name), in_log="command_kd" in channels)
    if kd_is_damping(controller, channels):
        kd = freeze(kd, 0.0, "prior")
    match controller.kind:
        case "pd":
            return [kp, kd]
        case "velocity":
            return [kd]
        case "servo_duty":
            return [
                _log(path + f"duty_stiffness_{unit}_per_{angle}", _at(friction.KP, dof), 0.1 * torque, 2.0),
                _log(path + f"stall_torque_{unit}", _at(friction.TORQUE_LIMIT, dof), torque, 1.0),
                _friction(path + f"back_emf_{unit}_s_per_{angle}", _at(friction.BACK_EMF, dof), 0.0, 0.3 * torque),
            ]
        case _:
            return []


def _links(mechanism: Mechanism) -> list[ParameterSpec]:
    """Mass and centre of mass of each body's primary link; the inertia about it scales with the mass."""
    specs = []
    for index, body in enumerate(mechanism.bodies):
        link = body.link
        mass = _log(f"link/{link.name}/mass_kg", Slot("mass", 0, index), link.mass_kg, MASS_SPREAD)
        specs.append(replace(mass, nominal=link.mass_kg))
        gyration2 = float(np.trace(link.inertia_kg_m2)) / 2.0 / link.mass_kg
        size = max(math.sqrt(float(link.com_m @ link.com_m) + gyration2), _SMALLEST_LINK_M)
        for axis, letter in enumerate("xyz"):
            com = float(link.com_m[axis])
            spec = _linear(f"link/{link.name}/com_{letter}_m", Slot("com", axis, index), com, COM_SPREAD * size)
            specs.append(replace(spec, bounds=(com - 2.0 * size, com + 2.0 * size)))
    return specs


def _at(row: int, dof: int) -> Slot:
    return Slot("joint", row, dof)


def _log(name: str, slot: Slot, median: float, spread: float) -> ParameterSpec:
    """A positive parameter the description says nothing of."""
    reach = math.exp(6.0 * spread)
    prior = LognormalPrior(lognormal=(math.log(median), spread))
    bounds = (median / reach, median * reach)
    return ParameterSpec(name, slot, 0.0, median, prior, bounds, "log", fitted=True, source="prior")


def _linear(name: str, slot: Slot, nominal: float, sd: float, *, high: float | None = None) -> ParameterSpec:
    """A parameter that may be exactly 0."""
    bounds = (0.0, nominal + 20.0 * sd if high is None else high)
    prior = NormalPrior(normal=(nominal, sd))
    return ParameterSpec(name, slot, nominal, nominal, prior, bounds, "linear", fitted=True, source="prior")


def _friction(name: str, slot: Slot, nominal: float, sd: float) -> ParameterSpec:
    """A dissipation: where the description gives none, a fit starts well below the prior's median, within bounds."""
    return replace(_linear(name, slot, nominal, sd), initial=nominal or 0.2 * HALF_NORMAL_MEDIAN * sd)


def _declared(spec: ParameterSpec, value: float | None, *, in_log: bool) -> ParameterSpec:
    """A gain that was declared, or that the log holds in N·m/rad, so that it is a factor of 1."""
    if value is None and not in_log:
        return spec
    value = 1.0 if value is None else value
    return replace(spec, nominal=value, initial=value, fitted=False, source="declared")
