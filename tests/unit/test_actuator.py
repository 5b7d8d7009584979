"""What a command becomes: delayed in seconds, averaged over a step, limited as a whole, switched off altogether."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.actuator import (
    COMMAND_COLUMNS,
    ENABLED,
    FEED_FORWARD,
    KD_SCALE,
    KP_SCALE,
    LIMIT_SCALE,
    TARGET,
    TARGET_VELOCITY,
    average_command,
    ticks,
)
from app.twin.model import TwinModel
from app.twin.rollout import Motion
from tests.physics import commands, lossless, pendulum, rolled, watched, with_rows

INERTIA = 0.1
LATENCY = "robot/command_latency_s"


def turntable(kp: float = 40.0, kd: float = 1.0, **joint: float) -> TwinModel:
    """0.1 kg·m² on a vertical hinge under a PD controller."""
    return lossless(pendulum(inertia=INERTIA), {"kind": "pd", "kp": kp, "kd": kd}, **joint)


def on_turntable(model: TwinModel, motion: Motion, latency: float = 0.0) -> tuple[FloatArray, FloatArray]:
    q, v = rolled(model, motion, model.values({LATENCY: latency}))
    return q[:, 0], v[:, 0]


def by_overlap(t: FloatArray, command: FloatArray, begin: float, end: float) -> FloatArray:
    """The average as each row's share of the interval."""
    from_ = np.concatenate([[-np.inf], t[1:]])
    to = np.concatenate([t[1:], [np.inf]])
    share = np.maximum(0.0, np.minimum(to, end) - np.maximum(from_, begin)) / (end - begin)
    return np.asarray(np.tensordot(share, command, 1))


def test_an_average_is_every_rows_share_of_the_interval() -> None:
    draw = np.random.default_rng(0)
    for _ in range(500):
        rows = int(draw.integers(1, 12))
        t = np.cumsum(10.0 ** draw.uniform(-4, -1, rows))
        command = draw.normal(size=(rows, 2, COMMAND_COLUMNS))
        dt = 10.0 ** draw.uniform(-4, -1.5)
        begin = draw.uniform(t[0] - 3 * dt, t[-1] + dt)
        out = np.zeros((2, COMMAND_COLUMNS))
        row, whole = average_command(t, command, 0, begin, begin + dt, out)
        np.testing.assert_allclose(out, by_overlap(t, command, begin, begin + dt), rtol=0, atol=1e-9)
        assert row == max(0, int(np.searchsorted(t, begin, side="right")) - 1)
        if whole:
            np.testing.assert_array_equal(out, command[row])


def test_a_later_row_to_begin_from_gives_the_same_average() -> None:
    draw = np.random.default_rng(1)
    t = np.linspace(0.0, 0.076, 20)
    command = draw.normal(size=(20, 1, COMMAND_COLUMNS))
    fresh, carried = np.zeros((1, COMMAND_COLUMNS)), np.zeros((1, COMMAND_COLUMNS))
    row = 0
    for step in range(90):
        begin = -0.005 + 0.001 * step
        row, _ = average_command(t, command, row, begin, begin + 0.001, carried)
        average_command(t, command, 0, begin, begin + 0.001, fresh)
        np.testing.assert_array_equal(fresh, carried)


def test_the_first_command_holds_before_it_and_the_last_one_after() -> None:
    t, command = np.array([1.0, 2.0]), commands(2, 1)
    command[:, 0, TARGET] = [3.0, 4.0]
    out = np.zeros((1, COMMAND_COLUMNS))
    assert average_command(t, command, 0, -5.0, -4.0, out) == (0, True)
    assert out[0, TARGET] == 3.0
    assert average_command(t, command, 0, 7.0, 8.0, out) == (1, True)
    assert out[0, TARGET] == 4.0
    assert average_command(t, command, 0, 1.5, 2.5, out) == (0, False)
    assert out[0, TARGET] == 3.5


def step_at(seconds: float, t_out: FloatArray) -> Motion:
    t, command = np.array([0.0, seconds]), commands(2, 1)
    command[1, 0, TARGET] = 1.0
    return Motion(t, command, t_out, 0.0, np.zeros(1), np.zeros(1))


def crossing(latency: float) -> float:
    """When the response to a step at 0.1 s passes halfway."""
    t_out = np.linspace(0.1, 0.4, 3001)
    q, _ = on_turntable(turntable(), step_at(0.1, t_out), latency)
    return float(np.interp(0.5, q, t_out))


def test_latency_shifts_the_response_by_its_seconds_whatever_the_step() -> None:
    undelayed = crossing(0.0)
    for latency in (0.0001, 0.0123, 0.05):
        assert crossing(latency) - undelayed == pytest.approx(latency, abs=2e-6)


def test_a_command_within_its_latency_is_the_first_one() -> None:
    q, _ = on_turntable(turntable(), step_at(0.001, np.linspace(0.0, 0.1, 101)), 0.2)
    assert (q == 0.0).all()


def test_the_response_is_smooth_in_the_latency_across_steps_and_rows() -> None:
    """A whole-step delay would be a staircase of slope 0 and jumps."""
    t = np.arange(0.0, 0.5, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = np.sin(9.0 * t)
    motion = Motion(t, command, np.array([0.45]), 0.0, np.zeros(1), np.zeros(1))
    model, width = turntable(), 1e-5

    def slope(latency: float) -> float:
        low, high = (float(on_turntable(model, motion, latency + side)[0][0]) for side in (-width, width))
        return (high - low) / (2 * width)

    # the step's edges lie at half milliseconds, rows' at multiples of them: 0.0105 is both
    slopes = np.array([slope(0.0105 + shift) for shift in np.linspace(-1.2e-3, 1.2e-3, 25)])
    assert np.abs(slopes).min() > 0.3
    assert np.abs(np.diff(slopes)).max() < 0.01 * np.abs(slopes).max()


def test_latency_delays_targets_not_the_feedback() -> None:
    """A delayed torque would ring: with the target at rest, latency changes nothing."""
    motion = watched(np.linspace(0.0, 1.0, 11), commands(1, 1), np.array([0.5]))
    np.testing.assert_array_equal(on_turntable(turntable(), motion, 0.0)[0], on_turntable(turntable(), motion, 0.08)[0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_saturated_motor_gives_its_limit_and_no_more_feed_forward_included(sign: float) -> None:
    model = with_rows(turntable(kp=500.0, kd=5.0), {friction.TORQUE_LIMIT: 2.0})
    command = commands(1, 1, 10.0 * sign)
    command[0, 0, FEED_FORWARD] = 1.5 * sign
    t = np.linspace(0.0, 0.3, 31)
    q, v = on_turntable(model, watched(t, command, np.zeros(1)))
    np.testing.assert_allclose(v, sign * 2.0 / INERTIA * t, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(q, sign * 0.5 * 2.0 / INERTIA * t**2, rtol=0, atol=1e-6)


def test_feed_forward_against_the_controller_is_limited_with_it_not_by_itself() -> None:
    """−5 N·m of PD and +4 N·m of feed-forward are −1 N·m, within a limit of 2 N·m."""
    model = with_rows(turntable(kp=50.0, kd=0.0), {friction.TORQUE_LIMIT: 2.0})
    command = commands(1, 1, -0.1)
    command[0, 0, FEED_FORWARD] = 4.0
    _, v = on_turntable(model, watched(np.array([0.001]), command, np.zeros(1)))
    assert v[0] == pytest.approx(-1.0 / INERTIA * 0.001, rel=1e-3)


def test_the_limit_scales_with_the_supply() -> None:
    model = with_rows(turntable(kp=500.0, kd=0.0), {friction.TORQUE_LIMIT: 2.0})
    command = commands(1, 1, 10.0)
    command[0, 0, LIMIT_SCALE] = 0.5
    _, v = on_turntable(model, watched(np.array([0.1]), command, np.zeros(1)))
    assert v[0] == pytest.approx(1.0, rel=1e-12)


def test_back_emf_brings_a_saturated_motor_to_its_no_load_speed() -> None:
    """I v̇ = τmax − k v: v = τmax/k (1 − exp(−k t/I))."""
    model = with_rows(turntable(kp=500.0, kd=0.0), {friction.TORQUE_LIMIT: 2.0, friction.BACK_EMF: 0.4})
    t = np.linspace(0.05, 1.0, 20)
    _, v = on_turntable(model, watched(t, commands(1, 1, 1000.0), np.zeros(1)))
    np.testing.assert_allclose(v, 2.0 / 0.4 * (1.0 - np.exp(-0.4 * t / INERTIA)), rtol=0, atol=1e-5)


def test_a_disabled_joint_gets_no_torque_at_all_and_no_back_emf() -> None:
    model = with_rows(turntable(kp=500.0, kd=5.0), {friction.TORQUE_LIMIT: 2.0, friction.BACK_EMF: 3.0})
    command = commands(1, 1, 1.0)
    command[0, 0, [FEED_FORWARD, TARGET_VELOCITY]] = 7.0
    command[0, 0, ENABLED] = 0.0
    t = np.linspace(0.0, 1.0, 11)
    _, v = on_turntable(model, watched(t, command, np.zeros(1), np.array([0.3])))
    np.testing.assert_allclose(v, 0.3, rtol=1e-13)
    command[0, 0, ENABLED] = 1.0
    assert abs(on_turntable(model, watched(t, command, np.zeros(1), np.array([0.3])))[1][1] - 0.3) > 0.1


def test_gains_in_the_log_scale_the_controllers() -> None:
    command = commands(1, 1, 0.7)
    command[0, 0, [KP_SCALE, KD_SCALE]] = [2.0, 3.0]
    t = np.linspace(0.0, 0.5, 11)
    scaled = on_turntable(turntable(kp=20.0, kd=0.5), watched(t, command, np.zeros(1)))
    plain = on_turntable(turntable(kp=40.0, kd=1.5), watched(t, commands(1, 1, 0.7), np.zeros(1)))
    np.testing.assert_allclose(scaled[0], plain[0], rtol=0, atol=1e-15)


def test_the_controller_acts_on_what_the_encoder_reads() -> None:
    """A stiff loop brings the reading to the target, the joint itself to the target less the offset."""
    model = turntable(encoder_offset_rad=0.05)
    motion = watched(np.array([0.0, 3.0]), commands(1, 1, 0.4), np.array([0.1]))
    q, _ = on_turntable(model, motion)
    np.testing.assert_allclose(q, [0.1, 0.4], rtol=0, atol=1e-6)
    unbiased, _ = on_turntable(turntable(), motion)
    np.testing.assert_allclose(q, unbiased, rtol=0, atol=1e-12)


def test_a_target_velocity_is_followed() -> None:
    model = lossless(pendulum(inertia=INERTIA), {"kind": "velocity", "kd": 2.0})
    command = commands(1, 1)
    command[0, 0, TARGET_VELOCITY] = 3.0
    t = np.linspace(0.01, 0.3, 30)
    _, v = on_turntable(model, watched(t, command, np.zeros(1)))
    np.testing.assert_allclose(v, 3.0 * (1.0 - np.exp(-2.0 * t / INERTIA)), rtol=0, atol=2e-4)


def sampled(rate_hz: float, kp: float, kd: float) -> TwinModel:
    return lossless(pendulum(inertia=INERTIA), {"kind": "pd", "kp": kp, "kd": kd, "rate_hz": rate_hz})


def test_a_sampled_controller_holds_its_torque_between_ticks() -> None:
    """Between ticks the acceleration is constant, so the motion is known exactly."""
    kp, kd, period = 8.0, 0.6, 0.02
    q, v = on_turntable(sampled(50.0, kp, kd), watched(np.linspace(0.0, 1.0, 51), commands(1, 1, 1.0), np.zeros(1)))
    x, rate, exact = 0.0, 0.0, []
    for _ in range(51):
        exact.append((x, rate))
        a = (kp * (1.0 - x) - kd * rate) / INERTIA
        x, rate = x + period * rate + 0.5 * period**2 * a, rate + period * a
    np.testing.assert_allclose(q, [each[0] for each in exact], rtol=0, atol=1e-12)
    # at a tick the velocity has a corner, which half a step on either side rounds off
    np.testing.assert_allclose(v, [each[1] for each in exact], rtol=0, atol=0.25 * 0.001 * 2 * kp / INERTIA)


def test_a_sampled_controller_is_less_damped_than_a_continuous_one() -> None:
    t = np.linspace(0.0, 1.0, 101)
    slow, _ = on_turntable(sampled(50.0, 40.0, 1.0), watched(t, commands(1, 1, 1.0), np.zeros(1)))
    continuous, _ = on_turntable(turntable(), watched(t, commands(1, 1, 1.0), np.zeros(1)))
    fast, _ = on_turntable(sampled(1000.0, 40.0, 1.0), watched(t, commands(1, 1, 1.0), np.zeros(1)))
    assert slow.max() > continuous.max() + 0.1
    assert np.abs(fast - continuous).max() < 0.01


@pytest.mark.parametrize("rate_hz", [50.0, 333.0, 400.0, 1000.0])
@pytest.mark.parametrize("begin", [0.0, 12.3456])
def test_a_controller_ticks_at_its_rate(rate_hz: float, begin: float) -> None:
    steps = 2000
    count = sum(ticks(rate_hz, begin + step * 0.001, 0.001, step) for step in range(steps))
    assert abs(count - rate_hz * steps * 0.001) <= 1
    assert ticks(rate_hz, begin, 0.001, 0)


def test_a_sampled_controller_is_limited_and_can_be_switched_off() -> None:
    limited = with_rows(sampled(100.0, 500.0, 0.0), {friction.TORQUE_LIMIT: 2.0})
    t = np.linspace(0.0, 0.05, 6)
    _, v = on_turntable(limited, watched(t, commands(1, 1, 10.0), np.zeros(1)))
    np.testing.assert_allclose(v, 2.0 / INERTIA * t, rtol=0, atol=1e-12)
    off = commands(1, 1, 10.0)
    off[0, 0, ENABLED] = 0.0
    _, v = on_turntable(limited, watched(t, off, np.zeros(1)))
    assert (v == 0.0).all()


def test_a_fifty_hertz_command_is_held_not_interpolated() -> None:
    """Interpolating would move the response of a stiff loop 10 ms ahead."""
    t = np.arange(0.0, 2.0, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = 0.5 * t
    motion = Motion(t, command, np.array([1.99]), 0.0, np.zeros(1), np.array([0.5]))
    lag = 0.5 * 1.0 / 40.0  # Kd·v/Kp behind a moving target
    stepped, _ = on_turntable(turntable(), motion)
    assert stepped[0] == pytest.approx(0.5 * (1.99 - 0.01) - lag, abs=1e-3)
    finer = np.arange(0.0, 2.0, 0.0005)
    fine = commands(len(finer), 1)
    fine[:, 0, TARGET] = 0.5 * finer
    straight, _ = on_turntable(turntable(), replace(motion, t_s=finer, command=fine))
    assert straight[0] - stepped[0] == pytest.approx(0.5 * (0.01 - 0.00025), abs=1e-3)
    assert math.isfinite(straight[0])
