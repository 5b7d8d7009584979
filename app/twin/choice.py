"""Which parameters a robot's twin has: those of its structure, and those that its declaration names besides."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from app.telemetry import Channel
from app.twin.declaration import RobotDeclaration
from app.twin.mechanism import Mechanism
from app.twin.on_request import held, inertia_specs, motor_specs, payload_specs, tilt_specs, unfelt_tilts
from app.twin.parameters import ParameterSpec, apply_choice, named_by, patterns_of
from app.twin.priors import default_specs, kd_is_damping
from app.twin.structure import LAWS, PLAIN, Structure


def choose_specs(
    mechanism: Mechanism,
    declaration: RobotDeclaration,
    channels: AbstractSet[Channel],
    structure: Structure,
    also: Sequence[str],
) -> tuple[tuple[ParameterSpec, ...], Structure, tuple[str, ...]]:
    """A twin's parameters.

    Args:
        mechanism: what moves.
        declaration: the robot's.
        channels: channels the data hold.
        structure: the laws asked for.
        also: names of parameters to have though the declaration doesn't name them.

    Returns:
        The parameters, the structure they make up, and what was decided about them.

    Raises:
        DeclarationError: naming a pattern that matches no parameter, or a value outside the bounds.
    """
    controller, fit = declaration.controller, declaration.fit
    structure = structure | _named_laws(mechanism, declaration, channels, (*fit.free, *fit.frozen, *also))
    every = default_specs(mechanism, controller, channels, _all_laws())
    offered = [*motor_specs(mechanism, controller, channels), *tilt_specs(), *inertia_specs(mechanism)]
    load = payload_specs(mechanism, declaration.payload)
    offered += load if wants_payload((*patterns_of(fit), *also)) else []
    asked = _whole(named_by(offered, every, (*patterns_of(fit), *also)))
    believed = named_by(offered, every, fit.prior)
    chosen = [spec for spec in offered if spec.name in asked]
    specs, notes = _without_unseen_gaps(default_specs(mechanism, controller, channels, structure), declaration)
    specs += [spec if spec.name in believed else held(spec) for spec in chosen]
    if kd_is_damping(controller, channels):
        notes.append(
            "no command velocity is logged and no velocity gain declared: the gain acts like viscous damping and is "
            "fitted as part of it"
        )
    elsewhere = [spec.name for spec in (*every, *offered, *load)]
    result = list(apply_choice(specs, fit, elsewhere))
    for index, spec in enumerate(result):
        if spec.fitted and spec.name in unfelt_tilts(mechanism):
            result[index] = held(spec)
            notes.append(f"{spec.name} is not fitted: no joint feels it but by its square, the same to either side")
    return tuple(result), structure, tuple(notes)


def wants_payload(patterns: Iterable[str]) -> bool:
    """Whether a pattern, or a name, speaks of an unknown payload."""
    names = ("robot/payload_mass_kg", *(f"robot/payload_com_{axis}_m" for axis in "xyz"))
    return any("payload" in pattern and any(fnmatch.fnmatchcase(n, pattern) for n in names) for pattern in patterns)


def _all_laws() -> Structure:
    structure = PLAIN
    for law in LAWS:
        structure = structure | law
    return structure


def _named_laws(
    mechanism: Mechanism, declaration: RobotDeclaration, channels: AbstractSet[Channel], patterns: Sequence[str]
) -> Structure:
    """The laws whose parameters are named: what is to be free or frozen is to be there."""
    usual = default_specs(mechanism, declaration.controller, channels)
    plain = {spec.name for spec in usual}
    structure = PLAIN
    for law in LAWS:
        specs = default_specs(mechanism, declaration.controller, channels, law)
        if named_by(specs, usual, patterns) - plain:
            structure = structure | law
    return structure


def _whole(names: AbstractSet[str]) -> set[str]:
    """Names and what they can't do without: a load its mass and centre, an inertia all six, a motor curve its limit."""
    whole = set(names)
    for name in names:
        path, _, last = name.rpartition("/")
        if last.startswith("payload_"):
            whole |= {"robot/payload_mass_kg", *(f"robot/payload_com_{axis}_m" for axis in "xyz")}
        elif last.startswith("inertia_"):
            whole |= {f"{path}/inertia_{ab}_kg_m2" for ab in ("xx", "yy", "zz", "xy", "xz", "yz")}
        elif last.startswith("no_load_speed_"):
            whole |= {f"{path}/torque_limit_nm", f"{path}/torque_limit_n"}
    return whole


def _without_unseen_gaps(
    specs: Iterable[ParameterSpec], declaration: RobotDeclaration
) -> tuple[list[ParameterSpec], list[str]]:
    """An encoder on the motor sees nothing of a gap behind it."""
    kept, notes = [], []
    for spec in specs:
        joint = spec.name.split("/")[1] if fnmatch.fnmatchcase(spec.name, "joint/*/backlash_*") else ""
        if joint and declaration.joint(joint).encoder == "motor":
            notes.append(f"the encoder of joint {joint!r} is on the motor, which sees nothing of its backlash")
        else:
            kept.append(spec)
    return kept, notes
