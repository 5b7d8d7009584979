"""The shape of a description: one root, no loops, mimic joints that follow a real one. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.errors import DescriptionError
from app.twin.description import Description, Joint


def find_root(links: Collection[str], joints: Mapping[str, Joint]) -> str:
    """Name of the base link of the one tree that holds every link.

    Raises:
        DescriptionError: for no links, a joint between links that don't exist, a link with two parents, several roots
            or a loop.
    """
    if not links:
        raise DescriptionError("robot", "has no links")
    parent_joint: dict[str, str] = {}
    for joint in joints.values():
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise DescriptionError(f"joint {joint.name!r}", f"its {role} link {link!r} does not exist")
        if joint.child in parent_joint:
            both = f"{parent_joint[joint.child]!r} and {joint.name!r}"
            raise DescriptionError(
                f"link {joint.child!r}", f"is the child of two joints, {both}", "a tree without loops"
            )
        parent_joint[joint.child] = joint.name
    roots = [link for link in links if link not in parent_joint]
    if len(roots) > 1:
        raise DescriptionError(
            "robot", f"has several base links: {', '.join(map(repr, roots))}", "join them into one tree"
        )
    reached = set(_order(roots, joints))
    loose = [link for link in links if link not in reached]
    if loose:
        names = ", ".join(repr(parent_joint[link]) for link in loose)
        raise DescriptionError("robot", f"joints form a loop: {names}", "a tree without loops")
    return roots[0]


def check_movable(joints: Mapping[str, Joint]) -> None:
    """Refuse a description in which nothing moves."""
    if all(joint.type == "fixed" for joint in joints.values()):
        raise DescriptionError("robot", "has no movable joint", "at least one revolute, continuous or prismatic joint")


def check_mimics(joints: Mapping[str, Joint]) -> None:
    """Check that every mimic joint follows a movable joint that follows nobody itself.

    Raises:
        DescriptionError: naming the joint.
    """
    for joint in joints.values():
        if joint.mimic is None:
            continue
        where, master = f"joint {joint.name!r}", joints.get(joint.mimic.master)
        if master is None:
            raise DescriptionError(where, f"mimics {joint.mimic.master!r}, which does not exist")
        if master.type == "fixed":
            raise DescriptionError(where, f"mimics {master.name!r}, which is fixed")
        if master.name == joint.name:
            raise DescriptionError(where, "mimics itself")
        if master.mimic is not None:
            problem = f"mimics {master.name!r}, which itself mimics {master.mimic.master!r}"
            raise DescriptionError(where, problem, "mimic the driven joint directly")


def links_outward(description: Description) -> tuple[str, ...]:
    """Every link's name, each after its parent; siblings in file order."""
    return tuple(_order([description.root], description.joints))


def parent_joints(description: Description) -> dict[str, Joint]:
    """The joint that holds each link, by link name; the root has none."""
    return {joint.child: joint for joint in description.joints.values()}


def _order(roots: list[str], joints: Mapping[str, Joint]) -> list[str]:
    children: dict[str, list[str]] = {}
    for joint in joints.values():
        children.setdefault(joint.parent, []).append(joint.child)
    order = list(roots)
    for link in order:  # grows while it is walked
        order.extend(children.get(link, ()))
    return order
