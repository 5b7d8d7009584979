"""The report's parameter table: what was believed, what the data made of it, and where the bounds are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np

from app.calibration.report_words import explain, interval, label_and_unit, number, split_name, with_sd
from app.telemetry import FloatArray
from app.twin.document import (
    LognormalPrior,
    NormalPrior,
    Parameter,
    Prior,
    Source,
    Transform,
    TwinDraft,
    UniformPrior,
    Verdict,
)

BAR_WIDTH: Final = 220.0
_BAR_INSET = 5.0
_BAR_BASE = 19.0
_BAR_HEIGHT = 16.0
_PRIOR_REACH = 3.0
"""Standard deviations of the prior a bar shows at least."""
_PLACES = {"joint": 0, "link": 1, "robot": 2}
_SOURCES: dict[Source, str] = {"declared": "declared", "prior": "prior", "fit": "fit"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A parameter's prior, posterior and bounds along its coordinate, as places on a drawing [px].

    Attributes:
        prior: outline of the prior's density, an SVG path.
        posterior: ends of the 90 % interval.
        value: where the twin is.
        nominal: where description and declaration are; None off the drawing.
        lower: the lower bound; None off the drawing.
        upper: the upper bound; None off the drawing.
        low_label: value at the left end.
        high_label: value at the right end.
        words: all of it, for those who can't see it.
    """

    prior: str
    posterior: tuple[float, float]
    value: float
    nominal: float | None
    lower: float | None
    upper: float | None
    low_label: str
    high_label: str
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter, in words; `bar`, `verdict` and what goes with them are None where it wasn't fitted."""

    name: str
    label: str
    unit: str
    value: str
    interval90: str | None
    verdict: Verdict | None
    meaning: str
    source: str
    nominal: str
    scale: str
    bounds: str
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class Group:
    """The parameters of one joint, link or of the robot."""

    place: str
    owner: str
    fitted: tuple[Row, ...]
    given: tuple[Row, ...]


def parameter_groups(draft: TwinDraft) -> tuple[Group, ...]:
    """Every parameter of the twin, by joint, link and robot, in the order the document has them."""
    owners: dict[tuple[str, str], list[Row]] = {}
    for name, parameter in draft.parameters.items():
        place, owner, _ = split_name(name)
        owners.setdefault((place, owner), []).append(_row(draft, name, parameter))
    ordered = sorted(owners.items(), key=lambda item: _PLACES.get(item[0][0], len(_PLACES)))
    return tuple(
        Group(
            place,
            owner,
            fitted=tuple(row for row in rows if row.verdict is not None),
            given=tuple(row for row in rows if row.verdict is None),
        )
        for (place, owner), rows in ordered
    )


def _row(draft: TwinDraft, name: str, parameter: Parameter) -> Row:
    label, unit = label_and_unit(split_name(name)[2])
    transform = draft.covariance.transform.get(name, "linear")
    gauges = tuple(gauge.name for gauge in draft.quality.gauges if name in gauge.parameters)
    verdict = parameter.verdict
    return Row(
        name=name,
        label=label,
        unit=unit,
        value=with_sd(parameter.value, parameter.sd),
        interval90=None if parameter.interval90 is None else interval(parameter.interval90),
        verdict=verdict,
        meaning="" if verdict is None else explain(verdict, _uncertainty_left(draft, name, transform), gauges),
        source=_SOURCES[parameter.source],
        nominal=number(parameter.nominal),
        scale="log" if transform == "log" else "linear",
        bounds=_bounds_in_words(parameter),
        bar=_bar(parameter, transform),
    )


def _bounds_in_words(parameter: Parameter) -> str:
    if parameter.bounds is None:
        return "no bounds"
    low, high = ("∞" if end is None else number(end, 2) for end in parameter.bounds)
    return f"bounds {'−' * (low == '∞')}{low} … {high}"


def _uncertainty_left(draft: TwinDraft, name: str, transform: Transform) -> float | None:
    """Posterior over prior standard deviation in the published coordinate."""
    prior = draft.parameters[name].prior
    if prior is None or name not in draft.covariance.names:
        return None
    index = draft.covariance.names.index(name)
    posterior_sd = math.sqrt(max(draft.covariance.matrix[index][index], 0.0))
    match prior:
        case LognormalPrior(lognormal=(_, sd)):
            return posterior_sd / sd if transform == "log" else None
        case NormalPrior(normal=(_, sd)):
            return posterior_sd / sd if transform == "linear" else None
        case UniformPrior(uniform=(low, high)):
            return posterior_sd * math.sqrt(12.0) / (high - low) if transform == "linear" and high > low else None
        case _:
            assert_never(prior)


def _bar(parameter: Parameter, transform: Transform) -> Bar | None:
    if parameter.prior is None or parameter.interval90 is None:
        return None
    low, high = _range(parameter, parameter.prior, parameter.interval90, transform)

    def place(value: float | None) -> float | None:
        at = None if value is None else _coordinate(value, transform)
        if at is None or not low - 1e-9 * (high - low) <= at <= high + 1e-9 * (high - low):
            return None
        return round(_BAR_INSET + (BAR_WIDTH - 2 * _BAR_INSET) * (at - low) / (high - low), 1)

    def within(value: float) -> float:
        at = place(value)
        return _BAR_INSET if at is None else at

    ends = parameter.interval90
    lower, upper = parameter.bounds or (None, None)
    labels = [number(math.exp(at) if transform == "log" else at, 2) for at in (low, high)]
    words = (
        f"90 % interval {interval(ends)}; nominal {number(parameter.nominal)}; {_bounds_in_words(parameter)}; "
        f"{'logarithmic' if transform == 'log' else 'linear'} axis from {labels[0]} to {labels[1]}"
    )
    return Bar(
        prior=_outline(parameter.prior, transform, low, high),
        posterior=(within(ends[0]), within(ends[1])),
        value=within(parameter.value),
        nominal=place(parameter.nominal),
        lower=place(lower),
        upper=place(upper),
        low_label=labels[0],
        high_label=labels[1],
        words=words,
    )


def _coordinate(value: float, transform: Transform) -> float | None:
    if transform == "linear":
        return value
    return math.log(value) if value > 0.0 else None


def _range(parameter: Parameter, prior: Prior, ends: tuple[float, float], transform: Transform) -> tuple[float, float]:
    """What the bar shows: the prior, the posterior and the nominal, cut at the bounds."""
    lower, upper = parameter.bounds or (None, None)
    bounds = [None if bound is None else _coordinate(bound, transform) for bound in (lower, upper)]
    reach = [at for value in _reach(prior) if (at := _coordinate(value, transform)) is not None]
    reach = [min(max(at, _or(bounds[0], -math.inf)), _or(bounds[1], math.inf)) for at in reach]
    values = (*ends, parameter.value, parameter.nominal)
    shown = [*reach, *(at for value in values if (at := _coordinate(value, transform)) is not None)]
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _reach(prior: Prior) -> tuple[float, float]:
    match prior:
        case LognormalPrior(lognormal=(mean, sd)):
            return math.exp(mean - _PRIOR_REACH * sd), math.exp(mean + _PRIOR_REACH * sd)
        case NormalPrior(normal=(mean, sd)):
            return mean - _PRIOR_REACH * sd, mean + _PRIOR_REACH * sd
        case UniformPrior(uniform=ends):
            return ends
        case _:
            assert_never(prior)


def _outline(prior: Prior, transform: Transform, low: float, high: float) -> str:
    """The prior's density over the coordinate, its peak at full height."""
    at = np.linspace(low, high, 33)
    density = _density(prior, np.exp(at) if transform == "log" else at)
    if transform == "log":
        density = density * np.exp(at)
    peak = float(density.max())
    heights = np.zeros_like(density) if peak <= 0.0 else density / peak
    x = _BAR_INSET + (BAR_WIDTH - 2 * _BAR_INSET) * np.linspace(0.0, 1.0, len(at))
    y = _BAR_BASE - _BAR_HEIGHT * heights
    points = " ".join(f"{px:.0f},{py:.1f}" for px, py in zip(x.tolist(), y.tolist(), strict=True))
    return f"M{x[0]:.0f},{_BAR_BASE:.0f} L{points} L{x[-1]:.0f},{_BAR_BASE:.0f} Z"


def _density(prior: Prior, value: FloatArray) -> FloatArray:
    """Density of the value, up to a factor."""
    match prior:
        case LognormalPrior(lognormal=(mean, sd)):
            positive = np.maximum(value, np.finfo(np.float64).tiny)
            lognormal: FloatArray = np.exp(-0.5 * ((np.log(positive) - mean) / sd) ** 2) / positive
            return np.where(value > 0.0, lognormal, 0.0)
        case NormalPrior(normal=(mean, sd)):
            normal: FloatArray = np.exp(-0.5 * ((value - mean) / sd) ** 2)
            return normal
        case UniformPrior(uniform=(low, high)):
            return np.where((value >= low) & (value <= high), 1.0, 0.0)
        case _:
            assert_never(prior)


def count_verdicts(groups: Iterable[Group]) -> dict[Verdict, int]:
    """How many fitted parameters have each verdict, most wanted first."""
    order: tuple[Verdict, ...] = ("identified", "weak", "not_identified", "no_effect", "at_bound")
    found = [row.verdict for group in groups for row in group.fitted]
    return {verdict: found.count(verdict) for verdict in order if verdict in found}
