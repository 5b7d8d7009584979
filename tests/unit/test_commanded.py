"""Commands are held, measurements are never made up, and a gap is a gap."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.recording import Commanded, read_commands
from app.errors import FitImpossibleError
from app.telemetry import CHANNELS, Recording
from app.twin.actuator import ENABLED, FEED_FORWARD, KD_SCALE, KP_SCALE, LIMIT_SCALE, TARGET, TARGET_VELOCITY
from app.twin.model import TwinModel, build_model
from tests.physics import two_link
from tests.planted import declare, level_joint, log

NAN = float("nan")
T = np.arange(20) / 100.0


def model_of(recording: Recording, **controller: object) -> TwinModel:
    description = level_joint() if recording.names == ("hinge",) else two_link()
    declaration = declare(controller or None)
    return build_model(description, declaration, set(recording.names), set(recording.channels))


def read(recording: Recording, **controller: object) -> Commanded:
    return read_commands(model_of(recording, **controller), recording)


def test_a_command_is_held_over_missing_cells_and_the_first_one_holds_before() -> None:
    asked = np.full(20, NAN)
    asked[[3, 9]] = 0.3, 0.9
    found = read(log("log", T, position=T, command_position=asked))
    assert found.command[:, 0, TARGET].tolist() == [0.3] * 9 + [0.9] * 11


def test_a_joint_that_was_never_asked_anything_stays_where_it_was_first_seen() -> None:
    position = np.column_stack([np.full(20, 0.2), T])
    position[0, 0] = NAN
    asked = np.column_stack([np.full(20, NAN), T])
    found = read(log("log", T, ("shoulder", "elbow"), position=position, command_position=asked))
    assert set(found.command[:, 0, TARGET]) == {0.2}
    np.testing.assert_array_equal(found.command[:, 1, TARGET], T)


def test_what_is_not_commanded_is_nothing_and_full_gains_and_an_enabled_motor() -> None:
    found = read(log("log", T, position=T, command_position=T))
    row = found.command[7, 0]
    assert [row[TARGET_VELOCITY], row[FEED_FORWARD]] == [0.0, 0.0]
    assert [row[KP_SCALE], row[KD_SCALE], row[ENABLED], row[LIMIT_SCALE]] == [1.0, 1.0, 1.0, 1.0]


def test_logged_gains_speeds_torques_and_enabling_reach_the_actuator_held() -> None:
    every_fifth = np.where(np.arange(20) % 5 == 0, 1.0, NAN)
    channels = {
        "command_velocity": 0.5 * every_fifth,
        "command_effort": 2.0 * every_fifth,
        "command_kp": 30.0 * every_fifth,
        "command_kd": 3.0 * every_fifth,
        "command_enabled": np.where(np.arange(20) < 10, every_fifth, 0.0 * every_fifth),
    }
    found = read(log("log", T, position=T, command_position=T, **channels), kind="pd")
    np.testing.assert_array_equal(found.command[:, 0, TARGET_VELOCITY], 0.5)
    np.testing.assert_array_equal(found.command[:, 0, FEED_FORWARD], 2.0)
    np.testing.assert_array_equal(found.command[:, 0, KP_SCALE], 30.0)
    np.testing.assert_array_equal(found.command[:, 0, KD_SCALE], 3.0)
    assert found.command[:, 0, ENABLED].tolist() == [1.0] * 10 + [0.0] * 10


def test_a_servos_gain_and_limit_follow_its_supply() -> None:
    volts = np.where(np.arange(20) < 10, 7.4, NAN)
    volts[10] = 3.7
    recording = log(
        "log", T, context={"supply_v": volts}, position=T, command_position=T, command_kp=np.full(20, 200.0)
    )
    found = read(recording, kind="servo_duty", nominal_supply_v=7.4)
    assert found.command[:, 0, KP_SCALE].tolist() == [200.0] * 10 + [100.0] * 10
    assert found.command[:, 0, LIMIT_SCALE].tolist() == [1.0] * 10 + [0.5] * 10


def test_a_position_controller_pays_no_heed_to_the_supply() -> None:
    recording = log("log", T, context={"supply_v": np.full(20, 5.0)}, position=T, command_position=T)
    assert set(read(recording).command[:, 0, LIMIT_SCALE]) == {1.0}


def test_a_gap_ends_a_segment_and_packet_loss_does_not() -> None:
    seconds = np.delete(np.arange(300) / 100.0, [50, 51, 120, *range(200, 230)])
    found = read(log("log", seconds, position=seconds, command_position=seconds))
    (first, last), (again, end) = found.segments.tolist()
    assert [found.t_s[first], found.t_s[last]] == pytest.approx([0.0, 1.99])
    assert [found.t_s[again], found.t_s[end]] == pytest.approx([2.3, 2.99])


def test_an_uneven_rate_is_one_segment() -> None:
    steps = np.random.default_rng(1).choice([0.01, 0.02, 0.05], 200)
    seconds = np.concatenate([[0.0], np.cumsum(steps)])
    found = read(log("log", seconds, position=seconds, command_position=seconds))
    assert found.segments.tolist() == [[0, 200]]


def test_a_slow_log_is_not_all_gaps() -> None:
    seconds = np.arange(30) / 2.0
    assert read(log("log", seconds, position=seconds, command_position=seconds)).segments.tolist() == [[0, 29]]


def test_rows_that_hold_commands_alone_neither_begin_nor_bridge_a_segment() -> None:
    position = T.copy()
    position[:3] = NAN
    found = read(log("log", T, position=position, command_position=T))
    assert found.segments.tolist() == [[3, 19]]
    seconds = np.arange(300) / 100.0
    position = np.where((seconds > 1.0) & (seconds < 1.5), NAN, seconds)
    assert len(read(log("log", seconds, position=position, command_position=seconds)).segments) == 2


def test_a_log_in_which_no_joint_of_the_twin_is_measured_has_no_segment() -> None:
    nothing = np.column_stack([np.full(20, NAN), T])
    recording = log("log", T, ("shoulder", "elbow"), position=nothing, command_position=nothing)
    model = build_model(two_link(), declare(joints={"elbow": {"ignore": True}}), {"shoulder"}, set(recording.channels))
    assert read_commands(model, recording).segments.shape == (0, 2)


def test_joints_that_come_in_messages_of_their_own_keep_their_own_stamps() -> None:
    even = np.arange(20) % 2 == 0
    position = np.column_stack([np.where(even, T, NAN), np.where(even, NAN, -T)])
    found = read(log("log", T, ("shoulder", "elbow"), position=position, command_position=position))
    np.testing.assert_array_equal(found.position, position)
    assert found.segments.tolist() == [[0, 19]]
    assert found.command[:4, 1, TARGET].tolist() == [-T[1], -T[1], -T[1], -T[3]]


def test_joints_are_put_into_the_twins_order_by_name() -> None:
    position = np.column_stack([T, -T])
    found = read(log("log", T, ("shoulder", "elbow"), position=position, command_position=position, velocity=position))
    for channel in (found.position, found.velocity, found.command[:, :, TARGET]):
        np.testing.assert_array_equal(channel, position)  # the arm's order, though the log's is the alphabet's


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("pd", "command_position"),
        ("servo_duty", "command_position"),
        ("torque", "command_effort"),
        ("velocity", "command_velocity"),
    ],
)
def test_a_log_without_what_its_controller_follows_is_refused_in_words(kind: str, needed: str) -> None:
    others = {c: T for c in CHANNELS if c.startswith("command_") and c != needed}
    recording = log("monday", T, position=T, **others)
    with pytest.raises(FitImpossibleError, match=rf"^monday: {needed} is missing.*can't be identified"):
        read(recording, kind=kind)


def test_a_log_without_positions_is_refused_in_words() -> None:
    recording = log("monday", T, velocity=T, command_position=T)
    with pytest.raises(FitImpossibleError, match=r"^monday: no position is measured"):
        read(recording)


# --- the state a rollout starts from ----------------------------------------------------------------------------------


def state_at(recording: Recording, t_s: float) -> tuple[float, float]:
    q, v = read(recording).state_at(t_s)
    return float(q[0]), float(v[0])


@pytest.mark.parametrize("t_s", [0.0, 0.5, 0.995, 1.99])
def test_the_smoothed_state_of_a_parabola_is_exact_also_at_the_ends(t_s: float) -> None:
    seconds = np.arange(200) / 100.0
    recording = log("log", seconds, position=0.3 - 0.7 * seconds + 1.1 * seconds**2, command_position=seconds)
    q, v = state_at(recording, t_s)
    assert (q, v) == pytest.approx((0.3 - 0.7 * t_s + 1.1 * t_s**2, -0.7 + 2.2 * t_s), abs=1e-9)


def test_smoothing_averages_noise_out() -> None:
    seconds = np.arange(400) / 500.0
    error = []
    for seed in range(50):
        noise = 1e-3 * np.random.default_rng(seed).standard_normal(400)
        error.append(state_at(log("log", seconds, position=noise, command_position=seconds), 0.4)[0])
    # a parabola through 51 samples leaves 9/4 of a 51st of their variance
    assert np.std(error) == pytest.approx(1e-3 * (9 / 4 / 51) ** 0.5, rel=0.3)


def test_missing_samples_are_no_part_of_the_state() -> None:
    seconds = np.arange(200) / 100.0
    position = 0.3 - 0.7 * seconds
    position[[97, 100, 101]] = NAN
    assert state_at(log("log", seconds, position=position, command_position=seconds), 1.0) == pytest.approx(
        (-0.4, -0.7)
    )
