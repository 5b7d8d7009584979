"""Rigid-body dynamics of a fixed-base tree, for several parameter sets in lockstep: mass matrix and bias torques.

Spatial quantities are taken at the base's origin in the base's axes, so that composite inertias add up without
transformation: recursive Newton-Euler and composite rigid bodies (Featherstone, Rigid Body Dynamics Algorithms, 2008,
§5.3 and §6.2). The last axis of every array is the *lane*: one parameter set each, `LANES` of them. Loops over lanes
are innermost, and what they touch of a body lies in one block, rows at constant distances: the compiler then sees that
rows don't overlap and uses vector instructions. No lane's result depends on another.
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


LANES = 16
"""Parameter sets stepped in lockstep: two vectors of eight doubles."""

# Offsets of a body's quantities in its block; row r of a quantity begins r·W later.
W = LANES
ROT = 0  # body axes in base axes, row-major, 9 rows
POS = 9 * W  # body origin, 3
AXIS = 12 * W  # joint motion axis, angular then linear, 6
VEL = 18 * W  # spatial velocity, 6
ACC = 24 * W  # spatial acceleration at q̈ = 0, gravity included, 6; spent, it takes the inertia's product with AXIS
INERTIA = 30 * W  # m, m·c, inertia about the base's origin (xx yy zz xy xz yz), 10
FORCE = 40 * W  # spatial force, 6
COS = 46 * W
SIN = 47 * W
BLOCK = 48 * W


class Space(NamedTuple):
    """Work space of one batch of rollouts."""

    block: FloatArray  # (1 + nb, BLOCK); the first one is the base's
    M: FloatArray  # (n, n, LANES)
    h: FloatArray  # (n, LANES)


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


def space_for(bodies: int, n: int) -> Space:
    """Allocate the work space for a tree with `bodies` bodies and `n` degrees of freedom."""
    block = np.zeros((1 + bodies, BLOCK))
    for axis in range(3):
        row = ROT + 4 * axis * W
        block[0, row : row + W] = 1.0
    return Space(block, np.zeros((n, n, LANES)), np.zeros((n, LANES)))


@njit(cache=True, error_model="numpy", nogil=True)
def mass_and_bias(
    tree: Tree, inertial: FloatArray, gravity: FloatArray, q: FloatArray, v: FloatArray, space: Space
) -> None:
    """Fill `space.M` [kg·m²] and `space.h` [N·m] for the joint state of every lane.

    Args:
        tree: the mechanism.
        inertial: inertial parameters of each body in its own frame (see `inertial_parameters`), shape (nb, 10·LANES).
        gravity: [m/s²], shape (3, LANES).
        q: joint positions [rad or m], shape (n, LANES).
        v: joint velocities [rad/s or m/s], shape (n, LANES).
        space: work space and result.
    """
    nb = len(tree.parent)
    base = space.block[0]
    for axis in range(3):
        for l in range(W):
            base[ACC + (3 + axis) * W + l] = -gravity[axis, l]
    for b in range(nb):
        A, B, d = space.block[tree.parent[b] + 1], space.block[b + 1], tree.dof[b]
        _turn_joint(tree.ratio[b], tree.shift[b], q[d], B)
        if tree.prismatic[b] == 1:
            _place_sliding(tree, b, q[d], A, B)
        else:
            _place_turning(tree, b, A, B)
        _move_body(tree.ratio[b], v[d], A, B)
        _load_body(inertial[b], B)
    space.M[:] = 0.0
    space.h[:] = 0.0
    for b in range(nb - 1, -1, -1):
        _gather(tree, b, space)


@njit(cache=True, error_model="numpy")
def _turn_joint(ratio: float, shift: float, q: FloatArray, B: FloatArray) -> None:
    """Cosine and sine of the joint's angle."""
    for l in range(W):
        angle = ratio * q[l] + shift
        B[COS + l] = math.cos(angle)
        B[SIN + l] = math.sin(angle)


@njit(cache=True, error_model="numpy")
def _place_turning(tree: Tree, b: int, A: FloatArray, B: FloatArray) -> None:
    """Pose and motion axis of body b, which turns on its joint, from its parent's pose."""
    E0, E1, E2, E3, E4, E5, E6, E7, E8 = tree.rotation[b]
    ox, oy, oz = tree.origin[b]
    for l in range(W):
        P0, P1, P2 = A[ROT + l], A[ROT + W + l], A[ROT + 2 * W + l]
        P3, P4, P5 = A[ROT + 3 * W + l], A[ROT + 4 * W + l], A[ROT + 5 * W + l]
        P6, P7, P8 = A[ROT + 6 * W + l], A[ROT + 7 * W + l], A[ROT + 8 * W + l]
        x = A[POS + l] + P0 * ox + P1 * oy + P2 * oz
        y = A[POS + W + l] + P3 * ox + P4 * oy + P5 * oz
        z = A[POS + 2 * W + l] + P6 * ox + P7 * oy + P8 * oz
        # joint axes at position 0, columns X Y Z; Z is the joint axis
        Xx, Xy, Xz = P0 * E0 + P1 * E3 + P2 * E6, P3 * E0 + P4 * E3 + P5 * E6, P6 * E0 + P7 * E3 + P8 * E6
        Yx, Yy, Yz = P0 * E1 + P1 * E4 + P2 * E7, P3 * E1 + P4 * E4 + P5 * E7, P6 * E1 + P7 * E4 + P8 * E7
        Zx, Zy, Zz = P0 * E2 + P1 * E5 + P2 * E8, P3 * E2 + P4 * E5 + P5 * E8, P6 * E2 + P7 * E5 + P8 * E8
        c, s = B[COS + l], B[SIN + l]
        B[ROT + l], B[ROT + W + l], B[ROT + 2 * W + l] = c * Xx + s * Yx, c * Yx - s * Xx, Zx
        B[ROT + 3 * W + l], B[ROT + 4 * W + l], B[ROT + 5 * W + l] = c * Xy + s * Yy, c * Yy - s * Xy, Zy
        B[ROT + 6 * W + l], B[ROT + 7 * W + l], B[ROT + 8 * W + l] = c * Xz + s * Yz, c * Yz - s * Xz, Zz
        B[AXIS + l], B[AXIS + W + l], B[AXIS + 2 * W + l] = Zx, Zy, Zz
        B[AXIS + 3 * W + l] = y * Zz - z * Zy
        B[AXIS + 4 * W + l] = z * Zx - x * Zz
        B[AXIS + 5 * W + l] = x * Zy - y * Zx
        B[POS + l], B[POS + W + l], B[POS + 2 * W + l] = x, y, z


@njit(cache=True, error_model="numpy")
def _place_sliding(tree: Tree, b: int, q: FloatArray, A: FloatArray, B: FloatArray) -> None:
    """Pose and motion axis of body b, which slides on its joint, from its parent's pose."""
    E0, E1, E2, E3, E4, E5, E6, E7, E8 = tree.rotation[b]
    ox, oy, oz = tree.origin[b]
    ratio, shift = tree.ratio[b], tree.shift[b]
    for l in range(W):
        P0, P1, P2 = A[ROT + l], A[ROT + W + l], A[ROT + 2 * W + l]
        P3, P4, P5 = A[ROT + 3 * W + l], A[ROT + 4 * W + l], A[ROT + 5 * W + l]
        P6, P7, P8 = A[ROT + 6 * W + l], A[ROT + 7 * W + l], A[ROT + 8 * W + l]
        x = A[POS + l] + P0 * ox + P1 * oy + P2 * oz
        y = A[POS + W + l] + P3 * ox + P4 * oy + P5 * oz
        z = A[POS + 2 * W + l] + P6 * ox + P7 * oy + P8 * oz
        # joint axes at position 0, columns X Y Z; Z is the joint axis
        Xx, Xy, Xz = P0 * E0 + P1 * E3 + P2 * E6, P3 * E0 + P4 * E3 + P5 * E6, P6 * E0 + P7 * E3 + P8 * E6
        Yx, Yy, Yz = P0 * E1 + P1 * E4 + P2 * E7, P3 * E1 + P4 * E4 + P5 * E7, P6 * E1 + P7 * E4 + P8 * E7
        Zx, Zy, Zz = P0 * E2 + P1 * E5 + P2 * E8, P3 * E2 + P4 * E5 + P5 * E8, P6 * E2 + P7 * E5 + P8 * E8
        slide = ratio * q[l] + shift
        B[ROT + l], B[ROT + W + l], B[ROT + 2 * W + l] = Xx, Yx, Zx
        B[ROT + 3 * W + l], B[ROT + 4 * W + l], B[ROT + 5 * W + l] = Xy, Yy, Zy
        B[ROT + 6 * W + l], B[ROT + 7 * W + l], B[ROT + 8 * W + l] = Xz, Yz, Zz
        B[AXIS + l], B[AXIS + W + l], B[AXIS + 2 * W + l] = 0.0, 0.0, 0.0
        B[AXIS + 3 * W + l], B[AXIS + 4 * W + l], B[AXIS + 5 * W + l] = Zx, Zy, Zz
        B[POS + l], B[POS + W + l], B[POS + 2 * W + l] = x + slide * Zx, y + slide * Zy, z + slide * Zz


@njit(cache=True, error_model="numpy")
def _move_body(ratio: float, v: FloatArray, A: FloatArray, B: FloatArray) -> None:
    """Spatial velocity of body b, and its acceleration at q̈ = 0 with gravity as an upward acceleration of the base."""
    for l in range(W):
        rate = ratio * v[l]
        u0, u1, u2 = B[AXIS + l] * rate, B[AXIS + W + l] * rate, B[AXIS + 2 * W + l] * rate
        u3, u4, u5 = B[AXIS + 3 * W + l] * rate, B[AXIS + 4 * W + l] * rate, B[AXIS + 5 * W + l] * rate
        w0, w1, w2 = A[VEL + l], A[VEL + W + l], A[VEL + 2 * W + l]
        w3, w4, w5 = A[VEL + 3 * W + l], A[VEL + 4 * W + l], A[VEL + 5 * W + l]
        a0, a1, a2 = A[ACC + l], A[ACC + W + l], A[ACC + 2 * W + l]
        a3, a4, a5 = A[ACC + 3 * W + l], A[ACC + 4 * W + l], A[ACC + 5 * W + l]
        # V × S q̇: the joint's own part of V drops out of the product
        B[ACC + l] = a0 + w1 * u2 - w2 * u1
        B[ACC + W + l] = a1 + w2 * u0 - w0 * u2
        B[ACC + 2 * W + l] = a2 + w0 * u1 - w1 * u0
        B[ACC + 3 * W + l] = a3 + w1 * u5 - w2 * u4 + w4 * u2 - w5 * u1
        B[ACC + 4 * W + l] = a4 + w2 * u3 - w0 * u5 + w5 * u0 - w3 * u2
        B[ACC + 5 * W + l] = a5 + w0 * u4 - w1 * u3 + w3 * u1 - w4 * u0
        B[VEL + l], B[VEL + W + l], B[VEL + 2 * W + l] = w0 + u0, w1 + u1, w2 + u2
        B[VEL + 3 * W + l], B[VEL + 4 * W + l], B[VEL + 5 * W + l] = w3 + u3, w4 + u4, w5 + u5


@njit(cache=True, error_model="numpy")
def _load_body(own: FloatArray, B: FloatArray) -> None:
    """Inertia of body b at the base's origin, and the force that its motion asks for: f = I a + V ×* I V."""
    for l in range(W):
        m = own[l]
        x, y, z = own[W + l], own[2 * W + l], own[3 * W + l]
        xx, yy, zz = own[4 * W + l], own[5 * W + l], own[6 * W + l]
        xy, xz, yz = own[7 * W + l], own[8 * W + l], own[9 * W + l]
        R0, R1, R2 = B[ROT + l], B[ROT + W + l], B[ROT + 2 * W + l]
        R3, R4, R5 = B[ROT + 3 * W + l], B[ROT + 4 * W + l], B[ROT + 5 * W + l]
        R6, R7, R8 = B[ROT + 6 * W + l], B[ROT + 7 * W + l], B[ROT + 8 * W + l]
        # T = R I
        T0, T1, T2 = R0 * xx + R1 * xy + R2 * xz, R0 * xy + R1 * yy + R2 * yz, R0 * xz + R1 * yz + R2 * zz
        T3, T4, T5 = R3 * xx + R4 * xy + R5 * xz, R3 * xy + R4 * yy + R5 * yz, R3 * xz + R4 * yz + R5 * zz
        T6, T7, T8 = R6 * xx + R7 * xy + R8 * xz, R6 * xy + R7 * yy + R8 * yz, R6 * xz + R7 * yz + R8 * zz
        # first moment about the body's origin, in base axes
        gx, gy, gz = R0 * x + R1 * y + R2 * z, R3 * x + R4 * y + R5 * z, R6 * x + R7 * y + R8 * z
        px, py, pz = B[POS + l], B[POS + W + l], B[POS + 2 * W + l]
        # shift to the base's origin: m(pᵀp 1 − ppᵀ) + 2(pᵀg)1 − pgᵀ − gpᵀ
        Ixx = T0 * R0 + T1 * R1 + T2 * R2 + m * (py * py + pz * pz) + 2.0 * (py * gy + pz * gz)
        Iyy = T3 * R3 + T4 * R4 + T5 * R5 + m * (px * px + pz * pz) + 2.0 * (px * gx + pz * gz)
        Izz = T6 * R6 + T7 * R7 + T8 * R8 + m * (px * px + py * py) + 2.0 * (px * gx + py * gy)
        Ixy = T0 * R3 + T1 * R4 + T2 * R5 - m * px * py - px * gy - gx * py
        Ixz = T0 * R6 + T1 * R7 + T2 * R8 - m * px * pz - px * gz - gx * pz
        Iyz = T3 * R6 + T4 * R7 + T5 * R8 - m * py * pz - py * gz - gy * pz
        hx, hy, hz = gx + m * px, gy + m * py, gz + m * pz
        B[INERTIA + l], B[INERTIA + W + l], B[INERTIA + 2 * W + l], B[INERTIA + 3 * W + l] = m, hx, hy, hz
        B[INERTIA + 4 * W + l], B[INERTIA + 5 * W + l], B[INERTIA + 6 * W + l] = Ixx, Iyy, Izz
        B[INERTIA + 7 * W + l], B[INERTIA + 8 * W + l], B[INERTIA + 9 * W + l] = Ixy, Ixz, Iyz
        w0, w1, w2 = B[VEL + l], B[VEL + W + l], B[VEL + 2 * W + l]
        u0, u1, u2 = B[VEL + 3 * W + l], B[VEL + 4 * W + l], B[VEL + 5 * W + l]
        A0, A1, A2 = B[ACC + l], B[ACC + W + l], B[ACC + 2 * W + l]
        B0, B1, B2 = B[ACC + 3 * W + l], B[ACC + 4 * W + l], B[ACC + 5 * W + l]
        # momentum: angular L = I w + h × u, linear P = m u + w × h
        L0 = Ixx * w0 + Ixy * w1 + Ixz * w2 + hy * u2 - hz * u1
        L1 = Ixy * w0 + Iyy * w1 + Iyz * w2 + hz * u0 - hx * u2
        L2 = Ixz * w0 + Iyz * w1 + Izz * w2 + hx * u1 - hy * u0
        P0, P1, P2 = m * u0 + w1 * hz - w2 * hy, m * u1 + w2 * hx - w0 * hz, m * u2 + w0 * hy - w1 * hx
        nx = Ixx * A0 + Ixy * A1 + Ixz * A2 + hy * B2 - hz * B1 + w1 * L2 - w2 * L1 + u1 * P2 - u2 * P1
        ny = Ixy * A0 + Iyy * A1 + Iyz * A2 + hz * B0 - hx * B2 + w2 * L0 - w0 * L2 + u2 * P0 - u0 * P2
        nz = Ixz * A0 + Iyz * A1 + Izz * A2 + hx * B1 - hy * B0 + w0 * L1 - w1 * L0 + u0 * P1 - u1 * P0
        B[FORCE + l], B[FORCE + W + l], B[FORCE + 2 * W + l] = nx, ny, nz
        B[FORCE + 3 * W + l] = m * B0 + A1 * hz - A2 * hy + w1 * P2 - w2 * P1
        B[FORCE + 4 * W + l] = m * B1 + A2 * hx - A0 * hz + w2 * P0 - w0 * P2
        B[FORCE + 5 * W + l] = m * B2 + A0 * hy - A1 * hx + w0 * P1 - w1 * P0


@njit(cache=True, error_model="numpy")
def _gather(tree: Tree, b: int, space: Space) -> None:
    """Bias torque and mass-matrix entries of body b's joint, then hand force and inertia down to the parent."""
    M, h = space.M, space.h
    B = space.block[b + 1]
    parent, d, ratio = tree.parent[b], tree.dof[b], tree.ratio[b]
    _weigh(ratio, B, h[d])
    _couple(ratio * ratio, B, B, M[d, d])
    k = parent
    while k >= 0:
        e, K = tree.dof[k], space.block[k + 1]
        _couple(ratio * tree.ratio[k], K, B, M[d, e])
        if d != e:
            M[e, d, :] = M[d, e]
        else:  # a mimic joint on its master's body: both products are entries of the diagonal
            _couple(ratio * tree.ratio[k], K, B, M[d, d])
        k = tree.parent[k]
    if parent >= 0:
        A = space.block[parent + 1]
        for c in range(INERTIA, FORCE + 6 * W):
            A[c] += B[c]


@njit(cache=True, error_model="numpy")
def _weigh(ratio: float, B: FloatArray, h: FloatArray) -> None:
    """Add a body's bias torque to its joint's, and leave its inertia's product with the joint axis in ACC."""
    for l in range(W):
        s0, s1, s2 = B[AXIS + l], B[AXIS + W + l], B[AXIS + 2 * W + l]
        s3, s4, s5 = B[AXIS + 3 * W + l], B[AXIS + 4 * W + l], B[AXIS + 5 * W + l]
        m, hx, hy, hz = B[INERTIA + l], B[INERTIA + W + l], B[INERTIA + 2 * W + l], B[INERTIA + 3 * W + l]
        xx, yy, zz = B[INERTIA + 4 * W + l], B[INERTIA + 5 * W + l], B[INERTIA + 6 * W + l]
        xy, xz, yz = B[INERTIA + 7 * W + l], B[INERTIA + 8 * W + l], B[INERTIA + 9 * W + l]
        B[ACC + l] = xx * s0 + xy * s1 + xz * s2 + hy * s5 - hz * s4
        B[ACC + W + l] = xy * s0 + yy * s1 + yz * s2 + hz * s3 - hx * s5
        B[ACC + 2 * W + l] = xz * s0 + yz * s1 + zz * s2 + hx * s4 - hy * s3
        B[ACC + 3 * W + l] = m * s3 + s1 * hz - s2 * hy
        B[ACC + 4 * W + l] = m * s4 + s2 * hx - s0 * hz
        B[ACC + 5 * W + l] = m * s5 + s0 * hy - s1 * hx
        turning = s0 * B[FORCE + l] + s1 * B[FORCE + W + l] + s2 * B[FORCE + 2 * W + l]
        h[l] += ratio * (turning + s3 * B[FORCE + 3 * W + l] + s4 * B[FORCE + 4 * W + l] + s5 * B[FORCE + 5 * W + l])


@njit(cache=True, error_model="numpy")
def _couple(gain: float, K: FloatArray, B: FloatArray, entry: FloatArray) -> None:
    """Add what body b and the joint of block K have in common to an entry of the mass matrix."""
    for l in range(W):
        entry[l] += gain * (
            K[AXIS + l] * B[ACC + l]
            + K[AXIS + W + l] * B[ACC + W + l]
            + K[AXIS + 2 * W + l] * B[ACC + 2 * W + l]
            + K[AXIS + 3 * W + l] * B[ACC + 3 * W + l]
            + K[AXIS + 4 * W + l] * B[ACC + 4 * W + l]
            + K[AXIS + 5 * W + l] * B[ACC + 5 * W + l]
        )
