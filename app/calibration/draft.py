"""From a fit's numbers to the document it would publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from app.calibration import judge
from app.calibration.dataset import Dataset
from app.calibration.findings import Finding, coarse_joints, motion_share, sensors_of, whiteness
from app.calibration.grade import grade
from app.calibration.posterior import Posterior
from app.calibration.reference import NOMINAL
from app.calibration.report_words import short_name
from app.calibration.solver import Solution
from app.calibration.types import Acceptance, FitRequest
from app.twin.document import (
    Covariance,
    DescriptionRef,
    DraftProvenance,
    Engine,
    HoldoutErrors,
    Parameter,
    Quality,
    SensorNoise,
    Structure,
    TwinDraft,
    WindowedErrors,
)
from app.twin.model import GRAVITY_M_S2, TIMESTEP_S

MOST_CONFOUNDED: Final = 4
"""Pairs of parameters that a warning names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the hold-out said.

    Attributes:
        positions: of the twin in PyBullet, on each hold-out stretch, shape (K, n) each.
        errors: simulated − measured, NaN where nothing was measured.
        nominal_positions: of what it has to beat.
        nominal_errors: its errors.
        nominal_name: what that is, in words.
        train_errors: of the twin on each training stretch.
        windowed: errors of short windows.
        tip_rmse_mm: at the tip; None where there is no one tip.
        acceptance: the gate's answer.
        warnings: what to be careful about.
        findings: what the twin lacks, by the look of what it leaves over.
    """

    positions: judge.Positions
    errors: judge.Positions
    nominal_positions: judge.Positions
    nominal_errors: judge.Positions
    nominal_name: str
    train_errors: judge.Positions
    windowed: WindowedErrors | None
    tip_rmse_mm: float | None
    acceptance: Acceptance
    warnings: Sequence[str] = field(default=())
    findings: Sequence[Finding] = field(default=())


def make_draft(
    request: FitRequest, dataset: Dataset, solution: Solution, found: Posterior, judgement: Judgement
) -> TwinDraft:
    """Everything a twin document holds but its version."""
    model = dataset.model
    laws = model.structure
    structure = Structure(friction=laws.friction, controller=model.controller, lag=laws.lag, backlash=laws.backlash)
    recordings = sorted({part.log for part in (*dataset.train, *dataset.holdout)})
    sensors = sensors_of(model.joints, dataset.holdout, judgement.errors)
    return TwinDraft(
        robot=request.declaration.robot,
        fleet=request.declaration.fleet,
        description=DescriptionRef(sha256=request.description.sha256, href=None),
        engine=Engine(name="pybullet", version=version("pybullet"), timestep_s=TIMESTEP_S, gravity_m_s2=GRAVITY_M_S2),
        structure=structure,
        parameters=_parameters(dataset, solution, found),
        covariance=Covariance(
            names=found.names,
            transform={s.name: s.transform for s in model.specs if s.fitted},
            matrix=tuple(tuple(row) for row in found.covariance.tolist()),
        ),
        sensors={f"joint/{name}/position": sensor for name, sensor in zip(model.joints, sensors, strict=True)},
        quality=_quality(dataset, found, judgement, sensors),
        provenance=DraftProvenance(
            recordings=tuple(recordings),
            window=None,
            dataset_digest=dataset.digest,
            seed=request.seed,
            software=f"twincal {version('twincal')}",
        ),
    )


def _parameters(dataset: Dataset, solution: Solution, found: Posterior) -> dict[str, Parameter]:
    result = {}
    nominal = dataset.model.nominal()
    for index, spec in enumerate(dataset.model.specs):
        estimate = found.estimates.get(spec.name)
        result[spec.name] = Parameter(
            value=float(solution.values[index]),
            sd=None if estimate is None else estimate.sd,
            interval90=None if estimate is None else estimate.interval90,
            verdict=None if estimate is None else estimate.verdict,
            source=spec.source if estimate is None else "fit",
            nominal=float(nominal[index]),
            prior=spec.prior if spec.fitted else None,
            bounds=spec.bounds if spec.fitted else None,
        )
    return result


def _quality(dataset: Dataset, found: Posterior, judgement: Judgement, sensors: Sequence[SensorNoise]) -> Quality:
    joints = dataset.model.joints
    own = judge.joint_errors(joints, judgement.errors)
    nominal = judge.joint_errors(joints, judgement.nominal_errors)
    train = judge.joint_errors(joints, judgement.train_errors)
    improvement = nominal.rmse_mean / own.rmse_mean if own.rmse_mean > 0.0 else None
    coarse = coarse_joints(whiteness(joints, dataset.holdout, judgement.errors, sensors))
    looks = [finding.text for finding in judgement.findings]
    warnings = [*looks, *coarse, *dataset.model.notes, *judgement.warnings, *_about_confounded(found)]
    if judgement.nominal_name != NOMINAL:
        warnings.append(f"nominal figures are those of {judgement.nominal_name}")
    unseen = [name for name in joints if name not in own.rmse]
    if unseen:
        warnings.append(f"not measured in the hold-out, so that nothing judges it: {', '.join(unseen)}")
    worse = [name for name in own.rmse if own.rmse[name] > nominal.rmse[name]]
    if worse:
        warnings.append(f"worse than nominal on the hold-out: {', '.join(worse)}")
    return Quality(
        grade=grade(
            judgement.acceptance,
            improvement,
            own.rmse_mean / max(train.rmse_mean, 1e-12),
            motion_share(dataset.holdout, judgement.errors),
            judgement.findings,
        ),
        holdout=HoldoutErrors(
            **own.model_dump(),
            nominal_mae_mean=nominal.mae_mean,
            nominal_rmse_mean=nominal.rmse_mean,
            per_log=judge.log_errors(dataset.holdout, judgement.errors),
        ),
        train=train,
        windowed=judgement.windowed,
        improvement=improvement,
        tip_rmse_mm=judgement.tip_rmse_mm,
        gauges=found.gauges,
        warnings=tuple(warnings),
    )


def _about_confounded(found: Posterior) -> tuple[str, ...]:
    """What this motion tells only together, as one warning."""
    if not found.confounded:
        return ()
    told = [" and ".join(short_name(name) for name in group[:2]) for group in found.confounded[:MOST_CONFOUNDED]]
    more = len(found.confounded) - len(told)
    rest = f", and {more} more" if more else ""
    return (f"can't be told apart by this motion: {'; '.join(told)}{rest}",)
