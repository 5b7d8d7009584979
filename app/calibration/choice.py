"""Which laws a twin gets: the plain ones, unless others pay in cross-validation within the training data.

Laws that look worth a fit are fitted on the scouting windows one by one, from the plain fit's optimum; the best of them
is taken if what it saves of the left-out error is surely something and worth a law, then the next beside it, until none
pays. At the end each law taken must still pay beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.crossvalidation import Gain, LeftOut, gain, left_out
from app.calibration.laws import Laws, Promise, described, promising, structure_of
from app.calibration.residual import misfit, residuals
from app.calibration.solver import Problem, Solution
from app.calibration.types import StructureTried, TrialRecord
from app.telemetry import FloatArray
from app.twin.model import Structure, TwinModel

MOST_FITS: Final = 8
"""Structures fitted on scouting windows besides the plain one, at most."""

Fit = Callable[[TwinModel, FloatArray], tuple[Problem, Solution] | None]
"""Fits a model on the scouting windows from the given values, briefly; None where it gave up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The laws a twin gets, and how that came about.

    Attributes:
        structure: chosen.
        start: values for it, fitted on the scouting windows, shape (K,).
        tried: every structure that was fitted, the plain one first, and what came of it.
        records: every trial.
    """

    structure: Structure
    start: FloatArray
    tried: tuple[StructureTried, ...]
    records: tuple[TrialRecord, ...]


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A structure fitted on the scouting windows, and its errors on what it wasn't fitted to."""

    laws: Laws
    problem: Problem
    solution: Solution
    errors: LeftOut

    def values(self) -> dict[str, float]:
        return dict(zip(self.problem.model.names, self.solution.values.tolist(), strict=True))


def choose(plain: tuple[Problem, Solution], variant: Callable[[Structure], TwinModel], fit: Fit, seed: int) -> Choice:
    """Choose the laws of a twin.

    Args:
        plain: the plain fit on the scouting windows, settled.
        variant: the robot's model with given laws.
        fit: fits on the same windows.
        seed: of the search.
    """
    promises, records = promising(plain, variant, seed)
    search = _Search(variant, fit, list(records))
    best = search.validate(frozenset(), *plain)
    if promises:
        best = search.best(best, promises)
    tried = tuple(search.told(each, best) for each in search.fitted.values())
    return Choice(structure_of(best.laws), best.solution.values, tried, tuple(search.records))


class _Search:
    """Structures fitted so far."""

    def __init__(self, variant: Callable[[Structure], TwinModel], fit: Fit, records: list[TrialRecord]) -> None:
        self.records = records
        self.fitted: dict[Laws, _Fitted] = {}
        self._given_up: set[Laws] = set()
        self._variant, self._fit = variant, fit

    def best(self, plain: _Fitted, promises: list[Promise]) -> _Fitted:
        """The structure that pays, laws added one by one and then tried without each."""
        by_laws = {promise.laws: promise for promise in promises}
        # a law that promises only together with another one is tried beside it
        laws = sorted({law for promise in promises for law in promise.laws})
        best = plain
        while len(self.fitted) <= MOST_FITS:
            richer = [self._with(best, law, by_laws) for law in laws if law not in best.laws]
            paying = [each for each in richer if each is not None and self.gain(best, each).pays]
            if not paying:
                break
            best = max(paying, key=lambda each: self.gain(plain, each).share)
        return self._without_idle(best)

    def _with(self, base: _Fitted, law: str, promises: Mapping[Laws, Promise]) -> _Fitted | None:
        """The structure with one more law, fitted; None where nothing says where its fit should start."""
        laws = base.laws | {law}
        if laws in self.fitted:
            return self.fitted[laws]
        if laws in self._given_up or len(self.fitted) > MOST_FITS:
            return None
        names = set(self._variant(structure_of(laws)).names)
        alone = promises.get(frozenset({law}))
        starts = [dict(start) for start in promises[laws].starts] if laws in promises else []
        if base.laws and alone is not None:
            starts += [dict(start) | _kept(base.values(), names) for start in alone.starts[:1]]
        return self._fit_from(laws, starts) if starts else None

    def _without_idle(self, best: _Fitted) -> _Fitted:
        """Drop laws that no longer pay beside the others."""
        while len(best.laws) > 1:
            poorer = []
            for law in sorted(best.laws):
                laws = best.laws - {law}
                if laws not in self.fitted and laws not in self._given_up:
                    names = set(self._variant(structure_of(laws)).names)
                    self._fit_from(laws, [_kept(best.values(), names)])
                if laws in self.fitted and not self.gain(self.fitted[laws], best).pays:
                    poorer.append(self.fitted[laws])
            if not poorer:
                return best
            best = min(poorer, key=lambda each: self.gain(each, best).share)
        return best

    def _fit_from(self, laws: Laws, starts: list[dict[str, float]]) -> _Fitted | None:
        """Fit a structure from the best of some starts; None where it gains nothing on the plain fit."""
        model = self._variant(structure_of(laws))
        sets = np.array([model.values(start) for start in starts])
        plain = self.fitted[frozenset()]
        found = residuals(model, plain.problem.stretches, sets)
        start = sets[int(np.argmin(np.where(found.diverged, np.inf, misfit(found, plain.solution.noise))))]
        done = self._fit(model, start)
        if done is not None:
            return self.validate(laws, *done)
        self._given_up.add(laws)
        known = dict(zip(model.names, start.tolist(), strict=True))
        self.records.append(TrialRecord(0, described(model.structure), known, None, "pruned"))
        return None

    def validate(self, laws: Laws, problem: Problem, solution: Solution) -> _Fitted:
        """Leave each fold out of a fit, and keep what came of it."""
        fitted = _Fitted(laws, problem, solution, left_out(problem, solution))
        self.fitted[laws] = fitted
        values = {s.name: float(v) for s, v in zip(problem.model.specs, solution.values, strict=True) if s.fitted}
        structure = described(structure_of(laws))
        self.records.append(TrialRecord(0, structure, values, fitted.errors.log_rms, "complete"))
        return fitted

    def gain(self, plainer: _Fitted, richer: _Fitted) -> Gain:
        """What the richer one saves of the left-out loss."""
        return gain(plainer.errors, richer.errors, plainer.solution.found, plainer.problem.stretches)

    def told(self, each: _Fitted, best: _Fitted) -> StructureTried:
        """What came of a structure, for people."""
        plain = self.fitted[frozenset()]
        saved = self.gain(plain, each)
        return StructureTried(
            structure=described(structure_of(each.laws)),
            log_rms=each.errors.log_rms,
            gain=saved.share,
            gain_error=saved.error,
            chosen=each is best,
            reason=self._reason(each, best, saved),
        )

    def _reason(self, each: _Fitted, best: _Fitted, saved: Gain) -> str:
        if each is best:
            return "chosen: no other law pays" if each.laws else "chosen: the plain laws, and no other pays"
        if each.laws < best.laws:
            return f"the laws chosen save {self.gain(each, best)} of its error on left-out data"
        if each.laws > best.laws:
            return f"saves {self.gain(best, each)} of the chosen one's error on left-out data, which doesn't pay"
        if not saved.pays:
            return f"saves {saved} of the plain error on left-out data, which doesn't pay"
        return f"saves {saved} of the plain error on left-out data, the chosen one more"


def _kept(values: Mapping[str, float], names: set[str]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name in names}
