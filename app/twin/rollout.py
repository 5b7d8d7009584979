"""The one seam between a fit and the physics: commands and parameter sets in, trajectories out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.dynamics import LANES
from app.twin.kernel import Drive, Parameters, run
from app.twin.model import TIMESTEP_S, TwinModel

__all__ = ["LANES", "Motion", "Trajectory", "available_cores", "drive_of", "rollout"]


@dataclass(frozen=True, slots=True)
class Motion:
    """A stretch of commands to simulate, and when the robot was looked at. Times in seconds of the recording.

    Attributes:
        t_s: row k of the command holds on [t[k], t[k+1]), the first before, the last after, shape (T,).
        command: see `actuator.COMMAND_COLUMNS`, shape (T, n, 7).
        t_out_s: when to report, increasing, not before `begin_s`, shape (K,).
        begin_s: start of the simulation.
        q0: measured joint positions at the start [rad or m], shape (n,).
        v0: joint velocities at the start [rad/s or m/s], shape (n,).
    """

    t_s: FloatArray
    command: FloatArray
    t_out_s: FloatArray
    begin_s: float
    q0: FloatArray
    v0: FloatArray


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What the sensors of the simulated robot read, noise-free.

    Attributes:
        position: [rad or m], shape (P, K, n); NaN once diverged.
        velocity: [rad/s or m/s], shape (P, K, n).
        diverged: shape (P,).
    """

    position: FloatArray
    velocity: FloatArray
    diverged: np.ndarray[tuple[int], np.dtype[np.bool_]]


def drive_of(model: TwinModel, motion: Motion) -> Drive:
    """A motion in the form the kernel takes."""
    return Drive(motion.t_s, motion.command, model.rate_hz, motion.t_out_s, motion.begin_s, TIMESTEP_S)


def rollout(model: TwinModel, motions: Sequence[Motion], values: FloatArray) -> list[Trajectory]:
    """Simulate every motion with every parameter set, on all cores.

    The result depends neither on the number of cores nor on what else is in the batch.

    Args:
        model: the robot.
        motions: what to simulate.
        values: parameter sets, shape (P, K), see `TwinModel.names`.

    Returns:
        One trajectory a motion.
    """
    chunks = [values[start : start + LANES] for start in range(0, len(values), LANES)]
    packed = [model.pack(chunk) for chunk in chunks]
    jobs = [(motion, parameters) for motion in motions for parameters in packed]
    # longest first, so that no core waits for one that began late
    order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i][0].t_out_s))
    with ThreadPoolExecutor(max_workers=available_cores()) as pool:
        futures = {i: pool.submit(_simulate, model, *jobs[i]) for i in order}
        results = [futures[i].result() for i in range(len(jobs))]
    count = len(packed)
    return [_joined(results[i * count : (i + 1) * count]) for i in range(len(motions))]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def _simulate(model: TwinModel, motion: Motion, parameters: Parameters) -> Trajectory:
    offset = parameters.joint[friction.OFFSET]
    v0 = np.repeat(motion.v0[:, None], offset.shape[1], axis=1)
    q, v, diverged = run(model.tree, parameters, drive_of(model, motion), motion.q0[:, None] - offset, v0)
    return Trajectory(np.moveaxis(q, 2, 0), np.moveaxis(v, 2, 0), diverged.astype(np.bool_))


def _joined(parts: list[Trajectory]) -> Trajectory:
    if len(parts) == 1:
        return parts[0]
    return Trajectory(
        np.concatenate([part.position for part in parts]),
        np.concatenate([part.velocity for part in parts]),
        np.concatenate([part.diverged for part in parts]),
    )
