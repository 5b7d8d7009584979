"""The solver finds the optimum of the tempered objective, far closer than it is known, on any number of cores."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from app.calibration.dataset import Dataset, Split
from app.calibration.residual import Noise, misfit, residuals
from app.calibration.solver import FIRST_KAPPA, Problem, Solution, solve
from app.telemetry import FloatArray
from app.twin.model import build_model
from tests.physics import two_link
from tests.planted import dataset_of, declare, follow, hanging_joint, level_joint, log, swings

ARMATURE = "joint/hinge/armature_kg_m2"
FLOOR = 2e-5


def problem_of(data: Dataset) -> Problem:
    free = tuple(i for i, spec in enumerate(data.model.specs) if spec.fitted)
    return Problem(data.model, data.train, free, np.full(data.model.mechanism.n, FLOOR))


def frozen_but(*free: str) -> dict[str, Any]:
    """A `fit` block that frees these parameters alone; the others are 0, and the link as described."""
    held = {
        f"joint/hinge/{name}": 0.0
        for name in ("armature_kg_m2", "viscous_damping_nm_s_per_rad", "coulomb_friction_nm", "encoder_offset_rad")
    }
    held |= {"robot/command_latency_s": 0.0, "link/bar/mass_kg": 2.0}
    held |= {f"link/bar/com_{axis}_m": 0.0 for axis in "xyz"}
    return {"frozen": {name: value for name, value in held.items() if name not in free}}


def hanging(*, seconds: float = 6.0, noise_sd: float = 3e-4, seed: int = 0) -> tuple[Dataset, FloatArray]:
    """A damped pendulum with friction, all of its joint and latency unknown; the data and the truth."""
    declared = declare(fit={"frozen": {"link/*/mass_kg": 2.0, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": -0.1}})
    model = build_model(hanging_joint(), declared, {"hinge"}, {"position", "command_position"})
    truth = model.values(
        {
            ARMATURE: 0.03,
            "joint/hinge/viscous_damping_nm_s_per_rad": 0.3,
            "joint/hinge/coulomb_friction_nm": 0.4,
            "joint/hinge/encoder_offset_rad": 0.01,
            "robot/command_latency_s": 0.012,
        }
    )
    recording = follow(model, truth, swings(np.arange(round(100 * seconds)) / 100.0, 1), noise_sd=noise_sd, seed=seed)
    return dataset_of(hanging_joint(), declared, recording, split=Split(holdout_fraction=0.2)), truth


def test_one_unknown_inertia_is_where_its_closed_form_has_its_minimum() -> None:
    # A constant torque on a level joint without friction: the angle is τ t² / 2(I + A).
    declared = declare({"kind": "torque"}, fit=frozen_but(ARMATURE))
    t = np.arange(101) / 100.0
    angle = 0.5 * 0.2 * t**2 / (0.02 + 0.05)
    noise = 1e-3 * np.random.default_rng(0).standard_normal(101)
    recording = log("log", t, position=angle + noise, command_effort=np.full(101, 0.2))
    data = dataset_of(level_joint(), declared, recording, holdout=[recording])
    (stretch,) = data.train
    motion = stretch.motion
    found = solve(problem_of(data), data.model.initial(), 20)
    spec = data.model.specs[data.model.names.index(ARMATURE)]
    mean, spread = spec.prior_moments()

    def objective(z: FloatArray) -> float:
        since = motion.t_out_s
        armature = np.exp(mean + spread * z[0])
        simulated = motion.q0[0] + motion.v0[0] * since + 0.5 * 0.2 * since**2 / (0.02 + armature)
        size = np.abs(simulated - stretch.position[:, 0]) / found.noise.sd[0]
        loss = np.where(size < 2.5, 0.5 * size**2, 2.5 * (size - 1.25))
        return float(loss.sum() / found.noise.kappa[0] + 0.5 * z[0] ** 2)

    best = minimize(objective, found.z, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert found.settled
    assert found.z[0] == pytest.approx(best.x[0], abs=1e-4)
    assert found.objective == pytest.approx(best.fun, rel=1e-6)


def remaining_step(problem: Problem, found: Solution) -> FloatArray:
    """A full Newton step from the solution, in posterior standard deviations."""
    gradient = found.jacobian.T @ (found.weight * found.found.error[0].ravel()) + found.z
    hessian = (found.jacobian * found.weight[:, None]).T @ found.jacobian + np.eye(len(found.z))
    covariance = np.linalg.inv(hessian)
    return np.asarray(np.abs(covariance @ gradient) / np.sqrt(np.diag(covariance)))


def test_the_optimum_is_reached_to_a_small_part_of_what_is_known() -> None:
    data, _ = hanging()
    problem = problem_of(data)
    found = solve(problem, data.model.initial(), 30)
    assert found.settled
    assert remaining_step(problem, found).max() < 5e-3
    # and no other search finds a better one with the same noise

    def objective(z: FloatArray) -> float:
        errors = residuals(problem.model, problem.stretches, problem.to_values(z[None], found.values))
        return float(misfit(errors, found.noise)[0] + 0.5 * z @ z)

    sd = np.sqrt(
        np.diag(np.linalg.inv((found.jacobian * found.weight[:, None]).T @ found.jacobian + np.eye(len(found.z))))
    )
    other = minimize(
        objective, found.z, method="Nelder-Mead", options={"initial_simplex": simplex(found.z, sd), "maxfev": 600}
    )
    assert objective(found.z) - other.fun < 1e-3


def simplex(z: FloatArray, sd: FloatArray) -> FloatArray:
    return np.vstack([z, z + np.diag(sd)])


def test_different_starts_end_at_one_optimum() -> None:
    data, truth = hanging()
    problem = problem_of(data)
    ends = [solve(problem, start, 30) for start in (data.model.initial(), truth, 0.5 * (truth + data.model.initial()))]
    sd = np.sqrt(np.diag(np.linalg.inv((ends[0].jacobian * ends[0].weight[:, None]).T @ ends[0].jacobian + np.eye(5))))
    for end in ends[1:]:
        np.testing.assert_array_less(np.abs(end.z - ends[0].z) / sd, 0.05)


def test_a_truth_outside_the_bounds_ends_at_the_bound_and_the_others_still_settle() -> None:
    # the joint helps where friction would brake: damping wants to be negative
    data, truth = hanging()
    model = data.model
    damping, friction = (
        model.names.index(f"joint/hinge/{kind}") for kind in ("viscous_damping_nm_s_per_rad", "coulomb_friction_nm")
    )
    wanted = truth.copy()
    wanted[[damping, friction]] = -0.2, 0.0
    t = np.arange(600) / 100.0
    helped = follow(model, wanted, swings(t, 1), noise_sd=3e-4)
    declared = declare(fit={"frozen": {"link/*/mass_kg": 2.0, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": -0.1}})
    problem = problem_of(dataset_of(hanging_joint(), declared, helped))
    low, high = problem.bounds()
    found = solve(problem, model.initial(), 30)
    assert found.settled
    assert found.values[damping] == 0.0
    assert (found.z >= low).all()
    assert (found.z <= high).all()


def test_no_iteration_is_spent_where_none_may_be() -> None:
    data, _ = hanging(seconds=3.0)
    start = data.model.initial()
    told: list[float] = []

    def stop(objective: float, _: Noise) -> bool:
        told.append(objective)
        return len(told) < 3

    assert solve(problem_of(data), start, 0).iterations == 0
    np.testing.assert_allclose(solve(problem_of(data), start, 0).values, start, rtol=1e-12)
    found = solve(problem_of(data), start, 30, stop)
    assert (found.iterations, found.settled, len(told)) == (2, False, 3)
    assert told[-1] == found.objective


def test_better_data_are_fitted_closer() -> None:
    ends = [solve(problem_of(data), truth, 20) for data, truth in (hanging(noise_sd=sd) for sd in (1e-3, 1e-4))]
    assert ends[0].noise.sd[0] == pytest.approx(1e-3, rel=0.15)
    assert ends[1].noise.sd[0] == pytest.approx(1e-4, rel=0.15)
    assert max(end.noise.kappa[0] for end in ends) < FIRST_KAPPA / 10


def test_dry_friction_does_not_make_slopes_that_no_robot_has() -> None:
    # with unknown gains, all torques can be multiplied by one factor: its direction has no slope, whatever rests when
    declared = declare({"kind": "pd"})
    scaled = ("mass_kg", "armature_kg_m2", "viscous_damping_nm_s_per_rad", "coulomb_friction_nm", "kp_nm_per_rad")
    for seed in range(8):
        model = build_model(hanging_joint(), declared, {"hinge"}, {"position", "command_position"})
        truth = model.values({"joint/hinge/coulomb_friction_nm": 0.4 + 0.01 * seed, "link/bar/com_z_m": -0.1})
        recording = follow(model, truth, swings(np.arange(1500) / 100.0, 1, seed), noise_sd=1e-4, seed=seed)
        problem = problem_of(dataset_of(hanging_joint(), declared, recording))
        found = solve(problem, truth, 0)
        direction = np.zeros(len(problem.free))
        for column, i in enumerate(problem.free):
            spec = model.specs[i]
            if spec.name.endswith(scaled):
                size = 1.0 if spec.transform == "log" else float(found.values[i])
                direction[column] = size / spec.prior_moments()[1]
        slope = found.jacobian @ direction
        assert float((found.weight * slope**2).sum()) < 0.1


ARM = """
import os, sys
os.sched_setaffinity(0, {cores})
import numpy as np
from threadpoolctl import threadpool_limits
from tests.unit.test_solver import arm
with threadpool_limits(1):
    sys.stdout.write(arm().hex())
"""


def arm() -> bytes:
    """A short fit of two joints, as bytes."""
    declared = declare({"kind": "pd", "kp": 40.0, "kd": 2.0})
    model = build_model(two_link(), declared, {"shoulder", "elbow"}, {"position", "command_position"})
    truth = model.values({"joint/shoulder/coulomb_friction_nm": 0.5, "robot/command_latency_s": 0.02})
    recording = follow(model, truth, swings(np.arange(300) / 100.0, 2), noise_sd=1e-4)
    problem = problem_of(dataset_of(two_link(), declared, recording))
    found = solve(problem, model.initial(), 3)
    return found.values.tobytes() + found.jacobian.tobytes() + found.noise.kappa.tobytes()


def test_the_result_is_the_same_to_the_last_bit_on_one_core_and_on_all() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("ONE CORE ONLY: nothing to compare")
    outputs = [
        subprocess.run(
            [sys.executable, "-c", ARM.format(cores=chosen)], capture_output=True, text=True, check=True, timeout=120
        ).stdout
        for chosen in (sorted(cores)[:1], sorted(cores))
    ]
    assert len(outputs[0]) > 1000
    assert outputs[0] == outputs[1]
