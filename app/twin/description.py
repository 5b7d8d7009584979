"""A robot's description: what its URDF says, parsed and validated by us before any engine sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.telemetry import FloatArray

JointType = Literal["revolute", "continuous", "prismatic", "fixed"]


@dataclass(frozen=True, slots=True)
class Link:
    """A rigid body as the URDF gives it.

    Attributes:
        name: verbatim.
        mass_kg: 0 for a pure frame.
        com_m: centre of mass in the link frame [m], shape (3,).
        inertia_kg_m2: about the centre of mass, in axes parallel to the link frame [kg·m²], shape (3, 3).
    """

    name: str
    mass_kg: float
    com_m: FloatArray
    inertia_kg_m2: FloatArray


@dataclass(frozen=True, slots=True)
class Mimic:
    """`q = multiplier · q_master + offset`."""

    master: str
    multiplier: float
    offset: float


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint as the URDF gives it.

    Attributes:
        name: verbatim.
        type: revolute, continuous, prismatic or fixed.
        parent: name of the parent link.
        child: name of the child link.
        origin_m: joint frame's origin in the parent link frame [m], shape (3,).
        rotation: joint frame in the parent link frame (columns are its axes), shape (3, 3).
        axis: unit vector in the joint frame, shape (3,); for fixed joints unused.
        lower: lower position limit [rad or m]; None where there is none.
        upper: upper position limit [rad or m]; None where there is none.
        effort_limit: [N·m or N]; None where unknown (absent, zero or negative in the file).
        velocity_limit: [rad/s or m/s]; None where unknown.
        damping: viscous damping from the file [N·m·s/rad or N·s/m]; None where absent.
        friction: Coulomb friction from the file [N·m or N]; None where absent.
        mimic: set when the joint follows another.
    """

    name: str
    type: JointType
    parent: str
    child: str
    origin_m: FloatArray
    rotation: FloatArray
    axis: FloatArray
    lower: float | None
    upper: float | None
    effort_limit: float | None
    velocity_limit: float | None
    damping: float | None
    friction: float | None
    mimic: Mimic | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A validated kinematic tree with inertials.

    Attributes:
        name: the robot element's name.
        sha256: hex digest of the uploaded bytes: the content address.
        links: by name, in file order.
        joints: by name, in file order.
        root: name of the base link.
        warnings: what is odd but usable, each naming its link or joint.
        source: the uploaded bytes.
    """

    name: str
    sha256: str
    links: Mapping[str, Link]
    joints: Mapping[str, Joint]
    root: str
    warnings: tuple[str, ...]
    source: bytes


def parse_urdf(source: bytes) -> Description:
    """Parse and validate a URDF.

    Raises:
        DescriptionError: naming the line, link or joint at fault.
    """
    from app.twin import urdf  # noqa: PLC0415 - the reader needs the classes above

    return urdf.parse(source)
