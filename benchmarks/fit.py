"""Time to an equal or better hold-out error, beside mujoco.sysid: `python -m benchmarks.fit [--no-memory]`.

The same problem for both, in one run on the same cores: a seven-joint arm played by MuJoCo (`_planted_arm`), 10 s at
1 kHz, 0.1 mrad of noise, 28 unknowns (armature, damping, Coulomb friction and mass of each joint and link), the same
start, gains and centres of mass known. Both are judged on another motion of 10 s, each in its own engine. Then the
peak memory of a whole fit of 60 s at 1 kHz. Prints a table and, as its last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from app.calibration import judge
from app.calibration.dataset import Dataset, Split, make_dataset
from app.calibration.fit import calibrate
from app.calibration.solver import Problem, solve
from app.calibration.types import FitRequest, Progress
from app.demo.reality import simulate
from app.demo.truth import Encoder
from app.telemetry import FloatArray, Recording
from benchmarks._planted_arm import GAINS, arm, declaration, draw, known_shape, motion
from benchmarks._sysid import Peer

RATE_HZ = 1000
SECONDS, MEMORY_S = 10.0, 60.0
NOISE_RAD = 1e-4
MOST_ITERATIONS = 20
NEAR = 1.01
"""A fit has arrived where its hold-out error is within this factor of its best."""
ENCODER = Encoder(NOISE_RAD, 0.0, 0.0, 0.0)


def recorded(seed: int, seconds: float) -> Recording:
    """The arm following one motion."""
    description = arm()
    truth = draw(description, 0, latency_s=0.0, encoder=ENCODER)
    return simulate(description, GAINS, truth, motion(description, seed, seconds, RATE_HZ), name=f"motion {seed}")


def problem_of(train: Recording, held: Recording) -> Dataset:
    """The 28 unknowns and the data."""
    description = arm()
    known = {"robot/command_latency_s": 0.0, "joint/*/encoder_offset_rad": 0.0} | known_shape(description)
    return make_dataset(description, declaration(frozen=known), (train,), (held,), Split())


def ours(dataset: Dataset, iterations: int) -> tuple[float, float]:
    """Seconds and hold-out error [rad] of a fit of at most so many iterations."""
    model = dataset.model
    free = tuple(i for i, spec in enumerate(model.specs) if spec.fitted)
    floor = np.full(len(model.joints), 2e-5)
    began = time.monotonic()
    with threadpool_limits(1):
        found = solve(Problem(model, dataset.train, free, floor), model.initial(), iterations, final=False)
    seconds = time.monotonic() - began
    return seconds, error(dataset, found.values)


def error(dataset: Dataset, values: FloatArray) -> float:
    """Of free runs of the hold-out, mean over joints [rad]."""
    positions = judge.simulated(dataset.model, dataset.holdout, values)
    every = np.concatenate(judge.errors(dataset.holdout, positions))
    return float(np.sqrt(np.nanmean(every**2, axis=0)).mean())


def theirs(dataset: Dataset, train: Recording, held: Recording, *, scaled: bool) -> tuple[float, float, float]:
    """When mujoco.sysid is within `NEAR` of its best [s], its hold-out error there [rad], and when it stops [s]."""
    start = dict(zip(dataset.model.names, dataset.model.initial().tolist(), strict=True))
    peer = Peer(arm(), start, scaled)
    whole = peer.fit(train)
    errors = [peer.error(x, held) for _, x in peer.visited]
    first = next(i for i, each in enumerate(errors) if each <= NEAR * min(errors))
    return peer.visited[first][0], errors[first], whole


def memory(send: Callable[[float], None]) -> None:
    """Tell the peak memory of a process that fits 60 s of this arm from beginning to end [MiB]."""
    description = arm()
    train = recorded(3, MEMORY_S)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    declared = declaration(frozen=known_shape(description))
    calibrate(FitRequest(declared, description, (train,), (), 0, 3600.0, None), _ignore)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    send(max(began, peak) / 1024.0)


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def peak_memory() -> float:
    """Of a whole fit of 60 s at 1 kHz, in a process of its own [MiB]."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=memory, args=(send.send,))
    process.start()
    send.close()
    peak = float(receive.recv())
    process.join()
    return peak


def main() -> None:
    """Ours, theirs with and without scaling, and memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-memory", action="store_true", help="leave out the fit of 60 s")
    asked = parser.parse_args()
    train, held = recorded(1, SECONDS), recorded(2, SECONDS)
    dataset = problem_of(train, held)
    ours(dataset, 0)  # compiles
    print(
        f"{sum(spec.fitted for spec in dataset.model.specs)} unknowns; nothing fitted: "
        f"{1e3 * error(dataset, dataset.model.initial()):.2f} mrad"
    )
    print(f"{'':36} {'seconds':>9} {'hold-out [mrad]':>16} {'until it stops [s]':>19}")
    peers = []
    for scaled in (False, True):
        near, off, whole = theirs(dataset, train, held, scaled=scaled)
        name = "mujoco.sysid, scaled by its Jacobian" if scaled else "mujoco.sysid"
        print(f"{name:36} {near:9.2f} {1e3 * off:16.4f} {whole:19.2f}", flush=True)
        peers.append((near, off))
    # The quicker of two that end equally well.
    lowest = min(off for _, off in peers)
    near, reached = min(each for each in peers if each[1] <= NEAR * lowest)
    whole, ended = ours(dataset, MOST_ITERATIONS)
    for iterations in range(1, MOST_ITERATIONS + 1):
        seconds, off = ours(dataset, iterations)
        if off <= reached or iterations == MOST_ITERATIONS:
            break
    print(f"{'twincal, ' + str(iterations) + ' iterations':36} {seconds:9.2f} {1e3 * off:16.4f} {whole:19.2f}")
    print(f"twincal until it settles: {1e3 * ended:.4f} mrad")
    told: dict[str, float] = {
        "ratio_vs_mujoco_sysid": round(near / seconds, 2),
        "holdout_ratio": round(off / reached, 4),
    }
    if not asked.no_memory:
        told["memory_mib"] = round(peak_memory())
        print(f"peak memory of a whole fit of {MEMORY_S:.0f} s at 1 kHz: {told['memory_mib']} MiB")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
