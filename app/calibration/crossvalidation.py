"""Does a law pay on data it was not fitted to: cross-validation within the training data.

Every fold is left out in turn and the parameters are refitted to the others by one Gauss–Newton step from the optimum
of all of them: near it that step is the refit (Beirami et al. 2017), and it costs one simulation a fold. What counts is
the error of that simulation on what was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.dataset import Stretch
from app.calibration.residual import HUBER, Noise, Residuals, block_starts, residuals
from app.calibration.solver import Problem, Solution, free_to_move
from app.telemetry import FloatArray, IntArray

FOLDS: Final = 5
SHARES: Final = (1.0, 0.5)
"""Parts of the refitting step that are tried; the one that suits the fold's own training data best is taken."""
SURE: Final = 1.645
"""Standard errors by which a gain must differ from nothing: one-sided, 95 %."""
LEAST_GAIN: Final = 0.01
"""Share of the left-out loss that an additional law must save at least, however surely it does."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors of one structure on data that it was not fitted to.

    Attributes:
        error: simulated − measured, 0 where nothing was measured, shape (N, n).
        noise: of the fit to all folds.
    """

    error: FloatArray
    noise: Noise

    @property
    def log_rms(self) -> float:
        """Mean over joints of the logarithm of the error's RMS [ln rad]."""
        return float(np.log(np.maximum(np.sqrt((self.error**2).mean(axis=0)), 1e-9)).mean())


@dataclass(frozen=True, slots=True)
class Gain:
    """What a structure saves of another one's loss on left-out data.

    Attributes:
        share: of the loss.
        error: its standard error, over blocks of time.
    """

    share: float
    error: float

    @property
    def pays(self) -> bool:
        """Whether it is worth another law."""
        return self.share > max(SURE * self.error, LEAST_GAIN)

    def __str__(self) -> str:
        return f"{100.0 * self.share:.1f} ± {100.0 * self.error:.1f} %"


def left_out(problem: Problem, solution: Solution) -> LeftOut:
    """Refit without each fold in turn and simulate what was left out.

    Args:
        problem: model, data, fitted parameters.
        solution: fitted to all folds.
    """
    fold = _folds(problem.stretches)
    count = int(fold.max()) + 1
    steps = np.array(
        [_refit(solution, fold == k, problem.bounds_at(solution.z, solution.values)) for k in range(count)]
    )
    points = problem.admitted(solution.z + np.vstack([share * steps for share in SHARES]), solution.values)
    found = residuals(problem.model, problem.stretches, problem.to_values(points, solution.values))
    tried = np.concatenate(
        [found.error.reshape(len(SHARES), count, *found.seen.shape), solution.found.error[None].repeat(count, axis=1)]
    )
    error = np.zeros(found.seen.shape)
    for k in range(count):
        own = [_loss(each[k], found, solution.noise)[fold != k].sum() for each in tried]
        error[fold == k] = tried[int(np.argmin(own)), k, fold == k]
    return LeftOut(error, solution.noise)


def gain(plainer: LeftOut, richer: LeftOut, found: Residuals, stretches: Sequence[Stretch]) -> Gain:
    """What the richer structure saves, by the plainer one's measure of noise."""
    blocks = block_starts(stretches)
    before, after = (np.add.reduceat(_loss(each.error, found, plainer.noise), blocks) for each in (plainer, richer))
    saved = before - after
    total = max(float(before.sum()), 1e-300)
    spread = float(saved.std(ddof=1)) * np.sqrt(len(blocks)) if len(blocks) > 1 else np.inf
    return Gain(float(saved.sum()) / total, float(spread) / total)


def _folds(stretches: Sequence[Stretch]) -> IntArray:
    """Which fold each sample belongs to: contiguous blocks, shape (N,)."""
    total = sum(len(stretch.position) for stretch in stretches)
    starts = block_starts(stretches)
    block = np.searchsorted(starts, np.arange(total), side="right") - 1
    count = min(FOLDS, len(starts))
    return np.asarray(block * count // len(starts), dtype=np.int64)


def _refit(
    solution: Solution, without: np.ndarray[tuple[int], np.dtype[np.bool_]], bounds: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """The Gauss–Newton step of the data less those of one fold, shape (F,)."""
    joints = solution.found.seen.shape[1]
    kept = np.repeat(~without, joints)
    jacobian, weight = solution.jacobian[kept], solution.weight[kept]
    gradient = jacobian.T @ (weight * solution.found.error[0].ravel()[kept]) + solution.z
    hessian = (jacobian * weight[:, None]).T @ jacobian + np.eye(len(solution.z))
    moving = free_to_move(solution.z, gradient, bounds)
    step = np.zeros(len(solution.z))
    step[moving] = -np.linalg.solve(hessian[np.ix_(moving, moving)], gradient[moving])
    return step


def _loss(error: FloatArray, found: Residuals, noise: Noise) -> FloatArray:
    """Huber's loss of every sample, all joints together, shape (N,)."""
    size = np.abs(error) / noise.sd
    loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
    total: FloatArray = (loss * found.seen / noise.kappa).sum(axis=1)
    return total
