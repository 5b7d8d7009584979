"""A joint that stands still while others move is held, and drags nothing along."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.calibration.dataset import Dataset
from app.calibration.posterior import posterior
from app.calibration.solver import Problem, Solution, solve
from app.calibration.standing import BRUTE_FORCE, free_of, least_holding, locked, released, still_joints
from app.telemetry import FloatArray
from app.twin.model import TwinModel, build_model
from tests.physics import two_link
from tests.planted import dataset_of, declare, follow, swings

GAINS = {"kind": "pd", "kp": 60.0, "kd": 3.0}
SHOULDER = "joint/shoulder/coulomb_friction_nm"
STUCK = {SHOULDER: 60.0, "joint/elbow/coulomb_friction_nm": 0.5}
STILL = ("shoulder",)


def model() -> TwinModel:
    return build_model(two_link(), declare(GAINS), {"shoulder", "elbow"}, {"position", "command_position"})


def stuck_at(shoulder_rad: float) -> Dataset:
    """An arm whose shoulder is stuck at an angle and is told to be there, while its elbow swings."""
    targets = swings(np.arange(1200) / 100.0, 2)
    targets[:, 0] = shoulder_rad
    recording = follow(model(), model().values(STUCK), targets, noise_sd=1e-4)
    return dataset_of(two_link(), declare(GAINS), recording)


def fitted(dataset: Dataset) -> tuple[Problem, Solution]:
    own = dataset.model
    problem = Problem(own, dataset.train, free_of(own, STILL), np.full(2, 2e-5))
    solution = solve(problem, locked(own, own.initial(), STILL), 10)
    return problem, solution


@pytest.mark.parametrize("shoulder_rad", [0.0, 0.8])
def test_neighbours_of_a_joint_that_stands_still_keep_their_masses(shoulder_rad: float) -> None:
    dataset = stuck_at(shoulder_rad)
    assert still_joints(dataset) == STILL
    problem, solution = fitted(dataset)
    assert solution.settled
    found = posterior(problem, solution, STILL)
    truth = dict(zip(dataset.model.names, model().values(STUCK).tolist(), strict=True))
    for name, estimate in found.estimates.items():
        if name != SHOULDER:
            assert estimate.value == pytest.approx(truth[name], abs=2.5 * estimate.sd), name
    for name in ("link/upper/mass_kg", "link/upper/com_x_m", "joint/shoulder/armature_kg_m2"):
        assert found.estimates[name].verdict == "no_effect"
    assert found.estimates["joint/elbow/coulomb_friction_nm"].verdict == "identified"


def test_its_friction_is_what_holds_it_as_uncertain_as_the_prior() -> None:
    dataset = stuck_at(0.0)
    problem, solution = fitted(dataset)
    values = least_holding(dataset.model, dataset.train, solution.values, STILL)
    index = dataset.model.names.index(SHOULDER)
    # its prior's friction lets gravity of up to 5 N·m pull it down by more than its readings ever moved
    assert dataset.model.initial()[index] < 3.0 < values[index] < BRUTE_FORCE
    settled = replace(solution, values=values)
    estimate = posterior(problem, settled, STILL).estimates[SHOULDER]
    assert estimate.value == values[index]
    assert estimate.verdict == "not_identified"
    assert estimate.sd == pytest.approx(dataset.model.specs[index].prior_moments()[1])


def test_nothing_changes_where_every_joint_moves() -> None:
    own = model()
    values: FloatArray = own.initial()
    assert free_of(own, ()) == tuple(i for i, spec in enumerate(own.specs) if spec.fitted)
    for changed in (locked(own, values, ()), released(own, values, ()), least_holding(own, (), values, ())):
        np.testing.assert_array_equal(changed, values)
