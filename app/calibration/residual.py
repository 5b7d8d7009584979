"""Measured against simulated, weighed by each channel's own noise.

Samples milliseconds apart are not independent: each joint's residual is tempered by κ, the number of samples that count
as one (`count_as_one`). Untempered, thousands of correlated samples drown
every prior and drag parameters to absurd values to win a tenth of a milliradian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.calibration.dataset import Stretch
from app.telemetry import FloatArray, IntArray
from app.twin.model import TwinModel
from app.twin.rollout import positions

HUBER = 2.5
"""Residuals beyond this many standard deviations count linearly (Huber 1964)."""
BLOCKS = 40
BLOCK_S = 3.0
"""Shortest block whose score is taken to be independent of the next one's, as long as there are data for several."""
FEWEST_BLOCKS = 10
"""Short data are cut finer: of one block's score there is no spread, and correlated samples would all count."""
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
    error, diverged = positions(model, [stretch.motion for stretch in stretches], values)
    measured = np.concatenate([stretch.position for stretch in stretches])
    seen = ~np.isnan(measured)
    edges = np.concatenate([[0], np.cumsum([len(stretch.position) for stretch in stretches])])
    for p in range(len(error)):  # in place: for long logs this is most of a fit's memory
        error[p] -= measured
        error[p][np.isnan(error[p])] = _DIVERGED_RAD
        error[p] *= seen
    return Residuals(error, seen, tuple(edges.tolist()), diverged)


def estimate_noise(found: Residuals, index: int, floor: FloatArray) -> Noise:
    """Standard deviation of one parameter set's residual, samples taken one by one (κ = 1).

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
    return Noise(sd, np.ones(len(sd)))


def block_starts(stretches: Sequence[Stretch]) -> IntArray:
    """First sample of each of some ten to forty blocks, of 3 s where there are data enough.

    No block lies across two stretches longer than itself.
    """
    total_s = sum(stretch.duration_s for stretch in stretches)
    block_s = max(min(BLOCK_S, total_s / FEWEST_BLOCKS), total_s / BLOCKS)
    starts: list[int] = []
    first, since_s = 0, math.inf
    for stretch in stretches:
        count = max(1, round(stretch.duration_s / block_s))
        edges = np.linspace(0, len(stretch.position), count + 1).astype(np.int64)[:-1]
        for edge in edges.tolist():
            # windows shorter than a block share one
            if count > 1 or since_s >= block_s:
                starts.append(first + edge)
                since_s = 0.0
        since_s += stretch.duration_s
        first += len(stretch.position)
    return np.array(starts, dtype=np.int64)


def count_as_one(found: Residuals, jacobian: FloatArray, noise: Noise, blocks: IntArray, rounds: int = 1) -> FloatArray:
    """How many samples of each joint count as one: κ, shape (n,).

    The pull of the data on the parameters is the score g = Jᵀr/σ². Were samples independent, its covariance over blocks
    would be the information JᵀJ/σ²; it is larger by the factor by which the samples repeat each other, be it correlated
    noise or what the model leaves over (the ratio of White's 1982 sandwich to its bread, blocks as in Liang and Zeger
    1986). Each joint's factor is a mean over the directions that the data say something about.

    Args:
        found: residuals of one parameter set.
        jacobian: by parameters in units of their prior's standard deviation, shape (N·n, F).
        noise: the standard deviations, and the last κ, which says which directions the prior holds.
        blocks: first sample of each block.
        rounds: how often κ is found anew with the last κ.
    """
    samples, joints = found.seen.shape
    J = jacobian.reshape(samples, joints, -1)
    size = np.abs(found.error[0]) / noise.sd
    weight: FloatArray = found.seen * HUBER / np.maximum(size, HUBER) / noise.sd**2
    breads, meats = [], []
    for j in range(joints):
        scores = np.add.reduceat(J[:, j] * (weight[:, j] * found.error[0, :, j])[:, None], blocks, axis=0)
        scores -= scores.mean(axis=0)
        meats.append(scores.T @ scores * len(blocks) / max(len(blocks) - 1, 1))
        breads.append((J[:, j] * weight[:, j, None]).T @ J[:, j])
    kappa = noise.kappa
    for _ in range(rounds):
        information = sum(bread / k for bread, k in zip(breads, kappa, strict=True))
        covariance = np.linalg.inv(information + np.eye(J.shape[2]))
        ratios = [
            float(np.trace(covariance @ meat)) / max(float(np.trace(covariance @ bread)), 1e-300)
            for meat, bread in zip(meats, breads, strict=True)
        ]
        kappa = np.maximum(np.array(ratios, dtype=np.float64), 1.0)
    return kappa


def weights(found: Residuals, index: int, noise: Noise) -> FloatArray:
    """Weight of each squared error in the objective: Huber's over sd²κ, 0 where nothing was measured, shape (N, n)."""
    size = np.abs(found.error[index]) / noise.sd
    huber = HUBER / np.maximum(size, HUBER)
    weight: FloatArray = found.seen * huber / (noise.sd**2 * noise.kappa)
    return weight


def misfit(found: Residuals, noise: Noise) -> FloatArray:
    """Data part of the objective of every parameter set: half the sum of Huber's loss over κ, shape (P,)."""
    total = np.zeros(len(found.error))
    for p, error in enumerate(found.error):
        size = np.abs(error) / noise.sd
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
        total[p] = (loss * found.seen / noise.kappa).sum()
    return total
