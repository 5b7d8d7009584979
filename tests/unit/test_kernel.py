"""The compiled rollout converges to the equations of motion, and its lanes never feel each other."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.actuator import FEED_FORWARD
from app.twin.kernel import Drive, run
from app.twin.model import TIMESTEP_S, TwinModel
from app.twin.rollout import LANES, Motion, positions, rollout
from benchmarks.time_step import arm, errors, reference, spurious_damping
from tests.physics import (
    commands,
    from_pybullet,
    lossless,
    model_of,
    pendulum,
    rolled,
    sweeping,
    two_link,
    watched,
    with_rows,
)


@pytest.mark.parametrize("controlled", [True, False])
def test_the_error_falls_with_the_square_of_the_step(controlled: bool) -> None:
    """Against an eighth-order integrator of the same equations: a controlled arm, and one that swings freely."""
    model = arm(controlled=controlled)
    exact = reference(model)
    by_step = {dt: errors(model, exact, "centred", dt) for dt in (2e-3, 1e-3, 5e-4)}
    for quantity in (0, 1):
        coarse, middle, fine = (by_step[dt][quantity] for dt in (2e-3, 1e-3, 5e-4))
        assert 3.5 < coarse / middle < 4.5
        assert 3.5 < middle / fine < 4.5


def test_a_millisecond_costs_tens_of_microradians_and_a_tenth_of_it_a_hundredth_of_that() -> None:
    model = arm(controlled=True)
    exact = reference(model)
    coarse, fine = (errors(model, exact, "centred", dt)[0] for dt in (1e-3, 1e-4))
    assert coarse < 4e-5
    assert fine < 4e-7
    assert errors(model, exact, "backward", 1e-3)[0] > 100 * coarse


def test_a_position_gain_adds_no_damping() -> None:
    """Where stiffness is taken at the step's end, it adds Kp·dt."""
    assert abs(spurious_damping("centred", 120.0, TIMESTEP_S)) < 1e-6
    assert spurious_damping("backward", 120.0, TIMESTEP_S) == pytest.approx(0.120, rel=0.02)


def step_response(t: FloatArray, kp: float, b: float, inertia: float) -> FloatArray:
    """Underdamped response to a unit step."""
    decay = b / (2 * inertia)
    rate = math.sqrt(kp / inertia - decay**2)
    return np.asarray(1.0 - np.exp(-decay * t) * (np.cos(rate * t) + decay / rate * np.sin(rate * t)))


@pytest.mark.parametrize(("dt", "tolerance"), [(1e-3, 2e-4), (1e-4, 2e-6)])
def test_a_step_response_is_the_closed_form(dt: float, tolerance: float) -> None:
    """40 N·m/rad, 1 N·m·s/rad of gain and 0.2 of damping on 0.1 kg·m² with as much armature."""
    model = lossless(
        pendulum(inertia=0.1),
        {"kind": "pd", "kp": 40.0, "kd": 1.0},
        armature_kg_m2=0.1,
        viscous_damping_nm_s_per_rad=0.2,
    )
    t = np.linspace(0.0, 2.0, 101)
    drive = Drive(np.zeros(1), commands(1, 1, 1.0), 0.0, t, 0.0, dt)
    q, _, diverged = run(model.tree, model.pack(model.initial()[None]), drive, np.zeros((1, 1)), np.zeros((1, 1)))
    exact = step_response(t, 40.0, 1.2, 0.2)
    assert np.abs(q[:, 0, 0] - exact).max() < tolerance
    assert not diverged.any()


def test_gains_stiffer_than_an_explicit_step_can_hold_stay_stable() -> None:
    """dt·Kd/I = 20, where an explicit step doubles the speed tenfold each time."""
    model = lossless(pendulum(inertia=1e-3), {"kind": "pd", "kp": 1000.0, "kd": 20.0})
    q, _ = rolled(model, watched(np.linspace(0.0, 1.0, 101), commands(1, 1, 0.5), np.zeros(1)))
    assert np.abs(q).max() <= 0.5 + 1e-9
    assert q[-1, 0] == pytest.approx(0.5, abs=1e-6)


def test_damping_beyond_an_explicit_steps_bound_only_brakes() -> None:
    """b·dt/I = 100."""
    model = lossless(pendulum(inertia=0.01), viscous_damping_nm_s_per_rad=0.0)
    model = with_rows(model, {friction.DAMPING: 1000.0})
    _, v = rolled(model, watched(np.linspace(0.0, 1.0, 101), commands(1, 1), np.zeros(1), np.array([1.0])))
    assert np.abs(v[1:]).max() < 1.0
    assert abs(v[-1, 0]) < 1e-6


def test_a_free_arm_keeps_its_energy() -> None:
    """Ten seconds of a double pendulum without losses: what 2 J of swing gain or lose."""
    model = lossless(two_link())
    t = np.linspace(0.0, 10.0, 1001)
    q, v = rolled(model, watched(t, commands(1, 2), np.array([0.3, -0.2]), np.array([0.5, 0.5])))
    upper_z = -0.2 * np.sin(q[:, 0]) + 0.01 * np.cos(q[:, 0])
    lower_z = -0.4 * np.sin(q[:, 0]) - 0.15 * np.sin(q[:, 0] + q[:, 1])
    M11 = 0.02 + 1.2 * 0.0401 + 0.01 + 0.8 * (0.16 + 0.0225 + 2 * 0.4 * 0.15 * np.cos(q[:, 1]))
    M12 = 0.01 + 0.8 * (0.0225 + 0.4 * 0.15 * np.cos(q[:, 1]))
    M22 = 0.01 + 0.8 * 0.0225
    kinetic = 0.5 * (M11 * v[:, 0] ** 2 + 2 * M12 * v[:, 0] * v[:, 1] + M22 * v[:, 1] ** 2)
    energy = kinetic + 9.81 * (1.2 * upper_z + 0.8 * lower_z)
    assert np.ptp(kinetic) > 2.0
    assert np.ptp(energy) < 5e-3 * np.ptp(kinetic)


def test_outputs_between_steps_lie_on_the_motion() -> None:
    """A turning wheel read at times that are no multiples of the step."""
    model = lossless(pendulum())
    t = np.sort(np.random.default_rng(0).uniform(0.0, 1.0, 50))
    q, v = rolled(model, watched(t, commands(1, 1), np.zeros(1), np.array([3.0])))
    np.testing.assert_allclose(q[:, 0], 3.0 * t, rtol=0, atol=1e-13)
    np.testing.assert_allclose(v[:, 0], 3.0, rtol=0, atol=1e-13)


def test_a_rollout_begins_where_it_is_told_to() -> None:
    model = lossless(pendulum(com="0.3 0 0", axis="0 1 0"))
    start, speed = np.array([0.2]), np.array([1.5])
    motion = Motion(np.zeros(1), commands(1, 1), np.array([7.0, 7.0004, 7.5]), 7.0, start, speed)
    q, v = rolled(model, motion)
    assert q[0, 0] == 0.2
    assert v[0, 0] == pytest.approx(1.5, abs=1e-12)
    later, _ = rolled(model, Motion(np.zeros(1), commands(1, 1), np.array([0.0, 0.5]), 0.0, start, speed))
    assert q[2, 0] == pytest.approx(later[1, 0], abs=1e-9)


def test_no_outputs_are_no_rollout() -> None:
    trajectory = rollout(
        lossless(pendulum()),
        [watched(np.zeros(0), commands(1, 1), np.zeros(1))],
        lossless(pendulum()).initial()[None],
    )[0]
    assert trajectory.position.shape == (1, 0, 1)


def many(model: TwinModel, sets: int) -> FloatArray:
    """Parameter sets that saturate, stick and slide at different times."""
    draw = np.random.default_rng(7)
    values = np.repeat(model.initial()[None], sets, axis=0)
    spread = np.exp(0.3 * draw.normal(size=values.shape))
    latency = [spec.slot.place == "latency" for spec in model.specs]
    values = values * spread
    values[:, latency] = draw.uniform(0.0, 0.03, (sets, sum(latency)))
    return values


@pytest.fixture(scope="module")
def iiwa() -> tuple[TwinModel, Motion]:
    model = model_of(from_pybullet("kuka_iiwa/model.urdf"), {"kind": "pd", "kp": 400.0, "kd": 10.0})
    rows = {friction.TORQUE_LIMIT: 60.0, friction.BREAKAWAY: 5.0, friction.STRIBECK: 0.05, friction.LOAD: 0.05}
    model = with_rows(model, rows)
    return model, sweeping(model.mechanism.n, 1.0, amplitude=0.7)


def test_a_batch_is_each_of_its_sets_alone_to_the_bit(iiwa: tuple[TwinModel, Motion]) -> None:
    model, motion = iiwa
    values = many(model, 20)
    alone = [rollout(model, [motion], values[i : i + 1])[0] for i in range(20)]
    position = np.concatenate([each.position for each in alone])
    velocity = np.concatenate([each.velocity for each in alone])
    assert len({row.tobytes() for row in position}) == 20
    for sets in range(1, 21):
        together = rollout(model, [motion], values[:sets])[0]
        np.testing.assert_array_equal(together.position, position[:sets])
        np.testing.assert_array_equal(together.velocity, velocity[:sets])
    order = np.random.default_rng(0).permutation(20)
    np.testing.assert_array_equal(rollout(model, [motion], values[order])[0].position, position[order])


def test_the_number_of_cores_changes_no_bit(iiwa: tuple[TwinModel, Motion]) -> None:
    model, motion = iiwa
    motions = [motion, sweeping(model.mechanism.n, 0.4, seed=3), sweeping(model.mechanism.n, 0.7, seed=4)]
    values = many(model, 33)
    allowed = os.sched_getaffinity(0)
    everywhere = rollout(model, motions, values)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        on_one = rollout(model, motions, values)
    finally:
        os.sched_setaffinity(0, allowed)
    for one, other in zip(on_one, everywhere, strict=True):
        np.testing.assert_array_equal(one.position, other.position)
        np.testing.assert_array_equal(one.velocity, other.velocity)


@pytest.mark.parametrize("rate_hz", [None, 200.0])
def test_windows_share_a_kernel_call_and_are_each_alone_to_the_bit(rate_hz: float | None) -> None:
    """Twenty windows of one log, of unequal length, each from its own start, and two of another log."""
    controller = {"kind": "pd", "kp": 400.0, "kd": 10.0, "rate_hz": rate_hz}
    model = with_rows(model_of(from_pybullet("kuka_iiwa/model.urdf"), controller), {friction.TORQUE_LIMIT: 60.0})
    log, draw = sweeping(7, 4.0, amplitude=0.7), np.random.default_rng(5)
    motions = [sweeping(7, 0.3, seed=3), sweeping(7, 0.8, seed=4, rate_hz=313.0)]
    for begin in draw.uniform(0.0, 3.0, 20):
        t_out = np.sort(begin + draw.uniform(0.0, draw.uniform(0.05, 0.9), 30))
        motions.append(Motion(log.t_s, log.command, t_out, begin, draw.normal(0, 0.3, 7), draw.normal(0, 0.5, 7)))
    values = many(model, 3)
    together = rollout(model, motions, values)
    assert len({trajectory.position.tobytes() for trajectory in together}) == 22
    for motion, trajectory in zip(motions, together, strict=True):
        alone = rollout(model, [motion], values)[0]
        np.testing.assert_array_equal(trajectory.position, alone.position)
        np.testing.assert_array_equal(trajectory.velocity, alone.velocity)
        assert np.isfinite(trajectory.position).all()


def test_positions_alone_are_those_of_the_rollout(iiwa: tuple[TwinModel, Motion]) -> None:
    model, motion = iiwa
    motions, values = [motion, sweeping(7, 0.4, seed=3)], many(model, 5)
    together, lost = positions(model, motions, values)
    full = rollout(model, motions, values)
    np.testing.assert_array_equal(together, np.concatenate([each.position for each in full], axis=1))
    assert lost.shape == (5,)
    assert not lost.any()


def test_a_lane_that_diverges_after_its_last_output_has_not_diverged() -> None:
    """1 N·m turns a hundredth of the inertia past 90 rad/s within a tenth of a second; one window is shorter."""
    model = lossless(pendulum(inertia=1e-3), {"kind": "torque"})
    command = commands(1, 1)
    command[0, 0, FEED_FORWARD] = 1.0
    windows = [watched(np.linspace(0.0, end, 5), command, np.zeros(1)) for end in (0.05, 0.5)]
    short, long = rollout(model, windows, model.initial()[None])
    assert not short.diverged.any()
    assert np.isfinite(short.position).all()
    assert long.diverged.all()


def test_a_rollout_repeats_itself_to_the_bit(iiwa: tuple[TwinModel, Motion]) -> None:
    model, motion = iiwa
    values = many(model, 3)
    first, again = rollout(model, [motion], values)[0], rollout(model, [motion, motion], values)
    for each in again:
        np.testing.assert_array_equal(each.position, first.position)


def test_a_diverging_set_is_flagged_and_leaves_its_neighbours_alone() -> None:
    """1 N·m turns a hundredth of the inertia past 90 rad/s within a second, and the others not."""
    model = lossless(pendulum(), {"kind": "torque"})
    command = commands(1, 1)
    command[0, 0, FEED_FORWARD] = 1.0
    motion = watched(np.linspace(0.0, 1.0, 101), command, np.zeros(1))
    inertias = [0.1, 0.05, 0.001, 0.2]
    armature = "joint/hinge/armature_kg_m2"
    values = np.array([model.values({"link/rod/mass_kg": 10 * inertia, armature: 0.0}) for inertia in inertias])
    together = rollout(model, [motion], values)[0]
    assert together.diverged.tolist() == [False, False, True, False]
    np.testing.assert_array_equal(together.position[[0, 1, 3]], rollout(model, [motion], values[[0, 1, 3]])[0].position)
    lost = np.isnan(together.position[2, :, 0])
    assert lost[-1]
    assert not lost[:8].any()  # 0.09 s to 90 rad/s
    assert np.all(lost[np.argmax(lost) :])
    np.testing.assert_allclose(together.velocity[[0, 1, 3], -1, 0], [10.0, 20.0, 5.0], rtol=1e-12)


def test_when_every_set_diverges_the_rest_is_nan() -> None:
    model = lossless(pendulum(inertia=1e-4), {"kind": "torque"})
    command = commands(1, 1)
    command[0, 0, FEED_FORWARD] = 1.0
    motion = watched(np.linspace(0.0, 1000.0, 11), command, np.zeros(1))
    trajectory = rollout(model, [motion], np.repeat(model.initial()[None], 2, axis=0))[0]
    assert trajectory.diverged.all()
    assert np.isnan(trajectory.position[:, 1:]).all()
    assert (trajectory.position[:, 0] == 0.0).all()


def test_a_batch_holds_no_more_sets_than_it_has_lanes() -> None:
    model = lossless(pendulum())
    parameters = model.pack(np.repeat(model.initial()[None], LANES + 1, axis=0))
    drive = Drive(np.zeros(1), commands(1, 1), 0.0, np.ones(1), 0.0, TIMESTEP_S)
    with pytest.raises(ValueError, match="17 parameter sets, but a batch holds 16"):
        run(model.tree, parameters, drive, np.zeros((1, LANES + 1)), np.zeros((1, LANES + 1)))
