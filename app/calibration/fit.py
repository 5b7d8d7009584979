"""The story of one fit: recordings in, a judged twin out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from app.calibration import judge
from app.calibration.acceptance import gate
from app.calibration.choice import Choice, choose
from app.calibration.dataset import Dataset, Split, Stretch, make_dataset
from app.calibration.draft import Judgement, make_draft
from app.calibration.findings import look
from app.calibration.laws import described
from app.calibration.posterior import Posterior, posterior
from app.calibration.reference import nominal_reference, values_of
from app.calibration.report import render_failure, render_report
from app.calibration.report_data import Overlay, ReportData
from app.calibration.report_looks import gather_looks
from app.calibration.residual import Noise
from app.calibration.sensors import quantum
from app.calibration.solver import Problem, Solution, solve
from app.calibration.standing import about_still, free_of, least_holding, locked, released, still_joints
from app.calibration.structure import TRIALS, Candidate, scout, search
from app.calibration.types import FitRequest, FitResult, Progress, TrialRecord
from app.errors import FitImpossibleError
from app.telemetry import FloatArray
from app.twin.model import TwinModel, named_structure

SCOUT_STARTS = 2
SCOUT_ITERATIONS = 6
LAW_ITERATIONS = 6
LAW_PATIENCE = 2
LAW_GAIN = 0.002
"""A law is given up after so many iterations where the mean logarithm of the error hasn't fallen by so much."""
FULL_ITERATIONS = 12
SMALLEST_SD = 2e-5
"""Residual standard deviation below which nothing is believed [rad or m]."""

Report = Callable[[Progress], None]


def calibrate(request: FitRequest, report_progress: Report) -> FitResult:
    """Fit a robot's twin to its recordings and judge it.

    The result depends on the request alone: not on the number of cores, the order of recordings or where they came
    from, unless the time budget cuts the search short, which its warnings then say.

    Args:
        request: what to fit.
        report_progress: told how far it is.

    Raises:
        FitImpossibleError: when the data allow no fit; carries the report.
        InvalidInputError: when declaration, description and logs don't fit together.
    """
    try:
        # Sums of a threaded BLAS depend on the number of cores in their last bits.
        with threadpool_limits(1):
            return _Fit(request, report_progress).run()
    except FitImpossibleError as error:
        if not error.report_html:
            logs = [recording.name for recording in request.train]
            error.report_html = render_failure(request.declaration.robot, str(error), (), logs)
        raise


@dataclass(slots=True)
class _Fit:
    """One fit on its way."""

    request: FitRequest
    report_progress: Report
    trials: int = 0
    best: float | None = None
    out_of_time: bool = False
    began: float = 0.0
    still: tuple[str, ...] = ()

    def run(self) -> FitResult:
        self.began = time.monotonic()
        request = self.request
        self._tell("reading data", 0.0)
        split = Split(request.from_s, request.to_s, request.holdout_fraction)
        dataset = make_dataset(request.description, request.declaration, request.train, request.holdout, split)
        still = self.still = still_joints(dataset)
        candidates, records = self._explore(dataset)
        start, more = self._start(dataset, candidates)
        choice = self._choose(dataset, start)
        dataset = dataset.with_structure(choice.structure)
        solution = self._solve(dataset.model, dataset.train, choice.start, (FULL_ITERATIONS, 0.4, 0.45))
        more = [*more, *choice.records, self._record(solution, dataset.model)]
        solution = replace(solution, values=least_holding(dataset.model, dataset.train, solution.values, still))
        found = posterior(self._problem(dataset.model, dataset.train), solution, still)
        self._tell("judging", 0.85)
        judgement = replace(self._judge(dataset, solution), findings=look(dataset, solution))
        warnings = (*dataset.warnings, *about_still(still), *self._cautions(solution, found))
        draft = make_draft(request, dataset, solution, found, replace(judgement, warnings=warnings))
        trials = (*records, *(replace(r, number=len(records) + i) for i, r in enumerate(more)))
        seconds = time.monotonic() - self.began
        data = ReportData(
            draft=draft,
            acceptance=judgement.acceptance,
            nominal_name=judgement.nominal_name,
            overlays=_overlays(dataset, judgement),
            train_logs=tuple(sorted({part.log for part in dataset.train})),
            trials=len(trials),
            seconds=seconds,
            looks=gather_looks(dataset, solution, judgement, found, choice.tried, request.description),
        )
        self._tell("writing the report", 0.98)
        return FitResult(draft, judgement.acceptance, trials, render_report(data), choice.tried)

    def _problem(self, model: TwinModel, parts: Sequence[Stretch]) -> Problem:
        free = free_of(model, self.still)
        if not free:
            raise FitImpossibleError("every parameter is frozen: there is nothing to fit")
        return Problem(model, parts, free, _noise_floor(parts))

    def _explore(self, dataset: Dataset) -> tuple[list[Candidate], list[TrialRecord]]:
        """Let Optuna find where to start."""
        self._tell("searching", 0.02)

        def told(trials: int, best: float) -> None:
            self.trials, self.best = trials, best
            self._tell("searching", 0.02 + 0.08 * trials / TRIALS)

        candidates, records = search(dataset.model, scout(dataset.train), self.request.seed, told)
        if not candidates:
            raise FitImpossibleError(
                "the twin diverges from every starting point: check masses, axes and the controller"
            )
        return candidates, records

    def _start(self, dataset: Dataset, candidates: list[Candidate]) -> tuple[Solution, list[TrialRecord]]:
        """Polish the best starts on scouting windows, and the better of them until it settles."""
        model, windows = dataset.model, scout(dataset.train)
        polished: list[Solution] = []
        records: list[TrialRecord] = []
        for index, candidate in enumerate(candidates[:SCOUT_STARTS]):
            effort = (SCOUT_ITERATIONS, 0.1 + 0.05 * index, 0.05)
            polished.append(self._solve(model, windows, candidate.values, effort, final=False))
            records.append(self._record(polished[-1], model))
        best = min(polished, key=_mean_log_error)
        if not best.settled:
            best = self._solve(model, windows, best.values, (SCOUT_ITERATIONS, 0.2, 0.05), final=False)
            records.append(self._record(best, model))
        return best, records

    def _choose(self, dataset: Dataset, plain: Solution) -> Choice:
        """Let the laws beyond the plain ones show whether they pay."""
        windows = scout(dataset.train)

        def fit(model: TwinModel, start: FloatArray) -> tuple[Problem, Solution] | None:
            wanted = _mean_log_error(plain) - LAW_GAIN
            solution = self._solve(model, windows, start, (LAW_ITERATIONS, 0.25, 0.15), final=False, wanted=wanted)
            self.trials += 1
            return None if _mean_log_error(solution) > wanted else (self._problem(model, windows), solution)

        self._tell("choosing laws", 0.25)
        return choose((self._problem(dataset.model, windows), plain), dataset.variant, fit, self.request.seed)

    def _solve(
        self,
        model: TwinModel,
        parts: Sequence[Stretch],
        start: FloatArray,
        effort: tuple[int, float, float],
        *,
        final: bool = True,
        wanted: float = math.inf,
    ) -> Solution:
        """Polish with at most so many iterations, of which progress is told from a share and for a share of the fit.

        Given up where after `LAW_PATIENCE` iterations the mean log error is still above `wanted`.
        """
        iterations, begin, length = effort
        problem = self._problem(model, parts)
        done = 0

        def keep_going(_: float, noise: Noise) -> bool:
            nonlocal done
            if done >= LAW_PATIENCE and float(np.log(noise.sd).mean()) > wanted:
                return False
            done += 1
            self._tell("fitting", begin + length * min(1.0, done / iterations))
            self.out_of_time |= time.monotonic() - self.began > self.request.budget_s
            return not self.out_of_time

        return solve(problem, locked(model, start, self.still), iterations, keep_going, final=final)

    def _record(self, solution: Solution, model: TwinModel) -> TrialRecord:
        self.trials += 1
        known = released(model, solution.values, self.still)
        values = {s.name: float(v) for s, v in zip(model.specs, known, strict=True) if s.fitted}
        return TrialRecord(0, described(model.structure), values, _mean_log_error(solution), "complete")

    def _judge(self, dataset: Dataset, solution: Solution) -> Judgement:
        """Judge by the hold-out: in PyBullet, against the nominal twin and the active one."""
        model, parts, values = dataset.model, dataset.holdout, solution.values
        positions = judge.simulated_in_world(model, parts, values)
        errors = judge.errors(parts, positions)
        nominal_positions, nominal_name = nominal_reference(model, parts)
        nominal = judge.errors(parts, nominal_positions)
        references = {nominal_name: nominal}
        active = self.request.active
        if active is not None:
            laws = active.structure
            own = dataset.variant(named_structure(laws.friction, laws.lag, backlash=laws.backlash))
            references[f"version {active.version}"] = judge.errors(
                parts, judge.simulated(own, parts, values_of(own, active))
            )
        return Judgement(
            positions=positions,
            errors=errors,
            nominal_positions=nominal_positions,
            nominal_errors=nominal,
            nominal_name=nominal_name,
            train_errors=_split_errors(solution),
            windowed=judge.windowed_errors(model, parts, values),
            tip_rmse_mm=judge.tip_rmse_mm(model, parts, positions),
            acceptance=gate(errors, references, _sample_s(parts), self.request.seed),
        )

    def _cautions(self, solution: Solution, found: Posterior) -> list[str]:
        """What to be careful about, from how the fit went."""
        cautions = []
        if self.out_of_time:
            cautions.append("budget_reached: the time budget cut the fit short; another run may end elsewhere")
        elif not solution.settled:
            cautions.append(f"the fit had not settled after {solution.iterations} iterations")
        bound = [name for name, estimate in found.estimates.items() if estimate.verdict == "at_bound"]
        if bound:
            cautions.append("ended at a bound: " + ", ".join(bound))
        return cautions

    def _tell(self, stage: str, fraction: float) -> None:
        best = self.best if self.best is not None and math.isfinite(self.best) else None
        self.report_progress(Progress(stage, fraction, self.trials, best))


def _noise_floor(parts: Sequence[Stretch]) -> FloatArray:
    """Smallest residual sd believed: that of rounding to the sensor's step (q/√12), shape (n,)."""
    measured = np.concatenate([part.position for part in parts])
    steps = np.array([quantum(column) for column in measured.T])
    return np.maximum(steps / math.sqrt(12.0), SMALLEST_SD)


def _mean_log_error(solution: Solution) -> float:
    return float(np.log(solution.noise.sd).mean())


def _split_errors(solution: Solution) -> judge.Positions:
    """Training errors of each stretch, NaN where nothing was measured."""
    found = solution.found
    error = np.where(found.seen, found.error[0], np.nan)
    return np.split(error, found.edges[1:-1])


def _sample_s(parts: Sequence[Stretch]) -> float:
    return float(np.median(np.concatenate([np.diff(part.motion.t_out_s) for part in parts])))


def _overlays(dataset: Dataset, judgement: Judgement) -> tuple[Overlay, ...]:
    commands = judge.commanded(dataset.holdout)
    takes_position = dataset.model.controller in ("pd", "servo_duty")
    return tuple(
        Overlay(
            log=part.log,
            t_s=part.motion.t_out_s,
            joints=dataset.model.joints,
            measured=part.position,
            calibrated=position,
            nominal=nominal,
            command=command if takes_position else np.full_like(command, np.nan),
        )
        for part, position, nominal, command in zip(
            dataset.holdout, judgement.positions, judgement.nominal_positions, commands, strict=True
        )
    )
