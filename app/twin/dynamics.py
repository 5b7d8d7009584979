"""Rigid-body dynamics of a fixed-base tree, for several parameter sets in lockstep: mass matrix and bias torques.

Spatial quantities are taken at the base's origin in the base's axes, so that composite inertias add up without
transformation: recursive Newton-Euler and composite rigid bodies (Featherstone, Rigid Body Dynamics Algorithms, 2008,
§5.3 and §6.2). The last axis of every array is the *lane*: one parameter set each. Loops over lanes are innermost and
free of branches, so that the compiler turns them into vector instructions; no lane's result depends on another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from app.telemetry import FloatArray, IntArray
from app.twin.mechanism import Mechanism


class Tree(NamedTuple):
    """The constant part of a mechanism, as the compiled code takes it (see `Mechanism`)."""

    parent: IntArray
    dof: IntArray
    ratio: FloatArray
    shift: FloatArray
    prismatic: IntArray
    rotation: FloatArray  # (nb, 9), row-major
    origin: FloatArray  # (nb, 3)


class Space(NamedTuple):
    """Work space of one rollout batch with `lanes` parameter sets."""

    cos: FloatArray  # (nb, lanes)
    sin: FloatArray  # (nb, lanes)
    R: FloatArray  # body axes in base axes, row-major (nb, 9, lanes)
    p: FloatArray  # body origin (nb, 3, lanes)
    S: FloatArray  # joint motion axis, angular then linear (nb, 6, lanes)
    V: FloatArray  # spatial velocity (nb, 6, lanes)
    a: FloatArray  # spatial acceleration at q̈ = 0, gravity included (nb, 6, lanes)
    inertia: FloatArray  # m, m·c, inertia about the base's origin (nb, 10, lanes)
    f: FloatArray  # spatial force (nb, 6, lanes)
    M: FloatArray  # (n, n, lanes)
    h: FloatArray  # (n, lanes)


def tree_of(mechanism: Mechanism) -> Tree:
    """Pack a mechanism for the compiled code."""
    nb = len(mechanism.bodies)
    return Tree(
        mechanism.parent,
        mechanism.dof,
        mechanism.ratio,
        mechanism.shift,
        mechanism.prismatic,
        np.ascontiguousarray(mechanism.rotation.reshape(nb, 9)),
        np.ascontiguousarray(mechanism.origin_m),
    )


def space_for(bodies: int, n: int, lanes: int) -> Space:
    """Allocate the work space for `lanes` parameter sets of a tree with `bodies` bodies and `n` degrees of freedom."""
    shapes = [(bodies,), (bodies,), (bodies, 9), (bodies, 3), (bodies, 6), (bodies, 6), (bodies, 6), (bodies, 10)]
    shapes += [(bodies, 6), (n, n), (n,)]
    return Space(*(np.zeros((*shape, lanes)) for shape in shapes))


@njit(cache=True, error_model="numpy", nogil=True)
def mass_and_bias(
    tree: Tree, inertial: FloatArray, gravity: FloatArray, q: FloatArray, v: FloatArray, space: Space
) -> None:
    """Fill `space.M` [kg·m²] and `space.h` [N·m] for the joint state of every lane.

    Args:
        tree: the mechanism.
        inertial: inertial parameters of each body in its own frame (see `inertial_parameters`), shape (nb, 10, lanes).
        gravity: [m/s²], shape (3, lanes).
        q: joint positions [rad or m], shape (n, lanes).
        v: joint velocities [rad/s or m/s], shape (n, lanes).
        space: work space and result.
    """
    nb = len(tree.parent)
    lanes = q.shape[1]
    for b in range(nb):
        d = tree.dof[b]
        for l in range(lanes):
            angle = tree.ratio[b] * q[d, l] + tree.shift[b]
            space.cos[b, l] = math.cos(angle)
            space.sin[b, l] = math.sin(angle)
    for b in range(nb):
        _place_body(tree, b, q, space)
        _move_body(tree, b, gravity, v, space)
        _load_body(inertial, b, space)
    space.M[:] = 0.0
    space.h[:] = 0.0
    for b in range(nb - 1, -1, -1):
        _gather(tree, b, space)


@njit(cache=True, error_model="numpy", inline="always")
def _place_body(tree: Tree, b: int, q: FloatArray, space: Space) -> None:
    """Pose and motion axis of body b from its parent's pose."""
    p, R, S = space.p, space.R, space.S
    parent, d = tree.parent[b], tree.dof[b]
    E0, E1, E2, E3, E4, E5, E6, E7, E8 = tree.rotation[b]
    ox, oy, oz = tree.origin[b]
    for l in range(q.shape[1]):
        if parent < 0:
            P0, P1, P2, P3, P4, P5, P6, P7, P8 = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0
            x, y, z = ox, oy, oz
        else:
            P0, P1, P2 = R[parent, 0, l], R[parent, 1, l], R[parent, 2, l]
            P3, P4, P5 = R[parent, 3, l], R[parent, 4, l], R[parent, 5, l]
            P6, P7, P8 = R[parent, 6, l], R[parent, 7, l], R[parent, 8, l]
            x = p[parent, 0, l] + P0 * ox + P1 * oy + P2 * oz
            y = p[parent, 1, l] + P3 * ox + P4 * oy + P5 * oz
            z = p[parent, 2, l] + P6 * ox + P7 * oy + P8 * oz
        # joint axes at position 0, columns X Y Z; Z is the joint axis
        Xx, Xy, Xz = P0 * E0 + P1 * E3 + P2 * E6, P3 * E0 + P4 * E3 + P5 * E6, P6 * E0 + P7 * E3 + P8 * E6
        Yx, Yy, Yz = P0 * E1 + P1 * E4 + P2 * E7, P3 * E1 + P4 * E4 + P5 * E7, P6 * E1 + P7 * E4 + P8 * E7
        Zx, Zy, Zz = P0 * E2 + P1 * E5 + P2 * E8, P3 * E2 + P4 * E5 + P5 * E8, P6 * E2 + P7 * E5 + P8 * E8
        if tree.prismatic[b] == 1:
            slide = tree.ratio[b] * q[d, l] + tree.shift[b]
            x, y, z = x + slide * Zx, y + slide * Zy, z + slide * Zz
            R[b, 0, l], R[b, 1, l], R[b, 3, l], R[b, 4, l], R[b, 6, l], R[b, 7, l] = Xx, Yx, Xy, Yy, Xz, Yz
            S[b, 0, l], S[b, 1, l], S[b, 2, l] = 0.0, 0.0, 0.0
            S[b, 3, l], S[b, 4, l], S[b, 5, l] = Zx, Zy, Zz
        else:
            c, s = space.cos[b, l], space.sin[b, l]
            R[b, 0, l], R[b, 1, l] = c * Xx + s * Yx, c * Yx - s * Xx
            R[b, 3, l], R[b, 4, l] = c * Xy + s * Yy, c * Yy - s * Xy
            R[b, 6, l], R[b, 7, l] = c * Xz + s * Yz, c * Yz - s * Xz
            S[b, 0, l], S[b, 1, l], S[b, 2, l] = Zx, Zy, Zz
            S[b, 3, l], S[b, 4, l], S[b, 5, l] = y * Zz - z * Zy, z * Zx - x * Zz, x * Zy - y * Zx
        R[b, 2, l], R[b, 5, l], R[b, 8, l] = Zx, Zy, Zz
        p[b, 0, l], p[b, 1, l], p[b, 2, l] = x, y, z


@njit(cache=True, error_model="numpy", inline="always")
def _move_body(tree: Tree, b: int, gravity: FloatArray, v: FloatArray, space: Space) -> None:
    """Spatial velocity of body b, and its acceleration at q̈ = 0 with gravity as an upward acceleration of the base."""
    S, V, a = space.S, space.V, space.a
    parent, d = tree.parent[b], tree.dof[b]
    for l in range(v.shape[1]):
        rate = tree.ratio[b] * v[d, l]
        u0, u1, u2 = S[b, 0, l] * rate, S[b, 1, l] * rate, S[b, 2, l] * rate
        u3, u4, u5 = S[b, 3, l] * rate, S[b, 4, l] * rate, S[b, 5, l] * rate
        if parent < 0:
            w0, w1, w2, w3, w4, w5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            a0, a1, a2, a3, a4, a5 = 0.0, 0.0, 0.0, -gravity[0, l], -gravity[1, l], -gravity[2, l]
        else:
            w0, w1, w2 = V[parent, 0, l], V[parent, 1, l], V[parent, 2, l]
            w3, w4, w5 = V[parent, 3, l], V[parent, 4, l], V[parent, 5, l]
            a0, a1, a2 = a[parent, 0, l], a[parent, 1, l], a[parent, 2, l]
            a3, a4, a5 = a[parent, 3, l], a[parent, 4, l], a[parent, 5, l]
        # V × S q̇: the joint's own part of V drops out of the product
        a[b, 0, l] = a0 + w1 * u2 - w2 * u1
        a[b, 1, l] = a1 + w2 * u0 - w0 * u2
        a[b, 2, l] = a2 + w0 * u1 - w1 * u0
        a[b, 3, l] = a3 + w1 * u5 - w2 * u4 + w4 * u2 - w5 * u1
        a[b, 4, l] = a4 + w2 * u3 - w0 * u5 + w5 * u0 - w3 * u2
        a[b, 5, l] = a5 + w0 * u4 - w1 * u3 + w3 * u1 - w4 * u0
        V[b, 0, l], V[b, 1, l], V[b, 2, l] = w0 + u0, w1 + u1, w2 + u2
        V[b, 3, l], V[b, 4, l], V[b, 5, l] = w3 + u3, w4 + u4, w5 + u5


@njit(cache=True, error_model="numpy", inline="always")
def _load_body(inertial: FloatArray, b: int, space: Space) -> None:
    """Inertia of body b at the base's origin, and the force that its motion asks for: f = I a + V ×* I V."""
    R, p, V, a, inertia, f = space.R, space.p, space.V, space.a, space.inertia, space.f
    for l in range(p.shape[2]):
        m = inertial[b, 0, l]
        x, y, z = inertial[b, 1, l], inertial[b, 2, l], inertial[b, 3, l]
        xx, yy, zz = inertial[b, 4, l], inertial[b, 5, l], inertial[b, 6, l]
        xy, xz, yz = inertial[b, 7, l], inertial[b, 8, l], inertial[b, 9, l]
        R0, R1, R2 = R[b, 0, l], R[b, 1, l], R[b, 2, l]
        R3, R4, R5 = R[b, 3, l], R[b, 4, l], R[b, 5, l]
        R6, R7, R8 = R[b, 6, l], R[b, 7, l], R[b, 8, l]
        # T = R I
        T0, T1, T2 = R0 * xx + R1 * xy + R2 * xz, R0 * xy + R1 * yy + R2 * yz, R0 * xz + R1 * yz + R2 * zz
        T3, T4, T5 = R3 * xx + R4 * xy + R5 * xz, R3 * xy + R4 * yy + R5 * yz, R3 * xz + R4 * yz + R5 * zz
        T6, T7, T8 = R6 * xx + R7 * xy + R8 * xz, R6 * xy + R7 * yy + R8 * yz, R6 * xz + R7 * yz + R8 * zz
        # first moment about the body's origin, in base axes
        gx, gy, gz = R0 * x + R1 * y + R2 * z, R3 * x + R4 * y + R5 * z, R6 * x + R7 * y + R8 * z
        px, py, pz = p[b, 0, l], p[b, 1, l], p[b, 2, l]
        # shift to the base's origin: m(pᵀp 1 − ppᵀ) + 2(pᵀg)1 − pgᵀ − gpᵀ
        Ixx = T0 * R0 + T1 * R1 + T2 * R2 + m * (py * py + pz * pz) + 2.0 * (py * gy + pz * gz)
        Iyy = T3 * R3 + T4 * R4 + T5 * R5 + m * (px * px + pz * pz) + 2.0 * (px * gx + pz * gz)
        Izz = T6 * R6 + T7 * R7 + T8 * R8 + m * (px * px + py * py) + 2.0 * (px * gx + py * gy)
        Ixy = T0 * R3 + T1 * R4 + T2 * R5 - m * px * py - px * gy - gx * py
        Ixz = T0 * R6 + T1 * R7 + T2 * R8 - m * px * pz - px * gz - gx * pz
        Iyz = T3 * R6 + T4 * R7 + T5 * R8 - m * py * pz - py * gz - gy * pz
        hx, hy, hz = gx + m * px, gy + m * py, gz + m * pz
        inertia[b, 0, l], inertia[b, 1, l], inertia[b, 2, l], inertia[b, 3, l] = m, hx, hy, hz
        inertia[b, 4, l], inertia[b, 5, l], inertia[b, 6, l] = Ixx, Iyy, Izz
        inertia[b, 7, l], inertia[b, 8, l], inertia[b, 9, l] = Ixy, Ixz, Iyz
        w0, w1, w2, u0, u1, u2 = V[b, 0, l], V[b, 1, l], V[b, 2, l], V[b, 3, l], V[b, 4, l], V[b, 5, l]
        A0, A1, A2, B0, B1, B2 = a[b, 0, l], a[b, 1, l], a[b, 2, l], a[b, 3, l], a[b, 4, l], a[b, 5, l]
        # momentum: angular L = I w + h × u, linear P = m u + w × h
        L0 = Ixx * w0 + Ixy * w1 + Ixz * w2 + hy * u2 - hz * u1
        L1 = Ixy * w0 + Iyy * w1 + Iyz * w2 + hz * u0 - hx * u2
        L2 = Ixz * w0 + Iyz * w1 + Izz * w2 + hx * u1 - hy * u0
        P0, P1, P2 = m * u0 + w1 * hz - w2 * hy, m * u1 + w2 * hx - w0 * hz, m * u2 + w0 * hy - w1 * hx
        f[b, 0, l] = Ixx * A0 + Ixy * A1 + Ixz * A2 + hy * B2 - hz * B1 + w1 * L2 - w2 * L1 + u1 * P2 - u2 * P1
        f[b, 1, l] = Ixy * A0 + Iyy * A1 + Iyz * A2 + hz * B0 - hx * B2 + w2 * L0 - w0 * L2 + u2 * P0 - u0 * P2
        f[b, 2, l] = Ixz * A0 + Iyz * A1 + Izz * A2 + hx * B1 - hy * B0 + w0 * L1 - w1 * L0 + u0 * P1 - u1 * P0
        f[b, 3, l] = m * B0 + A1 * hz - A2 * hy + w1 * P2 - w2 * P1
        f[b, 4, l] = m * B1 + A2 * hx - A0 * hz + w2 * P0 - w0 * P2
        f[b, 5, l] = m * B2 + A0 * hy - A1 * hx + w0 * P1 - w1 * P0


@njit(cache=True, error_model="numpy", inline="always")
def _gather(tree: Tree, b: int, space: Space) -> None:
    """Bias torque and mass-matrix entries of body b's joint, then hand force and inertia down to the parent."""
    S, f, inertia, M, h = space.S, space.f, space.inertia, space.M, space.h
    parent, d = tree.parent[b], tree.dof[b]
    lanes = f.shape[2]
    F = space.a  # the accelerations are spent: their place takes I S
    for l in range(lanes):
        s0, s1, s2, s3, s4, s5 = S[b, 0, l], S[b, 1, l], S[b, 2, l], S[b, 3, l], S[b, 4, l], S[b, 5, l]
        m, hx, hy, hz = inertia[b, 0, l], inertia[b, 1, l], inertia[b, 2, l], inertia[b, 3, l]
        xx, yy, zz = inertia[b, 4, l], inertia[b, 5, l], inertia[b, 6, l]
        xy, xz, yz = inertia[b, 7, l], inertia[b, 8, l], inertia[b, 9, l]
        F[b, 0, l] = xx * s0 + xy * s1 + xz * s2 + hy * s5 - hz * s4
        F[b, 1, l] = xy * s0 + yy * s1 + yz * s2 + hz * s3 - hx * s5
        F[b, 2, l] = xz * s0 + yz * s1 + zz * s2 + hx * s4 - hy * s3
        F[b, 3, l] = m * s3 + s1 * hz - s2 * hy
        F[b, 4, l] = m * s4 + s2 * hx - s0 * hz
        F[b, 5, l] = m * s5 + s0 * hy - s1 * hx
        h[d, l] += tree.ratio[b] * (
            s0 * f[b, 0, l] + s1 * f[b, 1, l] + s2 * f[b, 2, l] + s3 * f[b, 3, l] + s4 * f[b, 4, l] + s5 * f[b, 5, l]
        )
    k = b
    while k >= 0:
        e = tree.dof[k]
        gain = tree.ratio[b] * tree.ratio[k]
        for l in range(lanes):
            entry = gain * (
                S[k, 0, l] * F[b, 0, l]
                + S[k, 1, l] * F[b, 1, l]
                + S[k, 2, l] * F[b, 2, l]
                + S[k, 3, l] * F[b, 3, l]
                + S[k, 4, l] * F[b, 4, l]
                + S[k, 5, l] * F[b, 5, l]
            )
            M[d, e, l] += entry
            if k != b:
                M[e, d, l] += entry
        k = tree.parent[k]
    if parent >= 0:
        for l in range(lanes):
            for c in range(6):
                f[parent, c, l] += f[b, c, l]
            for c in range(10):
                inertia[parent, c, l] += inertia[b, c, l]
