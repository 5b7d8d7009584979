"""The twin of a robot that hasn't been calibrated: what its description and declaration say, and nothing more."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Final

from app.telemetry import Channel
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from app.twin.document import Covariance, DescriptionRef, Engine, NominalTwin, Parameter, Structure, seal_nominal
from app.twin.model import GRAVITY_M_S2, TIMESTEP_S, build_model

# Commands enough that no gain hides in another parameter; a logged gain would make the parameter a factor of it.
_COMMANDS: Final[frozenset[Channel]] = frozenset({"position", "command_position", "command_velocity", "command_effort"})


def nominal_twin(declaration: RobotDeclaration, description: Description, href: str) -> NominalTwin:
    """The nominal twin; gains that aren't declared stand at their prior's median, marked `prior`.

    Args:
        declaration: checked against the description.
        description: the robot's.
        href: where the service has the description.

    Raises:
        DescriptionError: if no joint can move.
        DeclarationError: naming a field of `fit` that asks for what there isn't.
    """
    movable = {name for name, joint in description.joints.items() if joint.type != "fixed"}
    model = build_model(description, declaration, movable, _COMMANDS)
    parameters = {
        spec.name: Parameter(
            value=float(value),
            sd=None,
            interval90=None,
            verdict=None,
            source="declared" if value == spec.nominal else "prior",
            nominal=float(spec.nominal),
            prior=None,
            bounds=None,
        )
        for spec, value in zip(model.specs, model.nominal(), strict=True)
        if math.isfinite(value)  # a limit that isn't there is no parameter
    }
    return seal_nominal(
        robot=declaration.robot,
        fleet=declaration.fleet,
        description=DescriptionRef(sha256=description.sha256, href=href),
        engine=Engine(name="pybullet", version=version("pybullet"), timestep_s=TIMESTEP_S, gravity_m_s2=GRAVITY_M_S2),
        structure=Structure(
            friction=model.structure.friction,
            controller=model.controller,
            lag=model.structure.lag,
            backlash=model.structure.backlash,
        ),
        parameters=parameters,
        covariance=Covariance(names=(), transform={}, matrix=()),
        sensors={},
    )
