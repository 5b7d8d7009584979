"""The gate lets a twin pass only if it is better than what it would replace, by more than chance gives."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.signal import lfilter

from app.calibration.acceptance import gate
from app.telemetry import FloatArray

SAMPLE_S = 0.01


def errors(scale: float, seconds: float = 40.0, seed: int = 0, joints: int = 2) -> FloatArray:
    """What a model leaves over: slow, so that its samples repeat each other, of about this size [rad]."""
    t = np.arange(round(seconds / SAMPLE_S)) * SAMPLE_S
    draw = np.random.default_rng(seed)
    waves = sum(
        np.sin(draw.uniform(0.5, 6.0) * t[:, None] + draw.uniform(0.0, 6.0, joints)) for _ in range(8)
    ) / np.sqrt(4.0)
    return np.asarray(scale * waves, dtype=np.float64)


def judged(found: FloatArray, **references: FloatArray) -> tuple[bool, str]:
    answer = gate([found], {name: [error] for name, error in references.items()}, SAMPLE_S, seed=0)
    return answer.accepted, answer.reason


def test_a_clearly_better_twin_passes_and_says_by_how_much() -> None:
    accepted, reason = judged(errors(1e-3), nominal=errors(1e-2, seed=1))
    assert accepted
    match = re.fullmatch(
        r"beats nominal: error ([\d.]+) % lower, at least ([\d.]+) % lower with 95 % confidence", reason
    )
    assert match is not None
    assert float(match[1]) == pytest.approx(90.0, abs=3.0)
    assert 80.0 < float(match[2]) < float(match[1])


def test_the_same_twin_does_not_pass() -> None:
    accepted, reason = judged(errors(1e-3), nominal=errors(1e-3))
    assert not accepted
    assert reason.startswith("does not clearly beat nominal: error 0.0 % lower")


def test_a_worse_twin_does_not_pass_and_says_so() -> None:
    accepted, reason = judged(errors(2e-3), nominal=errors(1e-3, seed=1))
    assert not accepted
    assert "% higher" in reason


def test_a_gain_that_chance_could_give_does_not_pass() -> None:
    accepted, reason = judged(errors(0.97e-3, seed=3), nominal=errors(1e-3, seed=4))
    assert not accepted
    assert re.search(r"at least [\d.]+ % higher", reason)


def test_both_references_must_be_beaten() -> None:
    found, nominal = errors(1e-3), errors(1e-2, seed=1)
    better, same = errors(0.5e-3, seed=2), errors(1e-3)
    assert judged(found, nominal=nominal, **{"version 3": errors(3e-3, seed=2)})[0]
    for active in (better, same):
        accepted, reason = judged(found, nominal=nominal, **{"version 3": active})
        assert not accepted
        assert reason.startswith("beats nominal")
        assert "does not clearly beat version 3" in reason


def test_twins_that_fail_in_the_same_places_are_told_apart_by_little() -> None:
    # the same blocks for both: what is hard for both cancels
    found = errors(1e-3)
    assert judged(found, active=1.02 * found)[0]


def noise(seconds: float, lasting_s: float, seed: int) -> FloatArray:
    """Random errors of two joints that repeat themselves for about so long [rad]."""
    fresh = np.random.default_rng(seed).standard_normal((round(seconds / SAMPLE_S) + 1000, 2))
    if lasting_s == 0.0:
        return np.asarray(1e-3 * fresh[1000:], dtype=np.float64)
    keep = math.exp(-SAMPLE_S / lasting_s)
    return np.asarray(1e-3 * lfilter([math.sqrt(1.0 - keep**2)], [1.0, -keep], fresh, axis=0)[1000:])


@pytest.mark.parametrize("seconds", [3.0, 15.0, 40.0])
@pytest.mark.parametrize("kind", ["white", "repeating", "waves"])
def test_one_in_twenty_equal_twins_passes(kind: str, seconds: float) -> None:
    def one(seed: int) -> FloatArray:
        if kind == "waves":
            return errors(1e-3, seconds, seed)
        return noise(seconds, {"white": 0.0, "repeating": 0.3}[kind], seed)

    passed = sum(judged(one(2 * i), nominal=one(2 * i + 1))[0] for i in range(150))
    # 5 % of 150 is 7.5, one standard deviation 2.7; a percentile interval passes 8 to 17 %
    assert passed <= 13


def test_a_hold_out_of_a_second_or_two_is_no_certainty() -> None:
    passed = [judged(errors(1e-3, 1.5, 2 * i), nominal=errors(1e-3, 1.5, 2 * i + 1))[0] for i in range(150)]
    assert sum(passed) <= 16
    assert judged(errors(1e-3, 1.5), nominal=errors(1e-2, 1.5, 1))[0]


def test_a_twin_a_fifth_better_is_seen_to_be_so_on_a_hold_out_of_a_minute() -> None:
    passed = [judged(0.8 * noise(60.0, 0.2, 2 * i), nominal=noise(60.0, 0.2, 2 * i + 1))[0] for i in range(50)]
    assert sum(passed) >= 45


def test_a_twin_that_is_far_better_throughout_passes_on_less_than_a_second() -> None:
    for seed in range(20):
        better = np.linspace(20.0, 40.0, 75)[:, None]
        assert judged(errors(1e-3, 0.75, seed), nominal=better * errors(1e-3, 0.75, seed))[0]


def test_a_single_sample_lets_nothing_pass() -> None:
    assert not judged(errors(1e-3)[:1], nominal=errors(1e-1, seed=1)[:1])[0]


def test_the_gain_is_of_the_plain_mean_over_joints() -> None:
    # half of the joints ten times better, half of them a little worse: better on the mean of joints
    found, nominal = errors(1e-3), errors(1e-3, seed=1)
    found[:, 0] /= 10.0
    assert judged(found, nominal=nominal)[0]


def test_samples_that_were_not_measured_count_for_neither() -> None:
    found, nominal = errors(1e-3), errors(1e-2, seed=1)
    for error in (found, nominal):
        error[500:1500, 1] = np.nan
        error[::3, 0] = np.nan
    assert judged(found, nominal=nominal)[0]
    assert not judged(nominal, nominal=nominal)[0]


def test_the_answer_depends_on_the_seed_alone() -> None:
    found, nominal = errors(0.97e-3, seed=3), errors(1e-3, seed=4)
    first, again = (gate([found], {"nominal": [nominal]}, SAMPLE_S, seed=5) for _ in range(2))
    assert first == again
