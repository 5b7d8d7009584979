"""What Optuna searches: values with many local minima, from which the solver polishes.

The study lives in memory, is asked and told in batches that fill the kernel's lanes, and is the same whatever the
number of cores. Its trials cover latency and the common factors of gains, damping and friction; every single parameter
is the solver's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna

from app.calibration.dataset import Stretch, cut_stretch
from app.calibration.laws import described
from app.calibration.residual import residuals
from app.calibration.types import TrialRecord
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.model import TwinModel
from app.twin.rollout import LANES

BATCHES = 4
TRIALS = BATCHES * LANES
SCOUT_WINDOW_S = 8.0
SCOUT_SHARE = 0.25
SCOUT_TOTAL_S = (16.0, 48.0)
"""Scouting looks at this share of the data, but at least and at most so much of it."""
LATENCY_RANGE_S = (0.0, 0.12)
FACTOR_RANGE = (-2.5, 2.5)
"""Common factors are searched between e^-2.5 and e^2.5 of where the priors put them."""

# Parameters that share a factor: the rows of the joints' parameter table.
GROUPS = {
    "gains": (friction.KP, friction.KD, friction.TORQUE_LIMIT),
    "dissipation": (friction.DAMPING, friction.BACK_EMF),
    "dry_friction": (friction.COULOMB,),
    "armature": (friction.ARMATURE,),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A starting point for the solver.

    Attributes:
        values: shape (K,).
        objective: mean over joints of the logarithm of the error's RMS [ln rad].
    """

    values: FloatArray
    objective: float


def scout(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Short windows spread over the data: enough to tell good starts from bad ones at a fraction of the cost."""
    windows = [window for stretch in stretches for window in _windows(stretch)]
    total = sum(window.duration_s for window in windows)
    wanted = float(np.clip(SCOUT_SHARE * total, *SCOUT_TOTAL_S))
    count = min(len(windows), max(1, math.ceil(len(windows) * wanted / total)))
    chosen = np.unique(np.linspace(0, len(windows) - 1, count).round().astype(int))
    return tuple(windows[i] for i in chosen)


def _windows(stretch: Stretch) -> list[Stretch]:
    last = float(stretch.motion.t_out_s[-1])
    count = max(1, round(stretch.duration_s / SCOUT_WINDOW_S))
    edges = np.linspace(stretch.motion.begin_s, last, count + 1).tolist()
    parts = [cut_stretch(stretch.commanded, begin, end) for begin, end in itertools.pairwise(edges)]
    return [part for part in parts if len(part.position) > 1]


def search(
    model: TwinModel, stretches: Sequence[Stretch], seed: int, told: Callable[[int, float], None]
) -> tuple[list[Candidate], list[TrialRecord]]:
    """Explore starting points.

    Args:
        model: the robot.
        stretches: scouting data.
        seed: of the sampler.
        told: called with the number of trials and the best objective after each batch.

    Returns:
        Candidates, best first, and the record of every trial.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=LANES)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(dict.fromkeys(_dimensions(model), 0.0) | _first_latency(model))
    candidates: list[Candidate] = []
    records: list[TrialRecord] = []
    for _ in range(BATCHES):
        trials = [study.ask() for _ in range(LANES)]
        values = np.array([_suggest(model, trial) for trial in trials])
        objectives = _objectives(model, stretches, values)
        for trial, sets, objective in zip(trials, values, objectives.tolist(), strict=True):
            failed = not math.isfinite(objective)
            study.tell(trial, None if failed else objective, _state(failed=failed))
            named = {name: float(v) for name, v, s in zip(model.names, sets, model.specs, strict=True) if s.fitted}
            if failed:
                records.append(TrialRecord(trial.number, described(model.structure), named, None, "failed"))
            else:
                records.append(TrialRecord(trial.number, described(model.structure), named, objective, "complete"))
                candidates.append(Candidate(sets, objective))
        told(len(records), min((c.objective for c in candidates), default=math.inf))
    return sorted(candidates, key=lambda c: c.objective), records


def _state(*, failed: bool) -> optuna.trial.TrialState:
    return optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE


def _dimensions(model: TwinModel) -> list[str]:
    """Groups that have something to fit."""
    rows = {s.slot.row for s in model.specs if s.fitted and s.slot.place == "joint"}
    return [group for group, members in GROUPS.items() if rows & set(members)]


def _first_latency(model: TwinModel) -> dict[str, float]:
    return {s.name: s.initial for s in model.specs if s.slot.place == "latency" and s.fitted}


def _suggest(model: TwinModel, trial: optuna.trial.Trial) -> FloatArray:
    factor = {g: math.exp(trial.suggest_float(g, *FACTOR_RANGE)) for g in _dimensions(model)}
    by_row = {row: factor[group] for group, rows in GROUPS.items() if group in factor for row in rows}
    values = model.initial()
    for index, spec in enumerate(model.specs):
        if not spec.fitted:
            continue
        if spec.slot.place == "latency":
            values[index] = trial.suggest_float(spec.name, *LATENCY_RANGE_S)
        elif spec.slot.place == "joint":
            values[index] *= by_row.get(spec.slot.row, 1.0)
        values[index] = np.clip(values[index], *spec.bounds)
    return values


def _objectives(model: TwinModel, stretches: Sequence[Stretch], values: FloatArray) -> FloatArray:
    """Mean log RMS over joints: free of scale, so that no joint drowns another; infinite where a rollout diverged."""
    found = residuals(model, stretches, values)
    count = np.maximum(found.seen.sum(axis=0), 1)
    rms = np.sqrt((found.error**2).sum(axis=1) / count)
    mean: FloatArray = np.log(np.maximum(rms, 1e-9)).mean(axis=1)
    return np.where(found.diverged, np.inf, mean)
