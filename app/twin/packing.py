"""From values by parameter to what the kernel computes with, and to the links that PyBullet loads: the same robot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.description import Link
from app.twin.inertia import consistent_inertia, tensor
from app.twin.mechanism import Body, Mechanism, inertial_parameters
from app.twin.parameters import ParameterSpec
from app.twin.rotation import rotation_from_rpy
from app.twin.scratch import Parameters

GRAVITY_M_S2 = (0.0, 0.0, -9.81)
# Where there is no Stribeck effect its velocity has none either; the friction law still divides by it.
_NO_STRIBECK_RAD_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """An unknown payload: a point mass whose link is part of the description, massless there.

    Attributes:
        link: its own link's name.
        body: which body carries it.
        rotation: the link's axes in the body's frame, shape (3, 3).
        origin_m: the link's origin in the body's frame [m], shape (3,).
    """

    link: str
    body: int
    rotation: FloatArray
    origin_m: FloatArray


@dataclass(slots=True)
class _Sets:
    """Parameter sets sorted by where they go; the last axis counts them."""

    joint: FloatArray  # (JOINT_ROWS, n, P)
    no_load: FloatArray  # (n, P)
    mass: FloatArray  # (nb, P)
    com: FloatArray  # (nb, P, 3)
    inertia: dict[int, FloatArray]  # body to xx yy zz xy xz yz, (6, P)
    latency: FloatArray
    lag: FloatArray
    tilt: FloatArray  # roll and pitch, (2, P)
    load: FloatArray  # mass, then centre of mass, (4, P)


def pack(mechanism: Mechanism, specs: Sequence[ParameterSpec], load: Load | None, values: FloatArray) -> Parameters:
    """Parameter sets in the form the kernel takes.

    Args:
        mechanism: what moves.
        specs: of the values.
        load: the unknown payload, if there is one.
        values: shape (P, K), in the units of the names.
    """
    sets = _sorted(mechanism, specs, values)
    joint = sets.joint
    joint[friction.BREAKAWAY] = np.maximum(joint[friction.BREAKAWAY], joint[friction.COULOMB])
    curved = np.isfinite(sets.no_load) & np.isfinite(joint[friction.TORQUE_LIMIT])
    np.divide(joint[friction.TORQUE_LIMIT], sets.no_load, out=joint[friction.LIMIT_SLOPE], where=curved)
    inertial = np.array(
        [_inertial(body, sets.mass[b], sets.com[b], sets.inertia.get(b)) for b, body in enumerate(mechanism.bodies)]
    )
    if load is not None:
        at = sets.load[1:].T @ load.rotation.T + load.origin_m
        inertial[load.body] += _stacked(sets.load[0], at, np.zeros((len(values), 3, 3)))
    gravity = np.array([gravity_in_base(roll, pitch) for roll, pitch in sets.tilt.T]).T
    return Parameters(np.ascontiguousarray(inertial), joint, sets.latency, sets.lag, np.ascontiguousarray(gravity))


def _sorted(mechanism: Mechanism, specs: Sequence[ParameterSpec], values: FloatArray) -> _Sets:
    count, n = len(values), mechanism.n
    joint = np.zeros((friction.JOINT_ROWS, n, count))
    joint[friction.STRIBECK] = _NO_STRIBECK_RAD_S
    joint[friction.TORQUE_LIMIT] = np.inf
    joint[friction.TORQUE_CONSTANT] = 1.0
    sets = _Sets(
        joint=joint,
        no_load=np.full((n, count), np.inf),
        mass=np.array([[body.link.mass_kg] * count for body in mechanism.bodies]),
        com=np.array([[body.link.com_m] * count for body in mechanism.bodies]),
        inertia={},
        latency=np.zeros(count),
        lag=np.zeros(count),
        tilt=np.zeros((2, count)),
        load=np.zeros((4, count)),
    )
    for spec, column in zip(specs, values.T, strict=True):
        _put(sets, spec, column)
    return sets


def _put(sets: _Sets, spec: ParameterSpec, column: FloatArray) -> None:
    """Write one parameter's values where they go."""
    slot = spec.slot
    match slot.place:
        case "joint":
            sets.joint[slot.row, slot.index] = column
        case "no_load":
            sets.no_load[slot.index] = column
        case "mass":
            sets.mass[slot.index] = column
        case "com":
            sets.com[slot.index, :, slot.row] = column
        case "inertia":
            sets.inertia.setdefault(slot.index, np.zeros((6, len(column))))[slot.row] = column
        case "latency":
            sets.latency[:] = column
        case "lag":
            sets.lag[:] = column
        case "tilt":
            sets.tilt[slot.row] = column
        case "load":
            sets.load[slot.row] = column


def gravity_in_base(roll: float, pitch: float) -> tuple[float, float, float]:
    """Gravity in the axes of a base that is mounted with a tilt [m/s²].

    Args:
        roll: about the base's x axis [rad], after
        pitch: about its y axis [rad].
    """
    if roll == 0.0 and pitch == 0.0:
        return GRAVITY_M_S2
    x, y, z = (rotation_from_rpy(np.array([roll, pitch, 0.0])).T @ np.array(GRAVITY_M_S2)).tolist()
    return x, y, z


def _inertial(body: Body, mass: FloatArray, com: FloatArray, own: FloatArray | None) -> FloatArray:
    """Inertial parameters of a body for many values of its primary link, shape (10, P).

    Args:
        body: the body.
        mass: of the primary link [kg], shape (P,).
        com: its centre of mass in its frame [m], shape (P, 3).
        own: its inertia about that [kg·m²], shape (6, P); None: it scales with the mass.
    """
    at = com @ body.rotation.T + body.origin_m
    if own is None:
        unit = body.rotation @ body.link.inertia_kg_m2 @ body.rotation.T / body.link.mass_kg
        inertia = [m * unit for m in mass.tolist()]
    else:
        inertia = [body.rotation @ consistent_inertia(tensor(each)) @ body.rotation.T for each in own.T]
    return body.rest[:, None] + _stacked(mass, at, inertia)


def _stacked(mass: FloatArray, com: FloatArray, inertia: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """Inertial parameters of many rigid bodies in one frame, shape (10, P)."""
    return np.array([inertial_parameters(m, c, i) for m, c, i in zip(mass.tolist(), com, inertia, strict=True)]).T


def links_of(mechanism: Mechanism, load: Load | None, by_name: Mapping[str, float]) -> dict[str, Link]:
    """The links of a description that one parameter set changes.

    Args:
        mechanism: what moves.
        load: the unknown payload, if there is one.
        by_name: the parameter set.
    """
    changed: dict[str, Link] = {}
    for body in mechanism.bodies:
        link, path = body.link, f"link/{body.link.name}/"
        mass = by_name.get(path + "mass_kg", link.mass_kg)
        com = [by_name.get(f"{path}com_{a}_m", c) for a, c in zip("xyz", link.com_m, strict=True)]
        inertia = link.inertia_kg_m2 * (mass / link.mass_kg)
        if f"{path}inertia_xx_kg_m2" in by_name:
            six = [by_name[f"{path}inertia_{ab}_kg_m2"] for ab in ("xx", "yy", "zz", "xy", "xz", "yz")]
            inertia = consistent_inertia(tensor(np.array(six)))
        changed[link.name] = Link(link.name, mass, np.array(com), inertia)
    if load is not None:
        centre = np.array([by_name[f"robot/payload_com_{a}_m"] for a in "xyz"])
        changed[load.link] = Link(load.link, by_name["robot/payload_mass_kg"], centre, np.zeros((3, 3)))
    return changed
