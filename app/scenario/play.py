"""One scenario as a robot that moves: its parameters, with what lies on top, in the twin's runtime."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from app.errors import InvalidInputError
from app.scenario.generate import LATENCY, Source, chunk_of
from app.scenario.records import records
from app.scenario.request import ScenarioChoice
from app.telemetry import Channel
from app.twin.declaration import Payload, RobotDeclaration
from app.twin.description import Description
from app.twin.model import TwinModel, build_model, with_payload
from app.twin.runtime import Imperfections, TwinRuntime, opened

PLAYED: Final = frozenset({"payload", "wear", "long_tail", "latency"})
"""Overlays that change the robot. The others describe the world around it, which is the training job's."""

_FRICTION: Final = ("*/coulomb_friction_*", "*/breakaway_friction_*")
_DAMPING: Final = ("*/viscous_damping_*",)
# Gains that a log holds are parameters of the twin all the same, so it doesn't matter here what the logs had.
_CHANNELS: Final[frozenset[Channel]] = frozenset({"position", "command_position", "command_velocity", "command_effort"})

Scenario = Mapping[str, Any]
"""A `twincal.scenario/1`, as JSON reads it."""


def scenario_at(source: Source, choice: ScenarioChoice, index: int) -> Scenario:
    """One scenario of a twin."""
    chunk = chunk_of(choice, (source,), np.array([index], dtype=np.int64))
    return next(records(chunk, choice.seed))


def effective_parameters(scenario: Scenario) -> dict[str, float]:
    """The scenario's parameters with all overlays on them that change one."""
    values = {str(name): float(value) for name, value in scenario["parameters"].items()}
    for overlay in scenario["overlays"]:
        for name, factor in overlay.get("factors", {}).items():
            values[name] *= factor
        for joint, worn in overlay["joints"].items() if overlay["kind"] == "wear" else ():
            for patterns, factor in ((_FRICTION, worn["friction_factor"]), (_DAMPING, worn["damping_factor"])):
                for name in values:
                    if _of_joint(name, joint) and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                        values[name] *= factor
    values[LATENCY] = float(scenario["episode"]["latency_s"])
    return values


@contextmanager
def opened_scenario(
    description: Description, declaration: RobotDeclaration, scenario: Scenario, *, effort_limits: bool = False
) -> Iterator[TwinRuntime]:
    """A scenario's robot in a PyBullet of its own, as long as the context lasts.

    Args:
        description: the one the twin was fitted on.
        declaration: the robot's.
        scenario: from a file, the REST interface or `scenario_at`.
        effort_limits: saturate motors at the description's effort limits where the twin has no limit of its own.

    Raises:
        InvalidInputError: naming an overlay's link that the description doesn't have.
        SimulationError: when PyBullet refuses the robot.
    """
    model = _model(_laden(description, scenario), declaration, scenario)
    imperfections = Imperfections(
        backlash=np.array([_backlash(scenario, joint) for joint in model.joints]),
        jitter_s=scenario["episode"]["jitter_s"],
        drop=scenario["episode"]["drop"],
        seed=scenario["episode"]["seed"],
        effort_limits=effort_limits,
    )
    with opened(model, model.values(effective_parameters(scenario)), imperfections) as runtime:
        yield runtime


def _model(description: Description, declaration: RobotDeclaration, scenario: Scenario) -> TwinModel:
    moving = {name for name in description.joints if any(_of_joint(path, name) for path in scenario["parameters"])}
    return build_model(description, declaration, moving, _CHANNELS, also=tuple(scenario["parameters"]))


def _laden(description: Description, scenario: Scenario) -> Description:
    for i, overlay in enumerate(scenario["overlays"]):
        if overlay["kind"] != "payload" or overlay["mass_kg"] == 0.0:
            continue
        if overlay["link"] not in description.links:
            raise InvalidInputError(f"overlays.{i}.link", f"the description has no link {overlay['link']!r}")
        x, y, z = overlay["com_m"]
        load = Payload(link=overlay["link"], mass_kg=overlay["mass_kg"], com_m=(x, y, z))
        description = with_payload(description, load, overlay["own_inertia_kg_m2"])
    return description


def _backlash(scenario: Scenario, joint: str) -> float:
    worn = [overlay["joints"].get(joint, {}) for overlay in scenario["overlays"] if overlay["kind"] == "wear"]
    return sum(float(one.get("backlash_rad", one.get("backlash_m", 0.0))) for one in worn)


def _of_joint(parameter: str, joint: str) -> bool:
    return parameter.rpartition("/")[0] == f"joint/{joint}"
