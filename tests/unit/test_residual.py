"""How much the data may say: outliers count less, repeats count once, and what a model leaves over is no evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.calibration.dataset import Stretch, stretches
from app.calibration.recording import read_commands
from app.calibration.residual import (
    BLOCKS,
    HUBER,
    Noise,
    Residuals,
    block_starts,
    count_as_one,
    estimate_noise,
    misfit,
    residuals,
    weights,
)
from app.telemetry import FloatArray, IntArray
from app.twin.model import TwinModel, build_model
from tests.planted import declare, follow, level_joint, log, swings

FREE = 4


def found(error: FloatArray, seen: Any = True) -> Residuals:
    """Residuals of one parameter set and one joint."""
    column = error.reshape(1, -1, 1)
    present = np.zeros((len(error), 1), bool)
    present[:, 0] = seen
    return Residuals(column * present, present, (0, len(error)), np.zeros(1, bool))


def smooth_jacobian(samples: int, seed: int, repeat: int = 1) -> FloatArray:
    """Sensitivities as a robot's are: sums of sines of the motion, strong enough that the prior doesn't matter."""
    t = np.arange(samples // repeat)
    draw = np.random.default_rng([seed, 1])
    waves = [np.sin(t * draw.uniform(0.01, 0.3) + draw.uniform(0.0, 6.0)) for _ in range(FREE)]
    return np.repeat(10.0 * np.stack(waves, axis=1), repeat, axis=0)


def blocks_of(samples: int, count: int = BLOCKS) -> IntArray:
    return np.linspace(0, samples, count + 1).astype(np.int64)[:-1]


def kappa_of(error: FloatArray, jacobian: FloatArray, count: int = BLOCKS) -> float:
    noise = estimate_noise(found(error), 0, np.full(1, 1e-9))
    return float(count_as_one(found(error), jacobian, noise, blocks_of(len(error), count))[0])


def mean_kappa(repeat: int) -> float:
    draws = [
        kappa_of(
            np.repeat(np.random.default_rng(seed).standard_normal(4000), repeat),
            smooth_jacobian(4000 * repeat, seed, repeat),
        )
        for seed in range(20)
    ]
    return float(np.mean(draws))


def test_independent_samples_count_as_themselves() -> None:
    assert mean_kappa(1) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("repeat", [5, 20])
def test_samples_that_repeat_each_other_count_once(repeat: int) -> None:
    assert mean_kappa(repeat) == pytest.approx(repeat, rel=0.25)


def test_what_a_wrong_model_leaves_over_counts_as_little_however_fast_it_is_sampled() -> None:
    evidence = []
    for samples in (2000, 8000):
        t = np.linspace(0.0, 40.0, samples)
        left_over = 3e-3 * np.sign(np.sin(2.1 * t)) * np.cos(0.31 * t)
        waves = [np.sin(t * speed) for speed in (0.4, 0.9, 2.1, 3.3)]
        noisy = left_over + 1e-4 * np.random.default_rng(0).standard_normal(samples)
        evidence.append(samples / kappa_of(noisy, 10.0 * np.stack(waves, axis=1)))
    assert evidence[0] < 200
    assert evidence[1] == pytest.approx(evidence[0], rel=0.1)


def test_each_joint_is_tempered_by_its_own_residual() -> None:
    draw = np.random.default_rng(3)
    error = np.stack([draw.standard_normal(4000), np.repeat(draw.standard_normal(400), 10)], axis=1)
    jacobian = np.stack([smooth_jacobian(4000, 1), smooth_jacobian(4000, 2, 10)], axis=1).reshape(-1, FREE)
    both = Residuals(error[None], np.ones((4000, 2), bool), (0, 4000), np.zeros(1, bool))
    kappa = count_as_one(both, jacobian, estimate_noise(both, 0, np.full(2, 1e-9)), blocks_of(4000))
    assert kappa[0] < 2.0
    assert 6.0 < kappa[1] < 16.0


# --- noise and loss ---------------------------------------------------------------------------------------------------


def test_outliers_do_not_widen_what_they_are_measured_by() -> None:
    error = 1e-3 * np.random.default_rng(0).standard_normal(5000)
    error[::50] += 0.5
    sd = float(estimate_noise(found(error), 0, np.full(1, 1e-6)).sd[0])
    assert sd == pytest.approx(1e-3, rel=0.15)


def test_no_residual_is_believed_finer_than_its_sensor() -> None:
    assert estimate_noise(found(np.zeros(100)), 0, np.full(1, 2e-4)).sd.tolist() == [2e-4]


def test_the_loss_is_quadratic_within_and_linear_beyond_its_bend() -> None:
    noise = Noise(np.array([2.0]), np.array([1.0]))

    def loss(sigmas: float) -> float:
        return float(misfit(found(np.array([2.0 * sigmas])), noise)[0])

    assert loss(1.0) == pytest.approx(0.5)
    assert loss(HUBER) == pytest.approx(0.5 * HUBER**2)
    assert loss(11.0) - loss(10.0) == pytest.approx(HUBER)


def test_the_loss_counts_samples_that_repeat_each_other_once() -> None:
    error = found(np.full(30, 1.0))
    assert misfit(error, Noise(np.ones(1), np.full(1, 3.0)))[0] == pytest.approx(0.5 * 30 / 3)
    assert weights(error, 0, Noise(np.full(1, 2.0), np.full(1, 3.0)))[:, 0] == pytest.approx(np.full(30, 1 / 12))


def test_a_missing_value_has_no_residual() -> None:
    seen = np.arange(100) % 4 > 0
    error = np.where(seen, 1e-3 * np.random.default_rng(0).standard_normal(100), 7.0)
    thinned, whole = found(error, seen), found(error[seen])
    floor = np.full(1, 1e-6)
    noise = estimate_noise(whole, 0, floor)
    assert estimate_noise(thinned, 0, floor).sd == pytest.approx(noise.sd)
    assert misfit(thinned, noise) == pytest.approx(misfit(whole, noise))
    assert not weights(thinned, 0, noise)[~seen].any()


# --- simulated against measured ---------------------------------------------------------------------------------------


def planted(*, missing: bool = False) -> tuple[TwinModel, list[Stretch], FloatArray]:
    model = build_model(level_joint(), declare(), {"hinge"}, {"position", "command_position"})
    truth = model.values({"joint/hinge/coulomb_friction_nm": 0.3})
    recording = follow(model, truth, swings(np.arange(300) / 100.0, 1))
    if missing:
        position = recording.channels["position"].copy()
        position[40:48] = np.nan
        asked = recording.channels["command_position"]
        recording = log("log", np.arange(300) / 100.0, position=position, command_position=asked)
    return model, stretches(model, read_commands(model, recording), 0.0, 3.0), truth


def test_the_truth_leaves_nothing_over_and_another_set_does() -> None:
    model, parts, truth = planted()
    error = residuals(model, parts, np.stack([truth, model.initial()])).error
    assert np.abs(error[0, 100:]).max() < 1e-6  # the smoothed start, in mid-motion, is not quite the true one
    assert np.abs(error[1, 100:]).max() > 1e-3


def test_a_missing_sample_leaves_a_zero_that_is_not_seen() -> None:
    model, parts, truth = planted(missing=True)
    result = residuals(model, parts, truth[None])
    assert not result.error[0, 40:48].any()
    assert result.seen[:, 0].sum() == 292


def test_a_rollout_that_runs_away_is_worse_than_any_and_still_a_number() -> None:
    model = build_model(level_joint(), declare({"kind": "torque"}), {"hinge"}, {"position", "command_effort"})
    t = np.arange(301) / 100.0
    recording = log("log", t, position=0.0 * t, command_effort=np.full(301, 5.0))
    parts = stretches(model, read_commands(model, recording), 0.0, 3.0, window_s=3.0)
    held = {"joint/hinge/coulomb_friction_nm": 6.0}
    result = residuals(model, parts, np.stack([model.initial(), model.values(held)]))
    assert result.diverged.tolist() == [True, False]
    assert np.isfinite(result.error).all()
    assert np.abs(result.error[0, -1, 0]) == 10.0


# --- blocks -----------------------------------------------------------------------------------------------------------


def parts_of(*lengths_s: float) -> list[Stretch]:
    model = build_model(level_joint(), declare(), {"hinge"}, {"position", "command_position"})
    parts = []
    for length in lengths_s:
        t = np.arange(round(100 * length)) / 100.0
        recording = log("log", t, position=t, command_position=t)
        parts += stretches(model, read_commands(model, recording), 0.0, length)
    return parts


def test_a_long_log_has_some_forty_blocks_and_a_medium_one_blocks_of_three_seconds() -> None:
    assert len(block_starts(parts_of(400.0))) == BLOCKS
    starts = block_starts(parts_of(60.0))
    assert np.diff(starts).tolist() == pytest.approx([300] * 19, abs=2)


def test_short_windows_share_blocks_and_long_stretches_begin_their_own() -> None:
    starts = block_starts(parts_of(*[1.0] * 30, 30.0))
    windows = starts[starts < 3000]
    assert (windows % 100 == 0).all()
    assert set(np.diff(windows)) <= {300, 400}
    assert 3000 in starts


def test_short_data_still_have_blocks_enough_to_tell_repeats() -> None:
    assert len(block_starts(parts_of(3.0))) == 10
    assert len(block_starts(parts_of(*[1.0] * 8))) >= 8
