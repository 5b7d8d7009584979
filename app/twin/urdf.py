"""From a URDF's elements to a validated `Description`: what each link and joint says, and what is odd about it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, cast, get_args

import numpy as np

from app.errors import DescriptionError
from app.telemetry import FloatArray, read_only
from app.twin.description import Description, Joint, JointType, Link, Mimic
from app.twin.inertials import check_inertials
from app.twin.kinematics import check_mimics, check_movable, find_root
from app.twin.rotation import rotation_from_rpy
from app.twin.urdf_xml import Element, child, limit_value, line_of, name_of, number, read_robot_element, vector

_JOINT_TYPES: Final = get_args(JointType)
_ROBOT_TAGS: Final = {"link", "joint", "material", "transmission", "gazebo", "ros2_control", "sensor", "group"}
_LINK_TAGS: Final = {"inertial", "visual", "collision", "contact", "sensor", "material", "gazebo"}
_JOINT_TAGS: Final = {
    *("origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "calibration", "safety_controller"),
    *("hardwareInterface", "property", "gazebo"),
}
_LARGEST_ANGLE_RAD: Final = 4 * math.pi


def parse(source: bytes) -> Description:
    """Parse and validate a URDF; `app.twin.description.parse_urdf` is its public name."""
    robot = read_robot_element(source)
    warnings = _unknown_tags("robot", robot, _ROBOT_TAGS)
    links: dict[str, Link] = {}
    joints: dict[str, Joint] = {}
    lines: dict[tuple[str, str], int] = {}
    for element in robot.iterchildren("link", "joint"):
        kind, name = str(element.tag), name_of(element)
        if (kind, name) in lines:
            earlier = lines[kind, name]
            raise DescriptionError(f"{kind} {name!r}", f"defined twice, on lines {earlier} and {line_of(element)}")
        lines[kind, name] = line_of(element)
        if kind == "link":
            links[name] = _read_link(element, name, warnings)
        else:
            joints[name] = _read_joint(element, name, warnings)
    root = find_root(links, joints)
    check_movable(joints)
    check_mimics(joints)
    warnings += _unused_meshes(robot)
    description = Description(
        name=str(robot.get("name") or ""),
        sha256=hashlib.sha256(source).hexdigest(),
        links=links,
        joints=joints,
        root=root,
        warnings=(),
        source=source,
    )
    warnings += check_inertials(description)
    return replace(description, warnings=tuple(warnings))


def _read_link(element: Element, name: str, warnings: list[str]) -> Link:
    where = f"link {name!r}"
    warnings += _unknown_tags(where, element, _LINK_TAGS)
    inertial = child(element, "inertial", where)
    if inertial is None:
        return Link(name, 0.0, _frozen(np.zeros(3)), _frozen(np.zeros((3, 3))))
    mass = child(inertial, "mass", where)
    if mass is None:
        raise DescriptionError(f"{where} (line {inertial.sourceline})", "<inertial> has no <mass>")
    mass_kg = number(mass, "value", where)
    if mass_kg < 0:
        raise DescriptionError(f"{where} (line {mass.sourceline})", f"mass {mass_kg} kg is negative")
    origin = child(inertial, "origin", where)
    rotation = rotation_from_rpy(vector(origin, "rpy", where))
    tensor = _read_inertia(child(inertial, "inertia", where), where)
    if mass_kg == 0 and tensor.any():
        warnings.append(f"{where}: has inertia but no mass; taken as a pure frame")
        tensor = np.zeros((3, 3))
    # A tensor that is diagonal in its own axes stays symmetric to the last bit in the link's.
    turned = rotation @ tensor @ rotation.T
    return Link(name, mass_kg, _frozen(vector(origin, "xyz", where)), _frozen((turned + turned.T) / 2))


def _read_inertia(element: Element | None, where: str) -> FloatArray:
    """The tensor in the inertial frame's own axes [kg·m²], zero where the file gives none."""
    if element is None:
        return np.zeros((3, 3))
    xx, yy, zz = (number(element, key, where) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (number(element, key, where, 0.0) for key in ("ixy", "ixz", "iyz"))
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _read_joint(element: Element, name: str, warnings: list[str]) -> Joint:
    where = f"joint {name!r}"
    warnings += _unknown_tags(where, element, _JOINT_TAGS)
    kind = _read_type(element, where)
    origin = child(element, "origin", where)
    movable = kind != "fixed"
    limit = child(element, "limit", where) if movable else None
    lower, upper = _read_position_limits(limit, kind, where, warnings)
    effort, velocity = _read_strength_limits(limit, where, warnings) if movable else (None, None)
    return Joint(
        name=name,
        type=kind,
        parent=_read_link_name(element, "parent", where),
        child=_read_link_name(element, "child", where),
        origin_m=_frozen(vector(origin, "xyz", where)),
        rotation=_frozen(rotation_from_rpy(vector(origin, "rpy", where))),
        axis=_frozen(_read_axis(element, where, warnings) if movable else np.array([1.0, 0.0, 0.0])),
        lower=lower,
        upper=upper,
        effort_limit=effort,
        velocity_limit=velocity,
        damping=_read_loss(element, "damping", where) if movable else None,
        friction=_read_loss(element, "friction", where) if movable else None,
        mimic=_read_mimic(element, where) if movable else None,
    )


def _read_type(element: Element, where: str) -> JointType:
    kind = element.get("type")
    if kind not in _JOINT_TYPES:
        raise DescriptionError(
            f"{where} (line {element.sourceline})",
            "has no type" if kind is None else f"type {kind!r} is not supported",
            "revolute, continuous, prismatic or fixed",
        )
    return cast("JointType", kind)


def _read_link_name(element: Element, role: str, where: str) -> str:
    end = child(element, role, where)
    name = None if end is None else end.get("link")
    if not name:
        raise DescriptionError(f"{where} (line {element.sourceline})", f"names no {role} link")
    return str(name)


def _read_axis(element: Element, where: str, warnings: list[str]) -> FloatArray:
    axis = child(element, "axis", where)
    if axis is None or axis.get("xyz") is None:
        warnings.append(f"{where}: gives no axis; the default 1 0 0 is used")
        return np.array([1.0, 0.0, 0.0])
    direction = vector(axis, "xyz", where)
    # Scaled first: the square of a tiny but honest axis would underflow.
    largest = float(np.abs(direction).max())
    if largest == 0:
        raise DescriptionError(f"{where} (line {axis.sourceline})", "its axis is 0 0 0", "a direction")
    direction /= largest
    return cast("FloatArray", direction / np.linalg.norm(direction))


def _read_position_limits(
    limit: Element | None, kind: JointType, where: str, warnings: list[str]
) -> tuple[float | None, float | None]:
    if kind == "fixed":
        return None, None
    # What a <limit> doesn't give is 0, as URDF says.
    lower, upper = (0.0 if limit is None else limit_value(limit, key, where, 0.0) for key in ("lower", "upper"))
    has_range = limit is not None and (limit.get("lower") is not None or limit.get("upper") is not None)
    if kind == "continuous":
        if has_range and lower < upper:
            warnings.append(f"{where}: is continuous; its limits {lower} … {upper} are ignored")
        return None, None
    if not has_range:
        warnings.append(f"{where}: gives no position limits; taken as unlimited")
        return None, None
    if lower >= upper:
        warnings.append(f"{where}: lower limit {lower} is not below upper limit {upper}; taken as unlimited")
        return None, None
    finite = [value for value in (lower, upper) if math.isfinite(value)]
    if kind == "revolute" and any(abs(value) > _LARGEST_ANGLE_RAD for value in finite):
        warnings.append(f"{where}: limits {lower} … {upper} rad are more than two turns; degrees?")
    return (lower if math.isfinite(lower) else None), (upper if math.isfinite(upper) else None)


def _read_strength_limits(limit: Element | None, where: str, warnings: list[str]) -> tuple[float | None, float | None]:
    """Effort and velocity limits; CAD exporters write 0 or −1 for "unknown"."""
    values: list[float | None] = []
    unknown: list[str] = []
    for key in ("effort", "velocity"):
        given = None if limit is None or limit.get(key) is None else limit_value(limit, key, where, 0.0)
        usable = given is not None and 0 < given < math.inf
        values.append(given if usable else None)
        if not usable:
            unknown.append(f"{key} limit " + ("missing" if given is None else f"{given:g}"))
    if unknown:
        warnings.append(f"{where}: {', '.join(unknown)}; taken as unknown")
    return values[0], values[1]


def _read_loss(element: Element, attribute: str, where: str) -> float | None:
    dynamics = child(element, "dynamics", where)
    if dynamics is None or dynamics.get(attribute) is None:
        return None
    value = number(dynamics, attribute, where)
    if value < 0:
        raise DescriptionError(f"{where} (line {dynamics.sourceline})", f"{attribute} {value} is negative", "0 or more")
    return value


def _read_mimic(element: Element, where: str) -> Mimic | None:
    mimic = child(element, "mimic", where)
    if mimic is None:
        return None
    master = mimic.get("joint")
    if not master:
        raise DescriptionError(f"{where} (line {mimic.sourceline})", "<mimic> names no joint")
    return Mimic(str(master), number(mimic, "multiplier", where, 1.0), number(mimic, "offset", where, 0.0))


def _unknown_tags(where: str, element: Element, known: AbstractSet[str]) -> list[str]:
    tags = dict.fromkeys(str(part.tag) for part in element.iterchildren())
    return [f"{where}: <{tag}> is not part of URDF and is ignored" for tag in tags if tag not in known]


def _unused_meshes(robot: Element) -> list[str]:
    """Dynamics need no meshes, and a missing one would abort PyBullet's load: say which are not read."""
    names = dict.fromkeys(str(mesh.get("filename")) for mesh in robot.iter("mesh"))
    return [f"meshes are not needed and not read: {', '.join(names)}"] if names else []


def _frozen(array: FloatArray) -> FloatArray:
    read_only(array)
    return array
