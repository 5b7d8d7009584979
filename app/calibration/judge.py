"""Errors of a twin on data it is judged by; what is published is judged by the PyBullet world itself."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

import numpy as np

from app.calibration.dataset import Stretch, stretches
from app.errors import SimulationError
from app.telemetry import FloatArray
from app.twin.actuator import TARGET
from app.twin.document import JointErrors, LogErrors, WindowedErrors
from app.twin.model import TwinModel
from app.twin.rollout import Motion, available_cores, rollout
from app.twin.tip import tip_link, tip_positions

DRIFT_WINDOW_S = 2.0
DIVERGED_RAD = 10.0
"""Error of a rollout that diverged."""

Positions = list[FloatArray]
"""Simulated positions of each stretch, shape (K, n) each."""


def simulated(model: TwinModel, parts: Sequence[Stretch], values: FloatArray) -> Positions:
    """Positions by the kernel.

    Args:
        model: the robot.
        parts: stretches to judge by.
        values: shape (K,).
    """
    return [t.position[0] for t in rollout(model, [part.motion for part in parts], values[None, :])]


def simulated_in_world(model: TwinModel, parts: Sequence[Stretch], values: FloatArray) -> Positions:
    """Positions by PyBullet, in processes of their own: it holds the GIL, and a model that kills it kills only those.

    Raises:
        SimulationError: when PyBullet refuses the model, diverges or dies of it.
    """
    context = multiprocessing.get_context("spawn")
    workers = min(available_cores(), len(parts))
    order = sorted(range(len(parts)), key=lambda i: -parts[i].duration_s)
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_judge) as pool:
            futures = {i: pool.submit(_judge, model, parts[i].motion, values) for i in order}
            return [futures[i].result() for i in range(len(parts))]
    except BrokenProcessPool as error:
        raise SimulationError("PyBullet died of this description") from error


def _judge(model: TwinModel, motion: Motion, values: FloatArray) -> FloatArray:
    # Only judges need the engine, whose start costs memory and time.
    from app.twin.world import simulate  # noqa: PLC0415 - see above

    return simulate(model, motion, values)[0]


def _start_judge() -> None:
    """Send the engine's C messages to standard error, and end with the process that asked."""
    os.dup2(2, 1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def follow() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def commanded(parts: Sequence[Stretch]) -> Positions:
    """Where the joints were told to be."""
    positions = []
    for part in parts:
        rows = np.searchsorted(part.motion.t_s, part.motion.t_out_s, side="right") - 1
        positions.append(part.motion.command[rows, :, TARGET])
    return positions


def errors(parts: Sequence[Stretch], positions: Positions) -> Positions:
    """Simulated − measured, NaN where nothing was measured; a diverged rollout counts as 10 rad."""
    found = []
    for part, position in zip(parts, positions, strict=True):
        error = np.where(np.isnan(position), DIVERGED_RAD, position) - np.where(np.isnan(position), 0.0, part.position)
        found.append(np.where(np.isnan(part.position), np.nan, error))
    return found


def joint_errors(joints: Sequence[str], found: Positions) -> JointErrors:
    """Errors per joint, all samples pooled, and their plain means over the joints that were measured at all."""
    mae, rmse = _pooled(found)
    return JointErrors(
        mae=_by_name(joints, mae),
        rmse=_by_name(joints, rmse),
        mae_mean=float(np.nanmean(mae)),
        rmse_mean=float(np.nanmean(rmse)),
    )


def log_errors(parts: Sequence[Stretch], found: Positions) -> tuple[LogErrors, ...]:
    """Mean errors of each log, in the order the logs appear."""
    by_log: dict[str, Positions] = {}
    for part, error in zip(parts, found, strict=True):
        by_log.setdefault(part.log, []).append(error)
    rows = []
    for log, group in by_log.items():
        mae, rmse = _pooled(group)
        rows.append(LogErrors(log=log, mae_mean=float(np.nanmean(mae)), rmse_mean=float(np.nanmean(rmse))))
    return tuple(sorted(rows, key=lambda row: row.log))


def windowed_errors(model: TwinModel, parts: Sequence[Stretch], values: FloatArray) -> WindowedErrors | None:
    """Errors of short free runs from measured states: what drift is measured against."""
    windows = [
        window
        for part in parts
        for window in stretches(
            model, part.commanded, part.motion.begin_s, float(part.motion.t_out_s[-1]), DRIFT_WINDOW_S
        )
    ]
    if not windows:
        return None
    _, rmse = _pooled(errors(windows, simulated(model, windows, values)))
    return WindowedErrors(window_s=DRIFT_WINDOW_S, rmse=_by_name(model.joints, rmse))


def tip_rmse_mm(model: TwinModel, parts: Sequence[Stretch], positions: Positions) -> float | None:
    """RMS distance between the simulated and the measured tip [mm]; None where the robot has no one tip."""
    link = tip_link(model.mechanism)
    if link is None:
        return None
    squares = []
    for part, position in zip(parts, positions, strict=True):
        whole = ~np.isnan(part.position).any(axis=1) & ~np.isnan(position).any(axis=1)
        measured = tip_positions(model.mechanism, link, part.position[whole])
        squares.append(((tip_positions(model.mechanism, link, position[whole]) - measured) ** 2).sum(axis=1))
    together = np.concatenate(squares)
    return float(np.sqrt(together.mean()) * 1e3) if len(together) else None


def _by_name(joints: Sequence[str], values: FloatArray) -> dict[str, float]:
    return {name: value for name, value in zip(joints, values.tolist(), strict=True) if not math.isnan(value)}


def _pooled(found: Positions) -> tuple[FloatArray, FloatArray]:
    """Mean absolute and root mean square error per joint; NaN for a joint without a sample, which is no joint right."""
    together = np.concatenate(found)
    count = (~np.isnan(together)).sum(axis=0)
    seen = count > 0
    mae: FloatArray = np.where(seen, np.nansum(np.abs(together), axis=0) / np.maximum(count, 1), np.nan)
    rmse: FloatArray = np.where(seen, np.sqrt(np.nansum(together**2, axis=0) / np.maximum(count, 1)), np.nan)
    return mae, rmse
