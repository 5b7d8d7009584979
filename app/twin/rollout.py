"""The one seam between a fit and the physics: commands and parameter sets in, trajectories out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from app.telemetry import FloatArray, IntArray
from app.twin import friction
from app.twin.backlash import starting_gap
from app.twin.batch import Drive, steps_of
from app.twin.dynamics import LANES
from app.twin.kernel import Parameters, run_lanes
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

    Each pair of the two is a lane of a kernel call, and all lanes of a call are stepped as far as the longest: lanes of
    like length go together. The result depends neither on the number of cores nor on what else is in the batch.

    Args:
        model: the robot.
        motions: what to simulate.
        values: parameter sets, shape (P, K), see `TwinModel.names`.

    Returns:
        One trajectory a motion.
    """
    packed = model.pack(values)
    drives = [drive_of(model, motion) for motion in motions]
    sets, n = len(values), model.mechanism.n
    firsts = np.cumsum([0, *(sets * len(motion.t_out_s) for motion in motions)]).tolist()
    work = _Work(model, motions, drives, packed, firsts, *np.full((2, firsts[-1], n), np.nan))
    longest_first = sorted(range(len(motions)), key=lambda m: -steps_of(drives[m]))
    lanes = [(m, p) for m in longest_first if len(motions[m].t_out_s) for p in range(sets)]
    chunks = [lanes[start : start + LANES] for start in range(0, len(lanes), LANES)]
    with ThreadPoolExecutor(max_workers=available_cores()) as pool:
        lost = dict(pair for pairs in pool.map(work.simulate, chunks) for pair in pairs)
    return [work.trajectory(m, sets, np.array([lost.get((m, p), 0) for p in range(sets)])) for m in range(len(motions))]


@dataclass(frozen=True, slots=True)
class _Work:
    """All that the kernel calls of one rollout share.

    Attributes:
        model: the robot.
        motions: what to simulate.
        drives: the same for the kernel.
        packed: all parameter sets.
        firsts: first output row of each motion.
        position: of every motion, set and output time, shape (rows, n).
        velocity: likewise.
    """

    model: TwinModel
    motions: Sequence[Motion]
    drives: Sequence[Drive]
    packed: Parameters
    firsts: Sequence[int]
    position: FloatArray
    velocity: FloatArray

    def simulate(self, lanes: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
        """Run (motion, parameter set) pairs, `LANES` at most, and say of each whether it diverged."""
        sets = [p for _, p in lanes]
        parameters = Parameters(*(np.ascontiguousarray(each[..., sets]) for each in self.packed))
        v0 = np.array([self.motions[m].v0 for m, _ in lanes]).T
        beyond = parameters.joint[friction.OFFSET] + starting_gap(parameters.joint[friction.BACKLASH], v0)
        q0 = np.array([self.motions[m].q0 for m, _ in lanes]).T - beyond
        place = [self.firsts[m] + p * len(self.motions[m].t_out_s) for m, p in lanes]
        drives = [self.drives[m] for m, _ in lanes]
        out = (self.position, self.velocity, place)
        diverged = run_lanes(self.model.tree, parameters, drives, (q0, v0), out)
        return list(zip(lanes, diverged.tolist(), strict=True))

    def trajectory(self, motion: int, sets: int, diverged: IntArray) -> Trajectory:
        """What the sensors read of one motion."""
        rows = slice(self.firsts[motion], self.firsts[motion + 1])
        shape = (sets, len(self.motions[motion].t_out_s), self.model.mechanism.n)
        return Trajectory(
            self.position[rows].reshape(shape), self.velocity[rows].reshape(shape), diverged.astype(np.bool_)
        )


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
