"""A controller's first-order lag: what a command becomes behind it, exactly, and in closed loop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from app.telemetry import FloatArray
from app.twin.actuator import COMMAND_COLUMNS, FEED_FORWARD, TARGET
from app.twin.command_lag import LAGGED_COLUMNS, lag_start, smooth_command
from app.twin.kernel import Drive, run
from app.twin.model import Structure, TwinModel
from app.twin.rollout import Motion, rollout
from tests.physics import commands, model_of, pendulum, rolled

INERTIA = 0.1
LAG = "robot/controller_lag_s"
NOTHING = {
    "joint/*/armature_kg_m2": 0.0,
    "joint/*/viscous_damping_nm_s_per_rad": 0.0,
    "joint/*/coulomb_friction_nm": 0.0,
    "joint/*/encoder_offset_rad": 0.0,
    "robot/command_latency_s": 0.0,
}


def turntable(controller: dict[str, object]) -> TwinModel:
    """0.1 kg·m² on a vertical hinge without losses, behind a lag."""
    model = model_of(
        pendulum(inertia=INERTIA), controller, fit={"frozen": NOTHING}, structure=Structure(lag="delay+lag")
    )
    assert LAG in model.names
    return model


def steps_behind(t: FloatArray, rows_t: FloatArray, rows: FloatArray, lag: float) -> FloatArray:
    """The lag's answer to a held command by superposition of exponentials, the first row held for ever before."""
    answer = np.full_like(t, rows[0])
    for at, step in zip(rows_t[1:], np.diff(rows), strict=True):
        answer += np.where(t > at, step * (1.0 - np.exp(-np.maximum(t - at, 0.0) / lag)), 0.0)
    return answer


def test_a_state_begins_where_past_commands_have_brought_it() -> None:
    draw = np.random.default_rng(0)
    t = np.cumsum(draw.uniform(0.001, 0.05, 300))
    rows = np.zeros((300, 2, COMMAND_COLUMNS))
    rows[:, :, :LAGGED_COLUMNS] = draw.normal(size=(300, 2, LAGGED_COLUMNS))
    state = np.zeros((2, LAGGED_COLUMNS))
    for at in (t[0] - 1.0, t[0], t[40] + 0.003, t[-1] + 0.2):
        for lag in (0.004, 0.06):
            lag_start(t, rows, at, lag, state)
            for i in range(2):
                for c in range(LAGGED_COLUMNS):
                    expected = steps_behind(np.array([at]), t, rows[:, i, c], lag)[0]
                    assert state[i, c] == pytest.approx(expected, abs=1e-7)


def test_what_the_controller_follows_is_the_average_of_the_exact_answer() -> None:
    lag, dt = 0.013, 0.001
    command, state = np.zeros((1, COMMAND_COLUMNS)), np.zeros((1, LAGGED_COLUMNS))
    for step in range(50):
        command[0, TARGET] = 1.0
        smooth_command(command, state, lag, dt)
        t = step * dt
        average = 1.0 - lag / dt * (np.exp(-t / lag) - np.exp(-(t + dt) / lag))
        assert command[0, TARGET] == pytest.approx(average, abs=1e-12)
        assert state[0, TARGET] == pytest.approx(1.0 - np.exp(-(t + dt) / lag), abs=1e-12)


def test_a_torque_builds_up_behind_its_lag() -> None:
    """A unit of torque on 0.1 kg·m²: v = (t − T(1 − e^(−t/T))) / I."""
    model, lag = turntable({"kind": "torque"}), 0.08
    command = commands(2, 1)
    command[1, 0, FEED_FORWARD] = 1.0
    t = np.linspace(0.0, 0.5, 26)
    motion = Motion(np.array([-1.0, 0.0]), command, t, 0.0, np.zeros(1), np.zeros(1))
    _, v = rolled(model, motion, model.values({LAG: lag}))
    np.testing.assert_allclose(v[:, 0], (t - lag * (1.0 - np.exp(-t / lag))) / INERTIA, rtol=0, atol=2e-5)


def reference(kp: float, kd: float, lag: float, t: FloatArray) -> FloatArray:
    """A step of 1 rad through lag, PD controller and inertia by an eighth-order integrator."""

    def slope(_: float, state: FloatArray) -> FloatArray:
        q, v, x = state
        return np.array([v, (kp * (x - q) - kd * v) / INERTIA, (1.0 - x) / lag])

    solution = solve_ivp(slope, (0.0, t[-1]), np.zeros(3), method="DOP853", rtol=1e-12, atol=1e-13, t_eval=t)
    position: FloatArray = solution.y[0]
    return position


def test_in_closed_loop_the_error_falls_with_the_square_of_the_step() -> None:
    kp, kd, lag, t = 40.0, 1.0, 0.05, np.linspace(0.0, 1.0, 51)
    model = turntable({"kind": "pd", "kp": kp, "kd": kd})
    command = commands(2, 1)
    command[1, 0, TARGET] = 1.0
    exact, errors = reference(kp, kd, lag, t), []
    parameters = model.pack(model.values({LAG: lag})[None])
    for dt in (2e-3, 1e-3, 5e-4, 1e-4):
        drive = Drive(np.array([-1.0, 0.0]), command, 0.0, t, 0.0, dt)
        q, _, _ = run(model.tree, parameters, drive, np.zeros((1, 1)), np.zeros((1, 1)))
        errors.append(np.abs(q[:, 0, 0] - exact).max())
    assert 3.5 < errors[0] / errors[1] < 4.5
    assert 3.5 < errors[1] / errors[2] < 4.5
    assert errors[1] < 4e-5
    assert errors[3] < 4e-7


def test_a_vanishing_lag_is_none() -> None:
    model = turntable({"kind": "pd", "kp": 40.0, "kd": 1.0})
    t: FloatArray = np.arange(0.0, 1.0, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = np.sin(5.0 * t)
    motion = Motion(t, command, np.linspace(0.0, 1.0, 50), 0.0, np.zeros(1), np.zeros(1))
    values = np.array([model.values({LAG: lag}) for lag in (0.0, 1e-9, 1e-5, 0.02)])
    none, tiny, small, large = rollout(model, [motion], values)[0].position
    assert np.abs(tiny - none).max() < 1e-8
    assert np.abs(small - none).max() < 1e-4
    assert np.abs(large - none).max() > 0.02


def test_a_lane_without_a_lag_beside_one_with_it_is_the_same_to_the_bit() -> None:
    model = turntable({"kind": "pd", "kp": 40.0, "kd": 1.0})
    t: FloatArray = np.arange(0.0, 1.0, 0.02)
    command = commands(len(t), 1)
    command[:, 0, TARGET] = np.sin(5.0 * t)
    motion = Motion(t, command, np.linspace(0.3, 1.0, 50), 0.3, np.zeros(1), np.zeros(1))
    values = np.array([model.values({LAG: lag}) for lag in (0.0, 0.01, 0.03)])
    together = rollout(model, [motion], values)[0].position
    for i in range(3):
        np.testing.assert_array_equal(rollout(model, [motion], values[i : i + 1])[0].position[0], together[i])
