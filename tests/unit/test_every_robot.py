"""Kernel and PyBullet move every robot alike that comes with PyBullet or among the recorded ones, all laws on.

What can't be moved is refused, by name and with a reason. Legged and wheeled robots hang in the air.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pybullet_data
import pytest

from app.errors import DescriptionError
from app.twin import friction, world
from app.twin.description import Description, parse_urdf
from app.twin.model import Structure, TwinModel
from app.twin.priors import scales_of
from tests.physics import model_of, read, rolled, sweeping, with_rows
from tests.unit.test_world import plausible

SAME_RAD = 1e-9
SECONDS = 5.0
BUNDLED = Path(pybullet_data.getDataPath())
EVERYTHING = Structure("coulomb+viscous+stribeck+load", "delay+lag", backlash=True)

MOVED = [
    "a1/a1.urdf",
    "aliengo/aliengo.urdf",
    "cartpole.urdf",
    "cube_rotate.urdf",
    "franka_panda/panda.urdf",
    "kuka_iiwa/model.urdf",
    "laikago/laikago_toes_zup.urdf",
    "pendulum5.urdf",
    "pr2_gripper.urdf",
    "quadruped/minitaur.urdf",
    "quadruped/minitaur_rainbow_dash_v1.urdf",
    "quadruped/spirit40.urdf",
    "quadruped/vision60.urdf",
    "r2d2.urdf",
    "racecar/racecar.urdf",
    "racecar/racecar_differential.urdf",
]
REFUSED = {
    "TwoJointRobot_w_fixedJoints.urdf": "link 'link_1': principal moments of inertia .* exceeds the sum of the others",
    "cube_no_rotation.urdf": "link 'x_prismatic': ",
    "husky/husky.urdf": "line 97: '.*' is xacro",
    "laikago/laikago.urdf": "link 'FR_hip_motor': is moved by a joint but has mass .* and inertia 0, 0, 0",
    "mini_cheetah/mini_cheetah.urdf": "link 'thigh_fr': principal moments of inertia .* exceeds the sum of the others",
    "quadruped/spirit40newer.urdf": r"joint 'RL_lower_joint' \(line 550\): has 2 <axis> elements",
    "spherical_joint_limit.urdf": r"joint 'neck' \(line 28\): type 'spherical' is not supported",
    "xarm/xarm6_robot.urdf": "link 'link2': principal moments of inertia .* exceeds the sum of the others",
}
RECORDED = ["double_pendulum/double_pendulum", "go2/go2", "so101/so101", "xl330/xl330_rig", "z1/z1"]


def with_all_laws(description: Description) -> TwinModel:
    """Gains of the robot's own scale, motors that reach their limits, and every law."""
    model = model_of(description, {"kind": "pd"}, structure=EVERYTHING)
    limit = 0.8 * scales_of(model.mechanism).torque_nm
    return with_rows(model, {friction.TORQUE_LIMIT: limit.tolist(), friction.LIMIT_SLOPE: (0.1 * limit).tolist()})


def difference(description: Description) -> float:
    """Largest difference between kernel and PyBullet in closed loop [rad or m]; checks that every joint moves."""
    model = with_all_laws(description)
    values = plausible(model)
    for i, spec in enumerate(model.specs):
        if spec.slot.place == "joint" and spec.slot.row == friction.LOAD:
            values[i] = 0.05
    motion = sweeping(model.mechanism.n, SECONDS, amplitude=0.4)
    position, velocity = rolled(model, motion, values)
    position_there, velocity_there = world.simulate(model, motion, values)
    assert np.ptp(position, axis=0).min() > 0.02
    assert np.abs(velocity - velocity_there).max() < 1e3 * SAME_RAD
    return float(np.abs(position - position_there).max())


def assert_alike(description: Description) -> None:
    assert difference(description) < SAME_RAD


@pytest.mark.parametrize("name", MOVED)
def test_robots_that_come_with_pybullet_move_alike(name: str) -> None:
    assert_alike(read(BUNDLED / name))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_robots_move_alike(shared: Path, name: str) -> None:
    assert_alike(read(shared / "data" / f"{name}.urdf"))


def test_a_chain_of_25_joints_moves_alike(shared: Path) -> None:
    assert_alike(read(shared / "cases/urdf/chain_25.urdf"))


def test_a_gripper_whose_fingers_slide_and_mimic_moves_alike(shared: Path) -> None:
    assert_alike(read(shared / "cases/urdf/gripper_mimic.urdf"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_moved_is_refused_by_name(name: str) -> None:
    with pytest.raises(DescriptionError, match=REFUSED[name]):
        read(BUNDLED / name)


def test_no_robot_that_comes_with_pybullet_is_left_out() -> None:
    """Every file is moved above, is like one that is, or is refused for a reason that names the place."""
    like = {path.parent for path in map(Path, MOVED)} | {path.parent for path in map(Path, REFUSED)}
    for path in BUNDLED.rglob("*.urdf"):
        name = path.relative_to(BUNDLED)
        if name.parts[0] == "random_urdfs" or str(name) in REFUSED:
            continue
        try:
            parse_urdf(path.read_bytes())
        except DescriptionError as error:
            assert error.where.startswith(("link '", "joint '", "line ", "robot"))  # noqa: PT017 - each file may raise
            continue
        assert name.parent in like, name
