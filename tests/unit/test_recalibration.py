"""When a drifted robot is calibrated again: the policy's fields, what counts as new data, how long it rests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from app.calibration.request import DEFAULT_BUDGET_S, MAX_BUDGET_S
from app.monitor.attempts import LONGEST_BACK_OFF_S, Attempt, rest_until
from app.monitor.episode import continued, grown, lack, request_for, words
from app.monitor.score import WindowScore
from app.monitor.state import Standing
from app.registry.recalibration_policy import RecalibrationPolicy
from app.registry.recalibrations import Episode, NewData

S = 10**9
START_NS = 1_780_000_000 * S
START = datetime.fromtimestamp(1_780_000_000, tz=UTC)
HOUR_S = 3600.0


def scored(after_s: float, moving_s: float = 2.0, score: float | None = 3.4) -> WindowScore:
    joint = None if score is None else "elbow"
    worst = None if score is None else score * 1.5
    return WindowScore(START_NS + round(after_s * S), score, worst, joint, {}, moving_s, 1)


def attempt(outcome: Any, ended_s: float) -> Attempt:
    return Attempt(UUID(int=round(ended_s)), outcome, START + timedelta(seconds=ended_s))


def drifted() -> Standing:
    return Standing("drifted", START, {})


# --- the policy -------------------------------------------------------------------------------------------------------


def test_an_empty_policy_proposes() -> None:
    policy = RecalibrationPolicy()
    assert (policy.mode, policy.cooldown_s, policy.min_moving_s, policy.window_s) == ("propose", 3600, 120, 3600)
    assert policy.budget_s == DEFAULT_BUDGET_S
    assert policy.max_in_flight == 4


def test_a_policys_budget_may_be_what_a_calibrations_may() -> None:
    assert RecalibrationPolicy(budget_s=MAX_BUDGET_S).budget_s == MAX_BUDGET_S


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"mode": "sometimes"}, "mode", "'never', 'propose' or 'automatic'"),
        ({"cooldown_s": -1}, "cooldown_s", "greater than or equal to 0"),
        ({"cooldown_s": 40 * 86400}, "cooldown_s", "less than or equal to 2592000"),
        ({"min_moving_s": 1}, "min_moving_s", "greater than or equal to 10"),
        ({"window_s": float("nan")}, "window_s", "finite"),
        ({"budget_s": 0}, "budget_s", "greater than 0"),
        ({"max_in_flight": 0}, "max_in_flight", "greater than or equal to 1"),
        ({"max_in_flight": 2.5}, "max_in_flight", "integer"),
        ({"min_moving_s": 7200}, "window_s", "3600 s can't hold min_moving_s, 7200 s"),
        ({"min_moving_s": 60, "window_s": 30}, "window_s", "30 s can't hold min_moving_s, 60 s"),
        ({"cool_down_s": 60}, "cool_down_s", "Extra inputs are not permitted"),
    ],
)
def test_a_policy_that_cannot_be_names_the_field(body: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RecalibrationPolicy.model_validate(body)
    (error,) = refused.value.errors()
    assert error["loc"] == (field,)
    assert words in error["msg"]


# --- new data ---------------------------------------------------------------------------------------------------------


def test_data_up_to_the_score_that_told_the_drift_are_not_new() -> None:
    data = grown(None, scored(10, moving_s=10), HOUR_S)
    assert data == NewData(START_NS + 10 * S, START_NS + 10 * S)
    assert data.moving_s == 0.0


def test_new_data_begin_there_and_grow_by_what_moved() -> None:
    data: NewData | None = None
    for after_s, moving_s in ((10, 10), (12, 2), (14, 0), (200, 2), (202, 2)):
        data = grown(data, scored(after_s, moving_s), HOUR_S)
    assert data is not None
    assert (data.from_ns, data.to_ns, data.moving_s) == (START_NS + 10 * S, START_NS + 202 * S, 6.0)


def test_a_score_looked_at_twice_counts_once() -> None:
    data = grown(grown(grown(None, scored(0), HOUR_S), scored(2), HOUR_S), scored(2), HOUR_S)
    assert data.moving_s == 2.0


def test_data_older_than_the_window_no_longer_count() -> None:
    data = grown(None, scored(0), 600.0)
    for after_s in range(2, 1202, 2):
        data = grown(data, scored(after_s), 600.0)
        assert len(data.moved) <= 61
    assert data.from_ns == START_NS + 600 * S
    assert data.moving_s == pytest.approx(600.0, abs=10.0)


def test_a_robot_that_moves_ten_seconds_an_hour_never_fills_an_hours_window() -> None:
    data = grown(None, scored(0), HOUR_S)
    for hour in range(1, 30):
        data = grown(data, scored(3600.0 * hour + 10, moving_s=10.0), HOUR_S)
    assert data.moving_s == 10.0


def test_a_clock_that_went_back_begins_anew() -> None:
    data = grown(grown(None, scored(0), HOUR_S), scored(50, moving_s=50), HOUR_S)
    again = grown(data, scored(-1000), HOUR_S)
    assert again == NewData(START_NS - 1000 * S, START_NS - 1000 * S)


def test_without_a_score_nothing_is_known_of_a_drift() -> None:
    assert continued(None, drifted(), None, HOUR_S, 3) is None


def test_the_reason_says_how_far_where_since_when_and_from_how_much() -> None:
    episode = continued(None, drifted(), scored(0), HOUR_S, 3)
    episode = continued(episode, drifted(), scored(75, moving_s=75, score=None), HOUR_S, 3)
    assert episode is not None
    assert words(episode) == (
        "drift score 3.4, worst joint elbow (5.1), since 2026-05-28 20:26:40 UTC; 75 s of new moving data"
    )


def test_too_little_new_data_is_said_in_seconds() -> None:
    episode = Episode(3, START, "", NewData(0, 1, ((1, 34.0),)))
    assert lack(episode, RecalibrationPolicy()) == "34 s of new moving data, 120 s needed"
    assert lack(episode, RecalibrationPolicy(min_moving_s=34)) == ""


def test_the_calibration_is_on_new_data_alone_and_goes_through_the_gate() -> None:
    episode = Episode(3, START, "", NewData(START_NS + 10 * S, START_NS + 99 * S))
    request = request_for(episode, RecalibrationPolicy(budget_s=60))
    assert request.window is not None
    assert request.window.from_ == START + timedelta(seconds=10)
    assert request.window.to == START + timedelta(seconds=99)
    assert (request.activate, request.budget_s) == ("if_better", 60)


# --- rest -------------------------------------------------------------------------------------------------------------


def test_a_robot_never_calibrated_has_nothing_to_rest_from() -> None:
    assert rest_until([], 600.0) is None


@pytest.mark.parametrize(
    ("outcomes", "cooldown_s", "rest_s"),
    [
        (["succeeded"], 600.0, 600.0),
        (["succeeded", "failed", "failed"], 600.0, 600.0),
        (["rejected", "succeeded"], 600.0, 1200.0),
        (["failed", "rejected", "cancelled", "succeeded", "failed"], 600.0, 4800.0),
        (["rejected"], 600.0, 1200.0),
        (["failed"] * 12, 600.0, LONGEST_BACK_OFF_S),
        (["failed"], 7 * 86400.0, 7 * 86400.0),
        (["succeeded"], 0.0, 0.0),
        (["failed"], 0.0, 120.0),
    ],
)
def test_the_rest_doubles_with_each_calibration_that_came_to_nothing(
    outcomes: list[str], cooldown_s: float, rest_s: float
) -> None:
    attempts = [attempt(outcome, 1000.0 - i) for i, outcome in enumerate(outcomes)]
    assert rest_until(attempts, cooldown_s) == START + timedelta(seconds=1000.0 + rest_s)
