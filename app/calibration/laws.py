"""The laws a robot may have besides the plain ones, and a cheap look at which of them are worth a fit.

Optuna proposes a structure and the values of its additional parameters, one for all joints. Each proposal is one lane
of a rollout, from the plain fit's optimum; what the other parameters would make of it is read off that fit's slopes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import optuna

from app.calibration.residual import HUBER, Residuals, residuals
from app.calibration.solver import Problem, Solution
from app.calibration.types import TrialRecord
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.model import Structure, TwinModel, named_structure
from app.twin.rollout import LANES

Laws = frozenset[str]

LAWS: Final = ("stribeck", "load")
"""What there is to choose from, in the order in which trials ask."""
SHARED_BATCHES: Final = 1
"""Batches in which the sampler is free to combine laws, after one for each law alone."""
WORTH_A_FIT: Final = 0.5
"""Gain in log-likelihood that the slopes promise, below which a combination of laws isn't fitted; each law alone is."""
LEAST_COULOMB: Final = 0.02
"""Breakaway friction is searched as a multiple of Coulomb friction, but of this share of its prior's width at least."""

_DIVERGED_GAIN: Final = -1e6

# The values that all joints share, and the law each belongs to; log-uniform.
_SPANS: Final[Mapping[str, tuple[str, tuple[float, float]]]] = {
    "breakaway_excess": ("stribeck", (0.05, 2.0)),  # of the Coulomb friction
    "stribeck_velocity": ("stribeck", (0.1, 10.0)),  # of the prior's median
    "load_share": ("load", (0.02, 0.6)),
    "lag_s": ("lag", (0.003, 0.1)),
    "gap": ("backlash", (0.05, 5.0)),  # of the prior's standard deviation
}


@dataclass(frozen=True, slots=True)
class Promise:
    """A structure that looks worth a fit.

    Attributes:
        laws: besides the plain ones.
        starts: values of its parameters by name, to start from: the plain fit's, and as its slopes would have them.
        gain: in tempered log-likelihood, as far as the plain fit's slopes can tell.
    """

    laws: Laws
    starts: tuple[Mapping[str, float], ...]
    gain: float


def structure_of(laws: Laws) -> Structure:
    """The structure with these laws besides the plain ones."""
    law = "coulomb+viscous" + "".join(f"+{name}" for name in ("stribeck", "load") if name in laws)
    return named_structure(law, "delay+lag" if "lag" in laws else "delay", backlash="backlash" in laws)


def described(structure: Structure) -> dict[str, str | bool]:
    """A structure as a trial records it."""
    return {"friction": structure.friction, "lag": structure.lag, "backlash": structure.backlash}


def open_laws(model: TwinModel) -> tuple[str, ...]:
    """Laws that a robot with this controller may have."""
    return tuple(law for law in LAWS if law != "lag" or model.controller != "none")


def promising(
    plain: tuple[Problem, Solution], variant: Callable[[Structure], TwinModel], seed: int
) -> tuple[list[Promise], list[TrialRecord]]:
    """Look at structures from the plain fit's optimum.

    Args:
        plain: the plain fit.
        variant: the robot's model with given laws.
        seed: of the sampler.

    Returns:
        The best proposal for each law alone and for each combination that promises a gain, best first, and the record
        of every trial.
    """
    problem, solution = plain
    laws = open_laws(problem.model)
    full = variant(structure_of(frozenset(laws)))
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=LANES)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    best: dict[Laws, Promise] = {}
    records: list[TrialRecord] = []
    lookout = _Lookout(problem, solution)
    for batch in range(len(laws) + SHARED_BATCHES):
        if batch < len(laws):
            for _ in range(LANES):
                study.enqueue_trial({law: law == laws[batch] for law in laws})
        trials = [study.ask() for _ in range(LANES)]
        asked = [_suggest(trial, laws, full, plain) for trial in trials]
        looks = lookout.at(full, [values for _, values in asked])
        for trial, (chosen, values), look in zip(trials, asked, looks, strict=True):
            study.tell(trial, look.gain if math.isfinite(look.gain) else _DIVERGED_GAIN)
            if math.isfinite(look.gain) and (chosen not in best or look.gain > best[chosen].gain):
                best[chosen] = Promise(chosen, (values, values | lookout.moved(look)), look.gain)
            records.append(_record(chosen, values, look, variant))
    worth = [each for laws, each in best.items() if len(laws) == 1 or (laws and each.gain > WORTH_A_FIT)]
    return sorted(worth, key=lambda promise: -promise.gain), records


def _record(
    laws: Laws, values: Mapping[str, float], look: _Look, variant: Callable[[Structure], TwinModel]
) -> TrialRecord:
    structure = structure_of(laws)
    names = set(variant(structure).names)
    known = {name: value for name, value in values.items() if name in names}
    if not math.isfinite(look.gain):
        return TrialRecord(0, described(structure), known, None, "failed")
    state: Literal["complete", "pruned"] = "complete" if look.gain > WORTH_A_FIT else "pruned"
    return TrialRecord(0, described(structure), known, look.log_rms, state)


def _suggest(
    trial: optuna.trial.Trial, laws: Sequence[str], full: TwinModel, plain: tuple[Problem, Solution]
) -> tuple[Laws, dict[str, float]]:
    """A structure, and values by name for the model with every law: those not chosen where they have no effect."""
    chosen = frozenset(law for law in laws if trial.suggest_categorical(law, [False, True]))
    # always asked for, so that the sampler sees one space; what belongs to no chosen law is left aside
    drawn = {name: trial.suggest_float(name, *span, log=True) for name, (_, span) in _SPANS.items()}
    asked = {name: value for name, value in drawn.items() if _SPANS[name][0] in chosen}
    problem, solution = plain
    values = dict(zip(problem.model.names, solution.values.tolist(), strict=True))
    coulomb = {s.slot.index: values[s.name] for s in full.specs if _is(s.slot.place, s.slot.row, friction.COULOMB)}
    for spec in full.specs:
        if spec.name in values:
            continue
        _, sd = spec.prior_moments()
        if spec.slot.place == "lag":
            value = asked.get("lag_s", 0.0)
        elif spec.slot.row == friction.BREAKAWAY:
            dry = max(coulomb[spec.slot.index], LEAST_COULOMB * sd)
            value = dry * (1.0 + asked["breakaway_excess"]) if "breakaway_excess" in asked else 0.0
        elif spec.slot.row == friction.STRIBECK:
            value = spec.initial * asked.get("stribeck_velocity", 1.0)
        elif spec.slot.row == friction.LOAD:
            value = asked.get("load_share", 0.0)
        else:
            value = sd * asked.get("gap", 0.0)
        values[spec.name] = float(np.clip(value, *spec.bounds)) if spec.fitted else spec.initial
    for spec in full.specs:
        if spec.slot.place == "latency" and spec.fitted:
            values[spec.name] = max(spec.bounds[0], values[spec.name] - asked.get("lag_s", 0.0))
    return chosen, values


def _is(place: str, row: int, wanted: int) -> bool:
    return place == "joint" and row == wanted


@dataclass(frozen=True, slots=True)
class _Look:
    """One proposal, the plain parameters refitted along their slopes.

    Attributes:
        gain: in tempered log-likelihood; −inf where the rollout diverged.
        log_rms: mean over joints of the logarithm of the error that is left [ln rad].
        step: of the plain fit's coordinates, shape (F,).
    """

    gain: float
    log_rms: float
    step: FloatArray


class _Lookout:
    """The plain fit's slopes, ready to say what its parameters would make of another error."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self._problem, self._solution = problem, solution
        self._before = self._refitted(solution.found.error[0], solution.found)[0]

    def at(self, full: TwinModel, asked: Sequence[Mapping[str, float]]) -> list[_Look]:
        """Look at sets of values, given by name, of the model with every law."""
        found = residuals(full, self._problem.stretches, np.array([full.values(values) for values in asked]))
        looks = []
        for error, diverged in zip(found.error, found.diverged.tolist(), strict=True):
            after, left, step = self._refitted(error, found)
            rms = np.sqrt((left**2).sum(axis=0) / np.maximum(found.seen.sum(axis=0), 1))
            log_rms = float(np.log(np.maximum(rms, 1e-9)).mean())
            looks.append(_Look(-math.inf if diverged else self._before - after, log_rms, step))
        return looks

    def moved(self, look: _Look) -> dict[str, float]:
        """The plain parameters by name, as a look's step has them."""
        problem = self._problem
        z = problem.admitted(self._solution.z + look.step, self._solution.values)
        values = problem.to_values(z[None, :], self._solution.values)[0]
        return {problem.model.names[i]: float(values[i]) for i in problem.free}

    def _refitted(self, error: FloatArray, found: Residuals) -> tuple[float, FloatArray, FloatArray]:
        """The objective after the plain parameters' step, the error that is left, shape (N, n), and the step, (F,)."""
        solution = self._solution
        J, z, noise = solution.jacobian, solution.z, solution.noise
        counts = found.seen / (noise.sd**2 * noise.kappa)
        step = np.zeros(len(z))
        left = error
        for _ in range(3):  # Huber's weights depend on what is left
            weight = (counts * HUBER / np.maximum(np.abs(left) / noise.sd, HUBER)).ravel()
            hessian = (J * weight[:, None]).T @ J + np.eye(len(z))
            step = np.asarray(-np.linalg.solve(hessian, J.T @ (weight * error.ravel()) + z), dtype=np.float64)
            left = error + (J @ step).reshape(error.shape) * found.seen
        size = np.abs(left) / noise.sd
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
        objective = float((loss * found.seen / noise.kappa).sum() + 0.5 * ((z + step) ** 2).sum())
        return objective, left, step
