"""The twin of one robot as a function of its parameters: which there are, and how values become dynamics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from app.errors import DeclarationError
from app.telemetry import Channel, FloatArray
from app.twin import friction
from app.twin.choice import choose_specs, wants_payload
from app.twin.declaration import ControllerKind, Payload, RobotDeclaration
from app.twin.description import Description, Joint, Link
from app.twin.dynamics import Tree, tree_of
from app.twin.joint_map import hold_position
from app.twin.mechanism import Mechanism, place_in_body, reduce_description
from app.twin.packing import GRAVITY_M_S2, Load, links_of, pack
from app.twin.parameters import ParameterSpec, patterns_of
from app.twin.scratch import Parameters
from app.twin.structure import PLAIN, Structure, named_structure
from app.twin.tip import tip_link

__all__ = [
    "FRICTION_LAW",
    "GRAVITY_M_S2",
    "PLAIN",
    "TIMESTEP_S",
    "Structure",
    "TwinModel",
    "build_model",
    "named_structure",
    "with_payload",
]

TIMESTEP_S = 0.001
FRICTION_LAW = PLAIN.friction
"""The law of a plain twin."""


@dataclass(frozen=True, slots=True)
class TwinModel:
    """A mechanism with its controller and its parameters.

    Attributes:
        mechanism: what moves.
        tree: the same for the compiled code.
        controller: kind of the motor controller.
        rate_hz: of a sampled controller; 0 is continuous.
        nominal_supply_v: of a servo_duty controller; None if not declared.
        specs: every parameter, fitted or not.
        notes: what was decided about the parameters, for the report.
        structure: which laws it has.
        load: an unknown payload, where the declaration asks for one.
    """

    mechanism: Mechanism
    tree: Tree
    controller: ControllerKind
    rate_hz: float
    nominal_supply_v: float | None
    specs: tuple[ParameterSpec, ...]
    notes: tuple[str, ...]
    structure: Structure = PLAIN
    load: Load | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters, in the order of a values vector."""
        return tuple(spec.name for spec in self.specs)

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the free joints, in the order of a state vector."""
        return self.mechanism.joints

    def nominal(self) -> FloatArray:
        """What description and declaration say; gains that neither gives at their prior's median, shape (K,)."""
        return np.array([s.initial if _is_gain(s) and s.fitted else s.nominal for s in self.specs])

    def initial(self) -> FloatArray:
        """Where a fit starts, shape (K,)."""
        return np.array([spec.initial for spec in self.specs])

    def values(self, by_name: Mapping[str, float]) -> FloatArray:
        """A values vector from named values; what isn't named keeps its initial value, shape (K,)."""
        return np.array([by_name.get(spec.name, spec.initial) for spec in self.specs])

    def pack(self, values: FloatArray) -> Parameters:
        """Parameter sets in the form the kernel takes.

        Args:
            values: shape (P, K), in the units of the names.
        """
        return pack(self.mechanism, self.specs, self.load, values)

    def links(self, values: FloatArray) -> dict[str, Link]:
        """The description's links as one parameter set has them.

        Args:
            values: shape (K,).
        """
        return links_of(self.mechanism, self.load, dict(zip(self.names, values.tolist(), strict=True)))


def build_model(
    description: Description,
    declaration: RobotDeclaration,
    logged: AbstractSet[str],
    channels: AbstractSet[Channel],
    structure: Structure = PLAIN,
    also: Sequence[str] = (),
) -> TwinModel:
    """The twin's model for what was declared and what the data hold.

    Args:
        description: the robot's.
        declaration: already checked against the description.
        logged: joints that telemetry holds; other movable joints are locked.
        channels: channels the data hold; they decide which gains can be told from which.
        structure: which laws it has besides the plain ones; what the declaration frees or freezes comes on top.
        also: names of parameters that the twin has though the declaration doesn't name them, as a published one may.

    Raises:
        DescriptionError: when no joint is left to move.
        DeclarationError: naming a field of `fit` that asks for what there isn't.
    """
    if declaration.base == "floating":
        raise DeclarationError("base", "floating bases can't be calibrated yet", "fixed: hang the robot in a stand")
    locked = _locked(description, declaration, logged)
    wished = (*patterns_of(declaration.fit), *also)
    description, loaded_link = _laden(description, declaration, locked, unknown=wants_payload(wished))
    mechanism = reduce_description(description, locked)
    specs, structure, notes = choose_specs(mechanism, declaration, channels, structure, also)
    return TwinModel(
        mechanism=mechanism,
        tree=tree_of(mechanism),
        controller=declaration.controller.kind,
        rate_hz=declaration.controller.rate_hz or 0.0,
        nominal_supply_v=declaration.controller.nominal_supply_v,
        specs=specs,
        notes=notes,
        structure=structure,
        load=None if loaded_link is None else _load_on(mechanism, loaded_link),
    )


def _laden(
    description: Description, declaration: RobotDeclaration, locked: Mapping[str, float], *, unknown: bool
) -> tuple[Description, str | None]:
    """The description with the payload on it; of an unknown one only its place, and its link's name."""
    if not unknown:
        payload = declaration.payload
        return (description if payload is None else with_payload(description, payload)), None
    link = (
        tip_link(reduce_description(description, locked)) if declaration.payload is None else declaration.payload.link
    )
    if link is None:
        raise DeclarationError(
            "payload", "is to be fitted, but the robot has several ends", "declare the payload's link"
        )
    laden = with_payload(description, Payload(link=link, mass_kg=0.0))
    return laden, next(name for name in laden.links if name not in description.links)


def _load_on(mechanism: Mechanism, link: str) -> Load:
    body, rotation, origin = place_in_body(mechanism, link)
    if body < 0:
        raise DeclarationError("payload.link", "does not move, so that its load has no effect", "a link that moves")
    return Load(link, body, rotation, origin)


def _locked(description: Description, declaration: RobotDeclaration, logged: AbstractSet[str]) -> dict[str, float]:
    """Joints the twin holds, and where: ignored ones and those without telemetry."""
    return {
        name: hold_position(declaration, joint)
        for name, joint in description.joints.items()
        if joint.type != "fixed" and joint.mimic is None and (name not in logged or declaration.joint(name).ignore)
    }


def with_payload(description: Description, payload: Payload, own_inertia_kg_m2: float = 0.0) -> Description:
    """The description with a known payload welded to its link.

    Args:
        description: the robot's.
        payload: mass and centre, on a link that exists.
        own_inertia_kg_m2: about any axis through its centre; a point mass has none.
    """
    name = f"payload of {payload.link}"
    while name in description.links or name in description.joints:
        name += "'"
    mass = Link(name, payload.mass_kg, np.zeros(3), own_inertia_kg_m2 * np.eye(3))
    weld = Joint(
        name=name,
        type="fixed",
        parent=payload.link,
        child=name,
        origin_m=np.array(payload.com_m),
        rotation=np.eye(3),
        axis=np.array([0.0, 0.0, 1.0]),
        lower=None,
        upper=None,
        effort_limit=None,
        velocity_limit=None,
        damping=None,
        friction=None,
    )
    return replace(
        description,
        links={**description.links, name: mass},
        joints={**description.joints, name: weld},
    )


def _is_gain(spec: ParameterSpec) -> bool:
    return spec.slot.place == "joint" and spec.slot.row in (friction.KP, friction.KD, friction.TORQUE_LIMIT)
