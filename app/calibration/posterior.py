"""How sure the fit is of each parameter, and what it can't tell apart.

Around the solution the tempered objective is a quadratic with Hessian H = JᵀWJ + 1 in units of the prior's standard
deviation; its inverse is the covariance, and nothing is added or taken away.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from app.calibration.solver import Problem, Solution
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.document import Gauge, Verdict
from app.twin.model import TwinModel

IDENTIFIED = 0.3
"""Posterior over prior standard deviation up to which a parameter counts as identified."""
LEARNT = 0.9
"""Above this ratio the data said nothing."""
NO_EFFECT = 1e-4
"""Information of the data over that of the prior below which a parameter has no effect on this motion."""
Z90 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Estimate:
    """One fitted parameter.

    Attributes:
        value: in its own unit.
        sd: posterior standard deviation in its own unit.
        interval90: in its own unit, within the bounds.
        verdict: what the data said.
    """

    value: float
    sd: float
    interval90: tuple[float, float]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is known after the fit.

    Attributes:
        estimates: by name.
        names: of the fitted parameters.
        covariance: in published coordinates, shape (F, F).
        gauges: directions the data can't see.
    """

    estimates: dict[str, Estimate]
    names: tuple[str, ...]
    covariance: FloatArray
    gauges: tuple[Gauge, ...]


def posterior(problem: Problem, solution: Solution, still: Collection[str] = ()) -> Posterior:
    """Read covariance, intervals, verdicts and gauges off a solution.

    Args:
        problem: model, data, fitted parameters.
        solution: where the solver ended.
        still: joints that didn't move. That they didn't says at most how little friction would hold them, which no
            quadratic around one value can say: their own parameters are never called identified.
    """
    model = problem.model
    information = (solution.jacobian * solution.weight[:, None]).T @ solution.jacobian
    covariance_z = np.linalg.inv(information + np.eye(len(problem.free)))
    prior_sd = np.array([model.specs[i].prior_moments()[1] for i in problem.free])
    gauges = find_gauges(problem, solution, information)
    unsure = {name for gauge in gauges for name in gauge.parameters}
    unsure |= {name for name in model.names if name.split("/")[0] == "joint" and _joint_of(name) in still}
    low, high = problem.bounds()
    estimates = {}
    for column, i in enumerate(problem.free):
        spec = model.specs[i]
        ratio = math.sqrt(covariance_z[column, column])
        bound = bool(np.isclose(solution.z[column], low[column]) or np.isclose(solution.z[column], high[column]))
        verdict = _verdict(float(information[column, column]), ratio, at_bound=bound, unsure=spec.name in unsure)
        centre, sd = float(spec.coordinate(solution.values[i])), ratio * float(prior_sd[column])
        ends = [float(np.clip(spec.value(centre + side * Z90 * sd), *spec.bounds)) for side in (-1.0, 1.0)]
        value = float(solution.values[i])
        own_sd = sd * value if spec.transform == "log" else sd
        estimates[spec.name] = Estimate(value, own_sd, (ends[0], ends[1]), verdict)
    names = tuple(model.specs[i].name for i in problem.free)
    covariance = np.asarray(covariance_z * np.outer(prior_sd, prior_sd), dtype=np.float64)
    return Posterior(estimates, names, covariance, gauges)


def _joint_of(name: str) -> str:
    return name.removeprefix("joint/").rpartition("/")[0]


def _verdict(information: float, ratio: float, *, at_bound: bool, unsure: bool) -> Verdict:
    if information < NO_EFFECT:
        return "no_effect"
    if at_bound:
        return "at_bound"
    if ratio <= IDENTIFIED:
        return "weak" if unsure else "identified"
    return "weak" if ratio <= LEARNT else "not_identified"


def find_gauges(problem: Problem, solution: Solution, information: FloatArray) -> tuple[Gauge, ...]:
    """Name the scale gauge where the data can't see it.

    With positions alone and gains unknown, inertias, friction, damping and gains can all be multiplied by one factor
    without changing any motion.
    """
    direction = _scale_direction(problem, solution)
    if direction is None:
        return ()
    seen = float(direction @ information @ direction)
    believed = float(direction @ direction)
    # sd of the factor's logarithm after the data over that before them
    if math.sqrt(believed / (believed + seen)) <= IDENTIFIED:
        return ()
    names = tuple(problem.model.specs[i].name for i, d in zip(problem.free, direction, strict=True) if abs(d) > 1e-9)
    text = (
        "positions alone don't tell the scale of torque: masses, armature, friction, damping and gains can all be "
        "multiplied by one factor without changing this motion; the factor is the prior's"
    )
    return (Gauge(name="scale", parameters=names, text=text),)


_TORQUE_ROWS = (
    friction.ARMATURE,
    friction.DAMPING,
    friction.COULOMB,
    friction.BREAKAWAY,
    friction.KP,
    friction.KD,
    friction.TORQUE_LIMIT,
    friction.BACK_EMF,
)


def _scale_direction(problem: Problem, solution: Solution) -> FloatArray | None:
    """Step in z per unit of the common factor's logarithm; None where a declared gain fixes the scale."""
    model = problem.model
    if _scale_is_declared(model):
        return None
    direction = np.zeros(len(problem.free))
    for column, i in enumerate(problem.free):
        spec = model.specs[i]
        scales = spec.slot.place == "mass" or (spec.slot.place == "joint" and spec.slot.row in _TORQUE_ROWS)
        if scales:
            _, sd = spec.prior_moments()
            direction[column] = (1.0 if spec.transform == "log" else float(solution.values[i])) / sd
    return direction


def _scale_is_declared(model: TwinModel) -> bool:
    """A torque command, or any gain in N·m that isn't fitted, ties the motion to a torque."""
    if model.controller in ("torque", "none"):
        return model.controller == "torque"
    gains = [s for s in model.specs if s.slot.place == "joint" and s.slot.row == friction.KP]
    return any(not spec.fitted for spec in gains)
