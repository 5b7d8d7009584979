"""Where the last link of a chain is, so that an error in joint angles can be said in millimetres."""

from __future__ import annotations

import numpy as np

from app.telemetry import FloatArray
from app.twin.mechanism import Mechanism, displacement


def tip_link(mechanism: Mechanism) -> str | None:
    """The link at the end of the chain; None for a robot with several ends."""
    description = mechanism.description
    moving = {joint.parent for joint in description.joints.values() if _moves(mechanism, joint.name)}
    ends = [body for body in mechanism.bodies if not _moves_below(mechanism, body.joint.child, moving)]
    if len(ends) != 1:
        return None
    link = ends[0].joint.child
    while True:
        below = [joint.child for joint in description.joints.values() if joint.parent == link]
        if len(below) != 1:
            return link
        link = below[0]


def tip_positions(mechanism: Mechanism, link: str, q: FloatArray) -> FloatArray:
    """Position of a link's frame in the base's frame.

    Args:
        mechanism: the robot.
        link: whose frame.
        q: joint positions [rad or m], shape (K, n).

    Returns:
        [m], shape (K, 3).
    """
    description = mechanism.description
    parent_joint = {joint.child: joint for joint in description.joints.values()}
    position = np.zeros((len(q), 3))
    while link != description.root:
        joint = parent_joint[link]
        turn, slide = _displacements(mechanism, joint.name, q)
        position = np.einsum("kij,kj->ki", turn, position) + slide
        position = position @ joint.rotation.T + joint.origin_m
        link = joint.parent
    return position


def _displacements(mechanism: Mechanism, name: str, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rotation (K, 3, 3) and translation (K, 3) of a joint over time."""
    joint = mechanism.description.joints[name]
    for index, body in enumerate(mechanism.bodies):
        if body.joint.name == name:
            at = mechanism.ratio[index] * q[:, mechanism.dof[index]] + mechanism.shift[index]
            if joint.type == "prismatic":
                return np.broadcast_to(np.eye(3), (len(q), 3, 3)), at[:, None] * joint.axis
            x, y, z = joint.axis
            cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            turn = np.eye(3) + np.sin(at)[:, None, None] * cross + (1.0 - np.cos(at))[:, None, None] * cross @ cross
            return turn, np.zeros((len(q), 3))
    turn, slide = displacement(joint, mechanism.locked.get(name, 0.0))
    return np.broadcast_to(turn, (len(q), 3, 3)), np.broadcast_to(slide, (len(q), 3))


def _moves(mechanism: Mechanism, name: str) -> bool:
    return any(body.joint.name == name for body in mechanism.bodies)


def _moves_below(mechanism: Mechanism, link: str, moving: set[str]) -> bool:
    """Whether a moving joint hangs on a link or on what is welded to it."""
    if link in moving:
        return True
    welded = [
        joint.child
        for joint in mechanism.description.joints.values()
        if joint.parent == link and not _moves(mechanism, joint.name)
    ]
    return any(_moves_below(mechanism, child, moving) for child in welded)
