"""Measured against simulated, weighed by each channel's own noise.

Samples milliseconds apart are not independent: each joint's residual is tempered by κ, the integrated autocorrelation
time of its own residual in samples, so that N samples count as N/κ. Untempered, thousands of correlated samples drown
every prior and drag parameters to absurd values to win a tenth of a milliradian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.calibration.dataset import Stretch
from app.telemetry import FloatArray
from app.twin.model import TwinModel
from app.twin.rollout import rollout

HUBER = 2.5
"""Residuals beyond this many standard deviations count linearly (Huber 1964)."""
_CORRELATED = 0.1
"""Correlations below this are taken for noise of their estimate."""
_DIVERGED_RAD = 10.0
"""Error put in the place of a diverged rollout's: finite, and worse than any that didn't diverge."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much a residual of each joint counts.

    Attributes:
        sd: standard deviation of the residual [rad or m], shape (n,).
        kappa: samples that count as one, ≥ 1, shape (n,).
    """

    sd: FloatArray
    kappa: FloatArray


@dataclass(frozen=True, slots=True)
class Residuals:
    """Position errors (simulated − measured) of several parameter sets on some stretches.

    Attributes:
        error: [rad or m], 0 where nothing was measured, shape (P, N, n); N counts the samples of all stretches.
        seen: where something was measured, shape (N, n).
        edges: first sample of each stretch, and N, shape (S + 1,).
        diverged: shape (P,).
    """

    error: FloatArray
    seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    edges: tuple[int, ...]
    diverged: np.ndarray[tuple[int], np.dtype[np.bool_]]


def residuals(model: TwinModel, stretches: Sequence[Stretch], values: FloatArray) -> Residuals:
    """Simulate stretches with parameter sets and compare.

    Args:
        model: the robot.
        stretches: the data.
        values: shape (P, K).
    """
    trajectories = rollout(model, [stretch.motion for stretch in stretches], values)
    measured = np.concatenate([stretch.position for stretch in stretches])
    seen = ~np.isnan(measured)
    edges = np.concatenate([[0], np.cumsum([len(stretch.position) for stretch in stretches])])
    error = np.empty((len(values), *measured.shape))
    diverged = np.zeros(len(values), dtype=np.bool_)
    for trajectory, start, stop in zip(trajectories, edges[:-1], edges[1:], strict=True):
        error[:, start:stop] = trajectory.position - measured[start:stop]
        diverged |= trajectory.diverged
    error = np.where(np.isnan(error), _DIVERGED_RAD, error)
    error *= seen
    return Residuals(error, seen, tuple(edges.tolist()), diverged)


def estimate_noise(found: Residuals, index: int, floor: FloatArray) -> Noise:
    """Standard deviation and correlation of one parameter set's residual.

    Args:
        found: residuals.
        index: the parameter set.
        floor: smallest standard deviation believed, e.g. of the encoder's rounding [rad or m], shape (n,).
    """
    error = found.error[index]
    count = np.maximum(found.seen.sum(axis=0), 1)
    sd = np.sqrt((error**2).sum(axis=0) / count)
    for _ in range(5):  # Huber's proposal: outliers don't widen what they are measured by
        clipped = np.clip(error, -HUBER * sd, HUBER * sd)
        sd = np.sqrt((clipped**2).sum(axis=0) / count)
    sd = np.maximum(sd, floor)
    kappa = np.array([_correlation_samples(error[:, j], found.seen[:, j], found.edges) for j in range(error.shape[1])])
    return Noise(sd, kappa)


def _correlation_samples(
    error: FloatArray, seen: np.ndarray[tuple[int], np.dtype[np.bool_]], edges: Sequence[int]
) -> float:
    """How many samples count as one: κ = 1 + 2 Σ ρ(k)².

    A parameter is pulled by the sum of residual × sensitivity, whose variance grows by 1 + 2 Σ ρ_residual ρ_sensitivity
    (Bartlett 1946). What a model leaves over moves with the motion, as the sensitivities do, so that their correlation is
    taken to be the residual's own. A residual that repeats with every cycle of the motion then counts once.
    """
    longest = max(stop - start for start, stop in zip(edges[:-1], edges[1:], strict=True))
    size = 2 ** int(np.ceil(np.log2(2 * longest)))
    products = np.zeros(longest)
    pairs = np.zeros(longest)
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        for target, series in ((products, error[start:stop]), (pairs, seen[start:stop].astype(np.float64))):
            spectrum = np.abs(np.fft.rfft(series, size)) ** 2
            target[: stop - start] += np.fft.irfft(spectrum, size)[: stop - start]
    covariance = products / np.maximum(pairs, 1.0)
    if covariance[0] <= 0.0:
        return 1.0
    rho = covariance / covariance[0]
    share = pairs / pairs[0]  # 1 - k/N, for stretches of any length
    counted = (np.abs(rho) > _CORRELATED) & (share > 0.0)
    return float(1.0 + 2.0 * (share * rho**2)[1:][counted[1:]].sum())


def weights(found: Residuals, index: int, noise: Noise) -> FloatArray:
    """Weight of each squared error in the objective: Huber's over sd²κ, 0 where nothing was measured, shape (N, n)."""
    size = np.abs(found.error[index]) / noise.sd
    huber = HUBER / np.maximum(size, HUBER)
    return found.seen * huber / (noise.sd**2 * noise.kappa)


def misfit(found: Residuals, noise: Noise) -> FloatArray:
    """Data part of the objective of every parameter set: half the sum of Huber's loss over κ, shape (P,)."""
    total = np.zeros(len(found.error))
    for p, error in enumerate(found.error):
        size = np.abs(error) / noise.sd
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
        total[p] = (loss * found.seen / noise.kappa).sum()
    return total
