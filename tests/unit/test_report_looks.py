"""The report's curves and maps are of the data: errors by time since a start, positions and speeds of each joint."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.report_excitation import excitation_map
from app.calibration.report_looks import BINS, RUNS, excitation_of, horizon_of
from app.calibration.report_words import ANGLE
from app.twin.model import build_model
from tests.planted import dataset_of, declare, follow, hanging_joint, level_joint, log, swings

RATE_HZ = 100.0


def test_a_sine_is_mapped_with_its_width_its_top_speed_and_its_turns() -> None:
    t_s = np.arange(2000) / RATE_HZ
    motion = 0.74 * np.sin(2.0 * np.pi * 0.5 * t_s)
    recording = log("sine", t_s, position=motion, command_position=motion)
    description = level_joint()
    (found,) = excitation_of(dataset_of(description, declare(), recording), description)
    assert found.limits == (-3.0, 3.0)
    assert found.edges[[0, -1]].tolist() == [-3.0, 3.0]
    trained_s = 15.0
    assert found.seconds.sum() == pytest.approx(trained_s, rel=0.01)
    # ten bins of 0.15 rad hold ±0.74 rad
    assert np.flatnonzero(found.seconds).tolist() == list(range(15, 25))
    assert found.top_speed == pytest.approx(0.74 * np.pi, rel=0.01)
    assert found.speed.argmax() in (19, 20)
    assert found.reversals == 15
    (strip,) = excitation_map((found,), {"hinge": ANGLE})
    assert strip.covered == "25 %"
    assert len(strip.tiles) == 10


def test_readings_that_are_missing_leave_no_time_and_no_speed() -> None:
    t_s = np.arange(1000) / RATE_HZ
    motion = 2.0 * np.sin(t_s)
    motion[300:400] = np.nan
    recording = log("far", t_s, position=motion, command_position=np.nan_to_num(motion))
    description = level_joint()
    dataset = dataset_of(description, declare(), recording)
    (found,) = excitation_of(dataset, description)
    assert len(found.seconds) == BINS
    assert np.isfinite(found.speed).all()
    assert found.top_speed == pytest.approx(2.0, rel=0.05)


def test_errors_are_pooled_by_the_time_since_each_run_s_start() -> None:
    model = build_model(hanging_joint(), declare(), {"hinge"}, {"position", "command_position"})
    values = model.values({"joint/hinge/coulomb_friction_nm": 0.5, "robot/command_latency_s": 0.02})
    recording = follow(model, values, swings(np.arange(4000) / RATE_HZ, 1), noise_sd=1e-4)
    dataset = dataset_of(hanging_joint(), declare(), recording)
    found = horizon_of(dataset.model, dataset.holdout, values)
    assert found is not None
    assert found.window_s == pytest.approx(10.0 / RUNS, rel=0.01)
    assert found.t_s[0] < 0.1
    # a twin with the robot's own parameters stays within the noise once it has forgotten the noise it started from
    assert np.nanmedian(found.calibrated) < 1.5e-4
    late = found.t_s > 1.0
    assert np.nanmean(found.nominal[late]) > 20.0 * np.nanmean(found.calibrated[late])


def test_a_hold_out_of_a_moment_has_no_horizon() -> None:
    model = build_model(level_joint(), declare(), {"hinge"}, {"position", "command_position"})
    assert horizon_of(model, (), model.initial()) is None
