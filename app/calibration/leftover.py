"""What a fitted twin leaves over, beside how every parameter would change it.

Simulated once more over all data, fitted and held out: one rollout a parameter gives the slopes, and one with commands
smoothed over a tenth of a second gives what a filter between command and controller would do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.calibration.dataset import Dataset, Stretch, cut_stretch
from app.calibration.residual import HUBER, estimate_noise, residuals
from app.calibration.sensors import sensor_noise
from app.calibration.solver import Solution
from app.calibration.standing import free_of, still_joints
from app.telemetry import FloatArray, IntArray
from app.twin import friction
from app.twin.actuator import FEED_FORWARD, TARGET
from app.twin.model import TwinModel
from app.twin.parameters import ParameterSpec
from app.twin.rollout import Motion, rollout

SMOOTHED_S: Final = 0.1
"""Length of the moving average tried on the commands [s]; what it changes grows with the length squared."""
MOST_NUMBERS: Final = 2_000_000
"""Entries of the table of slopes; of longer data, every k-th sample is looked at."""
MOST_S: Final = 120.0
WINDOW_S: Final = 8.0
"""Of longer data, windows of this length are looked at, spread over all of it, so many seconds in all."""
_STEP: Final = 1e-4
"""Finite-difference step, in prior standard deviations."""
_SMALLEST_STEP: Final = 1e-9
_FINEST_ROW_S: Final = 0.005

SUSPECTED_ROWS: Final = (friction.COULOMB, friction.DAMPING, friction.KP, friction.OFFSET)
"""What may change about a joint while it works."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Errors of a twin on all data, and what moves them.

    Attributes:
        model: the robot.
        values: of the twin, shape (K,).
        z: fitted coordinates, in prior standard deviations from the prior's mean, shape (F,).
        logs: names of the recordings.
        log: the recording of each sample, shape (N,).
        t_s: since its first row [s], shape (N,).
        measured: NaN where nothing was [rad or m], shape (N, n).
        error: simulated − measured, 0 where nothing was measured, shape (N, n).
        noise: of each joint's sensor, rounding included; 0 where it isn't known [rad or m], shape (n,).
        scale: square root of each squared error's weight, 0 where nothing was measured, shape (N, n).
        position: simulated [rad or m], shape (N, n).
        velocity: simulated [rad/s or m/s], shape (N, n).
        free: d error / d z, shape (N, n, F).
        slopes: d error / d value of everything suspected, by index among the specs, shape (N, n) each.
        smoothed: change of the error when commands are averaged over `SMOOTHED_S`, shape (N, n).
    """

    model: TwinModel
    values: FloatArray
    z: FloatArray
    logs: tuple[str, ...]
    log: IntArray
    t_s: FloatArray
    measured: FloatArray
    error: FloatArray
    noise: FloatArray
    scale: FloatArray
    position: FloatArray
    velocity: FloatArray
    free: FloatArray
    slopes: dict[int, FloatArray]
    smoothed: FloatArray


def take_leftover(
    dataset: Dataset, solution: Solution, most_s: float = MOST_S, most_numbers: int = MOST_NUMBERS
) -> Leftover:
    """Simulate all data with the twin and its neighbours.

    Args:
        dataset: fitted and held-out stretches; the latter only judge.
        solution: the twin.
        most_s: data looked at, at most [s].
        most_numbers: entries of the table of slopes, at most.
    """
    model, values = dataset.model, solution.values
    fitted = free_of(model, still_joints(dataset))
    moved = sorted({*fitted, *(i for i, spec in enumerate(model.specs) if suspected(spec))})
    parts = _enough([*dataset.train, *dataset.holdout], most_s)
    numbers = sum(len(part.position) for part in parts) * len(model.joints) * (len(moved) + 2)
    stride = max(1, -(-numbers // most_numbers))
    parts = [_thinned(part, stride) for part in parts]
    steps = np.array([_step(model.specs[i], values[i]) for i in moved])
    sets = np.repeat(values[None, :], len(moved) + 1, axis=0)
    sets[np.arange(len(moved)) + 1, moved] += steps
    found = residuals(model, parts, sets)
    slopes = (found.error[1:] - found.error[0]) / steps[:, None, None]
    slopes[found.diverged[1:]] = 0.0  # a neighbour that ran away has no slope
    spread = np.array([_spread(model.specs[i], values[i]) for i in fitted])
    columns = [moved.index(i) for i in fitted]
    noise = estimate_noise(found, 0, np.full(len(model.joints), _SMALLEST_STEP))
    huber = HUBER / np.maximum(np.abs(found.error[0]) / noise.sd, HUBER)
    kappa = np.maximum(solution.noise.kappa / stride, 1.0)
    logs = tuple(sorted({part.log for part in parts}))
    plain = rollout(model, [part.motion for part in parts], values[None, :])
    ran_away = np.isnan(np.concatenate([p.position[0] for p in plain]))
    smooth = rollout(model, [smoothed(part.motion, SMOOTHED_S) for part in parts], values[None, :])
    change = np.concatenate([s.position[0] - p.position[0] for s, p in zip(smooth, plain, strict=True)])
    return Leftover(
        model=model,
        values=values,
        z=solution.z,
        logs=logs,
        log=np.concatenate([np.full(len(part.position), logs.index(part.log)) for part in parts]),
        t_s=np.concatenate([part.motion.t_out_s for part in parts]),
        measured=np.concatenate([part.position for part in parts]),
        error=np.where(ran_away, 0.0, found.error[0]),
        noise=_sensor_noise(parts, np.split(found.error[0], found.edges[1:-1])),
        scale=np.where(ran_away, 0.0, found.seen * np.sqrt(huber / kappa) / noise.sd),
        position=np.nan_to_num(np.concatenate([p.position[0] for p in plain])),
        velocity=np.nan_to_num(np.concatenate([p.velocity[0] for p in plain])),
        free=np.moveaxis(slopes[columns], 0, 2) * spread,
        slopes={i: slopes[moved.index(i)] for i in moved if suspected(model.specs[i])},
        smoothed=np.nan_to_num(change),
    )


def suspected(spec: ParameterSpec) -> bool:
    """Whether a robot may change in this while it works."""
    if spec.slot.place == "joint":
        return spec.slot.row in SUSPECTED_ROWS
    return spec.slot.place in ("mass", "latency")


def smoothed(motion: Motion, length_s: float) -> Motion:
    """The motion with its targets and feed-forward averaged over `length_s` around each instant: a filter, no delay."""
    t, command = motion.t_s, motion.command
    held = np.zeros_like(command)
    held[1:] = np.cumsum(command[:-1] * np.diff(t)[:, None, None], axis=0)
    step = min(_FINEST_ROW_S, length_s / 8.0)
    at = np.arange(float(t[0]) - length_s, float(t[-1]) + length_s, step)

    def rows(when: FloatArray) -> IntArray:
        return np.clip(np.searchsorted(t, when, side="right") - 1, 0, len(t) - 1)

    def total(when: FloatArray) -> FloatArray:
        row = rows(when)
        whole: FloatArray = held[row] + command[row] * (when - t[row])[:, None, None]
        return whole

    averaged = command[rows(at)].copy()
    kinds = slice(TARGET, FEED_FORWARD + 1)
    averaged[:, :, kinds] = ((total(at + length_s / 2) - total(at - length_s / 2)) / length_s)[:, :, kinds]
    # a row holds until the next: half a row earlier, it is right on average
    return replace(motion, t_s=at - 0.5 * step, command=averaged)


def _enough(parts: Sequence[Stretch], most_s: float) -> list[Stretch]:
    """All stretches, or windows spread evenly over them where they are long."""
    total_s = sum(part.duration_s for part in parts)
    if total_s <= most_s:
        return list(parts)
    windows: list[Stretch] = []
    for part in parts:
        count = max(1, round(part.duration_s / WINDOW_S))
        edges = np.linspace(part.motion.begin_s, float(part.motion.t_out_s[-1]), count + 1).tolist()
        windows += [cut_stretch(part.commanded, begin, end) for begin, end in itertools.pairwise(edges)]
    windows = [window for window in windows if len(window.position) > 1]
    chosen = np.linspace(0, len(windows) - 1, max(1, round(len(windows) * most_s / total_s)))
    return [windows[i] for i in np.unique(chosen.round().astype(int)).tolist()]


def _thinned(part: Stretch, stride: int) -> Stretch:
    if stride == 1:
        return part
    motion = replace(part.motion, t_out_s=part.motion.t_out_s[::stride].copy())
    return replace(
        part, motion=motion, position=part.position[::stride].copy(), velocity=part.velocity[::stride].copy()
    )


def _sensor_noise(parts: Sequence[Stretch], errors: Sequence[FloatArray]) -> FloatArray:
    sensors = [sensor_noise(parts, errors, joint) for joint in range(errors[0].shape[1])]
    return np.array([max(s.noise_sd or 0.0, (s.quantum or 0.0) / math.sqrt(12.0)) for s in sensors])


def _spread(spec: ParameterSpec, value: float) -> float:
    """The prior's standard deviation at a value, in the parameter's unit."""
    _, sd = spec.prior_moments()
    return sd * value if spec.transform == "log" else sd


def _step(spec: ParameterSpec, value: float) -> float:
    step = max(_STEP * abs(_spread(spec, value)), _SMALLEST_STEP)
    return -step if value + step > spec.bounds[1] else step


def blocks_of(leftover: Leftover, most: int) -> Sequence[IntArray]:
    """Samples of about so many stretches of time, none across two recordings, in the order of time."""
    spans = [float(np.ptp(leftover.t_s[leftover.log == i])) for i in range(len(leftover.logs))]
    total = max(sum(spans), _SMALLEST_STEP)
    blocks: list[IntArray] = []
    for index, span in enumerate(spans):
        rows = np.flatnonzero(leftover.log == index)
        rows = rows[np.argsort(leftover.t_s[rows], kind="stable")]
        count = max(2, round(most * span / total))
        edges = leftover.t_s[rows[0]] + span * np.arange(1, count) / count
        blocks += [part for part in np.split(rows, np.searchsorted(leftover.t_s[rows], edges)) if len(part)]
    return blocks
