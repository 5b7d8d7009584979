"""Damped Gauss–Newton with geodesic acceleration, on batched rollouts.

The parameters move in z = (coordinate − prior mean) / prior sd, in which every prior is a unit normal. One batch gives
the Jacobian by finite differences, another tries a whole ladder of damping factors at once: on lockstep lanes a ladder
costs little more than one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.calibration.dataset import Stretch
from app.calibration.residual import (
    Noise,
    Residuals,
    block_starts,
    count_as_one,
    estimate_noise,
    misfit,
    residuals,
    weights,
)
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.model import TwinModel
from app.twin.parameters import ParameterSpec

DIFFERENCE = 1e-6
"""Finite-difference step, in prior standard deviations: hardly ever does it let a joint rest a step earlier."""
LADDER = np.logspace(-8.0, 2.0, 8)
"""Damping factors tried in each iteration, relative to the diagonal of the Hessian."""
PROBE = 0.1
"""Share of a step at which its curvature is measured."""
MOST_BEND = 0.4
"""Half the acceleration over the step, beyond which the curvature isn't believed (Transtrum and Sethna: 0.75 / 2)."""
FIRST_KAPPA = 30.0
"""Samples taken to count as one before there is a residual to tell."""
KAPPA_ROUNDS = 3
SETTLED = 0.02
"""The objective has settled when an iteration gains less than this (it is a log-likelihood: 0.5 is one sigma)."""


def _in_row(spec: ParameterSpec, row: int) -> bool:
    return spec.slot.place == "joint" and spec.slot.row == row


def _in_values(spec: ParameterSpec, z: FloatArray) -> FloatArray:
    mean, sd = spec.prior_moments()
    return np.clip(spec.value(mean + sd * z), *spec.bounds)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted to what.

    Attributes:
        model: the robot.
        stretches: the data.
        free: indices of the fitted parameters among `model.specs`.
        floor: smallest residual sd believed [rad or m], shape (n,).
    """

    model: TwinModel
    stretches: Sequence[Stretch]
    free: tuple[int, ...]
    floor: FloatArray

    def to_z(self, values: FloatArray) -> FloatArray:
        """Fitted coordinates of one parameter set, shape (F,)."""
        z = []
        for i in self.free:
            spec = self.model.specs[i]
            mean, sd = spec.prior_moments()
            z.append((float(spec.coordinate(np.clip(values[i], *spec.bounds))) - mean) / sd)
        return np.array(z)

    def to_values(self, z: FloatArray, base: FloatArray) -> FloatArray:
        """Parameter sets from fitted coordinates; the others as in `base`.

        Args:
            z: shape (P, F).
            base: shape (K,).
        """
        values = np.repeat(base[None, :], len(z), axis=0)
        for column, i in enumerate(self.free):
            values[:, i] = _in_values(self.model.specs[i], z[:, column])
        return values

    def admitted(self, z: FloatArray, base: FloatArray) -> FloatArray:
        """Coordinates within their bounds, and breakaway friction not below Coulomb friction, shape (…, F).

        Below it, it would be without effect: a fit would see no slope, and never come back.
        """
        low, high = self.bounds()
        inside = np.clip(z, low, high)
        specs = [self.model.specs[i] for i in self.free]
        coulomb = {s.slot.index: i for i, s in enumerate(self.model.specs) if _in_row(s, friction.COULOMB)}
        for column, spec in enumerate(specs):
            if not _in_row(spec, friction.BREAKAWAY):
                continue
            dry = coulomb[spec.slot.index]
            values: FloatArray | float = float(base[dry])
            if dry in self.free:
                values = _in_values(self.model.specs[dry], inside[..., self.free.index(dry)])
            mean, sd = spec.prior_moments()
            lowest = (spec.coordinate(values) - mean) / sd
            inside[..., column] = np.minimum(np.maximum(inside[..., column], lowest), high[column])
        return inside

    def bounds_at(self, z: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest value of each coordinate while the others stay, shape (F,) each."""
        low, high = self.bounds()
        bound = [_in_row(self.model.specs[i], friction.BREAKAWAY) for i in self.free]
        return np.where(bound, self.admitted(np.where(bound, low, z), base), low), high

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest z whatever the others are, shape (F,) each."""
        low, high = [], []
        for i in self.free:
            spec = self.model.specs[i]
            mean, sd = spec.prior_moments()
            low.append((float(spec.coordinate(spec.bounds[0])) - mean) / sd)
            high.append((float(spec.coordinate(spec.bounds[1])) - mean) / sd)
        return np.array(low), np.array(high)


@dataclass(frozen=True, slots=True)
class Solution:
    """Where the solver ended.

    Attributes:
        values: the whole parameter set, shape (K,).
        z: fitted coordinates, shape (F,).
        noise: the residual's.
        objective: half the tempered, robust sum of squares plus half the squared prior distance.
        jacobian: d error / d z, shape (N·n, F).
        weight: of each squared error, shape (N·n,).
        found: residuals at the solution (one parameter set).
        iterations: done.
        settled: whether the last one gained nothing worth having.
    """

    values: FloatArray
    z: FloatArray
    noise: Noise
    objective: float
    jacobian: FloatArray
    weight: FloatArray
    found: Residuals
    iterations: int
    settled: bool


def solve(
    problem: Problem,
    start: FloatArray,
    iterations: int,
    keep_going: Callable[[float, Noise], bool] = lambda objective, noise: True,
    *,
    final: bool = True,
) -> Solution:
    """Minimise the tempered objective from a starting set.

    Noise and κ are estimated anew from each iteration's residual; within an iteration they are fixed, so that its steps
    are compared by one measure.

    Args:
        problem: model, data, fitted parameters.
        start: shape (K,).
        iterations: at most.
        keep_going: told the objective and the residual's noise before each iteration; False ends the search.
        final: whether a posterior is to be read off the slopes at the end, which then are taken with care.
    """
    z = problem.admitted(problem.to_z(start), start)
    base = start
    done, settled = 0, False
    kappa = np.full(len(problem.floor), FIRST_KAPPA)
    blocks = block_starts(problem.stretches)
    while True:
        last = settled or done >= iterations
        current, jacobian = _linearise(problem, base, z, problem.bounds_at(z, base), careful=last and final)
        noise = replace(estimate_noise(current, 0, problem.floor), kappa=kappa)
        noise = replace(noise, kappa=count_as_one(current, jacobian, noise, blocks, KAPPA_ROUNDS))
        kappa = noise.kappa
        weight = weights(current, 0, noise).ravel()
        objective = float(misfit(current, noise)[0] + 0.5 * z @ z)
        if last or not keep_going(objective, noise):
            values = problem.to_values(z[None, :], base)[0]
            return Solution(values, z, noise, objective, jacobian, weight, current, done, settled)
        z, gain = _improve(problem, base, z, noise, (jacobian, weight, current.error[0].ravel(), objective))
        done += 1
        settled = gain < SETTLED


def _linearise(
    problem: Problem, base: FloatArray, z: FloatArray, bounds: tuple[FloatArray, FloatArray], *, careful: bool
) -> tuple[Residuals, FloatArray]:
    """Residuals at z, and their slopes by finite differences, inwards at a bound, shape (N·n, F).

    A joint comes to rest, or breaks away, in one step of the simulation. Where a difference moves that into another
    step, positions jump by a microradian or less, and the quotient makes a slope of it that no robot has: enough to
    "see" a gauge. It is rare and rarely happens on both sides: a careful look takes the smaller slope of the two.
    """
    low, high = bounds
    forward = z + np.diag(np.where(z + DIFFERENCE > high, -DIFFERENCE, DIFFERENCE))
    found = residuals(problem.model, problem.stretches, problem.to_values(np.vstack([z[None, :], forward]), base))
    slopes = _slopes(found.error[1:], found.error[0], np.diag(forward - z))
    if careful:
        backward = z + np.diag(np.where(z - DIFFERENCE < low, DIFFERENCE, -DIFFERENCE))
        second = residuals(problem.model, problem.stretches, problem.to_values(backward, base))
        others = _slopes(second.error, found.error[0], np.diag(backward - z))
        for slope, other in zip(slopes, others, strict=True):
            np.copyto(slope, other, where=np.abs(slope) > np.abs(other))
    return _first(found, 1), slopes.reshape(len(z), -1).T


def _slopes(moved: FloatArray, origin: FloatArray, steps: FloatArray) -> FloatArray:
    """Errors of moved parameter sets to slopes, in place: for long logs they are most of a fit's memory."""
    for error, step in zip(moved, steps.tolist(), strict=True):
        np.subtract(error, origin, out=error)
        np.divide(error, step, out=error)
    return moved


def _improve(
    problem: Problem,
    base: FloatArray,
    z: FloatArray,
    noise: Noise,
    local: tuple[FloatArray, FloatArray, FloatArray, float],
) -> tuple[FloatArray, float]:
    """The best of a ladder of damped steps, straight and bent, and what it gains.

    Masses and centres of mass act through their product, which makes valleys that curve: a straight step leaves them at
    once. Each step δ is therefore also tried with half its geodesic acceleration, −(H + λD)⁻¹JᵀW r″(δ, δ) (Transtrum
    and Sethna 2012), whose second derivative along δ costs one more rollout.
    """
    jacobian, weight, error, objective = local
    gradient = jacobian.T @ (weight * error) + z
    hessian = (jacobian * weight[:, None]).T @ jacobian + np.eye(len(z))
    moving = free_to_move(z, gradient, problem.bounds_at(z, base))
    H, J = hessian[np.ix_(moving, moving)], jacobian[:, moving]
    damped = [H + damping * np.diag(np.diag(H)) for damping in LADDER]
    steps = np.zeros((len(LADDER), len(z)))
    steps[:, moving] = [-np.linalg.solve(left, gradient[moving]) for left in damped]
    straight = problem.admitted(z + steps, base)
    points = np.vstack([straight, problem.admitted(z + PROBE * steps, base)])
    found = residuals(problem.model, problem.stretches, problem.to_values(points, base))
    probed = found.error[len(LADDER) :].reshape(len(LADDER), -1)
    bends = np.zeros_like(steps)
    for index, left in enumerate(damped):
        curvature = 2.0 / PROBE * ((probed[index] - error) / PROBE - J @ steps[index, moving])
        bends[index, moving] = -0.5 * np.linalg.solve(left, J.T @ (weight * curvature))
    believable = np.linalg.norm(bends, axis=1) <= MOST_BEND * np.linalg.norm(steps, axis=1)
    bent = problem.admitted(z + steps + np.where(believable[:, None], bends, 0.0), base)
    trial = np.vstack([straight, bent])
    misfits = [
        misfit(_first(found, len(LADDER)), noise),
        misfit(residuals(problem.model, problem.stretches, problem.to_values(bent, base)), noise),
    ]
    objectives = np.concatenate(misfits) + 0.5 * (trial**2).sum(axis=1)
    best = int(np.argmin(objectives))
    gain = objective - float(objectives[best])
    return (trial[best], gain) if gain > 0.0 else (z, 0.0)


def free_to_move(
    z: FloatArray, gradient: FloatArray, bounds: tuple[FloatArray, FloatArray]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which parameters a step may move: one at its bound that wants to go further stays there, shape (F,)."""
    low, high = bounds
    return np.asarray(~(((z <= low) & (gradient > 0.0)) | ((z >= high) & (gradient < 0.0))))


def _first(found: Residuals, count: int) -> Residuals:
    return Residuals(found.error[:count].copy(), found.seen, found.edges, found.diverged[:count])
