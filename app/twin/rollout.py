"""The one seam between a fit and the physics: commands and parameter sets in, trajectories out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.backlash import starting_gap
from app.twin.batch import Drive, steps_of
from app.twin.dynamics import LANES
from app.twin.kernel import Parameters, run_lanes
from app.twin.model import TIMESTEP_S, TwinModel

__all__ = ["LANES", "Motion", "Trajectory", "available_cores", "drive_of", "positions", "rollout"]

BoolArray = NDArray[np.bool_]


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
    diverged: BoolArray


def drive_of(model: TwinModel, motion: Motion) -> Drive:
    """A motion in the form the kernel takes."""
    return Drive(motion.t_s, motion.command, model.rate_hz, motion.t_out_s, motion.begin_s, TIMESTEP_S)


def rollout(model: TwinModel, motions: Sequence[Motion], values: FloatArray) -> list[Trajectory]:
    """Simulate every motion with every parameter set, on all cores.

    Each pair of the two is a lane of a kernel call, and all lanes of a call are stepped as far as the longest: lanes of
    like length go together. The result depends neither on the number of cores nor on what else is in the batch.

    Args:
        model: the robot.
        motions: what to simulate.
        values: parameter sets, shape (P, K), see `TwinModel.names`.

    Returns:
        One trajectory a motion.
    """
    work = _work(model, motions, values)
    velocity = np.full_like(work.position, np.nan)
    lost = work.run(velocity)
    return [
        Trajectory(work.position[:, rows], velocity[:, rows], diverged)
        for rows, diverged in zip(work.rows(), lost, strict=True)
    ]


def positions(model: TwinModel, motions: Sequence[Motion], values: FloatArray) -> tuple[FloatArray, BoolArray]:
    """What the encoders read in every motion with every parameter set: `rollout` for half the memory.

    Args:
        model: the robot.
        motions: what to simulate.
        values: parameter sets, shape (P, K), see `TwinModel.names`.

    Returns:
        Positions at the motions' output times, one motion after another, NaN once diverged [rad or m], shape (P, N, n),
        and which sets diverged in some motion, shape (P,).
    """
    work = _work(model, motions, values)
    lost: BoolArray = np.asarray(work.run(np.zeros((len(values), 0, model.mechanism.n))).any(axis=0))
    return work.position, lost


@dataclass(frozen=True, slots=True)
class _Work:
    """All that the kernel calls of one rollout share.

    Attributes:
        model: the robot.
        motions: what to simulate.
        drives: the same for the kernel.
        packed: all parameter sets.
        firsts: each motion's first output, and one past the last.
        position: of every set at every output of all motions, shape (P, N, n).
    """

    model: TwinModel
    motions: Sequence[Motion]
    drives: Sequence[Drive]
    packed: Parameters
    firsts: Sequence[int]
    position: FloatArray

    def rows(self) -> list[slice]:
        """Each motion's outputs."""
        return [slice(first, end) for first, end in itertools.pairwise(self.firsts)]

    def run(self, velocity: FloatArray) -> BoolArray:
        """Fill positions, and velocities where there is room for them; which motions and sets diverged, (M, P)."""
        sets = len(self.position)
        longest_first = sorted(range(len(self.motions)), key=lambda m: -steps_of(self.drives[m]))
        lanes = [(m, p) for m in longest_first if len(self.motions[m].t_out_s) for p in range(sets)]
        chunks = [lanes[start : start + LANES] for start in range(0, len(lanes), LANES)]
        lost = np.zeros((len(self.motions), sets), dtype=np.bool_)
        with ThreadPoolExecutor(max_workers=available_cores()) as pool:
            for chunk, diverged in zip(chunks, pool.map(lambda c: self._simulate(c, velocity), chunks), strict=True):
                lost[tuple(np.transpose(chunk))] = diverged
        return lost

    def _simulate(self, lanes: Sequence[tuple[int, int]], velocity: FloatArray) -> BoolArray:
        """Run (motion, parameter set) pairs, `LANES` at most; which of them diverged."""
        sets = [p for _, p in lanes]
        parameters = Parameters(*(np.ascontiguousarray(each[..., sets]) for each in self.packed))
        v0 = np.array([self.motions[m].v0 for m, _ in lanes]).T
        beyond = parameters.joint[friction.OFFSET] + starting_gap(parameters.joint[friction.BACKLASH], v0)
        q0 = np.array([self.motions[m].q0 for m, _ in lanes]).T - beyond
        total, n = self.position.shape[1:]
        place = [p * total + self.firsts[m] for m, p in lanes]
        drives = [self.drives[m] for m, _ in lanes]
        out = (self.position.reshape(-1, n), velocity.reshape(-1, n), place)
        return run_lanes(self.model.tree, parameters, drives, (q0, v0), out).astype(np.bool_)


def _work(model: TwinModel, motions: Sequence[Motion], values: FloatArray) -> _Work:
    firsts = np.cumsum([0, *(len(motion.t_out_s) for motion in motions)]).tolist()
    position = np.full((len(values), firsts[-1], model.mechanism.n), np.nan)
    drives = [drive_of(model, motion) for motion in motions]
    return _Work(model, motions, drives, model.pack(values), firsts, position)


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
