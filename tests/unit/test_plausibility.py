"""Wrong names and units are said with a guess; wrapped angles are put into one turn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.calibration.plausibility import (
    implausible_joints,
    keep_known_joints,
    plausibility_warnings,
    rhythm_warnings,
)
from app.calibration.turns import unwrap
from app.errors import LogError
from app.ingest.files import read_log
from app.telemetry import CHANNELS, Channel, FloatArray, Recording
from app.twin.declaration import load_declaration
from app.twin.description import Description, parse_urdf
from app.twin.joint_map import apply_joint_map

BODY = '<inertial><mass value="0.5"/><inertia ixx="0.002" iyy="0.002" izz="0.0003"/></inertial>'
TURN = 2 * math.pi


def joint(name: str, parent: str, child: str, kind: str, limits: str) -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
    limit = f'<limit {limits} effort="10" velocity="8"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{limit}</joint><link name="{child}">{BODY}</link>'


@pytest.fixture(scope="module")
def arm() -> Description:
    return parse_urdf(
        (
            '<robot name="arm"><link name="base"/>'
            + joint("shoulder", "base", "upper", "revolute", 'lower="-2" upper="2"')
            + joint("elbow", "upper", "lower", "revolute", 'lower="-2" upper="2"')
            + joint("wheel", "lower", "rim", "continuous", "")
            + joint("finger", "lower", "tip", "prismatic", 'lower="0" upper="0.04"')
            + joint("free", "lower", "end", "revolute", "")
            + joint("acrobot", "lower", "bob", "revolute", 'lower="-3.1416" upper="3.1416"')
            + "</robot>"
        ).encode()
    )


def recording(name: str, **channels: FloatArray) -> Recording:
    kept: dict[Channel, FloatArray] = {c: channels[c].reshape(-1, 1) for c in CHANNELS if c in channels}
    rows = len(next(iter(kept.values())))
    return Recording("log", 0, np.arange(rows) * 10_000_000, (name,), kept, {})


SWING = np.sin(np.linspace(0, 20, 400))


# --- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "guess"),
    [
        ("shoulder", SWING * 60, "degrees?"),
        ("shoulder", 50 + SWING * 50, "degrees or percent?"),
        ("shoulder", np.round(2048 + SWING * 900), "encoder ticks?"),
        ("finger", 50 + SWING * 50, "percent?"),
        ("finger", 20 + SWING * 20, "millimetres or percent?"),
        ("free", SWING * 60, "degrees?"),
        ("shoulder", SWING * 1e6, "they span -1e+06 … 1e+06"),
    ],
)
def test_values_far_outside_the_limits_are_said_with_a_guess(
    arm: Description, name: str, values: FloatArray, guess: str
) -> None:
    warnings = plausibility_warnings(arm, recording(name, position=values))
    assert len(warnings) == 1
    assert warnings[0].startswith(f"joint {name!r}: ")
    assert guess in warnings[0]
    assert implausible_joints(arm, recording(name, position=values)) == {name: warnings[0]}


def test_commands_are_judged_where_nothing_was_measured(arm: Description) -> None:
    assert list(implausible_joints(arm, recording("elbow", command_position=SWING * 60))) == ["elbow"]


@pytest.mark.parametrize(
    ("name", "values"),
    [("shoulder", SWING * 2.3), ("finger", 0.02 + SWING * 0.025), ("free", SWING * 10), ("wheel", SWING * 1000)],
)
def test_values_a_little_beyond_the_limits_or_without_any_are_believed(
    arm: Description, name: str, values: FloatArray
) -> None:
    assert plausibility_warnings(arm, recording(name, position=values)) == ()


def test_a_joint_that_turns_freely_may_swing_over_many_times_at_a_speed_it_can_reach(arm: Description) -> None:
    spinning = np.linspace(0, 40, 400)
    assert implausible_joints(arm, recording("acrobot", position=spinning)) == {}
    assert "degrees?" in implausible_joints(arm, recording("acrobot", position=SWING * 60))["acrobot"]


def test_a_recorded_pendulum_that_swings_over_is_believed(shared: Path) -> None:
    declaration, description = load_declaration(shared / "data" / "double_pendulum" / "robot.yaml")
    log = read_log(shared / "data" / "double_pendulum" / "trajectory_05.csv")
    mapped = apply_joint_map(declaration, log)
    assert mapped.channels["position"].max() > 9
    assert plausibility_warnings(description, mapped) == ()


def test_a_few_wild_samples_are_outliers_not_a_unit(arm: Description) -> None:
    values = SWING.copy()
    values[::100] = 1e5
    assert plausibility_warnings(arm, recording("shoulder", position=values)) == ()


def test_a_wheel_ten_times_faster_than_its_limit_is_suspected_of_degrees(arm: Description) -> None:
    warnings = plausibility_warnings(arm, recording("wheel", position=SWING, velocity=SWING * 400))
    assert len(warnings) == 1
    assert "joint 'wheel': moves at" in warnings[0]
    assert "its limit is 8 rad/s; degrees?" in warnings[0]


# --- names ------------------------------------------------------------------------------------------------------------


def named(*names: str) -> Recording:
    values = np.arange(2.0 * len(names)).reshape(2, -1)
    return Recording("log", 0, np.array([0, 1]), names, {"position": values}, {})


def test_unknown_joints_are_left_out_and_named(arm: Description) -> None:
    known, warnings = keep_known_joints(arm, named("elbow", "gripper", "shoulder"))
    assert known.names == ("elbow", "shoulder")
    np.testing.assert_array_equal(known.channels["position"], [[0, 2], [3, 5]])
    assert warnings == ("log: not in the description and ignored: gripper",)
    whole = named("elbow")
    assert keep_known_joints(arm, whole)[0] is whole
    assert keep_known_joints(arm, whole)[1] == ()


def test_names_that_are_all_unknown_are_refused_with_the_prefix_they_share(arm: Description) -> None:
    with pytest.raises(LogError, match=r"they begin with 'left_'; declare joints\.(elbow|shoulder)\.source: left_"):
        keep_known_joints(arm, named("left_elbow", "left_shoulder"))
    with pytest.raises(LogError, match=r"none of its joints is the description's: j1, j2 \("):
        keep_known_joints(arm, named("j1", "j2"))


# --- turns ------------------------------------------------------------------------------------------------------------


def wrapped(angle: FloatArray, start: float = -math.pi) -> FloatArray:
    return (angle - start) % TURN + start


def turned(arm: Description, name: str, position: FloatArray, command: FloatArray) -> tuple[FloatArray, FloatArray]:
    result = unwrap(arm, recording(name, position=position, command_position=command)).channels
    return result["position"][:, 0], result["command_position"][:, 0]


@pytest.mark.parametrize("start", [-math.pi, 0.0])
def test_a_wrapping_drivers_angle_and_command_become_continuous_in_one_turn(arm: Description, start: float) -> None:
    truth = 3.0 + np.linspace(0, 15, 400)
    command = truth + 0.2
    position, asked = turned(arm, "wheel", wrapped(truth, start), wrapped(command, start))
    np.testing.assert_allclose(position, truth, atol=1e-9)
    np.testing.assert_allclose(asked, command, atol=1e-9)


def test_a_command_that_counts_turns_follows_a_measurement_that_wraps(arm: Description) -> None:
    truth = 3.0 + 0.4 * SWING
    position, asked = turned(arm, "wheel", wrapped(truth), truth + TURN)
    np.testing.assert_allclose(position, truth, atol=1e-9)
    np.testing.assert_allclose(asked, truth, atol=1e-9)


def test_a_command_that_wraps_before_the_measurement_does_stays_with_it(arm: Description) -> None:
    command = 3.0 + 0.3 * SWING
    position, asked = turned(arm, "wheel", np.full(400, 3.0), wrapped(command))
    np.testing.assert_array_equal(position, np.full(400, 3.0))
    np.testing.assert_allclose(asked, command, atol=1e-9)


def test_missing_values_stay_missing_and_hide_no_wrap(arm: Description) -> None:
    truth = 3.0 + 0.4 * SWING
    measured = wrapped(truth)
    measured[::3] = np.nan
    position, asked = turned(arm, "wheel", measured, wrapped(truth))
    seen = ~np.isnan(measured)
    np.testing.assert_allclose(position[seen], truth[seen], atol=1e-9)
    assert np.isnan(position[::3]).all()
    np.testing.assert_allclose(asked, truth, atol=1e-9)


def test_a_joint_with_limits_is_put_into_their_turn(arm: Description) -> None:
    position, asked = turned(arm, "shoulder", wrapped(0.5 * SWING, 0.0), wrapped(0.5 * SWING + 0.1, 0.0))
    np.testing.assert_allclose(position, 0.5 * SWING, atol=1e-9)
    np.testing.assert_allclose(asked, 0.5 * SWING + 0.1, atol=1e-9)
    position, _ = turned(arm, "shoulder", np.full(400, TURN - 1.0), np.full(400, -1.0))
    np.testing.assert_allclose(position, -1.0, atol=1e-9)


@pytest.mark.parametrize("name", ["wheel", "shoulder", "free"])
def test_steps_and_swings_within_a_turn_are_left_alone(arm: Description, name: str) -> None:
    step = np.where(np.arange(400) < 200, -1.9, 1.9)
    position, asked = turned(arm, name, 1.8 * SWING, step)
    np.testing.assert_array_equal(position, 1.8 * SWING)
    np.testing.assert_array_equal(asked, step)


def test_angles_that_count_turns_sliding_joints_and_degrees_are_left_alone(arm: Description) -> None:
    for name, values in (("wheel", 30 * SWING), ("finger", 3 * np.sign(SWING)), ("shoulder", 60 * SWING)):
        position, asked = turned(arm, name, values, values)
        np.testing.assert_array_equal(position, values)
        np.testing.assert_array_equal(asked, values)


# --- reported logs ----------------------------------------------------------------------------------------------------


def reported(shared: Path, name: str) -> Recording:
    lines = (shared / "cases" / "telemetry" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    names = rows[0]["name"]
    command = [
        [dict(zip(row["command"]["name"], row["command"]["position"], strict=True)).get(n, math.nan) for n in names]
        for row in rows
    ]
    channels: dict[Channel, FloatArray] = {
        "position": np.array([row["position"] for row in rows], dtype=np.float64),
        "command_position": np.array(command, dtype=np.float64),
    }
    return Recording(name, 0, np.arange(len(rows)) * 10_000_000, tuple(names), channels, {})


def test_the_reported_degrees_percent_and_prefix_are_recognised(shared: Path, arm: Description) -> None:
    degrees = implausible_joints(arm, reported(shared, "t14_degrees"))
    assert list(degrees) == ["shoulder", "elbow"]
    assert all(text.endswith("degrees?") for text in degrees.values())
    gripper = parse_urdf((shared / "cases" / "urdf" / "gripper_mimic.urdf").read_bytes())
    known, warnings = keep_known_joints(gripper, reported(shared, "t26_gripper_percent"))
    assert "shoulder, elbow" in warnings[0]
    percent = implausible_joints(gripper, known)
    assert list(percent) == ["finger_l_joint"]
    assert percent["finger_l_joint"].endswith("percent?")
    with pytest.raises(LogError, match="'left_'"):
        keep_known_joints(arm, reported(shared, "t27_prefixed_names"))


def test_the_reported_wraparound_leaves_no_jump(shared: Path) -> None:
    source = (shared / "cases" / "urdf" / "ok_two_link.urdf").read_text(encoding="utf-8")
    turning = parse_urdf(source.replace('type="revolute"', 'type="continuous"').encode())
    raw = reported(shared, "t12_wraparound_pi")
    assert np.abs(np.diff(raw.channels["position"], axis=0)).max() > 6
    clean = unwrap(turning, raw)
    assert np.abs(np.diff(clean.channels["position"], axis=0)).max() < 0.1
    error = clean.channels["command_position"] - clean.channels["position"]
    assert np.abs(error).max() < 1.0


# --- times ------------------------------------------------------------------------------------------------------------


def at(t_ms: NDArray[np.floating[Any]]) -> Recording:
    t_ns = np.round(t_ms * 1e6).astype(np.int64)
    return Recording("run", 0, t_ns, ("a",), {"position": np.zeros((len(t_ns), 1))}, {})


def test_a_steady_log_and_one_of_an_uneven_loop_miss_nothing() -> None:
    steady = np.arange(400) * 10.0
    assert rhythm_warnings(at(steady)) == ()
    late = np.cumsum(np.where(np.arange(400) % 4 == 0, 15.0, 10.0))
    assert rhythm_warnings(at(late)) == ()


def test_lost_rows_and_gaps_are_told_with_how_many_and_when() -> None:
    t_ms = np.delete(np.arange(400) * 10.0, np.arange(5, 400, 10))
    (lost,) = rhythm_warnings(at(t_ms))
    assert lost.startswith("run: about 10 % of its rows are missing (they usually come every 10 ms)")
    t_ms = np.arange(400) * 10.0
    t_ms[200:] += 1500.0
    assert rhythm_warnings(at(t_ms)) == ("run: a gap of 1.51 s at 1.99 s; nothing is fitted across it",)


def test_joints_in_messages_of_their_own_lose_nothing() -> None:
    t_ms = np.sort(np.concatenate([np.arange(100) * 10.0, np.arange(100) * 10.0 + 3.7]))
    recording = at(t_ms)
    position = np.full((200, 2), np.nan)
    position[::2, 0], position[1::2, 1] = 0.0, 0.0
    both = Recording("run", 0, recording.t_ns, ("a", "b"), {"position": position}, {})
    assert rhythm_warnings(both) == ()
