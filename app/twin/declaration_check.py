"""Whether a declaration and a description speak of the same robot."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from app.errors import DeclarationError
from app.twin.description import Description, Joint
from app.twin.inertials import rigid_bodies
from app.twin.units import units_of

if TYPE_CHECKING:
    from app.twin.declaration import RobotDeclaration

_PARAMETER: Final = re.compile(r"(?P<kind>joint|link|sensor|robot)/(?:(?P<name>.+)/)?[^/]+", re.DOTALL)
_NAMES_LISTED: Final = 30


def check_against(declaration: RobotDeclaration, description: Description) -> None:
    """Check every name and unit of a declaration against the description it is used with.

    Raises:
        DeclarationError: naming the field's path and listing the names that would be valid.
    """
    movable = {name: joint for name, joint in description.joints.items() if joint.type != "fixed"}
    for path, name in _joints_named(declaration):
        if name not in movable:
            fixed = " (it is fixed)" if name in description.joints else ""
            raise DeclarationError(path, f"the description has no movable joint {name!r}{fixed}", _listed(movable))
    _check_joints(declaration, movable)
    if declaration.payload is not None and declaration.payload.link not in description.links:
        problem = f"the description has no link {declaration.payload.link!r}"
        raise DeclarationError("payload.link", problem, _listed(description.links))
    _check_patterns(declaration, description, movable)
    if declaration.base == "floating" and rigid_bodies(description)[0].mass_kg == 0:
        raise DeclarationError("base", f"is floating, but the base link {description.root!r} has no mass")


def _joints_named(declaration: RobotDeclaration) -> Iterator[tuple[str, str]]:
    for name in declaration.joints:
        yield f"joints.{name}", name
    for gain, values in (("kp", declaration.controller.kp), ("kd", declaration.controller.kd)):
        for name in values if isinstance(values, dict) else ():
            yield f"controller.{gain}.{name}", name


def _check_joints(declaration: RobotDeclaration, movable: dict[str, Joint]) -> None:
    for name, declared in declaration.joints.items():
        joint, path = movable[name], f"joints.{name}"
        usable = units_of(joint.type)
        if declared.unit is not None and declared.unit not in usable:
            problem = f"{declared.unit} can't measure a {joint.type} joint"
            raise DeclarationError(f"{path}.unit", problem, f"one of {', '.join(usable)}")
        _check_hold(f"{path}.hold_at", declared.hold_at, joint)
    _check_sources(declaration, movable)
    driven = [name for name, joint in movable.items() if joint.mimic is None]
    if all(declaration.joint(name).ignore for name in driven):
        raise DeclarationError("joints", "every joint is ignored", "at least one to calibrate")


def _check_hold(path: str, hold_at: float | None, joint: Joint) -> None:
    if hold_at is None:
        return
    if (joint.lower is not None and hold_at < joint.lower) or (joint.upper is not None and hold_at > joint.upper):
        raise DeclarationError(path, f"{hold_at:g} is outside the joint's limits", f"{joint.lower} … {joint.upper}")


def _check_sources(declaration: RobotDeclaration, movable: dict[str, Joint]) -> None:
    """Two joints, one of them perhaps not declared at all, must not read the same column."""
    reader: dict[str, str] = {}
    for name in movable:
        declared = declaration.joint(name)
        if declared.ignore:
            continue
        source = declared.source or name
        if source in reader:
            first, second = sorted((reader[source], name), key=lambda joint: joint not in declaration.joints)
            problem = f"{source!r} is read by joint {second!r} too"
            raise DeclarationError(f"joints.{first}.source", problem, f"declare the source of {second!r}, or ignore it")
        reader[source] = name


def _check_patterns(declaration: RobotDeclaration, description: Description, movable: dict[str, Joint]) -> None:
    """A pattern that names a joint or link must name one that is there."""
    fit = declaration.fit
    for section, patterns in (("free", fit.free), ("frozen", fit.frozen), ("prior", fit.prior)):
        for pattern in patterns:
            path = f"fit.{section}.{pattern}"
            if pattern.startswith("*"):
                continue
            parts = _PARAMETER.fullmatch(pattern)
            if parts is None:
                problem = f"{pattern!r} is no pattern of parameter names"
                raise DeclarationError(path, problem, "joint/<joint>/…, link/<link>/… or robot/…; * is any text")
            names: Collection[str] = movable if parts["kind"] in ("joint", "sensor") else description.links
            name = parts["name"]
            if name is not None and parts["kind"] != "robot" and name not in names and not set("*?[") & set(name):
                raise DeclarationError(path, f"the description has no {parts['kind']} {name!r}", _listed(names))


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _NAMES_LISTED} more" if len(known) > _NAMES_LISTED else ""
    return f"one of {', '.join(known[:_NAMES_LISTED])}{more}"
