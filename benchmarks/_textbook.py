"""One and two joints by textbook: a reality that shares nothing with the twin's code.

A planar arm of up to two links in the vertical plane, its equations written out (Spong, Hutchinson and Vidyasagar 2006,
§7.3), stepped explicitly every 50 µs. Dry friction by its definition: impulses that hold a joint if they can, and else
oppose its motion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from app.telemetry import FloatArray

DT_S = 5e-5
GRAVITY_M_S2 = 9.81
FRICTION_SWEEPS = 50


@dataclass(frozen=True, slots=True)
class Arm:
    """A planar arm; SI, angles from hanging straight down, arrays over joints.

    Attributes:
        mass: of the links.
        length: of the links.
        centre: distance of the links' centres of mass from their joints.
        inertia: of the links about their centres.
        armature: reflected rotor inertia.
        damping: viscous.
        coulomb: dry friction at speed.
        breakaway: dry friction at rest.
        stribeck: speed over which it falls.
        load: share of gravity's and Coriolis' torque and damping that adds to dry friction.
        kp: position gain.
        kd: velocity gain.
        latency_s: of commands.
        lag_s: time constant of the controller's first-order filter; 0 has none.
    """

    mass: FloatArray
    length: FloatArray
    centre: FloatArray
    inertia: FloatArray
    armature: FloatArray
    damping: FloatArray
    coulomb: FloatArray
    breakaway: FloatArray
    stribeck: FloatArray
    load: FloatArray
    kp: FloatArray
    kd: FloatArray
    latency_s: float
    lag_s: float

    def urdf(self) -> bytes:
        """Its description."""
        parts = ['<robot name="textbook"><link name="base"/>']
        parent, at = "base", 0.0
        for i in range(len(self.mass)):
            m, c, own = (float(each[i]) for each in (self.mass, self.centre, self.inertia))
            parts.append(
                f'<link name="link{i}"><inertial><origin xyz="0 0 {-c!r}"/><mass value="{m!r}"/>'
                f'<inertia ixx="{own!r}" iyy="{own!r}" izz="{own!r}" ixy="0" ixz="0" iyz="0"/></inertial></link>'
                f'<joint name="joint{i}" type="continuous"><parent link="{parent}"/><child link="link{i}"/>'
                f'<origin xyz="0 0 {-at!r}"/><axis xyz="0 1 0"/></joint>'
            )
            parent, at = f"link{i}", float(self.length[i])
        return ("".join(parts) + "</robot>").encode()


def follow(arm: Arm, t_s: FloatArray, targets: FloatArray) -> FloatArray:
    """Angles at the rows of a log [rad], shape (T, n).

    Args:
        arm: the robot.
        t_s: rows; row k's target is in force from `t_s[k]` + latency to the next row's, the first before; shape (T,).
        targets: what a PD controller is asked for; the arm starts there, at rest; shape (T, n).
    """
    table = np.array(
        [
            arm.mass,
            arm.length,
            arm.centre,
            arm.inertia,
            arm.armature,
            arm.damping,
            arm.coulomb,
            arm.breakaway,
            arm.stribeck,
            arm.load,
            arm.kp,
            arm.kd,
        ]
    )
    return _follow(table, arm.latency_s, arm.lag_s, t_s, targets)


@njit(cache=True)
def _follow(table: FloatArray, latency_s: float, lag_s: float, t_s: FloatArray, targets: FloatArray) -> FloatArray:
    armature, damping, coulomb, breakaway, stribeck, load, kp, kd = table[4:]
    n = len(armature)
    out = np.zeros(targets.shape)
    q = targets[0].copy()
    v = np.zeros(n)
    asked = targets[0].copy()
    M, h, free, bound, push = np.zeros((n, n)), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    row, written, step = 0, 0, 0
    while written < len(t_s):
        t = step * DT_S
        while written < len(t_s) and t_s[written] <= t + 0.5 * DT_S:
            out[written] = q
            written += 1
        while row < len(t_s) - 1 and t_s[row + 1] <= t - latency_s + 1e-12:
            row += 1
        for i in range(n):
            if lag_s > 0.0:
                asked[i] += DT_S / lag_s * (targets[row, i] - asked[i])
            else:
                asked[i] = targets[row, i]
        _mass_and_bias(table, q, v, M, h)
        for i in range(n):
            M[i, i] += armature[i]
            pull = kp[i] * (asked[i] - q[i]) - kd[i] * v[i]
            free[i] = DT_S * (pull - h[i] - damping[i] * v[i])
            for j in range(n):
                free[i] += M[i, j] * v[j]
            fall = math.exp(-((v[i] / stribeck[i]) ** 2))
            limit = coulomb[i] + (breakaway[i] - coulomb[i]) * fall + load[i] * abs(h[i] + damping[i] * v[i])
            bound[i] = DT_S * limit
        _rub(M, free, bound, push, v)
        for i in range(n):
            q[i] += DT_S * v[i]
        step += 1
    return out


@njit(cache=True)
def _mass_and_bias(table: FloatArray, q: FloatArray, v: FloatArray, M: FloatArray, h: FloatArray) -> None:
    mass, length, centre, inertia = table[0], table[1], table[2], table[3]
    g = GRAVITY_M_S2
    if len(q) == 1:
        M[0, 0] = inertia[0] + mass[0] * centre[0] ** 2
        h[0] = mass[0] * g * centre[0] * math.sin(q[0])
        return
    l1, c1, c2 = length[0], centre[0], centre[1]
    far = inertia[1] + mass[1] * c2**2
    coupling = mass[1] * l1 * c2
    M[0, 0] = inertia[0] + mass[0] * c1**2 + mass[1] * l1**2 + far + 2.0 * coupling * math.cos(q[1])
    M[0, 1] = M[1, 0] = far + coupling * math.cos(q[1])
    M[1, 1] = far
    whirl = coupling * math.sin(q[1])
    tip = mass[1] * g * c2 * math.sin(q[0] + q[1])
    h[0] = -whirl * (2.0 * v[0] * v[1] + v[1] ** 2) + (mass[0] * c1 + mass[1] * l1) * g * math.sin(q[0]) + tip
    h[1] = whirl * v[0] ** 2 + tip


@njit(cache=True)
def _rub(M: FloatArray, free: FloatArray, bound: FloatArray, push: FloatArray, v: FloatArray) -> None:
    """Velocities after a step: M v = free − push, push = bound·sign(v) or what holds the joint."""
    n = len(v)
    for _ in range(FRICTION_SWEEPS if n > 1 else 1):
        for i in range(n):
            rest = free[i]
            for j in range(n):
                if j != i:
                    rest -= M[i, j] * v[j]
            push[i] = min(max(rest, -bound[i]), bound[i])
            v[i] = (rest - push[i]) / M[i, i]
