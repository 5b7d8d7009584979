"""Inertia tensors that some body can have.

About its centre of mass a body of mass m has the inertia I = tr(Σ)·1 − Σ with Σ = ∫ r rᵀ dm, which is never negative
(Wensing, Kim and Slotine 2018): the principal moments then obey the triangle inequality. Values beyond that border are
taken to the nearest tensor within it, so that whatever a search tries is a body.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from app.telemetry import FloatArray

# Of the trace: what PyBullet needs to take a tensor for one that obeys the triangle inequality.
_SMALLEST_SHARE: Final = 1e-6


def tensor(six: FloatArray) -> FloatArray:
    """The symmetric matrix of xx, yy, zz, xy, xz, yz, shape (3, 3)."""
    xx, yy, zz, xy, xz, yz = six
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def consistent_inertia(inertia_kg_m2: FloatArray) -> FloatArray:
    """The nearest inertia about a centre of mass that a body can have; the tensor itself if it is one.

    Args:
        inertia_kg_m2: symmetric, shape (3, 3).
    """
    spread = 0.5 * np.trace(inertia_kg_m2) * np.eye(3) - inertia_kg_m2
    sizes, axes = np.linalg.eigh(spread)
    least = _SMALLEST_SHARE * max(float(np.abs(sizes).sum()), 1e-12)
    if sizes.min() >= least:
        return inertia_kg_m2
    sizes = np.maximum(sizes, least)
    nearest = (axes * sizes) @ axes.T
    result: FloatArray = np.trace(nearest) * np.eye(3) - nearest
    return 0.5 * (result + result.T)
