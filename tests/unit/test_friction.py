"""Dry friction is exact: the right joints slide, the others stand still to the bit."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from app.telemetry import FloatArray, IntArray
from app.twin import friction
from app.twin.actuator import FEED_FORWARD
from app.twin.friction import SLIDING_BACK, SLIDING_FORWARD, STUCK, friction_limit, solve_friction, stationary
from app.twin.model import TwinModel
from app.twin.rollout import Motion, rollout
from tests.physics import commands, lossless, model_of, pendulum, rolled, two_link, watched, with_rows

G = 9.81


def solved(
    A: FloatArray, rhs: FloatArray, bound: FloatArray, guess: IntArray | None = None
) -> tuple[FloatArray, IntArray]:
    n = len(rhs)
    state = stationary(n) if guess is None else guess.copy()
    v = np.zeros(n)
    solve_friction(A, rhs, bound, state, v, np.zeros((n, n)))
    return v, state


def positive_definite(draw: np.random.Generator, n: int, condition: float) -> FloatArray:
    basis = np.linalg.qr(draw.normal(size=(n, n)))[0]
    A = basis @ np.diag(np.geomspace(1.0, condition, n) if n > 1 else np.ones(1)) @ basis.T
    return np.asarray(0.5 * (A + A.T))


def by_enumeration(A: FloatArray, rhs: FloatArray, bound: FloatArray) -> FloatArray:
    """The one consistent choice among all 3ⁿ."""
    n = len(rhs)
    for state in itertools.product((SLIDING_BACK, STUCK, SLIDING_FORWARD), repeat=n):
        s = np.array(state)
        moving = np.flatnonzero(s)
        v = np.zeros(n)
        v[moving] = np.linalg.solve(A[np.ix_(moving, moving)], (rhs - bound * s)[moving])
        needed = rhs - A @ v
        if (v * s >= 0).all() and (np.abs(needed[s == 0]) <= bound[s == 0]).all():
            return v
    raise AssertionError("no choice is consistent")


def assert_complementary(A: FloatArray, rhs: FloatArray, bound: FloatArray, v: FloatArray) -> None:
    """What defines the solution, to a residual relative to the largest impulse."""
    impulse = rhs - A @ v
    small = 1e-9 * (np.abs(A) @ np.abs(v) + np.abs(rhs) + bound)
    assert (np.abs(impulse) <= bound + small).all()
    sliding = v != 0
    assert (np.abs(impulse - bound * np.sign(v))[sliding] <= small[sliding]).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_solution_is_the_one_found_by_trying_everything(n: int) -> None:
    resting = 0
    for seed in range(150):
        draw = np.random.default_rng(1000 * n + seed)
        A = positive_definite(draw, n, 10.0 ** draw.uniform(0, 4))
        rhs = draw.normal(size=n)
        bound = np.where(draw.random(n) < 0.5, 0.0, np.abs(draw.normal(size=n)))
        guess = draw.integers(-1, 2, n)
        v, state = solved(A, rhs, bound, guess)
        expected = by_enumeration(A, rhs, bound)
        np.testing.assert_allclose(v, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(v == 0, expected == 0)
        assert (v[state == STUCK] == 0).all()
        resting += int((state == STUCK).sum())
    assert resting > 20 * n  # both kinds were met


@pytest.mark.parametrize("n", [7, 12, 25])
def test_long_and_ill_conditioned_chains_are_solved(n: int) -> None:
    for seed in range(60):
        draw = np.random.default_rng(seed)
        A = positive_definite(draw, n, 1e6)
        rhs, bound = draw.normal(size=n), np.abs(draw.normal(size=n))
        for guess in (stationary(n), draw.choice([-1, 1], n), np.ones(n, dtype=np.int64)):
            assert_complementary(A, rhs, bound, solved(A, rhs, bound, guess)[0])


def test_wide_spread_scales_end_in_time() -> None:
    """A heavy base and light fingers: diagonals over eight decades."""
    began = time.perf_counter()
    for seed in range(200):
        draw = np.random.default_rng(seed)
        scale = 10.0 ** draw.uniform(-4, 0, 25)
        A = scale[:, None] * positive_definite(draw, 25, 1e3) * scale
        rhs, bound = scale * draw.normal(size=25) * 10, scale * np.abs(draw.normal(size=25))
        assert_complementary(A, rhs, bound, solved(A, rhs, bound)[0])
    assert time.perf_counter() - began < 10.0


def test_without_friction_it_is_a_linear_solve() -> None:
    draw = np.random.default_rng(0)
    A, rhs = positive_definite(draw, 6, 100.0), draw.normal(size=6)
    np.testing.assert_allclose(solved(A, rhs, np.zeros(6))[0], np.linalg.solve(A, rhs), rtol=1e-12)


def test_the_limit_is_stribecks_curve_and_a_share_of_the_load() -> None:
    assert friction_limit(0.0, 0.0, 2.0, 3.0, 0.1, 0.0) == 3.0
    assert friction_limit(0.1, 0.0, 2.0, 3.0, 0.1, 0.0) == pytest.approx(2.0 + math.exp(-1.0))
    assert friction_limit(-0.1, 0.0, 2.0, 3.0, 0.1, 0.0) == friction_limit(0.1, 0.0, 2.0, 3.0, 0.1, 0.0)
    assert friction_limit(5.0, 0.0, 2.0, 3.0, 0.1, 0.0) == 2.0
    assert friction_limit(5.0, -7.0, 2.0, 3.0, 0.1, 0.2) == pytest.approx(2.0 + 1.4)
    assert friction_limit(0.0, 0.0, 2.0, 0.0, 0.1, 0.0) == 2.0  # no breakaway friction given


def one_joint(model: TwinModel, motion: Motion) -> tuple[FloatArray, FloatArray]:
    q, v = rolled(model, motion)
    return q[:, 0], v[:, 0]


def turntable(torque_nm: float, **rows: float) -> TwinModel:
    """0.1 kg·m² on a vertical hinge that opposes motion with a torque and nothing else."""
    return lossless(pendulum(), {"kind": "torque"}, coulomb_friction_nm=torque_nm, **rows)


def test_a_joint_below_its_limit_does_not_move_by_a_bit() -> None:
    """A horizontal 2 kg rod of 0.3 m: 5.886 N·m of gravity, held by 6 N·m of friction."""
    rod = model_of(
        pendulum(com="0.3 0 0", mass=2.0, inertia=0.05, axis="0 1 0"),
        fit={"frozen": {"joint/hinge/coulomb_friction_nm": 6.0, "joint/hinge/encoder_offset_rad": 0.0}},
    )
    angle = np.array([0.123456789])
    q, v = one_joint(rod, watched(np.linspace(0.0, 5.0, 101), commands(1, 1), angle))
    assert (q == angle[0]).all()
    assert (v == 0.0).all()


def test_friction_brakes_by_its_torque_over_the_inertia_and_then_holds() -> None:
    t = np.linspace(0.0, 1.5, 151)
    motion = watched(t, commands(1, 1), np.zeros(1), np.array([2.0]))
    q, v = one_joint(turntable(0.2), motion)  # 2 rad/s² for 1 s
    still = t > 1.001  # it stops within a step
    exact = np.maximum(2.0 - 2.0 * t, 0.0)
    np.testing.assert_allclose(v[t < 0.999], exact[t < 0.999], rtol=0, atol=1e-12)
    assert (q[still] == q[-1]).all()
    assert q[-1] == pytest.approx(1.0, abs=1e-6)  # v²/2a, and dt² of it
    assert (v[still] == 0.0).all()


def test_armature_slows_the_braking() -> None:
    t = np.linspace(0.0, 1.0, 11)
    model = turntable(0.2, armature_kg_m2=0.3)
    _, v = one_joint(model, watched(t, commands(1, 1), np.zeros(1), np.array([2.0])))
    np.testing.assert_allclose(v, 2.0 - 0.5 * t, rtol=0, atol=1e-12)


def ramp(slope: float, seconds: float) -> Motion:
    """Feed-forward torque growing by `slope` a second, in steps of a millisecond."""
    t = np.arange(0.0, seconds, 0.001)
    command = commands(len(t), 1)
    command[:, 0, FEED_FORWARD] = slope * t
    return Motion(t, command, t[1:], 0.0, np.zeros(1), np.zeros(1))


def breaking_loose(model: TwinModel, slope: float) -> float:
    motion = ramp(slope, 2.0)
    q, _ = one_joint(model, motion)
    return float(motion.t_out_s[np.flatnonzero(q != 0.0)[0]])


def test_a_joint_breaks_loose_at_its_coulomb_friction() -> None:
    assert breaking_loose(turntable(0.5), 1.0) == pytest.approx(0.5, abs=0.0025)


def test_with_breakaway_friction_it_breaks_loose_there_and_slides_on_less() -> None:
    model = with_rows(turntable(0.5), {friction.BREAKAWAY: 0.8, friction.STRIBECK: 0.05})
    assert breaking_loose(model, 1.0) == pytest.approx(0.8, abs=0.0025)
    # a torque between the two keeps a turning joint turning and a resting one at rest
    command = commands(1, 1)
    command[0, 0, FEED_FORWARD] = 0.6
    t = np.array([1.0])
    assert one_joint(model, watched(t, command, np.zeros(1)))[1][0] == 0.0
    turning = one_joint(model, watched(t, command, np.zeros(1), np.array([1.0])))[1][0]
    assert turning == pytest.approx(1.0 + (0.6 - 0.5) / 0.1, abs=1e-9)


def test_stribeck_friction_brakes_along_its_curve() -> None:
    """I v̇ = −τc − (τs − τc) exp(−(v/vs)²), integrated by itself."""
    model = with_rows(turntable(0.05), {friction.BREAKAWAY: 0.15, friction.STRIBECK: 0.5})
    t = np.array([0.5, 1.0])
    _, v = one_joint(model, watched(t, commands(1, 1), np.zeros(1), np.array([1.2])))
    speed, dt = 1.2, 1e-5
    expected = []
    for step in range(100_000):
        if step == 50_000:
            expected.append(speed)
        middle = speed - 0.5 * dt * (0.05 + 0.1 * math.exp(-((speed / 0.5) ** 2))) / 0.1
        speed = max(0.0, speed - dt * (0.05 + 0.1 * math.exp(-((middle / 0.5) ** 2))) / 0.1)
    expected.append(speed)
    np.testing.assert_allclose(v, expected, rtol=0, atol=2e-6)
    assert expected[0] > 0.3


def test_load_dependent_friction_takes_its_share_of_a_weight() -> None:
    """A 3 kg lift that falls: μ m g of its weight is lost."""
    lift = model_of(
        pendulum(mass=3.0, kind="prismatic"),
        fit={
            "frozen": {
                "joint/hinge/armature_kg": 0.0,
                "joint/hinge/coulomb_friction_n": 0.0,
                "joint/hinge/viscous_damping_n_s_per_m": 0.0,
            }
        },
    )
    lift = with_rows(lift, {friction.LOAD: 0.25})
    _, v = one_joint(lift, watched(np.array([1.0]), commands(1, 1), np.zeros(1)))
    assert v[0] == pytest.approx(-0.75 * G, rel=1e-9)


def test_one_joint_of_two_is_held_to_the_bit_while_the_other_drags_at_it() -> None:
    """The upper link swings; friction holds the elbow against gravity and what the swing asks of it."""
    model = with_rows(model_of(two_link()), {friction.COULOMB: [0.0, 50.0]})
    t = np.linspace(0.0, 2.0, 81)
    start = np.array([0.3, -1.234567])
    trajectory = rollout(model, [watched(t, commands(1, 2), start)], without_losses(model)[None])[0]
    assert (trajectory.position[0, :, 1] == start[1]).all()
    assert (trajectory.velocity[0, :, 1] == 0.0).all()
    held = model_of(two_link(), logged=["shoulder"], joints={"elbow": {"hold_at": start[1]}})
    alone = rollout(held, [watched(t, commands(1, 1), start[:1])], without_losses(held)[None])[0]
    np.testing.assert_allclose(trajectory.position[0, :, 0], alone.position[0, :, 0], rtol=0, atol=1e-11)
    assert np.ptp(alone.position[0, :, 0]) > 1.0


def without_losses(model: TwinModel) -> FloatArray:
    names = [n for n in model.names if "armature" in n or "damping" in n or "coulomb" in n]
    return model.values(dict.fromkeys(names, 0.0))
