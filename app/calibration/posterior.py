"""How sure the fit is of each parameter, and what it can't tell apart.

Around the solution the tempered objective is a quadratic with Hessian H = JᵀWJ + 1 in units of the prior's standard
deviation; its inverse is the covariance, and nothing is added or taken away.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from app.calibration.residual import residuals
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
ENTANGLED = 0.7
"""Correlation from which two parameters count as told only together."""
MOST_PARTNERS = 3
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
        confounded: groups of parameters that the data know only together.
    """

    estimates: dict[str, Estimate]
    names: tuple[str, ...]
    covariance: FloatArray
    gauges: tuple[Gauge, ...]
    confounded: tuple[tuple[str, ...], ...] = ()


def posterior(problem: Problem, solution: Solution, still: Collection[str] = ()) -> Posterior:
    """Read covariance, intervals, verdicts and gauges off a solution.

    Parameters that are to be fitted but weren't free, the friction of joints that stood still, keep their prior.

    Args:
        problem: model, data, fitted parameters.
        solution: where the solver ended.
        still: joints that didn't move. That they didn't says at most how little friction would hold them, which no
            quadratic around one value can say: their own parameters are never called identified.
    """
    model = problem.model
    fitted = tuple(i for i, spec in enumerate(model.specs) if spec.fitted)
    free = np.array([fitted.index(i) for i in problem.free], dtype=np.int64)
    seen = (solution.jacobian * solution.weight[:, None]).T @ solution.jacobian
    information = np.zeros((len(fitted), len(fitted)))
    information[np.ix_(free, free)] = seen
    covariance_z: FloatArray = np.asarray(np.linalg.inv(information + np.eye(len(fitted))), dtype=np.float64)
    prior_sd = np.array([model.specs[i].prior_moments()[1] for i in fitted])
    gauges = find_gauges(problem, solution)
    unsure = {name for gauge in gauges for name in gauge.parameters}
    unsure |= {name for name in model.names if name.split("/")[0] == "joint" and _joint_of(name) in still}
    bound = _at_bound(problem, solution)
    estimates = {}
    for column, i in enumerate(fitted):
        spec = model.specs[i]
        ratio = math.sqrt(covariance_z[column, column])
        verdict: Verdict = "not_identified"
        if i in problem.free:
            own = float(information[column, column])
            verdict = _verdict(own, ratio, at_bound=i in bound, unsure=spec.name in unsure)
        centre, sd = float(spec.coordinate(solution.values[i])), ratio * float(prior_sd[column])
        ends = [float(np.clip(spec.value(centre + side * Z90 * sd), *spec.bounds)) for side in (-1.0, 1.0)]
        value = float(solution.values[i])
        own_sd = sd * value if spec.transform == "log" else sd
        estimates[spec.name] = Estimate(value, own_sd, (ends[0], ends[1]), verdict)
    names = tuple(model.specs[i].name for i in fitted)
    covariance = np.asarray(covariance_z * np.outer(prior_sd, prior_sd), dtype=np.float64)
    confounded = find_confounded(names, information, covariance_z, frozenset(unsure))
    return Posterior(estimates, names, covariance, gauges, confounded)


def _at_bound(problem: Problem, solution: Solution) -> frozenset[int]:
    low, high = problem.bounds()
    ended = np.isclose(solution.z, low) | np.isclose(solution.z, high)
    return frozenset(i for i, at_end in zip(problem.free, ended.tolist(), strict=True) if at_end)


def find_confounded(
    names: Sequence[str], information: FloatArray, covariance: FloatArray, unsure: Collection[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """Groups of parameters that the data know only together, the most entangled first.

    Each of a group would be identified if the others were known, and isn't, because they act alike on this motion.

    Args:
        names: of the parameters.
        information: of the data, in prior standard deviations, shape (F, F).
        covariance: posterior, likewise.
        unsure: names that are told otherwise: those on a gauge, and of joints that stood still.
    """
    alone = 1.0 / np.sqrt(1.0 + np.diag(information))
    sd = np.sqrt(np.diag(covariance))
    rho = covariance / np.outer(sd, sd)
    known = np.array([name not in unsure for name in names], dtype=np.bool_)
    blurred = known & (alone <= IDENTIFIED) & (sd > IDENTIFIED)
    left = [i for i in np.argsort(-sd, kind="stable").tolist() if blurred[i]]
    groups = []
    while left:
        first = left.pop(0)
        members = [j for j in np.flatnonzero(known & (np.abs(rho[first]) >= ENTANGLED)).tolist() if j != first]
        if members:
            partners = sorted(members, key=lambda j: -abs(float(rho[first, j])))[:MOST_PARTNERS]
            groups.append((names[first], *(names[j] for j in partners)))
            left = [i for i in left if i not in partners]
    return tuple(groups)


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


def find_gauges(problem: Problem, solution: Solution) -> tuple[Gauge, ...]:
    """Name the scale gauge where the data can't see it.

    With positions alone and gains unknown, inertias, friction, damping and gains can all be multiplied by one factor
    without changing any motion.
    """
    direction = _scale_direction(problem, solution)
    if direction is None:
        return ()
    believed = float(direction @ direction)
    # the step is the factor's own standard deviation by the priors
    seen = _seen_along(problem, solution, direction != 0.0, 1.0 / math.sqrt(believed))
    # sd of the factor's logarithm after the data over that before them
    if math.sqrt(believed / (believed + seen)) <= IDENTIFIED:
        return ()
    names = tuple(problem.model.specs[i].name for i, d in zip(problem.free, direction, strict=True) if abs(d) > 1e-9)
    text = (
        "positions alone don't tell the scale of torque: masses, armature, friction, damping and gains can all be "
        "multiplied by one factor without changing this motion; the factor is the prior's"
    )
    return (Gauge(name="scale", parameters=names, text=text),)


def _seen_along(
    problem: Problem, solution: Solution, scaled: np.ndarray[tuple[int], np.dtype[np.bool_]], step: float
) -> float:
    """Information on the logarithm of a common factor of some fitted parameters, from rollouts a step to both sides.

    Slopes at the solution don't tell it: where joints stick and slip, the least change of anything moves when they do,
    and adds up to an information that a change of the size in question doesn't bear out.

    Args:
        problem: model, data, fitted parameters.
        solution: where the solver ended.
        scaled: which of the fitted parameters, shape (F,).
        step: of the factor's logarithm.
    """
    moved = np.array(problem.free)[scaled]
    sets = np.repeat(solution.values[None, :], 2, axis=0)
    sets[:, moved] *= np.exp([[step], [-step]])
    error = residuals(problem.model, problem.stretches, sets).error.reshape(2, -1)
    slope = (error[0] - error[1]) / (2.0 * step)
    return float(solution.weight @ slope**2)


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
