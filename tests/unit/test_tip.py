"""The tip is where PyBullet has it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pybullet
import pytest

from app.telemetry import FloatArray
from app.twin.description import Description, parse_urdf
from app.twin.mechanism import Mechanism, reduce_description
from app.twin.tip import tip_link, tip_positions
from tests.physics import two_link

CRANE = """<robot name="crane"><link name="base"/>
{links}
<joint name="turn" type="revolute"><parent link="base"/><child link="mast"/><origin xyz="0 0.1 0.5" rpy="0.3 0 0.2"/>
<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="reach" type="prismatic"><parent link="mast"/><child link="boom"/><origin xyz="0.2 0 0" rpy="0 0.4 0"/>
<axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<joint name="follow" type="revolute"><parent link="boom"/><child link="hook"/><origin xyz="0.3 0 0"/>
<axis xyz="0.6 0.8 0"/><mimic joint="turn" multiplier="-0.5" offset="0.2"/>
<limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="locked" type="revolute"><parent link="hook"/><child link="eye"/><origin xyz="0 0 -0.1"/>
<axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="flange" type="fixed"><parent link="eye"/><child link="tool0"/>
<origin xyz="0.05 0.02 0" rpy="0 0 1"/></joint>
</robot>"""


def body(name: str) -> str:
    return (
        f'<link name="{name}"><inertial><mass value="1"/>'
        '<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )


@pytest.fixture(scope="module")
def crane() -> Mechanism:
    links = "".join(map(body, ("mast", "boom", "hook", "eye"))) + '<link name="tool0"/>'
    return reduce_description(parse_urdf(CRANE.format(links=links).encode()), {"locked": 0.7})


def in_pybullet(description: Description, link: str, positions: dict[str, float]) -> FloatArray:
    client = pybullet.connect(pybullet.DIRECT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "robot.urdf"
            path.write_bytes(description.source)
            uid = pybullet.loadURDF(str(path), useFixedBase=True, physicsClientId=client)
        count = pybullet.getNumJoints(uid, physicsClientId=client)
        infos = [pybullet.getJointInfo(uid, i, physicsClientId=client) for i in range(count)]
        for info in infos:
            if info[1].decode() in positions:
                pybullet.resetJointState(uid, info[0], positions[info[1].decode()], physicsClientId=client)
        (index,) = [info[0] for info in infos if info[12].decode() == link]
        state = pybullet.getLinkState(uid, index, computeForwardKinematics=True, physicsClientId=client)
        return np.array(state[4])
    finally:
        pybullet.disconnect(client)


def test_a_chain_with_a_slide_a_mimic_a_locked_joint_and_a_flange_ends_where_pybullet_has_it(crane: Mechanism) -> None:
    assert crane.joints == ("turn", "reach")
    assert tip_link(crane) == "tool0"
    q = np.array([[0.0, 0.0], [0.8, 0.3], [-2.1, -0.4]])
    found = tip_positions(crane, "tool0", q)
    for (turn, reach), position in zip(q.tolist(), found, strict=True):
        all_joints = {"turn": turn, "reach": reach, "follow": -0.5 * turn + 0.2, "locked": 0.7}
        # PyBullet's link states are in single precision
        np.testing.assert_allclose(position, in_pybullet(crane.description, "tool0", all_joints), atol=2e-6)


def test_any_link_of_an_arm_is_where_pybullet_has_it() -> None:
    arm = reduce_description(two_link(), {})
    q = np.array([[0.4, -0.9]])
    positions = dict(zip(arm.joints, q[0].tolist(), strict=True))
    for link in ("upper", "lower"):
        expected = in_pybullet(arm.description, link, positions)
        np.testing.assert_allclose(tip_positions(arm, link, q)[0], expected, atol=2e-6)


def test_a_robot_with_two_ends_has_no_tip() -> None:
    source = two_link().source.replace(
        b"</robot>",
        body("other").encode() + b'<joint name="wing" type="continuous"><parent link="upper"/><child link="other"/>'
        b'<axis xyz="0 0 1"/></joint></robot>',
    )
    forked = reduce_description(parse_urdf(source), {})
    assert len(forked.joints) == 3
    assert tip_link(forked) is None
    # with the wing locked the arm is a chain again, though its frame hangs on the upper link
    assert tip_link(reduce_description(parse_urdf(source), {"wing": 0.0})) == "lower"


def test_frames_that_branch_off_the_last_link_leave_it_the_tip() -> None:
    frames = b'<link name="camera"/><link name="tool0"/>' + b"".join(
        b'<joint name="to_%s" type="fixed"><parent link="lower"/><child link="%s"/></joint>' % (name, name)
        for name in (b"camera", b"tool0")
    )
    source = two_link().source.replace(b"</robot>", frames + b"</robot>")
    assert tip_link(reduce_description(parse_urdf(source), {})) == "lower"
