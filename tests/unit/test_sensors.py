"""What a sensor adds is read off its readings and off what a good twin leaves over."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.dataset import Stretch, stretches
from app.calibration.recording import read_commands
from app.calibration.sensors import quantum, sensor_noise
from app.telemetry import FloatArray
from app.twin.document import SensorNoise
from app.twin.model import build_model
from tests.planted import declare, level_joint, log

T = np.arange(3000) / 100.0
MOTION = 0.3 * np.sin(0.3 * T) + 0.02 * np.sin(4.1 * T)
TICK = 2.0 * np.pi / 4096.0
DRAW = np.random.default_rng(0)
NOISE = DRAW.standard_normal(len(T))


def rounded(values: FloatArray, step: float) -> FloatArray:
    return np.asarray(np.round(values / step) * step)


@pytest.mark.parametrize("step", [TICK, 0.001, 0.01])
def test_the_step_of_a_rounding_sensor_shows(step: float) -> None:
    assert quantum(rounded(MOTION, step)) == pytest.approx(step, rel=1e-3)


def test_it_shows_through_printed_decimals_and_an_offset() -> None:
    assert quantum(np.round(rounded(MOTION, TICK) + 0.123456789, 6)) == pytest.approx(TICK, rel=1e-2)


def test_it_shows_where_readings_are_missing() -> None:
    readings = rounded(MOTION, TICK)
    readings[::7] = np.nan
    assert quantum(readings) == pytest.approx(TICK, rel=1e-3)


def test_a_smooth_sensor_has_no_step() -> None:
    assert quantum(MOTION + 1e-4 * NOISE) == 0.0


@pytest.mark.parametrize("readings", [np.zeros(0), np.full(50, np.nan), np.full(50, 0.3), np.array([0.0, 1.0] * 9)])
def test_too_few_levels_say_nothing(readings: FloatArray) -> None:
    assert quantum(readings) == 0.0


def noise_of(readings: FloatArray, left_over: FloatArray | float = 0.0) -> SensorNoise:
    """The sensor of one joint whose twin leaves this over beside the sensor's own error."""
    model = build_model(level_joint(), declare(), {"hinge"}, {"position", "command_position"})
    recording = log("log", T, position=readings, command_position=MOTION)
    parts: list[Stretch] = stretches(model, read_commands(model, recording), 0.0, 30.0)
    return sensor_noise(parts, [(MOTION + left_over - readings)[:, None]], 0)


def test_white_noise_is_found_whatever_slow_error_the_twin_has() -> None:
    for left_over in (0.0, 5e-3 * np.sin(2.0 * T)):
        found = noise_of(MOTION + 2e-4 * NOISE, left_over)
        assert found.noise_sd == pytest.approx(2e-4, rel=0.08)
        assert (found.quantum, found.drop_rate) == (0.0, 0.0)
        assert found.outlier_rate is not None
        assert found.outlier_rate < 1e-3


def test_outliers_are_counted_and_do_not_widen_the_noise() -> None:
    readings = MOTION + 2e-4 * NOISE
    readings[50::100] += 0.05
    found = noise_of(readings)
    assert found.noise_sd == pytest.approx(2e-4, rel=0.12)
    assert found.outlier_rate == pytest.approx(0.03, abs=0.01)  # each shows in three second differences


def test_missing_readings_are_counted() -> None:
    readings = MOTION + 2e-4 * NOISE
    readings[DRAW.random(len(T)) < 0.1] = np.nan
    found = noise_of(readings)
    assert found.drop_rate == pytest.approx(0.1, abs=0.02)
    assert found.noise_sd == pytest.approx(2e-4, rel=0.12)


def test_noise_that_rounding_hides_is_unknown_and_not_zero() -> None:
    found = noise_of(rounded(np.repeat(MOTION[::10], 10), TICK), left_over=np.repeat(MOTION[::10], 10) - MOTION)
    assert found.quantum == pytest.approx(TICK, rel=1e-2)
    assert found.noise_sd is None
    assert found.outlier_rate is None
