"""What is prepared once per robot and version, so that scoring its telemetry is cheap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.reference import values_of
from app.errors import InvalidInputError
from app.telemetry import CHANNELS, FloatArray, read_only
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from app.twin.document import TwinDocument
from app.twin.model import TwinModel, build_model, named_structure

SMALLEST_ERROR: Final = 2e-5
"""No baseline is believed to be smaller [rad or m]: a fit believes no smaller residual either."""
DRAWS: Final = 15
"""Twins drawn from a version's posterior; together with the version itself they fill the kernel's lanes."""
DRAW_STEP: Final = 0.25
"""Draws are this share of a draw's way from the version, so that their effects add up."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One robot's active version, ready to be compared with telemetry.

    Attributes:
        robot: its id.
        version: of the twin.
        description: the one the twin was fitted on.
        declaration: of the robot, for its joint map.
        model: the twin's.
        values: the version's parameters in the model's order, shape (K,).
        window_s: length of a window [s].
        baseline: error a healthy window has, per joint of the model [rad or m], never below what its sensor can tell;
            NaN for a joint the hold-out didn't judge, shape (n,).
        draws: parameters `DRAW_STEP` of the way to draws from the version's posterior, shape (DRAWS, K).
    """

    robot: str
    version: int
    description: Description
    declaration: RobotDeclaration
    model: TwinModel
    values: FloatArray
    window_s: float
    baseline: FloatArray
    draws: FloatArray

    def __post_init__(self) -> None:
        read_only(self.values)
        read_only(self.baseline)
        read_only(self.draws)


def prepare(twin: TwinDocument, declaration: RobotDeclaration, description: Description) -> Watched:
    """Prepare a version to be watched.

    Args:
        twin: the active version.
        declaration: of the robot.
        description: the one the twin was fitted on.

    Raises:
        InvalidInputError: when the version can't be watched, naming what of it is at fault.
    """
    if twin.description.sha256 != description.sha256:
        raise InvalidInputError(
            "description",
            f"version {twin.version} belongs to description {twin.description.sha256[:12]}…, "
            f"not to {description.sha256[:12]}…",
            "the description it was fitted on",
        )
    windowed = twin.quality.windowed
    if windowed is None:
        raise InvalidInputError(
            "quality.windowed",
            f"version {twin.version} has no baseline to measure drift against: its hold-out was shorter than a window",
            "calibrate with a longer hold-out",
        )
    if twin.structure.controller != declaration.controller.kind:
        raise InvalidInputError(
            "controller.kind",
            f"version {twin.version} was fitted with a {twin.structure.controller} controller, and "
            f"{declaration.controller.kind} is declared now",
            "calibrate again",
        )
    laws = named_structure(twin.structure.friction, twin.structure.lag, backlash=twin.structure.backlash)
    model = build_model(description, declaration, _joints_of(twin), set(CHANNELS), laws)
    baseline = np.array([windowed.rmse.get(name, math.nan) for name in model.joints])
    values = values_of(model, twin)
    return Watched(
        robot=twin.robot,
        version=twin.version,
        description=description,
        declaration=declaration,
        model=model,
        values=values,
        window_s=windowed.window_s,
        baseline=np.maximum(baseline, _sensor_floor(twin, model)),  # NaN stays NaN
        draws=draws_of(twin, model, values),
    )


def draws_of(twin: TwinDocument, model: TwinModel, values: FloatArray) -> FloatArray:
    """Parameters a little way towards draws from a version's posterior, within their bounds, shape (DRAWS, K).

    The same for the same version, so that a window's score is always the same.
    """
    index = {name: i for i, name in enumerate(model.names)}
    rows = [row for row, name in enumerate(twin.covariance.names) if name in index]
    drawn = np.repeat(values[None, :], DRAWS, axis=0)
    if not rows:
        return drawn
    covariance = np.array(twin.covariance.matrix)[np.ix_(rows, rows)]
    variance, axes = np.linalg.eigh(covariance)
    steps = np.random.default_rng(0).standard_normal((DRAWS, len(rows))) * np.sqrt(np.maximum(variance, 0.0))
    for column, away in zip(rows, (DRAW_STEP * steps @ axes.T).T, strict=True):
        name = twin.covariance.names[column]
        spec, value = model.specs[index[name]], values[index[name]]
        moved = value * np.exp(away) if twin.covariance.transform[name] == "log" else value + away
        drawn[:, index[name]] = np.clip(moved, *spec.bounds)
    return drawn


def _joints_of(twin: TwinDocument) -> set[str]:
    """The joints that are free in a twin: those with parameters of their own."""
    paths = [name.removeprefix("joint/") for name in twin.parameters if name.startswith("joint/")]
    return {path.rpartition("/")[0] for path in paths}


def _sensor_floor(twin: TwinDocument, model: TwinModel) -> FloatArray:
    """The least error the sensors allow: noise, or rounding where that hides it, shape (n,) [rad or m]."""
    floor = np.full(len(model.joints), SMALLEST_ERROR)
    for joint, name in enumerate(model.joints):
        sensor = twin.sensors.get(f"joint/{name}/position")
        if sensor is not None:
            rounding = (sensor.quantum or 0.0) / math.sqrt(12.0)
            floor[joint] = max(floor[joint], rounding, sensor.noise_sd or 0.0)
    return floor
