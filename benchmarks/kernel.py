"""What a step of the twin costs: the compiled kernel, MuJoCo's batched rollouts, and PyBullet stepped from Python.

    python -m benchmarks.kernel

One thread. A seven-joint arm (the KUKA iiwa that comes with PyBullet) in closed loop with armature, damping and dry
friction in all three; PyBullet by itself has no armature. Repeats alternate, medians are taken, and ratios are of the
same run. What each further law costs, windows in one call and one by one, and a start of the program with and without
the compiled kernel on disk are measured besides.

The last line is JSON; `max_difference_rad` is between the kernel and the PyBullet world over 5 s in closed loop with
all laws on, the largest over every robot that comes with PyBullet and, where they are there, every recorded one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import mujoco
import mujoco.rollout
import numpy as np
import pybullet

from app.demo.arm import Drivetrain, Gains
from app.demo.reality import build_model
from app.demo.truth import PERFECT_ENCODER, Truth
from app.telemetry import FloatArray
from app.twin import world
from app.twin.description import Description
from app.twin.kernel import run
from app.twin.model import PLAIN, TIMESTEP_S, Structure, TwinModel
from app.twin.rollout import Motion, drive_of, rollout
from tests.physics import from_pybullet, model_of, read, sweeping
from tests.unit.test_every_robot import MOVED, RECORDED, difference

SECONDS: Final = 1.0
LANES: Final = (1, 8, 16)
REPEATS: Final = 9
KP: Final = 400.0
KD: Final = 20.0
DRIVETRAIN: Final = Drivetrain(coulomb_friction_nm=2.0, viscous_damping_nm_s_per_rad=1.0, armature_kg_m2=0.1)
STEPS: Final = round(SECONDS / TIMESTEP_S)
LAWS: Final = {
    "Stribeck": Structure("coulomb+viscous+stribeck"),
    "load": Structure("coulomb+viscous+load"),
    "lag": Structure(lag="delay+lag"),
    "backlash": Structure(backlash=True),
    "all of them": Structure("coulomb+viscous+stribeck+load", "delay+lag", backlash=True),
}
WINDOWS: Final = 30
WINDOW_S: Final = 2.0
FIRST_ROLLOUT: Final = """
import time
from tests.physics import model_of, rolled, sweeping, two_link
model, motion = model_of(two_link(), {"kind": "pd", "kp": 10.0, "kd": 1.0}), sweeping(2, 0.1)
began = time.perf_counter()
rolled(model, motion)
print(time.perf_counter() - began)
"""


def main() -> None:
    """Print the table and the JSON."""
    description = from_pybullet("kuka_iiwa/model.urdf")
    model = _model(description)
    motion = sweeping(model.mechanism.n, SECONDS, amplitude=0.5)
    runs: dict[str, tuple[Callable[[], object], int]] = {
        f"kernel, {lanes} lane{'s' * (lanes > 1)}": (_kernel(model, motion, lanes), lanes) for lanes in LANES
    }
    for name, structure in LAWS.items():
        runs[f"kernel, 16 lanes, {name}"] = (_kernel(_model(description, structure), motion, max(LANES)), max(LANES))
    runs["mujoco.rollout"] = (_mujoco(description, motion), max(LANES))
    runs["PyBullet from Python"] = (_pybullet(model, motion), 1)
    cost = _costs(runs)
    print(f"{model.mechanism.n} joints, {STEPS} steps, one thread, median of {REPEATS}")
    for name, each in cost.items():
        print(f"{name:34} {each:8.2f} µs a step and rollout")
    together, alone = _windows(model)
    print(f"{WINDOWS} windows of {WINDOW_S:g} s in one call {1e3 * together:.0f} ms, one by one {1e3 * alone:.0f} ms")
    first, second = _starts()
    print(f"first rollout of a program {first:.1f} s with the kernel to compile, {second:.1f} s with it on disk")
    differences = _differences()
    for name, worst in differences.items():
        print(f"{name:40} {worst:8.1e} rad between kernel and PyBullet world over 5 s")
    ours = cost[f"kernel, {max(LANES)} lanes"]
    result = {
        "ratio_vs_mujoco_rollout": round(cost["mujoco.rollout"] / ours, 2),
        "ratio_vs_pybullet": round(cost["PyBullet from Python"] / ours, 2),
        "max_difference_rad": max(differences.values()),
    }
    print(json.dumps(result))


def _costs(runs: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Median cost of a step and rollout, repeats alternating [µs]."""
    microseconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(REPEATS + 1):
        for name, (once, rollouts) in runs.items():
            began = time.perf_counter()
            once()
            if repeat > 0:  # the first one compiles and fills caches
                microseconds[name].append(1e6 * (time.perf_counter() - began) / (rollouts * STEPS))
    return {name: statistics.median(each) for name, each in microseconds.items()}


def _windows(model: TwinModel) -> tuple[float, float]:
    """Windows with one parameter set: in one call, and each in one of its own [s]."""
    motions = [sweeping(model.mechanism.n, WINDOW_S, amplitude=0.5, seed=seed) for seed in range(WINDOWS)]
    values = model.initial()[None]
    took: tuple[list[float], list[float]] = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        rollout(model, motions, values)
        between = time.perf_counter()
        for motion in motions:
            rollout(model, [motion], values)
        took[0].append(between - began)
        took[1].append(time.perf_counter() - between)
    return statistics.median(took[0]), statistics.median(took[1])


def _starts() -> tuple[float, float]:
    """A new program's first rollout, without and with the compiled kernel on disk [s]."""
    with tempfile.TemporaryDirectory(prefix="twincal-") as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        times = []
        for _ in range(2):
            command = [sys.executable, "-c", FIRST_ROLLOUT]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            times.append(float(done.stdout.split()[-1]))
    return times[0], times[1]


def _model(description: Description, structure: Structure = PLAIN) -> TwinModel:
    names = {
        "armature_kg_m2": DRIVETRAIN.armature_kg_m2,
        "viscous_damping_nm_s_per_rad": DRIVETRAIN.viscous_damping_nm_s_per_rad,
        "coulomb_friction_nm": DRIVETRAIN.coulomb_friction_nm,
    }
    frozen = {f"joint/*/{name}": value for name, value in names.items()}
    return model_of(description, {"kind": "pd", "kp": KP, "kd": KD}, fit={"frozen": frozen}, structure=structure)


def _kernel(model: TwinModel, motion: Motion, lanes: int) -> Callable[[], None]:
    draw = np.random.default_rng(0)
    values = np.repeat(model.initial()[None], lanes, axis=0)
    # as in a fit, no two sets are the same; they stick, slide and turn round at different times
    values *= np.exp(0.05 * draw.normal(size=values.shape))
    parameters, drive = model.pack(values), drive_of(model, motion)
    q0 = np.repeat(motion.q0[:, None], lanes, axis=1)

    def once() -> None:
        run(model.tree, parameters, drive, q0, np.zeros_like(q0))

    return once


def _mujoco(description: Description, motion: Motion) -> Callable[[], None]:
    movable = [name for name, joint in description.joints.items() if joint.type != "fixed"]
    truth = Truth(dict.fromkeys(movable, DRIVETRAIN), {}, 0.0, PERFECT_ENCODER, 0)
    model = build_model(description, dict.fromkeys(movable, Gains(KP, KD)), truth)
    data = mujoco.MjData(model)
    data.qpos[:] = motion.q0
    start = np.zeros(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS))
    mujoco.mj_getState(model, data, start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    starts = np.repeat(start[None], max(LANES), axis=0)
    control = _targets(motion)[None]

    def once() -> None:
        mujoco.rollout.rollout(model, data, starts, control)

    return once


def _pybullet(model: TwinModel, motion: Motion) -> Callable[[], None]:
    """PD torques computed in numpy, dry friction by PyBullet's own joint motor: as little Python as it takes."""
    targets = _targets(motion)

    def once() -> None:
        with world.loaded(model, model.initial()) as body:
            client, uid, joints = body.client, body.uid, body.indices
            for index, position in zip(joints, body.jacobian @ motion.q0, strict=True):
                pybullet.resetJointState(uid, index, position, 0.0, physicsClientId=client)
                friction = DRIVETRAIN.coulomb_friction_nm
                pybullet.setJointMotorControl2(
                    uid, index, pybullet.VELOCITY_CONTROL, force=friction, physicsClientId=client
                )
            for target in targets:
                states = np.array([s[:2] for s in pybullet.getJointStates(uid, joints, physicsClientId=client)])
                torque = KP * (target - states[:, 0]) - (KD + DRIVETRAIN.viscous_damping_nm_s_per_rad) * states[:, 1]
                pybullet.setJointMotorControlArray(
                    uid, joints, pybullet.TORQUE_CONTROL, forces=torque, physicsClientId=client
                )
                pybullet.stepSimulation(physicsClientId=client)

    return once


def _targets(motion: Motion) -> FloatArray:
    """The held command of each step, shape (STEPS, n)."""
    rows = np.searchsorted(motion.t_s, np.arange(STEPS) * TIMESTEP_S + 1e-9, side="right") - 1
    targets: FloatArray = motion.command[rows, :, 0]
    return targets


def _differences() -> dict[str, float]:
    robots = {name: from_pybullet(name) for name in MOVED}
    shared = Path(os.environ.get("TWINCAL_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if shared.is_dir():
        robots |= {f"{name}.urdf": read(shared / f"{name}.urdf") for name in RECORDED}
    return {name: difference(description) for name, description in robots.items()}


if __name__ == "__main__":
    main()
