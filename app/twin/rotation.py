"""Rotations as URDF writes them: fixed-axis roll, pitch, yaw."""

from __future__ import annotations

import math

import numpy as np

from app.telemetry import FloatArray


def rotation_from_rpy(rpy: FloatArray) -> FloatArray:
    """R = Rz(yaw) · Ry(pitch) · Rx(roll).

    Args:
        rpy: roll, pitch, yaw [rad], shape (3,).

    Returns:
        Rotation matrix, shape (3, 3).
    """
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rpy_from_rotation(rotation: FloatArray) -> FloatArray:
    """Roll, pitch, yaw [rad] of a rotation matrix; exact at pitch = ±π/2 too, where yaw is only a choice.

    Roll is read from Rz(−yaw)·R, so that whatever noise decides yaw at the pole is made up for by roll.
    """
    r = rotation
    yaw = math.atan2(r[1, 0], r[0, 0])
    pitch = math.atan2(-r[2, 0], math.hypot(r[0, 0], r[1, 0]))
    s, c = math.sin(yaw), math.cos(yaw)
    roll = math.atan2(s * r[0, 2] - c * r[1, 2], c * r[1, 1] - s * r[0, 1])
    return np.array([roll, pitch, yaw])
