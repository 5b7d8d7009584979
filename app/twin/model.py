"""The twin of one robot as a function of its parameters: which there are, and how values become dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from app.errors import DeclarationError
from app.telemetry import Channel, FloatArray
from app.twin import friction
from app.twin.declaration import ControllerKind, Payload, RobotDeclaration
from app.twin.description import Description, Joint, Link
from app.twin.dynamics import Tree, tree_of
from app.twin.joint_map import hold_position
from app.twin.kernel import Parameters
from app.twin.mechanism import Body, Mechanism, inertial_parameters, reduce_description
from app.twin.parameters import ParameterSpec, apply_choice
from app.twin.priors import default_specs, kd_is_damping
from app.twin.structure import PLAIN, Structure, named_structure

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

GRAVITY_M_S2 = (0.0, 0.0, -9.81)
TIMESTEP_S = 0.001
FRICTION_LAW = PLAIN.friction
"""The law of a plain twin."""
# Where there is no Stribeck effect its velocity has none either; the friction law still divides by it.
_NO_STRIBECK_RAD_S = 1.0


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
    """

    mechanism: Mechanism
    tree: Tree
    controller: ControllerKind
    rate_hz: float
    nominal_supply_v: float | None
    specs: tuple[ParameterSpec, ...]
    notes: tuple[str, ...]
    structure: Structure = PLAIN

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
        sets = len(values)
        n = self.mechanism.n
        joint = np.zeros((friction.JOINT_ROWS, n, sets))
        joint[friction.STRIBECK] = _NO_STRIBECK_RAD_S
        joint[friction.TORQUE_LIMIT] = np.inf
        joint[friction.TORQUE_CONSTANT] = 1.0
        latency, lag = np.zeros((2, sets))
        mass = np.array([[body.link.mass_kg] * sets for body in self.mechanism.bodies])
        com = np.array([[body.link.com_m] * sets for body in self.mechanism.bodies])
        for spec, column in zip(self.specs, values.T, strict=True):
            slot = spec.slot
            match slot.place:
                case "joint":
                    joint[slot.row, slot.index] = column
                case "mass":
                    mass[slot.index] = column
                case "com":
                    com[slot.index, :, slot.row] = column
                case "latency":
                    latency[:] = column
                case "lag":
                    lag[:] = column
        joint[friction.BREAKAWAY] = np.maximum(joint[friction.BREAKAWAY], joint[friction.COULOMB])
        inertial = np.array([_body_inertial(b, m, c) for b, m, c in zip(self.mechanism.bodies, mass, com, strict=True)])
        gravity = np.repeat(np.array(GRAVITY_M_S2)[:, None], sets, axis=1)
        return Parameters(np.ascontiguousarray(inertial), joint, latency, lag, gravity)

    def links(self, values: FloatArray) -> dict[str, Link]:
        """The description's links as one parameter set has them.

        Args:
            values: shape (K,).
        """
        changed: dict[str, Link] = {}
        by_name = dict(zip(self.names, values.tolist(), strict=True))
        for body in self.mechanism.bodies:
            link = body.link
            mass = by_name.get(f"link/{link.name}/mass_kg", link.mass_kg)
            com = [by_name.get(f"link/{link.name}/com_{a}_m", c) for a, c in zip("xyz", link.com_m, strict=True)]
            scale = mass / link.mass_kg
            changed[link.name] = Link(link.name, mass, np.array(com), link.inertia_kg_m2 * scale)
        return changed


def build_model(
    description: Description,
    declaration: RobotDeclaration,
    logged: AbstractSet[str],
    channels: AbstractSet[Channel],
    structure: Structure = PLAIN,
) -> TwinModel:
    """The twin's model for what was declared and what the data hold.

    Args:
        description: the robot's.
        declaration: already checked against the description.
        logged: joints that telemetry holds; other movable joints are locked.
        channels: channels the data hold; they decide which gains can be told from which.
        structure: which laws it has besides the plain ones.

    Raises:
        DescriptionError: when no joint is left to move.
        DeclarationError: naming a field of `fit` that asks for what there isn't.
    """
    if declaration.base == "floating":
        raise DeclarationError("base", "floating bases can't be calibrated yet", "fixed: hang the robot in a stand")
    if declaration.payload is not None:
        description = with_payload(description, declaration.payload)
    mechanism = reduce_description(description, _locked(description, declaration, logged))
    notes = []
    if kd_is_damping(declaration.controller, channels):
        notes.append(
            "no command velocity is logged and no velocity gain declared: the gain acts like viscous damping and is "
            "fitted as part of it"
        )
    return TwinModel(
        mechanism=mechanism,
        tree=tree_of(mechanism),
        controller=declaration.controller.kind,
        rate_hz=declaration.controller.rate_hz or 0.0,
        nominal_supply_v=declaration.controller.nominal_supply_v,
        specs=apply_choice(default_specs(mechanism, declaration.controller, channels, structure), declaration.fit),
        notes=tuple(notes),
        structure=structure,
    )


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


def _body_inertial(body: Body, mass: FloatArray, com: FloatArray) -> FloatArray:
    """Inertial parameters of a body for many masses and centres of mass of its primary link, shape (10, P)."""
    inertia = body.rotation @ body.link.inertia_kg_m2 @ body.rotation.T / body.link.mass_kg
    at = com @ body.rotation.T + body.origin_m
    parts = [inertial_parameters(m, c, m * inertia) for m, c in zip(mass.tolist(), at, strict=True)]
    total: FloatArray = body.rest[:, None] + np.array(parts).T
    return total
