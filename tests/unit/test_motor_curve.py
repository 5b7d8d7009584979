"""What a motor can give: full torque at standstill, none at no-load speed, and full torque again to brake."""

from __future__ import annotations

import numpy as np
import pytest

from app.telemetry import FloatArray
from app.twin import friction, world
from app.twin.actuator import torque_limits
from app.twin.kernel import Drive, run
from app.twin.model import TwinModel
from app.twin.rollout import Motion
from tests.physics import commands, lossless, model_of, pendulum, rolled, watched

INERTIA = 0.1
TORQUE, SPEED = 2.0, 8.0
FAR = 1000.0


def turntable(**controller: object) -> TwinModel:
    """0.1 kg·m² on a vertical hinge, 2 N·m at standstill and none at 8 rad/s."""
    nothing = {
        "joint/*/armature_kg_m2": 0.0,
        "joint/*/viscous_damping_nm_s_per_rad": 0.0,
        "joint/*/coulomb_friction_nm": 0.0,
        "joint/*/encoder_offset_rad": 0.0,
        "robot/command_latency_s": 0.0,
    }
    motor = {"joint/*/torque_limit_nm": TORQUE, "joint/*/no_load_speed_rad_s": SPEED}
    return model_of(
        pendulum(inertia=INERTIA), {"kind": "pd", "kp": 40.0, "kd": 1.0, **controller}, fit={"frozen": nothing | motor}
    )


def run_up(t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Angle and speed at full drive: I v' = τ (1 − v/ω₀) from rest."""
    rate = TORQUE / (INERTIA * SPEED)
    v = SPEED * (1.0 - np.exp(-rate * t))
    return SPEED * t - v / rate, v


def test_a_motor_driven_as_hard_as_it_can_runs_up_to_its_no_load_speed() -> None:
    model, t = turntable(), np.linspace(0.0, 2.0, 41)
    exact_q, exact_v = run_up(t)
    errors = []
    for dt in (2e-3, 1e-3, 5e-4):
        drive = Drive(np.zeros(1), commands(1, 1, FAR), 0.0, t, 0.0, dt)
        start = np.zeros((1, 1)), np.zeros((1, 1))
        q, v, _ = run(model.tree, model.pack(model.initial()[None]), drive, *start)
        errors.append(np.abs(q[:, 0, 0] - exact_q).max())
        np.testing.assert_allclose(v[:, 0, 0], exact_v, rtol=0, atol=1e-3)
    assert errors[1] < 1e-5
    assert 3.5 < errors[0] / errors[1] < 4.5
    assert 3.5 < errors[1] / errors[2] < 4.5


def test_what_brakes_has_the_torque_of_standstill() -> None:
    model, t = turntable(), np.linspace(0.0, 0.2, 21)
    q, v = rolled(model, watched(t, commands(1, 1, FAR), np.zeros(1), np.array([-6.0])))
    np.testing.assert_allclose(v[:, 0], -6.0 + TORQUE / INERTIA * t, rtol=0, atol=1e-9)
    np.testing.assert_allclose(q[:, 0], -6.0 * t + 0.5 * TORQUE / INERTIA * t**2, rtol=0, atol=1e-9)


def test_within_its_limits_a_motor_with_a_curve_is_one_without() -> None:
    free = lossless(pendulum(inertia=INERTIA), {"kind": "pd", "kp": 40.0, "kd": 1.0})
    motion = watched(np.linspace(0.0, 1.0, 21), commands(1, 1, 0.02), np.zeros(1))
    np.testing.assert_allclose(rolled(turntable(), motion)[0], rolled(free, motion)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("rate_hz", [None, 500.0])
def test_pybullet_has_the_same_motor(rate_hz: float | None) -> None:
    model = turntable(rate_hz=rate_hz)
    t: FloatArray = np.arange(0.0, 2.0, 0.25)
    command = commands(len(t), 1)
    command[:, 0, 0] = np.where(np.arange(len(t)) % 2, -FAR, FAR)
    motion = Motion(t, command, np.linspace(0.0, 2.0, 50), 0.0, np.zeros(1), np.zeros(1))
    q, _ = rolled(model, motion)
    np.testing.assert_allclose(q, world.simulate(model, motion, model.initial())[0], rtol=0, atol=1e-9)
    assert np.ptp(q) > 0.2


def test_limits_and_no_load_speeds_are_packed_as_a_slope() -> None:
    rows = turntable().pack(turntable().initial()[None]).joint
    assert rows[friction.TORQUE_LIMIT, 0, 0] == TORQUE
    assert rows[friction.LIMIT_SLOPE, 0, 0] == TORQUE / SPEED
    assert torque_limits(TORQUE, TORQUE / SPEED, 2.0) == (-2.0, 1.5)
    assert torque_limits(TORQUE, TORQUE / SPEED, -2.0) == (-1.5, 2.0)
    unlimited = lossless(pendulum())
    assert (unlimited.pack(unlimited.initial()[None]).joint[friction.LIMIT_SLOPE] == 0.0).all()
