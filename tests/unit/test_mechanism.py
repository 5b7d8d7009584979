"""The kernel's rigid-body dynamics are PyBullet's, whatever the tree looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pybullet
import pybullet_data
import pytest

from app.errors import DescriptionError
from app.telemetry import FloatArray
from app.twin import world
from app.twin.description import Description, parse_urdf
from app.twin.mechanism import inertial_parameters, reduce_description
from app.twin.model import TwinModel
from tests.physics import from_pybullet, mass_and_bias, model_of, pybullet_mass_and_bias, read, two_link

STATES = 8


def random_states(n: int) -> tuple[FloatArray, FloatArray]:
    draw = np.random.default_rng(n)
    return draw.uniform(-2.0, 2.0, (STATES, n)), draw.uniform(-3.0, 3.0, (STATES, n))


def worst_differences(model: TwinModel, values: FloatArray) -> tuple[float, float]:
    """Of M and h between the compiled dynamics and PyBullet, relative to their largest entry."""
    q, v = random_states(model.mechanism.n)
    M, h = mass_and_bias(model, values, q, v)
    worst_M, worst_h = 0.0, 0.0
    with world.loaded(model, values) as body:
        J = body.jacobian
        for i in range(STATES):
            M_all, h_all = pybullet_mass_and_bias(body.client, body.uid, J @ q[i] + body.shift, J @ v[i])
            M_i, h_i = J.T @ M_all @ J, J.T @ h_all
            worst_M = max(worst_M, float(np.abs(M[i] - M_i).max() / np.abs(M_i).max()))
            # a wheel may have no bias at all: 1 rad/s² of its inertia is then the measure
            worst_h = max(worst_h, float(np.abs(h[i] - h_i).max() / max(np.abs(h_i).max(), np.abs(M_i).max())))
    return worst_M, worst_h


def scattered(model: TwinModel) -> FloatArray:
    """Other masses and centres of mass than the description's."""
    draw = np.random.default_rng(5)
    values = model.nominal()
    for i, spec in enumerate(model.specs):
        if spec.slot.place == "mass":
            values[i] *= draw.uniform(0.5, 2.0)
        elif spec.slot.place == "com":
            values[i] += draw.normal(0.0, 0.01)
    return values


def assert_equal_to_pybullet(description: Description) -> None:
    model = model_of(description)
    for values in (model.nominal(), scattered(model)):
        worst_M, worst_h = worst_differences(model, values)
        assert worst_M < 1e-12
        assert worst_h < 1e-12


@pytest.mark.parametrize(
    "name",
    [
        "so101/so101.urdf",
        "z1/z1.urdf",
        "go2/go2.urdf",
        "xl330/xl330_rig.urdf",
        "double_pendulum/double_pendulum.urdf",
    ],
)
def test_mass_matrix_and_bias_of_a_real_robot_are_pybullets(shared: Path, name: str) -> None:
    assert_equal_to_pybullet(read(shared / "data" / name))


@pytest.mark.parametrize(
    "name",
    [
        "chain_25.urdf",  # long
        "gripper_mimic.urdf",  # prismatic, mimic
        "ok_two_link.urdf",
        "world_root_fixed.urdf",  # a massless root
        "sensor_frames.urdf",  # massless frames
        "no_inertial_base.urdf",
        "axis_missing.urdf",
        "axis_negative.urdf",
        "continuous_no_limit.urdf",
        "transmission_gear.urdf",
        "whitespace_name.urdf",
    ],
)
def test_mass_matrix_and_bias_of_an_odd_description_are_pybullets(shared: Path, name: str) -> None:
    assert_equal_to_pybullet(read(shared / "cases" / "urdf" / name))


@pytest.mark.parametrize(
    "name",
    [
        "kuka_iiwa/model.urdf",
        "franka_panda/panda.urdf",  # branches: prismatic fingers, one a mimic
        "cartpole.urdf",  # prismatic first
        "a1/a1.urdf",  # four branches, inertias off their axes
        "quadruped/minitaur_rainbow_dash_v1.urdf",
        "r2d2.urdf",
    ],
)
def test_mass_matrix_and_bias_of_pybullets_own_robots_are_pybullets(name: str) -> None:
    assert_equal_to_pybullet(from_pybullet(name))


@pytest.mark.parametrize(
    "path",
    [
        "data/so101/so101.urdf",
        "data/z1/z1.urdf",
        "data/go2/go2.urdf",
        "data/double_pendulum/double_pendulum.urdf",
    ],
)
def test_reading_the_file_ourselves_gives_the_robot_pybullet_reads(shared: Path, path: str) -> None:
    """Nothing of ours between PyBullet and the file; it diagonalises inertias itself, to 1e-8."""
    assert_same_robot_as_the_file(shared / path)


def test_reading_pybullets_kuka_ourselves_gives_the_robot_pybullet_reads() -> None:
    assert_same_robot_as_the_file(Path(pybullet_data.getDataPath()) / "kuka_iiwa/model.urdf")


def assert_same_robot_as_the_file(path: Path) -> None:
    model = model_of(read(path))
    q, v = random_states(model.mechanism.n)
    M, h = mass_and_bias(model, model.nominal(), q, v)
    h_at_rest = mass_and_bias(model, model.nominal(), q, np.zeros_like(v))[1]
    client = pybullet.connect(pybullet.DIRECT)
    try:
        flags = pybullet.URDF_USE_INERTIA_FROM_FILE
        body = pybullet.loadURDF(str(path), useFixedBase=True, flags=flags, physicsClientId=client)
        infos = [
            pybullet.getJointInfo(body, j, physicsClientId=client)
            for j in range(pybullet.getNumJoints(body, physicsClientId=client))
        ]
        order = [model.joints.index(info[1].decode()) for info in infos if info[2] != pybullet.JOINT_FIXED]
        for i in range(STATES):
            M_i, h_i = pybullet_mass_and_bias(client, body, q[i][order], v[i][order])
            h_rest_i = pybullet_mass_and_bias(client, body, q[i][order], 0.0 * v[i])[1]
            np.testing.assert_allclose(M[i][np.ix_(order, order)], M_i, rtol=0, atol=1e-6 * np.abs(M_i).max())
            # gravity is left out: PyBullet turns it by the rotation of the base's inertial
            coriolis = h_i - h_rest_i
            np.testing.assert_allclose((h - h_at_rest)[i][order], coriolis, rtol=0, atol=1e-6 * np.abs(coriolis).max())
    finally:
        pybullet.disconnect(client)


def test_a_mimic_joint_keeps_its_body_and_loses_its_freedom(shared: Path) -> None:
    mechanism = reduce_description(read(shared / "cases/urdf/gripper_mimic.urdf"))
    joint = next(j for j in mechanism.description.joints.values() if j.mimic is not None)
    assert joint.mimic is not None
    assert len(mechanism.bodies) == mechanism.n + 1
    assert joint.name not in mechanism.joints
    b = next(i for i, body in enumerate(mechanism.bodies) if body.joint.name == joint.name)
    assert mechanism.joints[mechanism.dof[b]] == joint.mimic.master
    assert (mechanism.ratio[b], mechanism.shift[b]) == (joint.mimic.multiplier, joint.mimic.offset)


GEARED = """<robot name="geared"><link name="base"/>
{links}
<joint name="a" type="revolute"><parent link="base"/><child link="one"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="b" type="revolute"><parent link="one"/><child link="two"/><origin xyz="0.3 0.1 0" rpy="0.3 0.2 -0.4"/>
<axis xyz="0.6 0 0.8"/><mimic joint="a" multiplier="-1.7" offset="0.3"/>
<limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="c" type="prismatic"><parent link="two"/><child link="three"/><origin xyz="0 0.2 0" rpy="0 1 0"/>
<axis xyz="0 0.28 0.96"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint></robot>"""


def geared() -> Description:
    links = "".join(
        f'<link name="{name}"><inertial><origin xyz="0.1 {0.02 * i} -0.05" rpy="{0.3 * i} 0.5 0.1"/>'
        f'<mass value="{mass}"/>'
        '<inertia ixx="0.01" iyy="0.02" izz="0.025" ixy="0.001" ixz="-0.002" iyz="0.003"/></inertial></link>'
        for i, (name, mass) in enumerate({"one": 1.0, "two": 0.7, "three": 0.4}.items())
    )
    return parse_urdf(GEARED.format(links=links).encode())


def test_a_mimic_joint_with_a_ratio_and_a_shift_between_slanted_axes_equals_pybullet() -> None:
    assert_equal_to_pybullet(geared())


def test_a_locked_joint_is_the_same_robot_with_that_joint_at_rest() -> None:
    description = two_link()
    whole = model_of(description)
    held = model_of(description, logged=["shoulder"], joints={"elbow": {"hold_at": 0.7}})
    assert held.joints == ("shoulder",)
    q, v = np.array([[0.4, 0.7]]), np.array([[1.3, 0.0]])
    M, h = mass_and_bias(whole, whole.nominal(), q, v)
    M_held, h_held = mass_and_bias(held, held.nominal(), q[:, :1], v[:, :1])
    assert M_held[0, 0, 0] == pytest.approx(M[0, 0, 0], rel=1e-14)
    assert h_held[0, 0] == pytest.approx(h[0, 0], rel=1e-14)
    assert max(worst_differences(held, held.nominal())) < 1e-12


def test_locking_a_master_holds_its_mimic_where_it_follows() -> None:
    whole, held = model_of(geared()), model_of(geared(), logged=["c"], joints={"a": {"hold_at": 0.5}})
    assert held.joints == ("c",)
    assert held.mechanism.locked == {"a": 0.5, "b": pytest.approx(-1.7 * 0.5 + 0.3)}
    q, v = np.array([[0.5, 0.2]]), np.array([[0.0, 1.5]])
    M, h = mass_and_bias(whole, whole.nominal(), q, v)
    M_held, h_held = mass_and_bias(held, held.nominal(), q[:, 1:], v[:, 1:])
    assert M_held[0, 0, 0] == pytest.approx(M[0, 1, 1], rel=1e-14)
    assert h_held[0, 0] == pytest.approx(h[0, 1], rel=1e-14)
    assert max(worst_differences(held, held.nominal())) < 1e-12


def test_nothing_left_to_move_is_an_error() -> None:
    with pytest.raises(DescriptionError, match="no joint that moves"):
        reduce_description(two_link(), {"shoulder": 0.0, "elbow": 0.0})


WELDED = """<robot name="welded"><link name="base"/><link name="frame"/>
<link name="ball"><inertial><mass value="5"/>
<inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="rod"><inertial><origin xyz="0 0 0.1"/><mass value="1"/>
<inertia ixx="0.01" iyy="0.01" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="cap"><inertial><mass value="0.5"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="frame"/><axis xyz="0 1 0"/></joint>
<joint name="w1" type="fixed"><parent link="frame"/><child link="ball"/><origin xyz="0.2 0 0"/></joint>
<joint name="w2" type="fixed"><parent link="frame"/><child link="rod"/><origin xyz="0 0 0.3" rpy="0.1 0.2 0.3"/></joint>
<joint name="w3" type="fixed"><parent link="rod"/><child link="cap"/><origin xyz="0 0 0.2"/></joint></robot>"""


def test_a_massless_frame_hands_its_body_to_the_heaviest_link_that_has_an_inertia() -> None:
    """A point mass can't be it: its inertia couldn't scale with its mass."""
    description = parse_urdf(WELDED.encode())
    (body,) = reduce_description(description).bodies
    assert body.link.name == "rod"
    assert body.rest[0] == 5.5
    assert_equal_to_pybullet(description)


def test_inertial_parameters_hold_the_inertia_about_the_frames_origin() -> None:
    inertia = np.diag([1.0, 2.0, 2.5])
    m, x, y, z, xx, yy, zz, xy, xz, yz = inertial_parameters(2.0, np.array([0.1, -0.2, 0.3]), inertia)
    assert (m, x, y, z) == (2.0, 0.2, -0.4, 0.6)
    assert [xx, yy, zz] == pytest.approx([1 + 2 * 0.13, 2 + 2 * 0.10, 2.5 + 2 * 0.05])
    assert [xy, xz, yz] == pytest.approx([2 * 0.02, -2 * 0.03, 2 * 0.06])


def test_position_limits_are_the_descriptions_or_infinite() -> None:
    assert np.isinf(reduce_description(two_link()).limits()).all()
    limits = reduce_description(geared()).limits()
    assert limits.tolist() == [[-3.0, 3.0], [-3.0, 3.0]]
