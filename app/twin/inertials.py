"""Which inertials can belong to matter, and whether every moving body has any.

A link is judged with all that is rigidly attached to it: a massless frame on a movable joint is fine as long as
something with mass hangs on it through fixed joints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.errors import DescriptionError
from app.telemetry import FloatArray
from app.twin.description import Description, Link
from app.twin.kinematics import links_outward, parent_joints

# Files round to three or four digits, which alone can break a+b ≥ c for flat bodies.
_TRIANGLE_TOLERANCE: Final = 1e-3
_EIGENVALUE_TOLERANCE: Final = 1e-9
_HEAVIEST_LINK_KG: Final = 1000.0
# Osmium, the densest element, has 22 590 kg/m³.
_DENSEST_KG_M3: Final = 25_000.0


@dataclass(frozen=True, slots=True)
class RigidBody:
    """A link and all links fixed to it, as one body.

    Attributes:
        link: the link that a movable joint (or nothing, for the base) holds; the body's frame is this link's.
        members: names of all its links.
        mass_kg: their total.
        com_m: their centre of mass in the body's frame [m], shape (3,).
        inertia_kg_m2: about that centre, in the body's axes [kg·m²], shape (3, 3).
    """

    link: str
    members: tuple[str, ...]
    mass_kg: float
    com_m: FloatArray
    inertia_kg_m2: FloatArray


def rigid_bodies(description: Description) -> tuple[RigidBody, ...]:
    """The bodies that movable joints connect, each after the one it hangs on; the first one is the base."""
    joint_of = parent_joints(description)
    body_of: dict[str, str] = {}
    pose_of: dict[str, tuple[FloatArray, FloatArray]] = {}
    members: dict[str, list[str]] = {}
    for name in links_outward(description):
        joint = joint_of.get(name)
        if joint is None or joint.type != "fixed":
            body_of[name], pose_of[name] = name, (np.eye(3), np.zeros(3))
        else:
            rotation, origin = pose_of[joint.parent]
            body_of[name] = body_of[joint.parent]
            pose_of[name] = rotation @ joint.rotation, origin + rotation @ joint.origin_m
        members.setdefault(body_of[name], []).append(name)
    return tuple(
        _compose(body, [(description.links[name], *pose_of[name]) for name in names]) for body, names in members.items()
    )


def _compose(body: str, parts: list[tuple[Link, FloatArray, FloatArray]]) -> RigidBody:
    masses = np.array([link.mass_kg for link, _, _ in parts])
    centres = np.array([origin + rotation @ link.com_m for link, rotation, origin in parts])
    total = float(masses.sum())
    com = masses @ centres / total if total > 0 else np.zeros(3)
    inertia = np.zeros((3, 3))
    for (link, rotation, _), centre in zip(parts, centres, strict=True):
        arm = centre - com
        inertia += rotation @ link.inertia_kg_m2 @ rotation.T
        inertia += link.mass_kg * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return RigidBody(body, tuple(link.name for link, _, _ in parts), total, com, (inertia + inertia.T) / 2)


def check_inertials(description: Description) -> list[str]:
    """Check every link by itself and every moving body as a whole.

    Returns:
        Warnings about what is possible but unlikely.

    Raises:
        DescriptionError: naming the link and the numbers.
    """
    warnings: list[str] = []
    for link in description.links.values():
        _check_link(link)
        warnings += _unlikely(link)
    for body in rigid_bodies(description)[1:]:
        _check_moving(body)
    return warnings


def _check_link(link: Link) -> None:
    """An inertia that no matter can have is refused wherever it is; none at all makes a frame or a point mass."""
    if not link.inertia_kg_m2.any():
        return
    where = f"link {link.name!r}"
    a, b, c = (float(value) for value in np.linalg.eigvalsh(link.inertia_kg_m2))
    principal = f"principal moments of inertia {a:.6g}, {b:.6g}, {c:.6g} kg·m²"
    if a < -_EIGENVALUE_TOLERANCE * max(abs(a), abs(c)):
        raise DescriptionError(where, f"{principal}: one is negative", "all must be positive")
    if a + b < c * (1 - _TRIANGLE_TOLERANCE):
        raise DescriptionError(where, f"{principal}: the largest exceeds the sum of the others", "no body has that")


def _check_moving(body: RigidBody) -> None:
    where = f"link {body.link!r}"
    attached = f" nor has any of the {len(body.members) - 1} links fixed to it" if len(body.members) > 1 else ""
    if body.mass_kg == 0:
        problem = f"is moved by a joint but has no mass{attached}"
        raise DescriptionError(where, problem, "an <inertial> with a positive mass and inertia")
    smallest, _, largest = (float(value) for value in np.linalg.eigvalsh(body.inertia_kg_m2))
    if smallest <= _EIGENVALUE_TOLERANCE * largest:
        diagonal = ", ".join(f"{value:.6g}" for value in np.diag(body.inertia_kg_m2))
        whole = "" if len(body.members) == 1 else " together with the links fixed to it"
        problem = f"is moved by a joint but has mass {body.mass_kg:.6g} kg and inertia {diagonal} kg·m²{whole}"
        raise DescriptionError(where, problem, "principal moments of inertia all positive")


def _unlikely(link: Link) -> list[str]:
    warnings = []
    if link.mass_kg > _HEAVIEST_LINK_KG:
        warnings.append(f"link {link.name!r}: mass {link.mass_kg:g} kg; grams?")
    # Of all bodies of uniform density with the same tr(I)/2 = ∫r²dm a ball has the largest volume, so this is a
    # lower bound of the density: ∫r²dm = 3/5·m·R².
    second_moment = float(np.trace(link.inertia_kg_m2)) / 2
    if link.mass_kg > 0 and second_moment > 0:
        radius = math.sqrt(5 / 3 * second_moment / link.mass_kg)
        if link.mass_kg / (4 / 3 * math.pi * radius**3) > _DENSEST_KG_M3:
            warnings.append(
                f"link {link.name!r}: {link.mass_kg:g} kg within {1000 * radius:.3g} mm is denser than any metal; "
                "a point mass, or wrong units?"
            )
    return warnings
