"""The report of a fit: one HTML file that says what was found, how good it is and what to be careful about.

It needs nothing beside itself: no script, no style sheet, no picture from elsewhere. Whatever came with the robot or
its logs is escaped by the template engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import jinja2
from markupsafe import Markup

from app.calibration.report_correlation import CELL, TOLD_FROM, correlation_map
from app.calibration.report_data import ReportData
from app.calibration.report_excitation import STRIP_WIDTH, excitation_map
from app.calibration.report_horizon import horizon_table
from app.calibration.report_parameters import BAR_WIDTH, count_verdicts, parameter_groups
from app.calibration.report_plots import draw_horizon, draw_trace
from app.calibration.report_runs import (
    Run,
    Trace,
    join_by_log,
    pooled_nominal_rmse,
    trace_of,
    worst_and_typical,
)
from app.calibration.report_words import (
    NOT_KNOWN,
    VERDICT_MEANINGS,
    VERDICT_NAMES,
    Unit,
    common_unit,
    duration,
    join_words,
    joint_units,
    number,
    percent,
    short_name,
)

_POINTS: Final = 64_000
"""Drawn in all: about 15 bytes each, so that the file stays below two megabytes."""
_LINES_PER_DRAWING = 8
_FEWEST_POINTS, _MOST_POINTS = 160, 1400
_TYPICAL_TOO = 12
"""Joints up to which each shows a typical log beside its worst."""
_JOINT_COLUMNS = 8
"""Joints a table of logs has room for."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One joint on one log."""

    kind: str
    log: str
    calibrated_rmse: str
    nominal_rmse: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class JointView:
    """One joint's errors as shown; shares are of the largest error of any joint in that unit, 0 to 1."""

    name: str
    unit: str
    mae: str
    rmse: str
    nominal_rmse: str
    train_mae: str
    train_rmse: str
    windowed_rmse: str
    of_motion: str
    of_noise: str
    share: float
    nominal_share: float
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True)
class LogView:
    """One judged log's errors as shown; `joints` in the order of the columns, with its share of the worst."""

    name: str
    mae: str
    rmse: str
    joints: tuple[tuple[str, float], ...]
    worst: str


def render_report(data: ReportData) -> str:
    """The report as one HTML file.

    Args:
        data: the fit. Equal data give equal bytes.
    """
    draft = data.draft
    units = joint_units(draft)
    runs = join_by_log(data.overlays)
    groups = parameter_groups(draft)
    looks = data.looks
    verdicts = count_verdicts(groups)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            draft=draft,
            quality=draft.quality,
            unit=common_unit(units),
            joints=_joints(data, runs, units),
            looks=looks,
            horizon=None if looks.horizon is None else horizon_table(looks.horizon, units),
            horizon_svg=None if looks.horizon is None else draw_horizon(looks.horizon, common_unit(units), "horizon"),
            strips=excitation_map(looks.excitation, units),
            confounded=tuple(join_words([short_name(name) for name in group]) for group in looks.confounded),
            typical_too=len(units) <= _TYPICAL_TOO,
            log_joints=tuple(units) if len(units) <= _JOINT_COLUMNS else (),
            logs=_logs(data, runs, units),
            groups=groups,
            verdicts=verdicts,
            fitted=sum(verdicts.values()),
            correlation=correlation_map(draft.covariance, {name: p.value for name, p in draft.parameters.items()}),
            gauges=draft.quality.gauges,
        )
    )


def render_failure(robot: str, reason: str, warnings: Sequence[str], logs: Sequence[str]) -> str:
    """The report of a fit that the data don't allow.

    Args:
        robot: its id.
        reason: what is missing, and which parameters that costs.
        warnings: what else is odd about the data.
        logs: names of the recordings that were looked at.
    """
    template = _environment().get_template("failure.html.j2")
    return template.render(robot=robot, reason=reason, warnings=tuple(warnings), logs=tuple(logs))


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("app.calibration", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=percent, duration=duration)
    environment.globals.update(
        verdict_names=VERDICT_NAMES,
        verdict_meanings=VERDICT_MEANINGS,
        not_known=NOT_KNOWN,
        bar_width=BAR_WIDTH,
        strip_width=STRIP_WIDTH,
        cell=CELL,
        told_from=TOLD_FROM,
    )
    return environment


def _joints(data: ReportData, runs: tuple[Run, ...], units: dict[str, Unit]) -> tuple[JointView, ...]:
    quality = data.draft.quality
    traces = {joint: _traces(runs, joint) for joint in units}
    each = 2 if len(units) <= _TYPICAL_TOO else 1
    chosen = {joint: worst_and_typical(found)[:each] for joint, found in traces.items()}
    drawings = sum(len(found) for found in chosen.values())
    points = _POINTS // (_LINES_PER_DRAWING * max(drawings, 1))
    points = min(max(points, _FEWEST_POINTS), _MOST_POINTS)
    nominal = {joint: pooled_nominal_rmse(found) for joint, found in traces.items()}
    views = []
    for index, (joint, unit) in enumerate(units.items()):
        kin = [name for name, other in units.items() if other == unit]
        white = data.looks.whiteness.get(joint)
        largest = max(max(quality.holdout.rmse[name], nominal[name] or 0.0) for name in kin)
        views.append(
            JointView(
                name=joint,
                unit=unit.name,
                mae=unit.show(quality.holdout.mae.get(joint)),
                rmse=unit.show(quality.holdout.rmse[joint]),
                nominal_rmse=unit.show(nominal[joint]),
                train_mae=unit.show(quality.train.mae.get(joint)),
                train_rmse=unit.show(quality.train.rmse.get(joint)),
                windowed_rmse=unit.show(quality.windowed.rmse.get(joint) if quality.windowed else None),
                of_motion=percent(white.of_motion) if white else NOT_KNOWN,
                of_noise=f"{number(white.of_noise, 2)} ×" if white and white.of_noise is not None else NOT_KNOWN,
                share=_share(quality.holdout.rmse[joint], largest),
                nominal_share=_share(nominal[joint], largest),
                drawings=_drawings(chosen[joint], unit, points, f"j{index}", several=len(traces[joint]) > 1),
            )
        )
    return tuple(views)


def _traces(runs: tuple[Run, ...], joint: str) -> list[Trace]:
    return [trace for run in runs if (trace := trace_of(run, joint)) is not None]


def _share(value: float | None, largest: float) -> float:
    return round(value / largest, 3) if value is not None and largest > 0.0 else 0.0


def _drawings(traces: tuple[Trace, ...], unit: Unit, points: int, key: str, *, several: bool) -> tuple[Drawing, ...]:
    kinds = ("worst", "typical") if several else ("only",)
    return tuple(
        Drawing(
            kind=kind,
            log=trace.log,
            calibrated_rmse=_or_diverged(trace.errors.calibrated_rmse, unit),
            nominal_rmse=_or_diverged(trace.errors.nominal_rmse, unit),
            svg=draw_trace(trace, unit, points, f"{key}{kind}"),
        )
        for kind, trace in zip(kinds, traces, strict=False)
    )


def _or_diverged(error: float | None, unit: Unit) -> str:
    return "diverged" if error is None else f"{unit.show(error)} {unit.name}"


def _logs(data: ReportData, runs: tuple[Run, ...], units: dict[str, Unit]) -> tuple[LogView, ...]:
    by_log = {run.log: run for run in runs}
    common = common_unit(units)
    errors = {
        log: {joint: found.errors.calibrated_rmse for joint in units if (found := trace_of(run, joint)) is not None}
        for log, run in by_log.items()
    }
    known = [(units[joint], error) for row in errors.values() for joint, error in row.items() if error is not None]
    largest = {unit: max(error for other, error in known if other == unit) for unit, _ in known}
    views = []
    for entry in data.draft.quality.holdout.per_log:
        row = errors.get(entry.log, {})
        worst = max(((e, joint) for joint, e in row.items() if e is not None), default=None)
        views.append(
            LogView(
                name=entry.log,
                mae=common.show(entry.mae_mean),
                rmse=common.show(entry.rmse_mean),
                joints=tuple(
                    (unit.show(row.get(joint)), _share(row.get(joint), largest.get(unit, 0.0)))
                    for joint, unit in units.items()
                ),
                worst=NOT_KNOWN if worst is None else f"{worst[1]} {units[worst[1]].show(worst[0])}",
            )
        )
    return tuple(views)
