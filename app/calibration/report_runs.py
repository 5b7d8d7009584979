"""Hold-out stretches as the report draws them: joined by log, judged per joint, the worst and a typical one chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.calibration.report_data import Overlay
from app.telemetry import FloatArray


@dataclass(frozen=True, slots=True)
class Run:
    """All drawn stretches of one log, a row of NaN between any two so that no line joins them.

    Attributes:
        log: the recording's name.
        joints: columns of the arrays below.
        t_s: time since the log's first row [s], shape (K,).
        measured: NaN where missing [rad or m], shape (K, n).
        calibrated: [rad or m], shape (K, n).
        nominal: [rad or m], shape (K, n).
        command: [rad or m], NaN where there is none, shape (K, n).
    """

    log: str
    joints: tuple[str, ...]
    t_s: FloatArray
    measured: FloatArray
    calibrated: FloatArray
    nominal: FloatArray
    command: FloatArray


@dataclass(frozen=True, slots=True)
class RunErrors:
    """Errors of one joint on the drawn stretches [rad or m]; None where nothing was measured or a twin diverged."""

    calibrated_rmse: float | None
    nominal_rmse: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """One joint on one log.

    Attributes:
        t_s: [s], shape (K,).
        measured: [rad or m], shape (K,), and likewise the others.
    """

    log: str
    t_s: FloatArray
    measured: FloatArray
    calibrated: FloatArray
    nominal: FloatArray
    command: FloatArray
    errors: RunErrors


def join_by_log(overlays: Sequence[Overlay]) -> tuple[Run, ...]:
    """One run a log, in the order the logs first appear, its stretches by time."""
    by_log: dict[str, list[Overlay]] = {}
    for overlay in overlays:
        if len(overlay.t_s):
            by_log.setdefault(overlay.log, []).append(overlay)
    return tuple(_join(log, sorted(parts, key=lambda part: float(part.t_s[0]))) for log, parts in by_log.items())


def _join(log: str, parts: list[Overlay]) -> Run:
    def rows(arrays: list[FloatArray]) -> FloatArray:
        gap = np.full((1, arrays[0].shape[1]), np.nan)
        spaced = [piece for array in arrays for piece in (array, gap)]
        return np.vstack(spaced[:-1])

    times = [piece for part in parts for piece in (part.t_s, part.t_s[-1:])]
    return Run(
        log=log,
        joints=parts[0].joints,
        t_s=np.concatenate(times[:-1]),
        measured=rows([part.measured for part in parts]),
        calibrated=rows([part.calibrated for part in parts]),
        nominal=rows([part.nominal for part in parts]),
        command=rows([part.command for part in parts]),
    )


def trace_of(run: Run, joint: str) -> Trace | None:
    """One joint of a run; None if the run hasn't that joint or never measured it."""
    if joint not in run.joints:
        return None
    column = run.joints.index(joint)
    measured = run.measured[:, column]
    seen = np.isfinite(measured)
    if not seen.any():
        return None
    calibrated, nominal = run.calibrated[:, column], run.nominal[:, column]
    errors = RunErrors(_rmse(calibrated[seen] - measured[seen]), _rmse(nominal[seen] - measured[seen]))
    return Trace(run.log, run.t_s, measured, calibrated, nominal, run.command[:, column], errors)


def _rmse(error: FloatArray) -> float | None:
    with np.errstate(over="ignore"):  # a twin that ran away
        value = float(np.sqrt(np.mean(error**2)))
    return value if np.isfinite(value) else None


def worst_and_typical(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """The trace with the highest calibrated error and, of the others, the one nearest the median of all."""
    ranked = sorted(traces, key=_rank, reverse=True)
    if len(ranked) <= 1:
        return tuple(ranked)
    median = float(np.median([_rank(trace) for trace in ranked]))
    return ranked[0], min(ranked[1:], key=lambda trace: abs(_rank(trace) - median))


def _rank(trace: Trace) -> float:
    error = trace.errors.calibrated_rmse
    return np.finfo(np.float64).max if error is None else error  # diverged is worst


def pooled_nominal_rmse(traces: Sequence[Trace]) -> float | None:
    """Nominal error of one joint over all its traces' samples [rad or m]."""
    errors = [trace.nominal - trace.measured for trace in traces]
    seen = [error[np.isfinite(trace.measured)] for error, trace in zip(errors, traces, strict=True)]
    return _rmse(np.concatenate(seen)) if seen else None


def envelope(t_s: FloatArray, values: FloatArray, points: int) -> tuple[FloatArray, FloatArray]:
    """At most `points` points that look like all of them: lowest and highest of each bucket, in their order.

    Args:
        t_s: shape (K,).
        values: shape (K,); a bucket without a finite value is a gap.
        points: how many may be drawn; at least 2.
    """
    if len(values) <= points:
        return t_s, np.where(np.isfinite(values), values, np.nan)
    width = -(-len(values) // (points // 2))
    padding = -len(values) % width
    table = np.pad(values, (0, padding), constant_values=np.nan).reshape(-1, width)
    finite = np.isfinite(table)
    lowest = np.where(finite, table, np.inf).argmin(axis=1)
    highest = np.where(finite, table, -np.inf).argmax(axis=1)
    within = np.sort(np.stack([lowest, highest], axis=1), axis=1)
    index = np.minimum((np.arange(len(table))[:, None] * width + within).ravel(), len(values) - 1)
    chosen = values[index]
    chosen[~np.repeat(finite.any(axis=1), 2)] = np.nan
    return t_s[index], chosen


def worst_moment(trace: Trace, span_s: float) -> tuple[float, float]:
    """The window of that length in which the calibrated error is largest [s]."""
    squared = (trace.calibrated - trace.measured) ** 2
    total = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(squared), squared, 0.0))])
    ends = np.searchsorted(trace.t_s, trace.t_s + span_s)
    begin = float(trace.t_s[int(np.argmax(total[ends] - total[:-1]))])
    begin = max(float(trace.t_s[0]), min(begin, float(trace.t_s[-1]) - span_s))
    return begin, begin + span_s
