"""A log's names, units and signs become the description's joints in SI."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from app.telemetry import CHANNELS, Channel, FloatArray, Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import parse_urdf
from app.twin.joint_map import JointMap, apply_joint_map, hold_position


def declared(**fields: Any) -> RobotDeclaration:
    return RobotDeclaration.model_validate({"schema": "twincal.robot/1", "robot": "r", "fleet": "f", **fields})


def recording(names: tuple[str, ...], **channels: list[list[float]]) -> Recording:
    rows = len(next(iter(channels.values())))
    kept: dict[Channel, FloatArray] = {c: np.array(channels[c], dtype=np.float64) for c in CHANNELS if c in channels}
    return Recording("log", 5, np.arange(rows) * 1_000_000, names, kept, {"supply_v": np.full(rows, 12.0)})


def test_si_is_sign_times_the_converted_value_plus_offset() -> None:
    wrist = JointMap.of(declared(joints={"w": {"unit": "deg", "sign": -1, "scale": 0.5, "offset": 0.1}}), "w")
    raw = np.array([0.0, 360.0, np.nan])
    np.testing.assert_allclose(wrist.to_si("position", raw), [-0.1, -math.pi - 0.1, np.nan])
    np.testing.assert_allclose(wrist.to_si("command_position", raw), [-0.1, -math.pi - 0.1, np.nan])
    np.testing.assert_allclose(wrist.to_si("velocity", raw), [0, -math.pi, np.nan])
    np.testing.assert_allclose(wrist.to_si("command_velocity", raw), [0, -math.pi, np.nan])
    np.testing.assert_allclose(wrist.to_si("effort", raw), [0, -180, np.nan])
    np.testing.assert_allclose(wrist.to_si("command_effort", raw), [0, -180, np.nan])
    for channel in ("command_kp", "command_kd", "command_enabled"):
        np.testing.assert_array_equal(wrist.to_si(channel, raw), raw)


@pytest.mark.parametrize("channel", CHANNELS)
def test_raw_values_come_back(channel: Channel) -> None:
    joint = JointMap(sign=-1, scale=0.25, unit_si=math.pi / 180, offset=0.3)
    raw = np.array([-720.0, 0.0, 11.5])
    np.testing.assert_allclose(joint.to_raw(channel, joint.to_si(channel, raw)), raw, atol=1e-12)


@pytest.mark.parametrize(
    ("unit", "si"),
    [
        *[("rad", 1), ("mrad", 1e-3), ("deg", math.pi / 180), ("rev", 2 * math.pi)],
        *[("m", 1), ("mm", 1e-3), ("cm", 1e-2), ("um", 1e-6), ("in", 0.0254)],
    ],
)
def test_one_of_each_unit_is_this_much_si(unit: str, si: float) -> None:
    assert JointMap.of(declared(joints={"w": {"unit": unit}}), "w").to_si("position", np.array([1.0])) == si


def test_joints_are_renamed_sorted_and_ignored_ones_left_out() -> None:
    raw = recording(("A", "b", "grip", "z"), position=[[1, 2, 3, 4], [5, 6, 7, 8]], velocity=[[np.nan, 1, 2, 3]] * 2)
    mapped = apply_joint_map(declared(joints={"y": {"source": "A", "sign": -1}, "grip": {"ignore": True}}), raw)
    assert mapped.names == ("b", "y", "z")
    np.testing.assert_array_equal(mapped.channels["position"], [[2, -1, 4], [6, -5, 8]])
    np.testing.assert_array_equal(mapped.channels["velocity"], [[1, np.nan, 3]] * 2)
    assert (mapped.name, mapped.origin_ns) == ("log", 5)
    np.testing.assert_array_equal(mapped.t_ns, raw.t_ns)
    np.testing.assert_array_equal(mapped.context["supply_v"], [12, 12])


def test_swapped_names_are_swapped_back() -> None:
    raw = recording(("a", "b"), position=[[1, 2]])
    mapped = apply_joint_map(declared(joints={"a": {"source": "b"}, "b": {"source": "a"}}), raw)
    np.testing.assert_array_equal(mapped.channels["position"], [[2, 1]])


def test_a_column_named_like_a_joint_that_reads_another_is_not_taken_for_it() -> None:
    raw = recording(("motor", "wrist"), position=[[1, 2]])
    mapped = apply_joint_map(declared(joints={"wrist": {"source": "motor"}}), raw)
    assert mapped.names == ("wrist",)
    np.testing.assert_array_equal(mapped.channels["position"], [[1]])


@pytest.mark.parametrize("unit", ["unknown", "A", "mA", "ratio"])
def test_effort_that_is_no_torque_is_left_out_and_commanded_torque_stays(unit: str) -> None:
    mapped = apply_joint_map(declared(effort_unit=unit), recording(("a",), effort=[[1]], command_effort=[[2]]))
    assert list(mapped.channels) == ["command_effort"]


def test_effort_in_newton_metres_stays_and_takes_the_sign() -> None:
    mapped = apply_joint_map(declared(effort_unit="N·m", joints={"a": {"sign": -1}}), recording(("a",), effort=[[2]]))
    np.testing.assert_array_equal(mapped.channels["effort"], [[-2]])


def test_a_channel_left_without_any_value_is_absent() -> None:
    raw = recording(("a", "b"), position=[[1, 2]], command_position=[[np.nan, 3]])
    assert list(apply_joint_map(declared(joints={"b": {"ignore": True}}), raw).channels) == ["position"]


def test_a_locked_joint_is_held_where_declared_else_at_zero_within_its_limits() -> None:
    body = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    limit = '<limit lower="0.2" upper="1" effort="1" velocity="1"/>'
    joint = f'<joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="1 0 0"/>{limit}</joint>'
    joints = parse_urdf(f'<robot><link name="a"/><link name="b">{body}</link>{joint}</robot>'.encode()).joints
    assert hold_position(declared(), joints["j"]) == 0.2
    assert hold_position(declared(joints={"j": {"hold_at": 0.7}}), joints["j"]) == 0.7
