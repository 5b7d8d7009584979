"""What a URDF may hold, what is refused and in which words, and what our own writer makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pybullet
import pytest

from app.errors import DescriptionError
from app.twin.description import Description, Mimic, parse_urdf
from app.twin.inertials import rigid_bodies
from app.twin.rotation import rotation_from_rpy, rpy_from_rotation
from app.twin.urdf_writer import write_urdf

MASS = '<mass value="0.5"/>'
INERTIA = '<inertia ixx="0.002" ixy="0" ixz="0" iyy="0.002" iyz="0" izz="0.0003"/>'
INERTIAL = f'<inertial><origin xyz="0 0 0.1"/>{MASS}{INERTIA}</inertial>'
LIMIT = '<limit lower="-2" upper="2" effort="10" velocity="8"/>'
AXIS = '<axis xyz="0 1 0"/>'


def joint(name: str, parent: str, child: str, kind: str = "revolute", inside: str = AXIS + LIMIT) -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 0.2"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{inside}</joint>\n'


def link(name: str, inside: str = INERTIAL) -> str:
    return f'<link name="{name}">{inside}</link>\n'


def arm(elbow: str | None = None, lower: str | None = None, extra: str = "") -> bytes:
    """A two-joint arm, each element on a line of its own: base, upper, lower, shoulder, elbow are lines 2 to 6."""
    parts = (
        '<robot name="arm">\n',
        link("base", ""),
        link("upper"),
        lower if lower is not None else link("lower"),
        joint("shoulder", "base", "upper"),
        elbow if elbow is not None else joint("elbow", "upper", "lower"),
        extra,
        "</robot>",
    )
    return "".join(parts).encode()


def refusal(source: bytes) -> str:
    with pytest.raises(DescriptionError) as caught:
        parse_urdf(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def case(shared: Path, name: str) -> bytes:
    return (shared / "cases" / "urdf" / f"{name}.urdf").read_bytes()


# --- what is read ---------------------------------------------------------------------------------------------------


def test_a_plain_arm_is_read_as_written() -> None:
    dynamics = '<dynamics damping="0.05" friction="0.02"/>'
    description = parse_urdf(arm(joint("elbow", "upper", "lower", inside=AXIS + LIMIT + dynamics)))

    assert (description.name, description.root, description.warnings) == ("arm", "base", ())
    assert list(description.links) == ["base", "upper", "lower"]
    assert list(description.joints) == ["shoulder", "elbow"]
    elbow, lower = description.joints["elbow"], description.links["lower"]
    assert (elbow.type, elbow.parent, elbow.child) == ("revolute", "upper", "lower")
    assert (elbow.lower, elbow.upper, elbow.effort_limit, elbow.velocity_limit) == (-2.0, 2.0, 10.0, 8.0)
    assert (elbow.damping, elbow.friction, elbow.mimic) == (0.05, 0.02, None)
    assert (description.joints["shoulder"].damping, description.joints["shoulder"].friction) == (None, None)
    np.testing.assert_array_equal(elbow.origin_m, [0, 0, 0.2])
    np.testing.assert_array_equal(elbow.rotation, np.eye(3))
    np.testing.assert_array_equal(elbow.axis, [0, 1, 0])
    assert lower.mass_kg == 0.5
    np.testing.assert_array_equal(lower.com_m, [0, 0, 0.1])
    np.testing.assert_array_equal(lower.inertia_kg_m2, np.diag([0.002, 0.002, 0.0003]))
    assert description.links["base"].mass_kg == 0.0


def test_what_is_read_is_read_only() -> None:
    description = parse_urdf(arm())
    with pytest.raises(ValueError, match="read-only"):
        description.links["lower"].com_m[0] = 1.0


def test_the_digest_is_that_of_the_bytes() -> None:
    assert parse_urdf(arm()).sha256 != parse_urdf(arm() + b"\n").sha256
    assert len(parse_urdf(arm()).sha256) == 64


def test_rpy_turns_about_fixed_axes_roll_first() -> None:
    quarter = math.pi / 2
    # Roll 90° takes y to z; pitch 90° then takes z to x; yaw 90° then takes x to y.
    turned = rotation_from_rpy(np.array([quarter, quarter, quarter])) @ np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(turned, [0, 1, 0], atol=1e-15)
    turned = rotation_from_rpy(np.array([quarter, 0.0, quarter])) @ np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(turned, [0, 1, 0], atol=1e-15)


@pytest.mark.parametrize("pitch", [0.0, 0.3, math.pi / 2, -math.pi / 2, math.pi / 2 - 1e-9, 2.5])
def test_rpy_survives_the_way_there_and_back(pitch: float) -> None:
    rotation = rotation_from_rpy(np.array([0.7, pitch, -2.1]))
    np.testing.assert_allclose(rotation_from_rpy(rpy_from_rotation(rotation)), rotation, atol=1e-15)


def test_an_inertial_turned_in_its_link_is_turned_into_link_axes() -> None:
    inertia = '<inertia ixx="1" iyy="2" izz="2.5" ixy="0" ixz="0" iyz="0"/>'
    turned = f'<inertial><origin xyz="0 0 0" rpy="0 0 1.5707963267948966"/><mass value="1"/>{inertia}</inertial>'
    tensor = parse_urdf(arm(lower=link("lower", turned))).links["lower"].inertia_kg_m2
    np.testing.assert_allclose(tensor, np.diag([2.0, 1.0, 2.5]), atol=1e-15)
    np.testing.assert_array_equal(tensor, tensor.T)


def test_an_axis_is_made_a_unit_vector() -> None:
    description = parse_urdf(arm(joint("elbow", "upper", "lower", inside='<axis xyz="0 -3 4"/>' + LIMIT)))
    np.testing.assert_allclose(description.joints["elbow"].axis, [0, -0.6, 0.8], atol=1e-15)


def test_names_are_kept_verbatim() -> None:
    description = parse_urdf(arm(joint("elbow joint/№1 &lt;&amp;&gt;", "upper", "lower")))
    assert list(description.joints) == ["shoulder", "elbow joint/№1 <&>"]


def test_a_byte_order_mark_and_crlf_are_accepted() -> None:
    source = b"\xef\xbb\xbf" + b'<?xml version="1.0"?>\r\n' + arm().replace(b"\n", b"\r\n")
    assert list(parse_urdf(source).joints) == ["shoulder", "elbow"]


def test_comments_may_hold_anything() -> None:
    source = b"<!-- ${mass} <!DOCTYPE robot> $(find x) -->" + arm(extra="<!-- ${x} -->")
    assert parse_urdf(source).warnings == ()


def test_a_tree_two_thousand_links_deep_is_read() -> None:
    depth = 2000
    chain = "".join(
        link(f"l{i}", "") + joint(f"f{i}", f"l{i - 1}" if i else "base", f"l{i}", "fixed", "") for i in range(depth)
    )
    description = parse_urdf(arm(extra=chain))
    assert len(description.links) == depth + 3
    assert len(rigid_bodies(description)) == 3


# --- bytes and XML ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"", "file: is empty"),
        (b"  \n", "file: is empty"),
        (b"name: arm\n", "line 1: not well-formed XML"),
        (arm()[:-40], "not well-formed XML"),
        (b"<robot>\n<link name='a'>\n</robot>", "line 3: not well-formed XML"),
        (b"<robot>\n\xff</robot>", "line 2: byte 0xff is not UTF-8"),
        ("<robot/>".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
        (b"<sdf version='1.7'/>", "this is SDF, not URDF"),
        (b"<mujoco model='m'/>", "this is MJCF (MuJoCo), not URDF"),
        (b"#usda 1.0\n", "this is USD, not URDF"),
        (b"<html/>", "the root element is <html>"),
        (b"<robot name='r'/>", "robot: has no links"),
        (b"<robot name='r'><link/></robot>", "line 1: <link> without a name"),
        (b"<a>" * 300, "line 1: not well-formed XML"),
    ],
)
def test_what_is_no_urdf_is_refused_with_its_line(source: bytes, said: str) -> None:
    assert said in refusal(source)


@pytest.mark.parametrize(
    "prolog",
    [
        "<!DOCTYPE robot>",
        '<?xml version="1.0"?>\n<!-- x -->\n<!DOCTYPE r [<!ENTITY a "0">]>',
        '<!DOCTYPE r SYSTEM "http://127.0.0.1:9/x.dtd">',
    ],
)
def test_a_doctype_is_refused_before_it_is_read(prolog: str) -> None:
    line = prolog.count("\n") + 1
    assert refusal(prolog.encode() + arm()).startswith(f"line {line}: holds a DOCTYPE")


def test_a_file_beyond_the_size_limit_is_refused() -> None:
    assert "at most 10485760" in refusal(arm() + b" " * (10 * 1024 * 1024))


@pytest.mark.parametrize(
    "leftover",
    [
        '<xacro:include xmlns:xacro="http://ros.org/wiki/xacro" filename="a.xacro"/>',
        '<x:macro xmlns:x="http://www.ros.org/wiki/xacro" name="m"/>',
        link("tool", '<inertial><mass value="${m}"/></inertial>'),
        link("$(arg prefix)tool", ""),
        "<gazebo><plugin>$(find x)/y.yaml</plugin></gazebo>",
    ],
)
def test_unexpanded_xacro_is_refused_with_what_to_do(leftover: str) -> None:
    message = refusal(arm(extra=leftover))
    assert message.startswith("line 7: ")
    assert "expand with xacro first" in message


def test_an_expanded_file_may_still_declare_the_xacro_namespace() -> None:
    source = arm().replace(b"<robot ", b'<robot xmlns:xacro="http://ros.org/wiki/xacro" ')
    assert len(parse_urdf(source).joints) == 2


# --- the tree ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (arm(lower=link("upper")), "link 'upper': defined twice, on lines 3 and 4"),
        (arm(joint("shoulder", "upper", "lower")), "joint 'shoulder': defined twice, on lines 5 and 6"),
        (arm(joint("elbow", "upper", "ghost")), "joint 'elbow': its child link 'ghost' does not exist"),
        (arm(joint("elbow", "ghost", "lower")), "joint 'elbow': its parent link 'ghost' does not exist"),
        (arm(elbow=""), "robot: has several base links: 'base', 'lower'"),
        (arm(joint("elbow", "base", "upper")), "link 'upper': is the child of two joints, 'shoulder' and 'elbow'"),
        (arm(joint("elbow", "lower", "lower")), "robot: joints form a loop: 'elbow'"),
        (
            arm(joint("a", "lower", "x"), extra=link("x") + joint("b", "x", "lower")),
            "robot: joints form a loop: 'b', 'a'",
        ),
        (b"<robot><link name='base'/></robot>", "robot: has no movable joint"),
        (
            f"<robot>{link('a')}{link('b')}{joint('j', 'a', 'b', 'fixed')}</robot>".encode(),
            "robot: has no movable joint",
        ),
        (arm('<joint name="elbow" type="revolute"><parent link="upper"/></joint>'), "names no child link"),
        (arm('<joint name="elbow"><parent link="upper"/></joint>'), "joint 'elbow' (line 6): has no type"),
    ],
)
def test_what_is_no_tree_is_refused_by_name(source: bytes, said: str) -> None:
    assert said in refusal(source)


@pytest.mark.parametrize("kind", ["floating", "planar", "spherical", "screw"])
def test_other_joint_types_are_refused_by_name(kind: str) -> None:
    message = refusal(arm(joint("elbow", "upper", "lower", kind)))
    assert f"joint 'elbow' (line 6): type {kind!r} is not supported" in message
    assert "revolute, continuous, prismatic or fixed" in message


# --- joints -----------------------------------------------------------------------------------------------------------


def elbow_of(inside: str, kind: str = "revolute") -> tuple[Description, str]:
    description = parse_urdf(arm(joint("elbow", "upper", "lower", kind, inside)))
    return description, " | ".join(description.warnings)


@pytest.mark.parametrize(
    "given", ['effort="0" velocity="0"', 'effort="-1" velocity="-1"', "", 'effort="inf" velocity="inf"']
)
def test_an_effort_or_velocity_limit_that_cant_be_is_unknown_with_one_warning(given: str) -> None:
    description, warnings = elbow_of(AXIS + f'<limit lower="-2" upper="2" {given}/>')
    elbow = description.joints["elbow"]
    assert (elbow.effort_limit, elbow.velocity_limit) == (None, None)
    assert (elbow.lower, elbow.upper) == (-2.0, 2.0)
    assert len(description.warnings) == 1
    assert "joint 'elbow': effort limit" in warnings


def test_a_continuous_joint_has_no_position_limits_but_keeps_its_strength() -> None:
    elbow = elbow_of(AXIS + LIMIT, "continuous")[0].joints["elbow"]
    assert (elbow.lower, elbow.upper, elbow.effort_limit, elbow.velocity_limit) == (None, None, 10.0, 8.0)


@pytest.mark.parametrize("given", ['lower="0" upper="0"', 'lower="0" upper="-1"', 'lower="2" upper="-2"'])
def test_limits_that_leave_no_range_mean_no_limit_and_are_said(given: str) -> None:
    description, warnings = elbow_of(AXIS + f'<limit {given} effort="1" velocity="1"/>')
    elbow = description.joints["elbow"]
    assert (elbow.lower, elbow.upper) == (None, None)
    assert "joint 'elbow': lower limit" in warnings
    assert "taken as unlimited" in warnings


def test_a_limit_of_one_side_leaves_the_other_at_urdfs_zero() -> None:
    elbow = elbow_of(AXIS + '<limit upper="0.04" effort="1" velocity="1"/>', "prismatic")[0].joints["elbow"]
    assert (elbow.lower, elbow.upper) == (0.0, 0.04)


def test_limits_beyond_two_turns_are_suspected_to_be_degrees() -> None:
    description, warnings = elbow_of(AXIS + '<limit lower="-120" upper="120" effort="1" velocity="1"/>')
    assert "joint 'elbow': limits -120.0 … 120.0 rad are more than two turns; degrees?" in warnings
    assert description.joints["elbow"].upper == 120.0
    assert elbow_of(AXIS + '<limit lower="-12.5" upper="12.5" effort="1" velocity="1"/>')[1] == ""


def test_a_missing_axis_is_x_and_is_said() -> None:
    description, warnings = elbow_of(LIMIT)
    np.testing.assert_array_equal(description.joints["elbow"].axis, [1, 0, 0])
    assert "joint 'elbow': gives no axis; the default 1 0 0 is used" in warnings


def test_a_zero_axis_is_refused_where_it_moves_and_ignored_where_it_doesnt() -> None:
    zero = '<axis xyz="0 0 0"/>'
    said = "joint 'elbow' (line 6): its axis is 0 0 0"
    assert said in refusal(arm(joint("elbow", "upper", "lower", inside=zero + LIMIT)))
    fixed = parse_urdf(arm(extra=link("tool", "") + joint("tool_fixed", "lower", "tool", "fixed", zero)))
    assert fixed.warnings == ()


@pytest.mark.parametrize("losses", ['damping="-0.05"', 'friction="-0.02"', 'damping="nan"', 'friction="much"'])
def test_damping_and_friction_must_be_numbers_of_zero_or_more(losses: str) -> None:
    message = refusal(arm(joint("elbow", "upper", "lower", inside=AXIS + LIMIT + f"<dynamics {losses}/>")))
    assert "joint 'elbow' (line 6)" in message
    assert losses.split("=", maxsplit=1)[0] in message


def test_a_tag_urdf_doesnt_know_is_ignored_and_said() -> None:
    description, warnings = elbow_of(AXIS + LIMIT + '<joint_properties damping="0.5" friction="0.2"/>')
    assert description.joints["elbow"].damping is None
    assert "joint 'elbow': <joint_properties> is not part of URDF and is ignored" in warnings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<origin xyz="0 0"/>', "joint 'elbow' (line 6): xyz='0 0' (three numbers)"),
        ('<origin xyz="0 0 inf"/>', "<origin> xyz='inf' (a finite number)"),
        ('<origin xyz="0 0 0" rpy="0 0 1_0"/>', "<origin> rpy='1_0' (a finite number)"),
    ],
)
def test_numbers_that_are_none_are_refused(text: str, said: str) -> None:
    elbow = joint("elbow", "upper", "lower").replace('<origin xyz="0 0 0.2"/>', text)
    assert said in refusal(arm(elbow))


def test_an_element_given_twice_is_refused() -> None:
    assert "joint 'elbow' (line 6): has 2 <axis> elements" in refusal(
        arm(joint("elbow", "upper", "lower", inside=AXIS + AXIS + LIMIT))
    )


def test_a_mimic_joint_keeps_its_law() -> None:
    finger = link("finger") + joint(
        "finger_joint", "lower", "finger", inside=AXIS + LIMIT + '<mimic joint="elbow" multiplier="-2" offset="0.1"/>'
    )
    assert parse_urdf(arm(extra=finger)).joints["finger_joint"].mimic == Mimic("elbow", -2.0, 0.1)


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("ghost", "joint 'elbow': mimics 'ghost', which does not exist"),
        ("elbow", "joint 'elbow': mimics itself"),
        ("tool_fixed", "joint 'elbow': mimics 'tool_fixed', which is fixed"),
        ("finger_joint", "joint 'elbow': mimics 'finger_joint', which itself mimics 'elbow'"),
    ],
)
def test_a_mimic_joint_must_follow_a_joint_that_is_driven(master: str, said: str) -> None:
    elbow = joint("elbow", "upper", "lower", inside=AXIS + LIMIT + f'<mimic joint="{master}"/>')
    follower = joint("finger_joint", "lower", "finger", inside=AXIS + LIMIT + '<mimic joint="elbow"/>')
    extra = link("finger") + follower + link("tool", "") + joint("tool_fixed", "lower", "tool", "fixed", "")
    assert said in refusal(arm(elbow, extra=extra))


# --- inertials --------------------------------------------------------------------------------------------------------


def lower_of(mass: str, inertia: str) -> bytes:
    return arm(lower=link("lower", f'<inertial><mass value="{mass}"/>{inertia}</inertial>'))


def tensor(xx: float, yy: float, zz: float, xy: float = 0.0) -> str:
    return f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="{xy}" ixz="0" iyz="0"/>'


UNREAL = f'<inertial><mass value="1"/>{tensor(1, 1, 3)}</inertial>'


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (arm(lower=link("lower", "")), "link 'lower': is moved by a joint but has no mass"),
        (lower_of("0", tensor(0, 0, 0)), "link 'lower': is moved by a joint but has no mass"),
        (lower_of("-0.5", INERTIA), "link 'lower' (line 4): mass -0.5 kg is negative"),
        (lower_of("nan", INERTIA), "link 'lower' (line 4): <mass> value='nan'"),
        (lower_of("1e999", INERTIA), "link 'lower' (line 4): <mass> value='1e999'"),
        (lower_of("0.5", ""), "link 'lower': is moved by a joint but has mass 0.5 kg and inertia 0, 0, 0 kg·m²"),
        (lower_of("0.5", tensor(0, 0, 0)), "mass 0.5 kg and inertia 0, 0, 0 kg·m²"),
        (lower_of("0.5", tensor(-0.002, -0.002, 0.0003)), "-0.002, -0.002, 0.0003 kg·m²: one is negative"),
        (lower_of("0.5", tensor(0.001, 0.001, 0.001, xy=0.002)), "-0.001, 0.001, 0.003 kg·m²: one is negative"),
        (lower_of("0.5", tensor(1e-4, 1e-4, 0.005)), "0.0001, 0.0001, 0.005 kg·m²: the largest exceeds the sum"),
        (lower_of("0.5", tensor(0.002, 0.002, 0)), "inertia 0.002, 0.002, 0 kg·m²"),
        (lower_of("0.5", '<inertia ixx="1"/>'), "link 'lower' (line 4): <inertia> has no iyy"),
        (arm(lower=link("lower", "<inertial/>")), "link 'lower' (line 4): <inertial> has no <mass>"),
        (
            arm(extra=link("t", UNREAL) + joint("f", "lower", "t", "fixed")),
            "link 't': principal moments of inertia 1, 1, 3",
        ),
    ],
)
def test_an_inertial_that_no_moving_body_can_have_is_refused_with_its_numbers(source: bytes, said: str) -> None:
    assert said in refusal(source)


def test_rounding_of_a_flat_body_is_not_a_violated_triangle_inequality() -> None:
    assert parse_urdf(lower_of("0.5", tensor(0.00123, 0.00123, 0.002461))).links["lower"].mass_kg == 0.5


def test_a_frame_on_a_fixed_joint_has_no_mass() -> None:
    frames = link("imu", "") + joint("imu_fixed", "upper", "imu", "fixed", "")
    zero = f'<inertial><mass value="0"/>{tensor(0, 0, 0)}</inertial>'
    frames += link("tool0", zero) + joint("tool_fixed", "lower", "tool0", "fixed", "")
    description = parse_urdf(arm(extra=frames))
    assert [description.links[name].mass_kg for name in ("imu", "tool0")] == [0.0, 0.0]
    assert [body.mass_kg for body in rigid_bodies(description)] == [0.0, 0.5, 0.5]


def test_a_point_mass_on_a_fixed_joint_is_accepted() -> None:
    point = link("ballast", f'<inertial><mass value="0.5"/>{tensor(0, 0, 0)}</inertial>')
    description = parse_urdf(arm(extra=point + joint("ballast_fixed", "lower", "ballast", "fixed", "")))
    body = rigid_bodies(description)[2]
    # Two equal masses 0.1 m apart on z: centre between them, 2 · 0.5 kg · (0.05 m)² more about x and y.
    assert (body.link, body.members, body.mass_kg) == ("lower", ("lower", "ballast"), 1.0)
    np.testing.assert_allclose(body.com_m, [0, 0, 0.15], atol=1e-15)
    np.testing.assert_allclose(body.inertia_kg_m2, np.diag([0.0045, 0.0045, 0.0003]), atol=1e-15)


def test_a_moving_frame_that_carries_mass_on_fixed_joints_is_accepted() -> None:
    carried = link("carried") + joint("carried_fixed", "lower", "carried", "fixed", "")
    description = parse_urdf(arm(lower=link("lower", ""), extra=carried))
    assert description.links["lower"].mass_kg == 0.0
    assert rigid_bodies(description)[2].mass_kg == 0.5
    bare = link("carried", "") + joint("carried_fixed", "lower", "carried", "fixed", "")
    assert "link 'lower': is moved by a joint but has no mass nor has any of the 1 links fixed to it" in refusal(
        arm(lower=link("lower", ""), extra=bare)
    )


def test_inertia_without_mass_is_a_pure_frame_and_is_said() -> None:
    odd = link("odd", f'<inertial><mass value="0"/>{INERTIA}</inertial>') + joint("f", "lower", "odd", "fixed", "")
    description = parse_urdf(arm(extra=odd))
    assert not description.links["odd"].inertia_kg_m2.any()
    assert description.warnings == ("link 'odd': has inertia but no mass; taken as a pure frame",)


def test_masses_that_look_like_grams_are_said() -> None:
    heavy = parse_urdf(lower_of("2500", tensor(900, 900, 900))).warnings
    assert heavy == ("link 'lower': mass 2500 kg; grams?",)
    dense = parse_urdf(lower_of("500", INERTIA)).warnings
    assert dense == ("link 'lower': 500 kg within 2.68 mm is denser than any metal; a point mass, or wrong units?",)


def test_meshes_are_named_and_not_needed() -> None:
    mesh = '<visual><geometry><mesh filename="package://x/a.stl"/></geometry></visual>'
    mesh += '<collision><geometry><mesh filename="b.step"/></geometry></collision>'
    description = parse_urdf(arm(lower=link("lower", INERTIAL + mesh)))
    assert description.warnings == ("meshes are not needed and not read: package://x/a.stl, b.step",)


# --- the writer -------------------------------------------------------------------------------------------------------


def test_what_is_written_reads_back_the_same() -> None:
    finger = link("finger") + joint("slide", "lower", "finger", "prismatic", '<axis xyz="0.1 0.2 0.3"/>' + LIMIT)
    elbow = joint('elbow "1" <&>\''.replace('"', "&quot;").replace("<&>", "&lt;&amp;&gt;"), "upper", "lower")
    elbow = elbow.replace('xyz="0 0 0.2"', 'xyz="0 0.1 0.2" rpy="0.1 -1.5707963267948966 3"')
    turned = INERTIAL.replace('xyz="0 0 0.1"', 'xyz="0.1 0 0.1" rpy="1 2 3"')
    first = parse_urdf(arm(elbow, lower=link("lower", turned), extra=finger))
    again = parse_urdf(write_urdf(first, position_limits=True))

    assert list(again.joints) == list(first.joints)
    assert list(again.links) == list(first.links)
    for name, joint_ in first.joints.items():
        other = again.joints[name]
        np.testing.assert_array_equal(other.origin_m, joint_.origin_m)
        np.testing.assert_allclose(other.axis, joint_.axis, rtol=1e-15)
        np.testing.assert_allclose(other.rotation, joint_.rotation, atol=1e-15)
        assert (other.lower, other.upper) == (joint_.lower, joint_.upper)
        assert (other.effort_limit, other.velocity_limit) == (joint_.effort_limit, joint_.velocity_limit)
    for name, link_ in first.links.items():
        np.testing.assert_array_equal(again.links[name].com_m, link_.com_m)
        np.testing.assert_allclose(again.links[name].inertia_kg_m2, link_.inertia_kg_m2, rtol=1e-12, atol=1e-18)


def test_a_link_with_changed_mass_is_written_instead() -> None:
    description = parse_urdf(arm())
    lower = description.links["lower"]
    heavy = replace(lower, mass_kg=5.0, inertia_kg_m2=10 * lower.inertia_kg_m2)
    again = parse_urdf(write_urdf(description, {"lower": heavy}))
    assert [again.links[name].mass_kg for name in ("base", "upper", "lower")] == [0.0, 0.5, 5.0]
    np.testing.assert_array_equal(again.links["lower"].inertia_kg_m2, 10 * lower.inertia_kg_m2)


def test_the_engines_urdf_has_no_limits_losses_or_geometry_and_an_inertial_on_every_link() -> None:
    text = write_urdf(
        parse_urdf(arm(joint("elbow", "upper", "lower", inside=AXIS + LIMIT + '<dynamics damping="1"/>')))
    )
    assert b"dynamics" not in text
    assert text.count(b"<inertial>") == 3
    assert text.count(b'lower="0.0" upper="-1.0"') == 2


def test_pybullet_holds_the_written_inertials_to_the_last_digits(tmp_path: Path) -> None:
    turned = INERTIAL.replace('xyz="0 0 0.1"', 'xyz="0.1 0.02 0.1" rpy="1 2 3"')
    tool = link("tool0", "") + joint("tool_fixed", "lower", "tool0", "fixed", "")
    description = parse_urdf(arm(lower=link("lower", turned), extra=tool))
    path = tmp_path / "written.urdf"
    path.write_bytes(write_urdf(description))
    client = pybullet.connect(pybullet.DIRECT)
    try:
        flags = pybullet.URDF_USE_INERTIA_FROM_FILE
        body = pybullet.loadURDF(str(path), useFixedBase=True, flags=flags, physicsClientId=client)
        seen = set()
        for index in range(pybullet.getNumJoints(body, physicsClientId=client)):
            info = pybullet.getJointInfo(body, index, physicsClientId=client)
            dynamics = pybullet.getDynamicsInfo(body, index, physicsClientId=client)
            loaded = description.links[info[12].decode()]
            axes = np.array(pybullet.getMatrixFromQuaternion(dynamics[4])).reshape(3, 3)
            held = axes @ np.diag(dynamics[2]) @ axes.T
            np.testing.assert_allclose(held, loaded.inertia_kg_m2, atol=1e-14 * np.abs(loaded.inertia_kg_m2).max())
            np.testing.assert_allclose(dynamics[3], loaded.com_m, atol=1e-15)
            assert dynamics[0] == loaded.mass_kg
            assert info[8] > info[9] or info[2] == pybullet.JOINT_FIXED
            seen.add(loaded.name)
        assert seen == {"upper", "lower", "tool0"}
    finally:
        pybullet.disconnect(client)


# --- reported faults and recorded robots ------------------------------------------------------------------------------

USABLE = {
    "axis_missing": "joint 'elbow': gives no axis",
    "axis_negative": "",
    "bom_and_crlf": "",
    "chain_25": "",
    "continuous_no_limit": "joint 'elbow': effort limit missing, velocity limit missing",
    "continuous_with_limits": "joint 'elbow': is continuous",
    "effort_missing": "joint 'elbow': effort limit missing, velocity limit missing",
    "effort_zero": "joint 'elbow': effort limit 0, velocity limit 0",
    "grams_mass": "link 'lower': 500 kg within 2.68 mm",
    "gripper_mimic": "",
    "huge_damping": "",
    "joint_properties_tag": "joint 'elbow': <joint_properties>",
    "limits_equal_zero": "joint 'elbow': lower limit 0.0 is not below upper limit 0.0",
    "limits_in_degrees": "joint 'elbow': limits -120.0 … 120.0 rad",
    "mesh_unsupported_ext": "meshes are not needed and not read: lower.step",
    "negative_velocity_limit": "joint 'elbow': effort limit -1, velocity limit -1",
    "no_inertial_base": "",
    "ok_two_link": "",
    "package_mesh_missing_collision": "package://my_arm_description/meshes/lower.stl",
    "package_mesh_missing_visual": "package://my_arm_description/meshes/lower.stl",
    "revolute_no_limit": "joint 'elbow': gives no position limits",
    "sensor_frames": "",
    "transmission_gear": "",
    "whitespace_name": "",
    "world_root_fixed": "",
}

REFUSED = {
    "axis_zero": "joint 'elbow' (line 7): its axis is 0 0 0",
    "dup_link_names": "link 'upper': defined twice, on lines 4 and 5",
    "entity_bomb": "line 2: holds a DOCTYPE",
    "floating": "joint 'elbow' (line 7): type 'floating'",
    "mimic_unknown_master": "joint 'finger_r_joint': mimics 'no_such_joint'",
    "missing_child": "joint 'elbow': its child link 'ghost'",
    "mjcf_not_urdf": "this is MJCF",
    "nan_values": "link 'lower' (line 5): <mass> value='nan'",
    "negative_damping": "joint 'elbow' (line 7): damping -0.05",
    "negative_inertia": "link 'lower': principal moments of inertia -0.002, -0.002, 0.0003",
    "negative_mass": "link 'lower' (line 5): mass -0.5 kg",
    "no_inertial_tip": "link 'lower': is moved by a joint but has no mass",
    "no_joints": "robot: has no movable joint",
    "not_xml": "line 1: not well-formed XML",
    "planar": "joint 'elbow' (line 7): type 'planar'",
    "sdf_not_urdf": "this is SDF",
    "spherical": "joint 'elbow' (line 7): type 'spherical'",
    "triangle_violation": "link 'lower': principal moments of inertia 0.0001, 0.0001, 0.005",
    "truncated": "line 4: not well-formed XML",
    "unknown_type": "joint 'elbow' (line 7): type 'screw'",
    "xacro_leftover": "line 5: '${mass_lower}' is xacro (expand with xacro first)",
    "xacro_macro_unexpanded": "line 3: <{http://ros.org/wiki/xacro}include> is xacro (expand with xacro first)",
    "zero_inertia_moving": "link 'lower': is moved by a joint but has mass 0.5 kg and inertia 0, 0, 0",
    "zero_mass_moving": "link 'lower': is moved by a joint but has no mass",
}


def test_every_reported_urdf_has_an_expectation(shared: Path) -> None:
    files = {path.stem for path in (shared / "cases" / "urdf").glob("*.urdf")}
    assert files == USABLE.keys() | REFUSED.keys()


@pytest.mark.parametrize(("name", "said"), USABLE.items())
def test_a_usable_reported_urdf_is_read_with_its_warning(shared: Path, name: str, said: str) -> None:
    warnings = parse_urdf(case(shared, name)).warnings
    assert (len(warnings) >= 1) == bool(said)
    assert any(said in warning for warning in warnings) == bool(said)


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_an_unusable_reported_urdf_is_refused_by_name(shared: Path, name: str, said: str) -> None:
    assert said in refusal(case(shared, name))


def test_reported_frames_and_grippers_are_read_as_meant(shared: Path) -> None:
    frames = parse_urdf(case(shared, "sensor_frames"))
    assert [frames.links[name].mass_kg for name in ("base", "upper", "lower", "imu_link", "tool0")] == [0.5] * 3 + [
        0,
        0,
    ]
    assert [body.mass_kg for body in rigid_bodies(frames)] == [0.5, 0.5, 0.5]
    gripper = parse_urdf(case(shared, "gripper_mimic"))
    assert gripper.joints["finger_r_joint"].mimic == Mimic("finger_l_joint", 1.0, 0.0)
    np.testing.assert_array_equal(gripper.joints["finger_r_joint"].axis, [-1, 0, 0])
    assert parse_urdf(case(shared, "world_root_fixed")).root == "world"
    assert "elbow joint/№1" in parse_urdf(case(shared, "whitespace_name")).joints


@pytest.mark.parametrize(
    ("folder", "file", "joints", "total_kg"),
    [
        ("double_pendulum", "double_pendulum", 2, 1.0806 + 0.608 + 0.6306),
        ("go2", "go2", 12, None),
        ("so101", "so101", 6, None),
        ("xl330", "xl330_rig", 1, 0.49),
        ("z1", "z1", 7, None),
    ],
)
def test_recorded_robots_are_read(shared: Path, folder: str, file: str, joints: int, total_kg: float | None) -> None:
    description = parse_urdf((shared / "data" / folder / f"{file}.urdf").read_bytes())
    bodies = rigid_bodies(description)
    assert len(bodies) == joints + 1
    total = sum(link_.mass_kg for link_ in description.links.values())
    assert sum(body.mass_kg for body in bodies) == pytest.approx(total, rel=1e-12)
    assert total_kg is None or total == pytest.approx(total_kg, rel=1e-12)
