"""Versions prepared to be watched: baselines, floors, what the fit left open, and why a version can't be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from app.errors import InvalidInputError
from app.monitor.baseline import prepare
from app.monitor.score import score_recording
from app.twin.declaration import RobotDeclaration
from app.twin.document import Covariance, SensorNoise, WindowedErrors
from tests.drifting import BASELINE_RAD, declaration, twin, watched, work
from tests.physics import two_link


def test_a_baseline_is_never_below_what_the_sensor_can_tell() -> None:
    noise = SensorNoise(noise_sd=3e-4, quantum=0.0, outlier_rate=0.0, drop_rate=0.0)
    coarse = SensorNoise(noise_sd=None, quantum=6e-3, outlier_rate=None, drop_rate=0.0)
    sensors = {"joint/shoulder/position": noise, "joint/elbow/position": coarse}
    ready = prepare(twin({"shoulder": 1e-9, "elbow": 1e-3}, sensors), declaration(), two_link())
    expected = {"shoulder": 3e-4, "elbow": 6e-3 / math.sqrt(12.0)}
    assert dict(zip(ready.model.joints, ready.baseline.tolist(), strict=True)) == pytest.approx(expected)
    least = prepare(twin({"shoulder": 0.0, "elbow": 1e-3}), declaration(), two_link())
    assert least.baseline.min() == 2e-5


def test_a_joint_without_a_baseline_is_not_judged() -> None:
    ready = prepare(twin({"shoulder": BASELINE_RAD}), declaration(), two_link())
    score = score_recording(ready, work(20.0, elbow=1.3), None)
    assert set(score.per_joint) == {"shoulder"}


def test_the_same_version_draws_the_same_twins_within_bounds() -> None:
    name = "joint/elbow/coulomb_friction_nm"
    known = twin().model_copy(
        update={"covariance": Covariance(names=(name,), transform={name: "linear"}, matrix=((4.0,),))}
    )
    ready = prepare(known, declaration(), two_link())
    column = ready.model.names.index(name)
    assert np.array_equal(ready.draws, prepare(known, declaration(), two_link()).draws)
    assert ready.draws[:, column].min() == 0.0  # friction is never negative
    assert ready.draws[:, column].max() > 0.8
    others = np.delete(ready.draws, column, axis=1)
    assert np.array_equal(others, np.repeat(np.delete(ready.values, column)[None, :], len(others), axis=0))


def test_an_error_within_what_the_fit_left_open_is_expected() -> None:
    name = "joint/elbow/coulomb_friction_nm"
    unsure = twin().model_copy(
        update={"covariance": Covariance(names=(name,), transform={name: "linear"}, matrix=((0.03**2,),))}
    )
    recording = work(20.0, elbow=1.2)  # two standard deviations more
    sure = score_recording(watched(), recording, None)
    open_ = score_recording(prepare(unsure, declaration(), two_link()), recording, None)
    assert open_.per_joint == sure.per_joint
    assert min(step["elbow"] for step in sure.steps) > 2.0
    assert max(step["elbow"] for step in open_.steps) < 2.0
    worn = score_recording(prepare(unsure, declaration(), two_link()), work(20.0, elbow=2.0), None)
    assert min(step["elbow"] for step in worn.steps) > 2.0


def torque_driven() -> RobotDeclaration:
    known = declaration()
    return known.model_copy(update={"controller": known.controller.model_copy(update={"kind": "torque"})})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: prepare(
                twin().model_copy(update={"quality": twin().quality.model_copy(update={"windowed": None})}),
                declaration(),
                two_link(),
            ),
            "quality.windowed: version 3 has no baseline to measure drift against",
        ),
        (
            lambda: prepare(twin(), declaration(), replace(two_link(), sha256="f" * 64)),
            "description: version 3 belongs to description .*, not to ffffffffffff…",
        ),
        (
            lambda: prepare(twin(), torque_driven(), two_link()),
            "controller.kind: version 3 was fitted with a pd controller, and torque is declared now",
        ),
    ],
)
def test_a_version_that_cannot_be_watched_says_why(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_windows_are_as_long_as_the_versions_baseline_was() -> None:
    known = twin()
    quality = known.quality.model_copy(
        update={"windowed": WindowedErrors(window_s=4.0, rmse={"shoulder": BASELINE_RAD, "elbow": BASELINE_RAD})}
    )
    ready = prepare(known.model_copy(update={"quality": quality}), declaration(), two_link())
    score = score_recording(ready, work(20.0), None)
    assert (score.windows, score.moving_s) == (4, 16.0)
