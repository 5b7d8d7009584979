"""The description reduced to what moves: bodies, each the rigid sum of its links, on a tree of free joints.

Locked joints and fixed joints weld links together; mimic joints keep their body but no degree of freedom of their own.
Body frames sit at their joint with z along the joint axis, which leaves the kernel one sine and cosine a joint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.errors import DescriptionError
from app.telemetry import FloatArray, IntArray
from app.twin.description import Description, Joint, Link


@dataclass(frozen=True, slots=True)
class Body:
    """A moving rigid body: a primary link, whose inertial can be fitted, and what is welded to it.

    Attributes:
        joint: the joint that moves it.
        link: the primary link: the joint's child, or the heaviest welded link with an inertia where it has none.
        rotation: primary link's axes in the body frame, shape (3, 3).
        origin_m: primary link's origin in the body frame [m], shape (3,).
        rest: inertial parameters of the other welded links in the body frame (see `inertial_parameters`), shape (10,).
    """

    joint: Joint
    link: Link
    rotation: FloatArray
    origin_m: FloatArray
    rest: FloatArray


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A fixed-base tree in the form the kernel takes.

    Attributes:
        description: what it was reduced from.
        joints: names of the free joints; index in this tuple = degree of freedom.
        locked: position at which each other movable joint is held [rad or m].
        bodies: parents before children.
        parent: index of each body's parent body, -1 for the base, shape (nb,).
        dof: degree of freedom that moves each body, shape (nb,).
        ratio: body joint's position = ratio · q[dof] + shift, shape (nb,).
        shift: [rad or m], shape (nb,).
        prismatic: 1 where the body's joint slides, shape (nb,).
        rotation: body frame at position 0 in the parent body's frame, shape (nb, 3, 3).
        origin_m: body frame's origin in the parent body's frame [m], shape (nb, 3).
    """

    description: Description
    joints: tuple[str, ...]
    locked: Mapping[str, float]
    bodies: tuple[Body, ...]
    parent: IntArray
    dof: IntArray
    ratio: FloatArray
    shift: FloatArray
    prismatic: IntArray
    rotation: FloatArray
    origin_m: FloatArray

    @property
    def n(self) -> int:
        """Number of degrees of freedom."""
        return len(self.joints)

    def limits(self) -> FloatArray:
        """Lower and upper position limits [rad or m], infinite where there is none, shape (n, 2)."""
        joints = [self.description.joints[name] for name in self.joints]
        return np.array(
            [[-np.inf if j.lower is None else j.lower, np.inf if j.upper is None else j.upper] for j in joints]
        )


def inertial_parameters(mass_kg: float, com_m: FloatArray, inertia_kg_m2: FloatArray) -> FloatArray:
    """Ten numbers in which rigid bodies add up: m, m·c, and the inertia about the frame's origin (xx yy zz xy xz yz).

    Args:
        mass_kg: m [kg].
        com_m: centre of mass c in the frame [m], shape (3,).
        inertia_kg_m2: about the centre of mass, in the frame's axes [kg·m²], shape (3, 3).
    """
    about_origin = inertia_kg_m2 + mass_kg * (com_m @ com_m * np.eye(3) - np.outer(com_m, com_m))
    i, j = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
    return np.concatenate([[mass_kg], mass_kg * com_m, about_origin[i, j]])


def link_parameters(link: Link, rotation: FloatArray, origin_m: FloatArray) -> FloatArray:
    """Inertial parameters of a link seen from a frame in which it stands rotated and shifted, shape (10,)."""
    inertia = rotation @ link.inertia_kg_m2 @ rotation.T
    return inertial_parameters(link.mass_kg, rotation @ link.com_m + origin_m, inertia)


def reduce_description(description: Description, locked: Mapping[str, float] | None = None) -> Mechanism:
    """Weld what doesn't move and put the rest in the kernel's form.

    Args:
        description: the robot.
        locked: joints to hold, and where [rad or m].

    Raises:
        DescriptionError: when nothing is left that moves, or a mimic joint's master is locked while it isn't.
    """
    return _Reduction(description, dict(locked or {})).run()


class _Reduction:
    """One walk over the tree, links gathered into the body they are welded to."""

    def __init__(self, description: Description, locked: dict[str, float]) -> None:
        self.description = description
        self.children: dict[str, list[Joint]] = {}
        for joint in description.joints.values():
            self.children.setdefault(joint.parent, []).append(joint)
        self.locked = _lock_followers(description, locked)
        self.free = tuple(
            name
            for name, joint in description.joints.items()
            if joint.type != "fixed" and joint.mimic is None and name not in self.locked
        )
        if not self.free:
            raise DescriptionError(description.name, "has no joint that moves", "at least one free joint is needed")

    def run(self) -> Mechanism:
        parent: list[int] = []
        rotation: list[FloatArray] = []
        origin: list[FloatArray] = []
        # (link, body it is welded to, link's axes and origin in that body's frame)
        first = _Weld(self.description.root, -1, np.eye(3), np.zeros(3))
        pending = [first]
        welds: dict[int, list[_Weld]] = {-1: []}
        while pending:
            weld = pending.pop()
            welds[weld.body].append(weld)
            for joint in reversed(self.children.get(weld.link, [])):
                at = weld.rotation @ joint.origin_m + weld.origin_m
                axes = weld.rotation @ joint.rotation
                if self._is_welded(joint):
                    turn, slide = displacement(joint, self.locked.get(joint.name, 0.0))
                    pending.append(_Weld(joint.child, weld.body, axes @ turn, at + axes @ slide))
                    continue
                upright = _z_to(joint.axis)
                index = len(parent)
                parent.append(weld.body)
                rotation.append(axes @ upright)
                origin.append(at)
                welds[index] = []
                pending.append(_Weld(joint.child, index, upright.T, np.zeros(3), joint))
        bodies = [self._body(welds[index]) for index in range(len(parent))]
        return self._mechanism(bodies, parent, rotation, origin)

    def _is_welded(self, joint: Joint) -> bool:
        return joint.type == "fixed" or joint.name in self.locked

    def _body(self, welds: list[_Weld]) -> Body:
        links = self.description.links
        joint = welds[0].joint
        assert joint is not None
        primary = welds[0]
        if not links[primary.link].inertia_kg_m2.any():
            # a frame, or a point mass, which has no inertia to scale with its mass
            primary = max(welds, key=lambda w: (links[w.link].inertia_kg_m2.any(), links[w.link].mass_kg))
        rest = np.zeros(10)
        for weld in welds:
            if weld is not primary:
                rest += link_parameters(links[weld.link], weld.rotation, weld.origin_m)
        return Body(joint, links[primary.link], primary.rotation, primary.origin_m, rest)

    def _mechanism(
        self, bodies: list[Body], parent: list[int], rotation: list[FloatArray], origin: list[FloatArray]
    ) -> Mechanism:
        index = {name: i for i, name in enumerate(self.free)}
        dof, ratio, shift = [], [], []
        for body in bodies:
            name, gain, constant = _resolve_mimic(self.description, body.joint)
            dof.append(index[name])
            ratio.append(gain)
            shift.append(constant)
        return Mechanism(
            description=self.description,
            joints=self.free,
            locked=self.locked,
            bodies=tuple(bodies),
            parent=np.array(parent, dtype=np.int64),
            dof=np.array(dof, dtype=np.int64),
            ratio=np.array(ratio),
            shift=np.array(shift),
            prismatic=np.array([body.joint.type == "prismatic" for body in bodies], dtype=np.int64),
            rotation=np.array(rotation),
            origin_m=np.array(origin),
        )


@dataclass(frozen=True, slots=True)
class _Weld:
    link: str
    body: int
    rotation: FloatArray
    origin_m: FloatArray
    joint: Joint | None = None


def _resolve_mimic(description: Description, joint: Joint) -> tuple[str, float, float]:
    """Follow mimic tags to a free joint: its name, and the ratio and shift in between."""
    ratio, shift = 1.0, 0.0
    while joint.mimic is not None:
        ratio, shift = ratio * joint.mimic.multiplier, ratio * joint.mimic.offset + shift
        joint = description.joints[joint.mimic.master]
    return joint.name, ratio, shift


def _lock_followers(description: Description, locked: dict[str, float]) -> dict[str, float]:
    """A mimic joint whose master is held is held too, where the master holds it."""
    held = dict(locked)
    for joint in description.joints.values():
        if joint.mimic is None or joint.name in held:
            continue
        master, ratio, shift = _resolve_mimic(description, joint)
        if master in locked:
            held[joint.name] = ratio * locked[master] + shift
    return held


def place_in_body(mechanism: Mechanism, link: str) -> tuple[int, FloatArray, FloatArray]:
    """Where a link is welded: its body, its axes and its origin [m] in that body's frame; body -1 is the base.

    Args:
        mechanism: the robot.
        link: any of its description's links.
    """
    above = {joint.child: joint for joint in mechanism.description.joints.values()}
    body_of = {body.joint.name: index for index, body in enumerate(mechanism.bodies)}
    rotation, origin = np.eye(3), np.zeros(3)
    while link in above:
        joint = above[link]
        if joint.name in body_of:
            upright = _z_to(joint.axis)
            return body_of[joint.name], upright.T @ rotation, upright.T @ origin
        turn, slide = displacement(joint, mechanism.locked.get(joint.name, 0.0))
        rotation, origin = joint.rotation @ turn @ rotation, joint.origin_m + joint.rotation @ (slide + turn @ origin)
        link = joint.parent
    return -1, rotation, origin


def displacement(joint: Joint, position: float) -> tuple[FloatArray, FloatArray]:
    """Rotation and translation of a joint held at a position."""
    if joint.type == "fixed":
        return np.eye(3), np.zeros(3)
    if joint.type == "prismatic":
        return np.eye(3), joint.axis * position
    x, y, z = joint.axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turn = np.eye(3) + np.sin(position) * cross + (1.0 - np.cos(position)) * cross @ cross  # Rodrigues
    return turn, np.zeros(3)


def _z_to(axis: FloatArray) -> FloatArray:
    """A rotation whose third column is `axis`."""
    if np.array_equal(axis, [0.0, 0.0, 1.0]):
        return np.eye(3)
    helper = np.eye(3)[int(np.argmin(np.abs(axis)))]
    x = np.cross(helper, axis)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(axis, x), axis])
