"""The PyBullet world does what the kernel does, and what it relies on of PyBullet is so."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pybullet
import pytest

from app.errors import SimulationError
from app.telemetry import FloatArray
from app.twin import friction, world
from app.twin.actuator import ENABLED, FEED_FORWARD, KP_SCALE, LIMIT_SCALE
from app.twin.description import Description, parse_urdf
from app.twin.model import TwinModel
from app.twin.rollout import Motion, rollout
from tests.physics import (
    commands,
    from_pybullet,
    lossless,
    mass_and_bias,
    model_of,
    pendulum,
    pybullet_mass_and_bias,
    read,
    rolled,
    sweeping,
    two_link,
    watched,
    with_rows,
)

SAME_RAD = 1e-9


def plausible(model: TwinModel, seed: int = 1) -> FloatArray:
    """Values some way from the nominal ones, all effects on."""
    draw = np.random.default_rng(seed)
    values = model.initial()
    for i, spec in enumerate(model.specs):
        place, row = spec.slot.place, spec.slot.row
        if place == "mass":
            values[i] *= draw.uniform(0.8, 1.25)
        elif place == "com":
            values[i] += draw.normal(0.0, 0.003)
        elif place == "latency":
            values[i] = draw.uniform(0.003, 0.02)
        elif row == friction.ARMATURE:
            values[i] *= draw.uniform(0.2, 1.0)
        elif row in (friction.DAMPING, friction.COULOMB):
            values[i] = spec.prior_moments()[1] * draw.uniform(0.05, 0.3)
        elif row == friction.OFFSET:
            values[i] = draw.uniform(-0.02, 0.02)
    return values


def assert_same(model: TwinModel, motion: Motion, values: FloatArray, within: float = SAME_RAD) -> FloatArray:
    """Both worlds agree on every position; returns them."""
    position, velocity = rolled(model, motion, values)
    world_position, world_velocity = world.simulate(model, motion, values)
    assert np.abs(position - world_position).max() < within
    assert np.abs(velocity - world_velocity).max() < 1e3 * within
    return world_position


def limited(model: TwinModel, torque: float) -> TwinModel:
    """With a torque limit that is reached, and all that friction can have."""
    rows = {friction.BREAKAWAY: 0.05 * torque, friction.STRIBECK: 0.05, friction.LOAD: 0.05, friction.BACK_EMF: 0.01}
    return with_rows(model, {friction.TORQUE_LIMIT: torque, **rows})


@pytest.mark.parametrize(
    ("robot", "kp", "kd", "torque"),
    [
        ("so101/so101.urdf", 10.0, 0.3, 1.5),
        ("z1/z1.urdf", 80.0, 2.5, 7.0),
        ("go2/go2.urdf", 20.0, 1.5, 3.0),
    ],
)
def test_real_robots_move_alike_in_pybullet_and_kernel(
    shared: Path, robot: str, kp: float, kd: float, torque: float
) -> None:
    assert_alike_for_five_seconds(read(shared / "data" / robot), kp, kd, torque)


def test_an_industrial_arm_moves_alike_in_pybullet_and_kernel() -> None:
    assert_alike_for_five_seconds(from_pybullet("kuka_iiwa/model.urdf"), 500.0, 20.0, 60.0)


def assert_alike_for_five_seconds(description: Description, kp: float, kd: float, torque: float) -> None:
    model = limited(model_of(description, {"kind": "pd", "kp": kp, "kd": kd}), torque)
    motion, values = sweeping(model.mechanism.n, 5.0, amplitude=0.5), plausible(model)
    position = assert_same(model, motion, values)
    assert np.ptp(position, axis=0).min() > 0.1
    # the limit is reached: without it the motion is another
    free = values.copy()
    free[[spec.slot.place == "joint" and spec.slot.row == friction.TORQUE_LIMIT for spec in model.specs]] = 1e9
    assert np.abs(rolled(model, motion, free)[0] - position).max() > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "franka_panda/panda.urdf",
        "cartpole.urdf",
        "a1/a1.urdf",
        "r2d2.urdf",
    ],
)
def test_pybullets_own_robots_move_alike(name: str) -> None:
    model = model_of(from_pybullet(name), {"kind": "pd", "kp": 60.0, "kd": 3.0})
    assert_same(limited(model, 25.0), sweeping(model.mechanism.n, 1.0, amplitude=0.3), plausible(limited(model, 25.0)))


@pytest.mark.parametrize(
    "name",
    [
        "chain_25.urdf",
        "gripper_mimic.urdf",
        "ok_two_link.urdf",
        "world_root_fixed.urdf",
        "sensor_frames.urdf",
        "huge_damping.urdf",
        "limits_equal_zero.urdf",
        "effort_zero.urdf",
        "continuous_no_limit.urdf",
        "whitespace_name.urdf",
    ],
)
def test_odd_descriptions_move_alike(shared: Path, name: str) -> None:
    model = model_of(read(shared / "cases" / "urdf" / name), {"kind": "pd", "kp": 20.0, "kd": 1.0})
    assert_same(model, sweeping(model.mechanism.n, 1.0, amplitude=0.3), plausible(model))


def test_a_torque_driven_double_pendulum_moves_alike_for_two_seconds(shared: Path) -> None:
    """It is chaotic: what rounding makes of it grows without bound, so the horizon is stated."""
    model = model_of(read(shared / "data/double_pendulum/double_pendulum.urdf"), {"kind": "torque"})
    t = np.arange(0.0, 2.0, 0.002)
    command = commands(len(t), 2)
    command[:, 0, FEED_FORWARD], command[:, 1, FEED_FORWARD] = 1.5 * np.sin(6.0 * t), 0.5 * np.cos(9.0 * t)
    motion = Motion(t, command, np.linspace(0.0, 2.0, 101), 0.0, np.array([0.3, 0.2]), np.array([2.0, -3.0]))
    position = assert_same(model, motion, plausible(model))
    assert np.ptp(position) > 1.0


def test_a_servo_driven_by_duty_moves_alike(shared: Path) -> None:
    model = model_of(
        read(shared / "data/xl330/xl330_rig.urdf"),
        {"kind": "servo_duty", "nominal_supply_v": 7.4},
        channels=frozenset({"position", "command_position", "command_kp"}),
    )
    (joint,) = model.joints
    motion = sweeping(1, 3.0, amplitude=1.0)
    motion.command[:, 0, KP_SCALE] = 200.0
    motion.command[:, 0, LIMIT_SCALE] = 0.95
    motion.command[100:120, 0, ENABLED] = 0.0
    values = plausible(model)
    for name, value in (
        ("duty_stiffness_nm_per_rad", 0.05),
        ("stall_torque_nm", 0.6),
        ("back_emf_nm_s_per_rad", 0.1),
    ):
        values[model.names.index(f"joint/{joint}/{name}")] = value
    assert np.ptp(assert_same(model, motion, values)) > 0.5


@pytest.mark.parametrize("rate_hz", [200.0, 333.0])
def test_a_sampled_controller_moves_alike(shared: Path, rate_hz: float) -> None:
    controller = {"kind": "pd", "kp": 60.0, "kd": 1.0, "rate_hz": rate_hz}
    model = limited(model_of(read(shared / "data/z1/z1.urdf"), controller), 20.0)
    assert_same(model, sweeping(7, 1.5, amplitude=0.3), plausible(model))


def test_locked_joints_a_payload_and_a_late_start_move_alike(shared: Path) -> None:
    model = model_of(
        read(shared / "data/so101/so101.urdf"),
        {"kind": "pd", "kp": 10.0, "kd": 0.3},
        joints={"gripper": {"ignore": True, "hold_at": 0.4}},
        payload={"link": "gripper_link", "mass_kg": 0.2, "com_m": [0.01, 0.02, -0.05]},
    )
    motion = sweeping(5, 2.0)
    late = replace(motion, begin_s=0.7, t_out_s=motion.t_out_s[motion.t_out_s >= 0.7], v0=np.full(5, 0.3))
    assert_same(model, late, plausible(model))


def test_a_locked_mimic_and_a_followed_one_move_alike(shared: Path) -> None:
    description = read(shared / "cases/urdf/gripper_mimic.urdf")
    master = next(j.mimic.master for j in description.joints.values() if j.mimic is not None)
    other = next(n for n, j in description.joints.items() if j.type != "fixed" and j.mimic is None and n != master)
    for logged in ([master], [other]):
        model = model_of(description, {"kind": "pd", "kp": 20.0, "kd": 1.0}, logged=logged)
        assert_same(model, sweeping(1, 1.0, amplitude=0.02), plausible(model))


def test_a_joint_that_sticks_and_slides_moves_alike() -> None:
    """Slow sweeps against friction: at rest most of the time."""
    model = limited(model_of(two_link(), {"kind": "pd", "kp": 60.0, "kd": 1.0}), 12.0)
    values = plausible(model)
    for i, spec in enumerate(model.specs):
        if spec.slot.place == "joint" and spec.slot.row == friction.COULOMB:
            values[i] = 1.0
    motion = sweeping(2, 4.0, amplitude=0.1)
    _, velocity = rolled(model, motion, values)
    assert 0.1 < np.mean(velocity == 0.0) < 0.95
    assert_same(model, motion, values)


def test_masses_and_centres_of_mass_reach_pybullet() -> None:
    """Its mass matrix and gravity torques follow the parameters; the inertia about the com follows the mass."""
    model = model_of(two_link())
    values = model.values({"link/lower/mass_kg": 1.6, "link/lower/com_x_m": 0.2, "link/lower/com_y_m": 0.0})
    q, v = np.array([0.3, -0.4]), np.array([1.0, 2.0])
    with world.loaded(model, values) as body:
        M, h = pybullet_mass_and_bias(body.client, body.uid, body.jacobian @ q, body.jacobian @ v)
    assert M[1, 1] == pytest.approx(2 * 0.01 + 1.6 * 0.2**2, rel=1e-12)
    ours_M, ours_h = mass_and_bias(model, values, q[None], v[None])
    np.testing.assert_allclose(M, ours_M[0], rtol=1e-12)
    np.testing.assert_allclose(h, ours_h[0], rtol=1e-12)


def test_a_frictionless_joint_keeps_its_speed() -> None:
    """Neither the damping PyBullet gives every link nor the motor it gives every joint is left."""
    model = lossless(pendulum(com="0.2 0 0"))
    motion = watched(np.linspace(0.0, 5.0, 11), commands(1, 1), np.zeros(1), np.array([4.0]))
    position, velocity = world.simulate(model, motion, model.initial())
    np.testing.assert_allclose(velocity[:, 0], 4.0, rtol=1e-12)
    np.testing.assert_allclose(position[:, 0], 4.0 * motion.t_out_s, rtol=0, atol=1e-10)


def test_a_joint_without_torque_is_left_alone_by_pybullet_itself() -> None:
    """Stepped without our torques: the speed stays, so it is PyBullet that has nothing left to act with."""
    model = lossless(two_link())
    description = replace(
        model.mechanism.description,
        joints={name: replace(j, damping=5.0) for name, j in model.mechanism.description.joints.items()},
    )
    model = lossless(description)
    with world.loaded(model, model.initial()) as body:
        pybullet.setGravity(0, 0, 0, physicsClientId=body.client)
        for index in body.indices:
            pybullet.resetJointState(body.uid, index, 0.0, 0.0, physicsClientId=body.client)
        pybullet.resetJointState(body.uid, body.indices[1], 0.0, 2.0, physicsClientId=body.client)
        start = body.inverse @ np.array([0.0, 2.0])
        M, _ = mass_and_bias(model, model.initial(), np.zeros((1, 2)), start[None])
        momentum = M[0] @ start
        for _ in range(200):
            pybullet.stepSimulation(physicsClientId=body.client)
        states = pybullet.getJointStates(body.uid, body.indices, physicsClientId=body.client)
        q, v = body.inverse @ np.array([s[0] for s in states]), body.inverse @ np.array([s[1] for s in states])
        M, _ = mass_and_bias(model, model.initial(), q[None], v[None])
        # without gravity the angular momentum about the base's axis is kept
        assert (M[0] @ v)[0] == pytest.approx(momentum[0], rel=2e-3)
        assert 0.5 * v @ M[0] @ v == pytest.approx(0.5 * start @ momentum, rel=1e-2)


def test_two_descriptions_of_the_same_name_in_turn_are_two_robots() -> None:
    """PyBullet caches files and keeps models by body: neither may leak from one rollout to the next."""
    light, heavy = (
        lossless(pendulum(com="0.3 0 0", axis="0 1 0")),
        lossless(pendulum(com="0.1 0 0", mass=5.0, axis="0 1 0")),
    )
    assert light.mechanism.description.name == heavy.mechanism.description.name
    motion = watched(np.linspace(0.0, 1.0, 11), commands(1, 1), np.zeros(1))
    first = [assert_same(model, motion, model.initial()) for model in (light, heavy)]
    again = [world.simulate(model, motion, model.initial())[0] for model in (heavy, light)]
    assert np.abs(first[0] - first[1]).max() > 0.1
    np.testing.assert_array_equal(first[0], again[1])
    np.testing.assert_array_equal(first[1], again[0])


def test_a_rollout_is_the_same_bytes_whatever_ran_before_it() -> None:
    model = model_of(from_pybullet("kuka_iiwa/model.urdf"), {"kind": "pd", "kp": 300.0, "kd": 10.0})
    motion = sweeping(7, 0.3)
    values = [plausible(model, seed) for seed in (1, 2, 3)]
    forwards = [world.simulate(model, motion, each)[0] for each in values]
    backwards = [world.simulate(model, motion, each)[0] for each in reversed(values)]
    for one, other in zip(forwards, reversed(backwards), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_client_in_the_process_is_left_alone() -> None:
    bystander = pybullet.connect(pybullet.DIRECT)
    try:
        pybullet.setGravity(0, 0, -1, physicsClientId=bystander)
        model = lossless(two_link())
        motion = watched(np.array([0.1]), commands(1, 2), np.zeros(2))
        assert_same(model, motion, model.initial())
        assert pybullet.isConnected(physicsClientId=bystander)
        assert pybullet.getNumBodies(physicsClientId=bystander) == 0
    finally:
        pybullet.disconnect(bystander)


def test_clients_are_given_back() -> None:
    model = lossless(pendulum())
    motion = watched(np.array([0.002]), commands(1, 1), np.zeros(1))
    for _ in range(30):
        world.simulate(model, motion, model.initial())
    free = pybullet.connect(pybullet.DIRECT)
    pybullet.disconnect(free)
    assert free < 5


def test_position_limits_do_not_stop_a_joint() -> None:
    text = pendulum(com="0.3 0 0", axis="0 1 0").source.replace(b"-1000", b"-0.1").replace(b"1000", b"0.1")
    model = lossless(parse_urdf(text))
    motion = watched(np.linspace(0.0, 1.0, 11), commands(1, 1), np.zeros(1))
    assert np.abs(assert_same(model, motion, model.initial())).max() > 1.0


def test_damping_in_the_file_acts_once_through_the_parameter(shared: Path) -> None:
    """`huge_damping.urdf`: b·dt/I far above PyBullet's own bound, which would rail at 100 rad/s."""
    model = model_of(read(shared / "cases/urdf/huge_damping.urdf"))
    n = model.mechanism.n
    motion = watched(np.linspace(0.0, 0.5, 11), commands(1, n), np.full(n, 0.5), np.full(n, 1.0))
    damped = assert_same(model, motion, model.nominal())
    none = model.nominal()
    none[["damping" in name for name in model.names]] = 0.0
    assert np.abs(damped - assert_same(model, motion, none)).max() > 0.05


def test_a_base_with_a_turned_inertial_falls_the_same_way() -> None:
    """PyBullet's inverse dynamics turns gravity by the rotation of a fixed base's inertial; its step doesn't."""
    tensor = '<inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0.03" ixz="-0.02" iyz="0.04"/>'
    inertial = f'<inertial><mass value="1"/>{tensor}</inertial>'
    source = two_link().source
    turned = parse_urdf(source.replace(b'<link name="base"/>', f'<link name="base">{inertial}</link>'.encode()))
    motion = watched(np.linspace(0.0, 1.0, 11), commands(1, 2), np.array([0.3, -0.2]))
    model, plain = lossless(turned), lossless(two_link())
    np.testing.assert_allclose(
        assert_same(model, motion, model.initial()),
        world.simulate(plain, motion, plain.initial())[0],
        rtol=0,
        atol=1e-12,
    )


def test_divergence_is_an_error_that_says_so() -> None:
    model = lossless(pendulum(inertia=1e-3), {"kind": "torque"})
    command = commands(1, 1)
    command[0, 0, FEED_FORWARD] = 1.0
    motion = watched(np.array([1.0]), command, np.zeros(1))
    assert rollout(model, [motion], model.initial()[None])[0].diverged.all()
    with pytest.raises(SimulationError, match="90 rad/s"):
        world.simulate(model, motion, model.initial())


def test_only_the_world_needs_pybullet() -> None:
    """The search runs without it: importing it takes a second and 30 MB."""
    code = "import sys; import app.twin.rollout; sys.exit('pybullet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
