"""A gap between motor and link: the play operator, what torque makes of it, and a controller that looks across it."""

from __future__ import annotations

import numpy as np
import pytest

from app.telemetry import FloatArray
from app.twin.actuator import FEED_FORWARD, TARGET, TARGET_VELOCITY
from app.twin.backlash import SURELY_MOVING, carried, grip, starting_gap
from app.twin.kernel import Drive, run
from app.twin.model import Structure, TwinModel
from app.twin.rollout import Motion, rollout
from tests.physics import commands, model_of, pendulum, rolled

INERTIA = 0.1
GAP = "joint/hinge/backlash_rad"
NOTHING = {
    "joint/*/armature_kg_m2": 0.0,
    "joint/*/viscous_damping_nm_s_per_rad": 0.0,
    "joint/*/coulomb_friction_nm": 0.0,
    "joint/*/encoder_offset_rad": 0.0,
    "robot/command_latency_s": 0.0,
}


def turntable(controller: dict[str, object], **frozen: float) -> TwinModel:
    """0.1 kg·m² on a vertical hinge behind a gap."""
    held = NOTHING | {f"joint/*/{name}": value for name, value in frozen.items()}
    model = model_of(pendulum(inertia=INERTIA), controller, fit={"frozen": held}, structure=Structure(backlash=True))
    assert GAP in model.names
    return model


def test_a_link_follows_once_its_gap_is_closed() -> None:
    """Against the definition: the link moves no more than it must to stay within the gap."""
    draw = np.random.default_rng(0)
    motor, link, gap, half = 0.0, 0.0, 0.0, 0.03
    for moved in draw.normal(0.0, 0.02, 2000):
        motor += moved
        link = min(max(link, motor - half), motor + half)
        gap = carried(gap, moved, half)
        assert gap == pytest.approx(link - motor, abs=1e-12)
        if abs(gap) == half:
            assert grip(gap, moved, half, 1.0) == 1.0
            assert grip(gap, -moved, half, 1.0) == max(0.0, 1.0 - 2.0 * half / abs(moved))


def test_a_motor_carries_its_link_for_the_part_of_a_step_after_the_gap_has_closed() -> None:
    assert grip(0.01, 1.0, 0.03, 0.1) == pytest.approx(0.6)
    assert grip(-0.01, -1.0, 0.03, 0.1) == pytest.approx(0.6)
    assert grip(0.0, 1.0, 0.03, 0.02) == 0.0
    assert grip(0.0, 1.0, 0.0, 0.02) == grip(0.0, 0.0, 0.0, 0.02) == 1.0
    assert grip(0.03, 0.0, 0.03, 0.02) == grip(-0.03, 0.0, 0.03, 0.02) == 1.0
    assert grip(0.0, 0.0, 0.03, 0.02) == 0.0


def test_a_gap_begins_closed_behind_a_moving_motor() -> None:
    v = np.array([1.0, -1.0, 0.0, 0.5 * SURELY_MOVING])
    np.testing.assert_allclose(starting_gap(np.full(4, 0.02), v), [-0.01, 0.01, 0.0, -0.005])


def test_what_is_read_is_the_motors_motion_through_the_gap() -> None:
    """Torque doesn't look at the encoder: the motor moves as without a gap, the link behind it."""
    model = turntable({"kind": "torque"})
    t: FloatArray = np.arange(0.0, 2.0, 0.001)
    command = commands(len(t), 1)
    command[:, 0, FEED_FORWARD] = 0.5 * np.cos(6.0 * t)
    motion = Motion(t, command, t, 0.0, np.zeros(1), np.zeros(1))
    values = np.array([model.values({GAP: gap}) for gap in (0.0, 0.05)])
    found = rollout(model, [motion], values)[0]
    motor, link = found.position[:, :, 0]
    expected, at = [], 0.0
    for angle in motor:
        at = min(max(at, angle - 0.025), angle + 0.025)
        expected.append(at)
    np.testing.assert_allclose(link, expected, rtol=0, atol=1e-12)
    assert link.max() == pytest.approx(motor.max() - 0.025, abs=1e-9)
    crossing = found.velocity[1, :, 0] == 0.0
    assert 0.1 < crossing.mean() < 0.9
    assert np.abs(np.diff(link)[crossing[:-1] & crossing[1:]]).max() < 1e-12


def across(kp: float, kd: float, gap: float, coulomb: float, dt: float, t_out: FloatArray) -> FloatArray:
    """A servo that follows a sine and looks across its gap, by the plainest possible integration."""
    q, v, y, half, found, k = 0.0, 0.0, 0.0, 0.5 * gap, [], 0
    for step in range(round(t_out[-1] / dt) + 1):
        t = step * dt
        if k < len(t_out) and t >= t_out[k] - 0.5 * dt:
            found.append(y)
            k += 1
        carried_along = (y <= q - half and v > 0.0) or (y >= q + half and v < 0.0)
        rate = v if carried_along else 0.0
        torque = kp * (0.3 * np.sin(4.0 * t) - y) + kd * (1.2 * np.cos(4.0 * t) - rate)
        if v == 0.0 and abs(torque) <= coulomb:
            continue
        before = v
        v += dt * (torque - coulomb * np.sign(v if v != 0.0 else torque)) / INERTIA
        if before * v < 0.0 and abs(torque) <= coulomb:
            v = 0.0
        q += dt * v
        y = min(max(y, q - half), q + half)
    return np.array(found)


@pytest.mark.parametrize("coulomb", [0.0, 0.3])
def test_a_controller_that_looks_across_the_gap_does_what_the_equations_say(coulomb: float) -> None:
    kp, kd, gap = 40.0, 2.0, 0.04
    model = turntable({"kind": "pd", "kp": kp, "kd": kd}, coulomb_friction_nm=coulomb)
    t: FloatArray = np.arange(0.0, 2.0, 0.001)
    command = commands(len(t), 1)
    middle = t + 0.0005  # rows hold: each stands for its millisecond
    command[:, 0, TARGET], command[:, 0, TARGET_VELOCITY] = 0.3 * np.sin(4.0 * middle), 1.2 * np.cos(4.0 * middle)
    t_out = np.linspace(0.1, 1.9, 19)
    exact = across(kp, kd, gap, coulomb, 1e-5, t_out)
    parameters = model.pack(model.values({GAP: gap})[None])
    errors = []
    for dt in (1e-3, 1e-4):
        drive = Drive(t, command, 0.0, t_out, 0.0, dt)
        q, _, _ = run(model.tree, parameters, drive, np.zeros((1, 1)), np.zeros((1, 1)))
        errors.append(np.abs(q[:, 0, 0] - exact).max())
    tight, _, _ = run(model.tree, model.pack(model.values({GAP: 0.0})[None]), drive, np.zeros((1, 1)), np.zeros((1, 1)))
    assert errors[0] < 5e-4
    assert errors[1] < 1e-4
    assert np.abs(tight[:, 0, 0] - exact).max() > 5e-3


def test_a_sampled_controller_looks_across_the_gap_too() -> None:
    slow, fast = (turntable({"kind": "pd", "kp": 40.0, "kd": 2.0, "rate_hz": rate}) for rate in (200.0, 1000.0))
    continuous = turntable({"kind": "pd", "kp": 40.0, "kd": 2.0})
    t: FloatArray = np.arange(0.0, 2.0, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = 0.3 * np.sin(4.0 * t)
    motion = Motion(t, command, np.linspace(0.0, 2.0, 100), 0.0, np.zeros(1), np.zeros(1))
    found = [rolled(model, motion, model.values({GAP: 0.02}))[0] for model in (slow, fast, continuous)]
    tight, _ = rolled(continuous, motion, continuous.values({GAP: 0.0}))
    assert np.abs(found[1] - found[2]).max() < 3e-3
    assert np.abs(found[0] - found[2]).max() < 2e-2
    assert np.abs(tight - found[2]).max() > 5e-3


def test_a_vanishing_gap_is_none_and_lanes_do_not_share_one() -> None:
    model = turntable({"kind": "pd", "kp": 40.0, "kd": 2.0}, coulomb_friction_nm=0.2)
    t: FloatArray = np.arange(0.0, 2.0, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = 0.3 * np.sin(4.0 * t)
    motion = Motion(t, command, np.linspace(0.0, 2.0, 100), 0.0, np.zeros(1), np.zeros(1))
    values = np.array([model.values({GAP: gap}) for gap in (0.0, 1e-7, 0.02)])
    together = rollout(model, [motion], values)[0].position
    assert np.abs(together[1] - together[0]).max() < 1e-5
    for i in range(3):
        np.testing.assert_array_equal(rollout(model, [motion], values[i : i + 1])[0].position[0], together[i])


@pytest.mark.parametrize("coulomb", [0.0, 0.05])
def test_a_tiny_change_of_the_gap_tells_what_a_larger_one_does(coulomb: float) -> None:
    """Slopes by finite differences are those of the motion, not of the steps at which gaps happen to close."""
    model = turntable({"kind": "pd", "kp": 40.0, "kd": 2.0}, coulomb_friction_nm=coulomb)
    t: FloatArray = np.arange(0.0, 2.0, 0.001)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = 0.3 * np.sin(4.0 * t)
    motion = Motion(t, command, np.linspace(0.1, 2.0, 200), 0.0, np.zeros(1), np.zeros(1))
    gaps = [0.02, 0.02 + 1e-7, 0.02 + 5e-4]
    base, tiny, larger = rollout(model, [motion], np.array([model.values({GAP: gap}) for gap in gaps]))[0].position
    slope, secant = (tiny - base) / 1e-7, (larger - base) / 5e-4
    assert np.sqrt(np.mean((slope - secant) ** 2)) < 0.1 * np.sqrt(np.mean(secant**2))
