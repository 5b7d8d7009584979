"""Scores of windows: a worn joint is seen on that joint, other work is not, and what can't be judged isn't."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.errors import FitImpossibleError, LogError
from app.monitor.baseline import prepare
from app.monitor.score import score_recording
from app.telemetry import Channel, FloatArray, Recording
from app.twin.document import Covariance
from tests.drifting import BASELINE_RAD, NOISE_RAD, declaration, twin, watched, work
from tests.physics import two_link
from tests.planted import follow

S = 10**9


def with_channels(recording: Recording, **channels: FloatArray) -> Recording:
    known: dict[Channel, FloatArray] = {**recording.channels, **channels}  # type: ignore[dict-item] # names of channels
    return replace(recording, channels=known)


def rows(recording: Recording, keep: Any) -> Recording:
    t_ns = recording.t_ns[keep]
    return replace(
        recording,
        origin_ns=recording.origin_ns + int(t_ns[0]),
        t_ns=t_ns - t_ns[0],
        channels={name: values[keep] for name, values in recording.channels.items()},
    )


def seconds(recording: Recording) -> FloatArray:
    return np.asarray(recording.t_ns * 1e-9)


@pytest.mark.parametrize(("speed", "amplitude"), [(1.0, 0.6), (2.0, 0.6), (0.3, 0.6), (1.0, 1.5), (1.0, 0.1)])
def test_a_healthy_robot_scores_about_one_whatever_it_does(speed: float, amplitude: float) -> None:
    score = score_recording(watched(), work(20.0, speed=speed, amplitude=amplitude), None)
    assert score.windows == 9
    assert score.moving_s == 18.0
    for ratio in score.per_joint.values():
        assert 0.7 < ratio < 1.2  # the noise is 0.83 of the baseline


@pytest.mark.parametrize(("joint", "other"), [("shoulder", "elbow"), ("elbow", "shoulder")])
@pytest.mark.parametrize("speed", [0.3, 1.0, 2.0])
def test_a_joint_with_a_third_more_friction_is_seen_on_that_joint(joint: str, other: str, speed: float) -> None:
    worn = work(20.0, speed=speed, shoulder=1.3) if joint == "shoulder" else work(20.0, speed=speed, elbow=1.3)
    score = score_recording(watched(), worn, None)
    assert score.worst_joint == joint
    assert score.worst_score == score.per_joint[joint]
    assert score.worst_score > 4.0
    assert score.per_joint[other] < 2.0
    assert all(step[joint] > 4.0 for step in score.steps)


def test_the_score_is_rms_over_baseline_and_their_root_mean_square_over_the_joints() -> None:
    recording = work(20.0, elbow=1.3)
    score = score_recording(watched(), recording, None)
    finer = prepare(twin({"shoulder": BASELINE_RAD, "elbow": BASELINE_RAD / 2}), declaration(), two_link())
    halved = score_recording(finer, recording, None)
    assert halved.per_joint["elbow"] == pytest.approx(2.0 * score.per_joint["elbow"], rel=1e-9)
    assert halved.per_joint["shoulder"] == score.per_joint["shoulder"]
    ratios = list(halved.per_joint.values())
    assert halved.score == pytest.approx(math.sqrt(sum(r * r for r in ratios) / 2))


def test_the_same_windows_give_the_same_score_in_one_look_or_many() -> None:
    recording = work(20.0, elbow=1.3)
    whole = score_recording(watched(), recording, None)
    steps, after_ns = [], None
    for end_s in (5.0, 10.0, 15.0, 20.0):
        begin_s = 0.0 if after_ns is None else after_ns * 1e-9 - 0.6
        part = rows(recording, (seconds(recording) >= begin_s) & (seconds(recording) < end_s))
        score = score_recording(watched(), part, after_ns)
        assert after_ns is None or score.stamp_ns >= after_ns
        after_ns = score.stamp_ns
        steps += list(score.steps)
    assert after_ns == whole.stamp_ns
    assert len(steps) == len(whole.steps)
    for one, other in zip(steps, whole.steps, strict=True):
        assert one == pytest.approx(dict(other), rel=1e-6)


def test_only_windows_that_are_new_are_scored() -> None:
    recording = work(20.0)
    score = score_recording(watched(), recording, 15 * S)
    assert (score.windows, score.stamp_ns) == (2, 19 * S)
    nothing = score_recording(watched(), recording, 19 * S)
    assert (nothing.windows, nothing.stamp_ns, nothing.score) == (0, 19 * S, None)


def test_a_robot_that_rests_has_no_score() -> None:
    still = work(20.0, amplitude=0.0)
    score = score_recording(watched(), rows(still, seconds(still) > 3.0), None)  # it sags at first
    assert (score.score, score.worst_score, score.worst_joint, dict(score.per_joint)) == (None, None, None, {})
    assert (score.windows, score.moving_s, score.steps) == (0, 0.0, ())
    assert score.stamp_ns > 18 * S  # it was looked at all the same


def test_a_joint_that_rests_says_nothing_while_the_other_moves() -> None:
    recording = work(20.0)
    position, target = (recording.channels[c].copy() for c in ("position", "command_position"))
    column = recording.names.index("elbow")
    position[:, column] = position[0, column]
    target[:, column] = position[0, column] + 0.05  # held back by friction alone
    stuck = with_channels(recording, position=position, command_position=target)
    assert "elbow" in score_recording(watched(), recording, None).per_joint
    score = score_recording(watched(), stuck, None)
    assert "shoulder" in score.per_joint


def test_a_joint_that_is_told_to_move_and_does_not_is_seen() -> None:
    recording = work(20.0)
    position = recording.channels["position"].copy()
    column = recording.names.index("elbow")
    position[:, column] = position[0, column]
    score = score_recording(watched(), with_channels(recording, position=position), None)
    assert score.worst_joint == "elbow"
    assert score.worst_score is not None
    assert score.worst_score > 100.0


def test_joints_in_another_order_and_joints_it_does_not_know_make_no_difference() -> None:
    recording = work(20.0, elbow=1.3)
    turned = replace(
        recording,
        names=("a_gripper", *reversed(recording.names)),
        channels={
            name: np.column_stack([np.full(len(recording), 0.3), values[:, ::-1]])
            for name, values in recording.channels.items()
        },
    )
    assert score_recording(watched(), turned, None) == score_recording(watched(), recording, None)


def test_raw_telemetry_goes_through_the_joint_map() -> None:
    mapped = declaration(joints={"elbow": {"source": "Elbow", "unit": "deg", "sign": -1}})
    recording = work(20.0)
    factor = np.where(np.array(recording.names) == "elbow", -math.degrees(1.0), 1.0)
    raw = replace(
        recording,
        names=tuple("Elbow" if name == "elbow" else name for name in recording.names),
        channels={name: values * factor for name, values in recording.channels.items()},
    )
    score = score_recording(prepare(twin(), mapped, two_link()), raw, None)
    assert dict(score.per_joint) == pytest.approx(dict(score_recording(watched(), recording, None).per_joint), rel=1e-6)


def test_positions_missing_here_and_there_change_little() -> None:
    recording = work(20.0)
    position = recording.channels["position"].copy()
    position[np.random.default_rng(5).random(position.shape) < 0.3] = np.nan
    score = score_recording(watched(), with_channels(recording, position=position), None)
    assert score.windows == 9
    assert max(score.per_joint.values()) < 1.3


def test_no_window_reaches_across_a_gap() -> None:
    recording = work(21.0)
    t_s = seconds(recording)
    score = score_recording(watched(), rows(recording, (t_s < 7.0) | (t_s >= 14.0)), None)
    assert score.windows == 6
    assert max(score.per_joint.values()) < 1.2


def test_what_moves_long_after_its_last_command_is_not_judged() -> None:
    recording = work(20.0)
    target = recording.channels["command_position"].copy()
    target[seconds(recording) >= 8.1] = np.nan
    score = score_recording(watched(), with_channels(recording, command_position=target), None)
    assert score.windows == 4
    assert max(score.per_joint.values()) < 1.2


def stepping(recording: Recording) -> Recording:
    """The same arm moved by steps of its commands once a second, each sent once."""
    t_s = seconds(recording)
    model = watched().model
    targets = 0.2 * np.round(recording.channels["command_position"][(t_s // 1.0 * 100).astype(int)] / 0.2)
    order = [recording.names.index(name) for name in model.joints]
    followed = follow(model, watched().values, targets[:, order], rate_hz=100.0, noise_sd=NOISE_RAD)
    sent = np.concatenate([np.ones((1, 2), dtype=bool), np.diff(targets, axis=0) != 0.0])
    return with_channels(followed, command_position=np.where(sent, followed.channels["command_position"], np.nan))


def test_a_robot_that_sends_commands_only_when_they_change_is_judged() -> None:
    recording = stepping(work(20.0))
    sent = ~np.isnan(recording.channels["command_position"])
    assert 5 < sent.any(axis=1).sum() < 30
    score = score_recording(watched(), recording, None)
    assert score.windows == 9
    assert max(score.per_joint.values()) < 1.3


def test_a_joint_is_not_judged_before_it_is_known_what_it_was_told() -> None:
    recording = work(20.0)
    target = recording.channels["command_position"].copy()
    column = recording.names.index("elbow")
    target[:, column] = np.nan
    never = score_recording(watched(), with_channels(recording, command_position=target), None)
    assert "elbow" not in never.per_joint
    later = recording.channels["command_position"].copy()
    later[seconds(recording) < 9.0, column] = np.nan
    score = score_recording(watched(), with_channels(recording, command_position=later), None)
    assert len([step for step in score.steps if "elbow" in step]) == 4
    assert score.per_joint["elbow"] < 1.3


def test_a_disabled_robot_is_not_judged() -> None:
    recording = work(20.0)
    enabled = np.ones_like(recording.channels["position"])
    enabled[seconds(recording) > 10.0, 0] = 0.0
    score = score_recording(watched(), with_channels(recording, command_enabled=enabled), None)
    assert score.windows == 4


def test_telemetry_without_a_joint_of_the_twin_is_an_error_in_words() -> None:
    recording = work(5.0)
    position = recording.channels["position"].copy()
    position[:, recording.names.index("elbow")] = np.nan
    with pytest.raises(FitImpossibleError, match="no position of elbow is measured, which version 3 moves"):
        score_recording(watched(), with_channels(recording, position=position), None)


def test_telemetry_without_commands_is_an_error_in_words() -> None:
    recording = work(5.0)
    channels: dict[Channel, FloatArray] = {"position": recording.channels["position"]}
    with pytest.raises(FitImpossibleError, match="command_position is missing, which a pd controller follows"):
        score_recording(watched(), replace(recording, channels=channels), None)


def test_telemetry_of_other_joints_is_an_error_in_words() -> None:
    with pytest.raises(LogError, match="none of its joints is the description's"):
        score_recording(watched(), replace(work(5.0), names=("a", "b")), None)


def test_a_recording_shorter_than_a_window_has_no_score_yet() -> None:
    score = score_recording(watched(), work(1.0), None)
    assert (score.windows, score.score) == (0, None)


def test_a_twin_that_runs_away_gives_a_finite_score() -> None:
    pushing = [name == "joint/elbow/kp_nm_per_rad" for name in watched().model.names]
    mad = replace(watched(), values=np.where(pushing, -1e5, watched().values))
    score = score_recording(mad, work(5.0), None)
    assert score.worst_score is not None
    assert math.isfinite(score.worst_score)
    assert score.worst_score > 1e3
    assert min(step["elbow"] for step in score.steps) > 1e3


def test_of_many_unusual_windows_a_few_stand_for_all() -> None:
    name = "joint/elbow/coulomb_friction_nm"
    unsure = twin().model_copy(
        update={"covariance": Covariance(names=(name,), transform={name: "linear"}, matrix=((0.01**2,),))}
    )
    ready, recording = prepare(unsure, declaration(), two_link()), work(20.0, elbow=1.3)
    few = [step["elbow"] for step in score_recording(ready, recording, None).steps]
    begun = score_recording(ready, rows(recording, seconds(recording) < 10.2), None)
    halves = [begun, score_recording(ready, recording, begun.stamp_ns)]
    assert [half.windows for half in halves] == [5, 4]
    every = [step["elbow"] for half in halves for step in half.steps]
    assert few[::2] == pytest.approx(every[::2], rel=1e-9)
    assert all(judged <= closely for judged, closely in zip(few[1::2], every[1::2], strict=True))
    assert min(few) > 2.0
