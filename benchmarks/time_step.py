"""How exact the time step is, and what the backward form of the same step would add.

    python -m benchmarks.time_step

A free and a controlled two-link arm against an integrator of high order; and the damping that a position gain alone
brings about in a joint without any.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np
from scipy.integrate import solve_ivp

from app.telemetry import FloatArray
from app.twin import friction
from app.twin.kernel import Drive, run
from app.twin.model import TwinModel
from tests.physics import commands, lossless, mass_and_bias, pendulum, two_link

Scheme = Literal["centred", "backward"]

T_OUT: Final = np.linspace(0.1, 2.0, 20)
Q0: Final = np.array([0.3, -0.2])
V0: Final = np.array([1.0, -2.0])
TARGET: Final = np.array([0.8, -1.0])
STEPS_S: Final = (4e-3, 2e-3, 1e-3, 5e-4, 1e-4)
INERTIA: Final = 0.1


def arm(*, controlled: bool) -> TwinModel:
    """Two links in a vertical plane with damping and armature, with or without a PD controller."""
    controller = {"kind": "pd", "kp": {"shoulder": 60.0, "elbow": 30.0}, "kd": {"shoulder": 2.0, "elbow": 1.0}}
    return lossless(
        two_link(),
        controller if controlled else None,
        armature_kg_m2=0.03,
        viscous_damping_nm_s_per_rad=0.2,
    )


def centred(model: TwinModel, dt: float) -> tuple[FloatArray, FloatArray]:
    """Positions and velocities of the arm at `T_OUT` by the kernel's own step of `dt` [s], shape (K, 2) each."""
    parameters = model.pack(model.initial()[None])
    drive = Drive(np.zeros(1), commands(1, 2, TARGET), 0.0, T_OUT, 0.0, dt)
    q, v, _ = run(model.tree, parameters, drive, Q0[:, None], V0[:, None])
    return q[:, :, 0], v[:, :, 0]


def backward(model: TwinModel, dt: float) -> tuple[FloatArray, FloatArray]:
    """The same by a step whose damping and stiffness are those of its end, all else those of its start."""
    A, b, kp, kd = _rows(model)
    q, v = Q0.copy(), V0.copy()
    positions, velocities = [], []
    for step in range(1, round(T_OUT[-1] / dt) + 1):
        M, h = (each[0] for each in mass_and_bias(model, model.initial(), q[None], v[None]))
        left = M + np.diag(A + dt * (b + kd) + dt**2 * kp)
        v = v + dt * np.linalg.solve(left, kp * (TARGET - q - dt * v) - (kd + b) * v - h)
        q = q + dt * v
        if step % round(0.1 / dt) == 0:
            positions.append(q)
            velocities.append(v)
    return np.array(positions), np.array(velocities)


def reference(model: TwinModel) -> tuple[FloatArray, FloatArray]:
    """The same equations of motion by an eighth-order method with 1e-12 of tolerance."""
    A, b, kp, kd = _rows(model)

    def slope(_: float, state: FloatArray) -> FloatArray:
        q, v = state[:2], state[2:]
        M, h = (each[0] for each in mass_and_bias(model, model.initial(), q[None], v[None]))
        return np.concatenate([v, np.linalg.solve(M + np.diag(A), kp * (TARGET - q) - (kd + b) * v - h)])

    start = np.concatenate([Q0, V0])
    solution = solve_ivp(slope, (0.0, T_OUT[-1]), start, method="DOP853", rtol=1e-12, atol=1e-13, t_eval=T_OUT)
    return solution.y[:2].T, solution.y[2:].T


def errors(model: TwinModel, exact: tuple[FloatArray, FloatArray], scheme: Scheme, dt: float) -> tuple[float, float]:
    """Largest error of position [rad] and velocity [rad/s] over the motion, against its `reference`."""
    exact_q, exact_v = exact
    q, v = centred(model, dt) if scheme == "centred" else backward(model, dt)
    return float(np.abs(q - exact_q).max()), float(np.abs(v - exact_v).max())


def spurious_damping(scheme: Scheme, kp: float, dt: float) -> float:
    """Damping [N·m·s/rad] that an undamped joint under a position gain alone shows, from its decaying swing."""
    seconds = 2.0
    rate = math.sqrt(kp / INERTIA)
    swings = math.floor(seconds * rate / (2 * math.pi))
    t = np.linspace(0.0, swings * 2 * math.pi / rate, 40 * swings + 1)
    if scheme == "centred":
        model = lossless(pendulum(inertia=INERTIA), {"kind": "pd", "kp": kp, "kd": 0.0})
        drive = Drive(np.zeros(1), commands(1, 1), 0.0, t, 0.0, dt)
        q, _, _ = run(model.tree, model.pack(model.initial()[None]), drive, np.ones((1, 1)), np.zeros((1, 1)))
        position = q[:, 0, 0]
    else:
        x, v, trail = 1.0, 0.0, [1.0]
        for _ in range(math.ceil(t[-1] / dt) + 1):
            v = (INERTIA * v - dt * kp * x) / (INERTIA + dt**2 * kp)
            x += dt * v
            trail.append(x)
        position = np.interp(t, dt * np.arange(len(trail)), trail)
    # The envelope of cos falls by exp(−b t / 2I): fitted as ln of each period's rms
    rms = np.sqrt(np.mean(position[:-1].reshape(swings, -1) ** 2, axis=1))
    middle = (np.arange(swings) + 0.5) * 2 * math.pi / rate
    return float(-2 * INERTIA * np.polyfit(middle, np.log(rms), 1)[0])


def _rows(model: TwinModel) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    joint = model.pack(model.initial()[None]).joint[:, :, 0]
    return joint[friction.ARMATURE], joint[friction.DAMPING], joint[friction.KP], joint[friction.KD]


def main() -> None:
    """Print errors over the step, and spurious damping over the gain."""
    for controlled in (True, False):
        model = arm(controlled=controlled)
        exact = reference(model)
        print(f"two links, {'PD with step command' if controlled else 'free swing'}, 2 s: largest error [rad]")
        print(f"{'step [ms]':>10} {'centred':>10} {'backward':>10}")
        for dt in STEPS_S:
            ours, other = (errors(model, exact, scheme, dt)[0] for scheme in ("centred", "backward"))
            print(f"{1e3 * dt:10.1f} {ours:10.2e} {other:10.2e}")
    print("damping of an undamped joint under Kp alone, 1 ms [N·m·s/rad]")
    print(f"{'Kp':>10} {'centred':>10} {'backward':>10} {'Kp·dt/2':>10}")
    for kp in (20.0, 120.0, 500.0):
        centred_b, backward_b = (spurious_damping(scheme, kp, 1e-3) for scheme in ("centred", "backward"))
        print(f"{kp:10.0f} {centred_b:10.1e} {backward_b:10.4f} {0.5e-3 * kp:10.4f}")


if __name__ == "__main__":
    main()
