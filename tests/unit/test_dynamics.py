"""The compiled dynamics against formulas of textbooks, and lanes that don't feel each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.telemetry import FloatArray
from app.twin.model import TwinModel
from tests.physics import from_pybullet, mass_and_bias, model_of, pendulum, two_link

G = 9.81


def test_a_pendulum_has_its_inertia_about_the_hinge_and_its_gravity_torque() -> None:
    model = model_of(pendulum(com="0.3 0 0", mass=2.0, inertia=0.05, axis="0 -1 0"))
    angles = np.linspace(-3.0, 3.0, 7)[:, None]
    M, h = mass_and_bias(model, model.nominal(), angles, np.full_like(angles, 4.0))
    np.testing.assert_allclose(M[:, 0, 0], 0.05 + 2.0 * 0.3**2, rtol=1e-14)
    np.testing.assert_allclose(h[:, 0], 2.0 * G * 0.3 * np.cos(angles[:, 0]), rtol=1e-12, atol=1e-13)


def test_a_lift_carries_its_weight_and_feels_no_coriolis() -> None:
    model = model_of(pendulum(mass=3.0, kind="prismatic"))
    M, h = mass_and_bias(model, model.nominal(), np.array([[0.7]]), np.array([[2.0]]))
    assert M[0, 0, 0] == 3.0
    assert h[0, 0] == pytest.approx(3.0 * G, rel=1e-15)


def test_two_links_follow_the_textbook() -> None:
    model = model_of(two_link())
    m1, m2, l1 = 1.2, 0.8, 0.4
    c1, c2 = np.array([0.2, 0.01]), np.array([0.15, 0.0])  # centres of mass, x and z
    I1, I2 = 0.02, 0.01
    q1, q2, v1, v2 = 0.4, -1.1, 2.0, -3.0
    M, h = mass_and_bias(model, model.nominal(), np.array([[q1, q2]]), np.array([[v1, v2]]))
    coupling = m2 * l1 * (c2[0] * math.cos(q2))  # lower link's com lies on its x axis in the plane
    own2 = I2 + m2 * (c2 @ c2)
    expected = np.array(
        [
            [I1 + m1 * (c1 @ c1) + own2 + m2 * l1**2 + 2 * coupling, own2 + coupling],
            [own2 + coupling, own2],
        ]
    )
    np.testing.assert_allclose(M[0], expected, rtol=1e-13)
    slope = -m2 * l1 * c2[0] * math.sin(q2)  # of the coupling over q2
    coriolis = np.array([slope * (2 * v1 * v2 + v2**2), -slope * v1**2])
    # a turn about +y takes x towards −z: gravity pulls with the turn
    lower = m2 * G * c2[0] * math.cos(q1 + q2)
    upper = m1 * G * (c1[0] * math.cos(q1) + c1[1] * math.sin(q1)) + m2 * G * l1 * math.cos(q1)
    np.testing.assert_allclose(h[0], coriolis - np.array([upper + lower, lower]), rtol=1e-12)


def lagrange_bias(model: TwinModel, q: FloatArray, v: FloatArray) -> FloatArray:
    """Coriolis and centrifugal torques from the mass matrix alone: Ṁ v − ½ ∂(vᵀ M v)/∂q, by central differences."""
    n, e = len(q), 1e-5
    values = model.nominal()
    shifted = np.concatenate([q + e * np.eye(n), q - e * np.eye(n)])
    M = mass_and_bias(model, values, shifted, np.zeros_like(shifted))[0]
    slope = (M[:n] - M[n:]) / (2 * e)
    rate = np.tensordot(v, slope, 1)
    return np.asarray(rate @ v - 0.5 * np.array([v @ each @ v for each in slope]))


@pytest.mark.parametrize("name", ["kuka_iiwa/model.urdf", "franka_panda/panda.urdf"])
def test_coriolis_torques_belong_to_the_mass_matrix(name: str) -> None:
    model = model_of(from_pybullet(name))
    n = model.mechanism.n
    draw = np.random.default_rng(1)
    q, v = draw.uniform(-1.0, 1.0, n), draw.uniform(-3.0, 3.0, n)
    states = np.stack([q, q])
    h = mass_and_bias(model, model.nominal(), states, np.stack([v, 0.0 * v]))[1]
    expected = lagrange_bias(model, q, v)
    np.testing.assert_allclose(h[0] - h[1], expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_the_mass_matrix_is_symmetric_to_the_bit_and_positive() -> None:
    model = model_of(from_pybullet("a1/a1.urdf"))
    q = np.random.default_rng(2).uniform(-2.0, 2.0, (20, model.mechanism.n))
    M, _ = mass_and_bias(model, model.nominal(), q, q)
    np.testing.assert_array_equal(M, np.swapaxes(M, 1, 2))
    assert np.linalg.eigvalsh(M).min() > 0


def test_legs_on_one_trunk_are_not_coupled() -> None:
    model = model_of(from_pybullet("a1/a1.urdf"))
    q = np.random.default_rng(3).uniform(-1.0, 1.0, (1, model.mechanism.n))
    M = mass_and_bias(model, model.nominal(), q, q)[0][0]
    leg = [name[:2] for name in model.joints]
    apart = np.array([[a != b for b in leg] for a in leg])
    assert (M[apart] == 0).all()
    assert np.count_nonzero(M) > model.mechanism.n


def test_a_lane_is_the_same_to_the_bit_whatever_runs_beside_it() -> None:
    model = model_of(from_pybullet("kuka_iiwa/model.urdf"))
    n = model.mechanism.n
    draw = np.random.default_rng(4)
    q, v = draw.uniform(-2.0, 2.0, (20, n)), draw.uniform(-3.0, 3.0, (20, n))
    M, h = mass_and_bias(model, model.nominal(), q, v)
    for lanes in range(1, 20):
        M_few, h_few = mass_and_bias(model, model.nominal(), q[:lanes], v[:lanes])
        np.testing.assert_array_equal(M_few, M[:lanes])
        np.testing.assert_array_equal(h_few, h[:lanes])
