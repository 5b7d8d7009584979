"""Draws from a twin's posterior, with its correlations, within the parameters' bounds.

A fit publishes a normal distribution in the coordinates of the document (ln value or value), cut at each parameter's
bounds. Its covariance is (JᵀWJ + P⁻¹)⁻¹ with the prior's P inside, so that a parameter the data said nothing about
comes with its prior's width: nothing has to be widened here, and nothing is narrowed.

Where bounds bind, a plain draw would leave them half of the time (a friction near 0), throwing whole draws away would
keep almost none (2⁻¹⁴ for 14 of these), and clipping would pile half of all robots up at no friction at all. So the
parameters whose bounds can bind are drawn one after the other, each from its normal given those before it, cut at its
bounds. That alone favours draws which leave the later ones little room, so each is then drawn again `SWEEPS` times
given all others (Gibbs sampling, of which the cut normal is the limit). The rest follow, given these, as plain normals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from app.errors import InvalidInputError
from app.scenario.keys import WORDS, DrawKey, uniform_of
from app.telemetry import FloatArray, IntArray
from app.twin.document import NominalTwin, TwinDocument

MAX_DIFFICULTY: Final = 2.0
"""Twice the spread the posterior has."""
SWEEPS: Final = 7
"""Times that each parameter whose bounds may bind is drawn again, given the others."""
REACH: Final = 6.0
"""Bounds this many standard deviations away don't bind: one draw in 10⁹ is set to them."""

_FREE_OF_SIGN: Final = ("com_x_m", "com_y_m", "com_z_m", "encoder_offset_rad", "encoder_offset_m")
_SIGNED_PREFIXES: Final = ("payload_com_", "tilt_", "inertia_xy", "inertia_xz", "inertia_yz")
_ROUNDING: Final = 1e-9
_RIDGE: Final = 1e-10


@dataclass(frozen=True, slots=True)
class Spread:
    """What is known of a twin's fitted parameters, ready to be drawn from.

    Attributes:
        names: those whose bounds may bind first, otherwise as the document has them.
        bound: how many of them, from the first, have bounds that may bind.
        value: the twin's own values, shape (F,).
        is_log: whether the coordinate is ln(value), shape (F,).
        sd: in the coordinate, shape (F,).
        factor: lower triangular L with L Lᵀ the correlations, shape (F, F).
        offsets: bounds as distances from the value in the coordinate, shape (F, 2).
        bounds: in the parameters' own units, shape (F, 2).
    """

    names: tuple[str, ...]
    bound: int
    value: FloatArray
    is_log: np.ndarray[tuple[int], np.dtype[np.bool_]]
    sd: FloatArray
    factor: FloatArray
    offsets: FloatArray
    bounds: FloatArray


def spread_of(twin: TwinDocument | NominalTwin) -> Spread:
    """Read a twin's posterior.

    Raises:
        InvalidInputError: naming a parameter outside its bounds, or a covariance that is none.
    """
    names, transform = twin.covariance.names, twin.covariance.transform
    covariance = np.array(twin.covariance.matrix, dtype=np.float64).reshape(len(names), len(names))
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    value = np.array([twin.parameters[name].value for name in names])
    is_log = np.array([transform[name] == "log" for name in names], dtype=np.bool_)
    bounds = np.array([physical_bounds(twin, name) for name in names]).reshape(-1, 2)
    offsets = _offsets(names, value, bounds, is_log)
    may_bind = (np.abs(offsets) < REACH * MAX_DIFFICULTY * sd[:, None]).any(axis=1)
    order = np.argsort(~may_bind, kind="stable")
    scale = np.where(sd > 0.0, sd, 1.0)
    correlation = (covariance / np.outer(scale, scale))[np.ix_(order, order)]
    return Spread(
        names=tuple(names[i] for i in order),
        bound=int(may_bind.sum()),
        value=value[order],
        is_log=is_log[order],
        sd=sd[order],
        factor=_factor(0.5 * (correlation + correlation.T)),
        offsets=offsets[order],
        bounds=bounds[order],
    )


def physical_bounds(twin: TwinDocument | NominalTwin, name: str) -> tuple[float, float]:
    """The bounds of a parameter, no wider than physics allows: what can't be negative never is."""
    low, high = twin.parameters[name].bounds or (None, None)
    last = name.rsplit("/", 1)[-1]
    signed = last in _FREE_OF_SIGN or last.startswith(_SIGNED_PREFIXES)
    least = -np.inf if signed else 0.0
    return max(least if low is None else low, least), np.inf if high is None else high


def draw(spread: Spread, key: DrawKey, indices: IntArray, difficulty: float = 1.0) -> Mapping[str, FloatArray]:
    """Draw the fitted parameters of some scenarios.

    Args:
        spread: what is known.
        key: whose draws.
        indices: of the scenarios, increasing, shape (n,).
        difficulty: factor on every standard deviation, 0 (the twin itself) to `MAX_DIFFICULTY`.

    Returns:
        By name, in the parameters' own units, shape (n,) each.
    """
    count = len(spread.names)
    normal = np.zeros((count, len(indices)))
    if difficulty > 0.0:
        normal[: spread.bound] = _bounded(spread, key, indices, difficulty)
        for i in range(spread.bound, count):
            normal[i] = ndtri(key.uniform(spread.names[i], indices))
    return {name: _value(spread, i, normal, difficulty) for i, name in enumerate(spread.names)}


def _value(spread: Spread, i: int, normal: FloatArray, difficulty: float) -> FloatArray:
    offset = difficulty * spread.sd[i] * (_given(spread.factor, i, normal) + spread.factor[i, i] * normal[i])
    value = spread.value[i] * np.exp(offset) if spread.is_log[i] else spread.value[i] + offset
    return np.asarray(np.clip(value, *spread.bounds[i]), dtype=np.float64)


def _given(factor: FloatArray, i: int, normal: FloatArray) -> FloatArray:
    """Mean of the i-th, in its standard deviations, given those before it.

    Summed in one order, one at a time: a matrix product's last bits depend on how many columns it has.
    """
    return _weighted(factor[i, :i], normal)


def _weighted(weights: FloatArray, rows: FloatArray) -> FloatArray:
    total = np.zeros(rows.shape[1])
    for k in np.flatnonzero(weights):
        total += weights[k] * rows[k]
    return total


def _bounded(spread: Spread, key: DrawKey, indices: IntArray, difficulty: float) -> FloatArray:
    """Standard normals behind the parameters whose bounds may bind, shape (bound, n)."""
    names, factor = spread.names[: spread.bound], spread.factor[: spread.bound, : spread.bound]
    limits = spread.offsets / np.where(spread.sd > 0.0, difficulty * spread.sd, 1.0)[:, None]
    uniform = [_uniforms(key, name, indices) for name in names]
    place = np.zeros((len(names), len(indices)))
    normal = np.zeros_like(place)
    for i in range(len(names)):
        mean, sd = _given(factor, i, normal), factor[i, i]
        place[i] = mean + sd * _cut_normal(uniform[i][0], mean, sd, limits[i])
        normal[i] = (place[i] - mean) / sd if sd > 0.0 else 0.0
    weights, deviation = _conditionals(factor)
    for sweep in range(1, SWEEPS + 1):
        for i in range(len(names)):
            mean, sd = _weighted(weights[i], place), float(deviation[i])
            place[i] = mean + sd * _cut_normal(uniform[i][sweep], mean, sd, limits[i])
    for i in range(len(names)):
        sd = factor[i, i]
        normal[i] = (place[i] - _given(factor, i, normal)) / sd if sd > 0.0 else 0.0
    return normal


def _uniforms(key: DrawKey, name: str, indices: IntArray) -> FloatArray:
    """One number a scenario for the first draw and for each sweep, shape (SWEEPS + 1, n)."""
    blocks = [key.words(name, indices, block) for block in range((SWEEPS + WORDS) // WORDS)]
    return uniform_of(np.concatenate(blocks))


def _conditionals(factor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Each one given all others: weights of these in its mean, shape (T, T), and its standard deviation, shape (T,)."""
    size = len(factor)
    # Where one is a sum of others it has no deviation at all given these; the inverse needs a little.
    precision = np.linalg.inv(factor @ factor.T + _RIDGE * np.eye(size))
    deviation = 1.0 / np.sqrt(np.diag(precision))
    weights = -precision * deviation[:, None] ** 2
    np.fill_diagonal(weights, 0.0)
    return weights, deviation


def _cut_normal(uniform: FloatArray, mean: FloatArray, sd: float, limits: FloatArray) -> FloatArray:
    """A standard normal, cut so that mean + sd times it is within the limits; by its inverse distribution function."""
    if np.abs(limits).min() >= REACH * (1.0 - 1e-9) or sd == 0.0:
        drawn: FloatArray = ndtri(uniform)
        return drawn
    low, high = (limits[0] - mean) / sd, (limits[1] - mean) / sd
    # In the lower tail probabilities keep their digits; in the upper one they all are 1.
    mirrored = low > -high
    a, b = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    below = ndtr(a)
    share = np.where(mirrored, 1.0 - uniform, uniform)
    drawn = np.clip(ndtri(below + share * (ndtr(b) - below)), a, b)
    return np.where(mirrored, -drawn, drawn)


def _offsets(
    names: tuple[str, ...], value: FloatArray, bounds: FloatArray, is_log: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> FloatArray:
    for name, own, (low, high) in zip(names, value.tolist(), bounds.tolist(), strict=True):
        slack = _ROUNDING * max(abs(own), abs(low) if np.isfinite(low) else 0.0, 1e-6)
        if not low - slack <= own <= high + slack:
            raise InvalidInputError(f"parameters.{name}", f"its value {own} is outside its bounds [{low}, {high}]")
    for name, own, log in zip(names, value.tolist(), is_log.tolist(), strict=True):
        if log and own <= 0.0:
            raise InvalidInputError(f"parameters.{name}", f"its value {own} has no logarithm, its coordinate")
    with np.errstate(divide="ignore"):
        logarithms = np.log(np.where(is_log[:, None], bounds, 1.0)) - np.log(np.where(is_log, value, 1.0))[:, None]
    offsets = np.where(is_log[:, None], logarithms, bounds - value[:, None])
    # A value at its bound may be past it by a rounding.
    return np.stack([np.minimum(offsets[:, 0], 0.0), np.maximum(offsets[:, 1], 0.0)], axis=1)


def _factor(correlation: FloatArray) -> FloatArray:
    """Cholesky factor of a positive semidefinite matrix; a direction without width gets a zero column.

    Raises:
        InvalidInputError: if it isn't one.
    """
    size = len(correlation)
    factor = np.zeros((size, size))
    rest = correlation.copy()
    for i in range(size):
        pivot = float(rest[i, i])
        if pivot < -_ROUNDING * size:
            raise InvalidInputError("covariance.matrix", "is not positive semidefinite", "a posterior's covariance")
        if pivot <= 1e-3 * _ROUNDING * size:
            continue
        column = rest[i:, i] / np.sqrt(pivot)
        factor[i:, i] = column
        rest[i:, i:] -= np.outer(column, column)
    return factor
