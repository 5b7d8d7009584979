"""What the report is made of: stretches joined by log, thinned lines, numbers in words, correlations."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.report_correlation import correlation_map, correlations
from app.calibration.report_data import Overlay
from app.calibration.report_runs import envelope, join_by_log, pooled_nominal_rmse, trace_of, worst_and_typical
from app.calibration.report_words import NOT_KNOWN, interval, label_and_unit, number, with_sd
from app.telemetry import FloatArray
from app.twin.document import Covariance


def column(values: FloatArray) -> FloatArray:
    return values[:, None]


def piece(log: str, begin: float, error: float) -> Overlay:
    t = np.linspace(begin, begin + 0.4, 5)
    zero = np.zeros(5)
    return Overlay(log, t, ("a",), column(zero), column(zero + error), column(zero + 2 * error), column(zero))


def test_stretches_of_one_log_are_joined_in_time_with_a_gap_between() -> None:
    (run,) = join_by_log([piece("l", 2.0, 0.3), piece("l", 0.0, 0.1)])
    assert run.t_s.tolist() == sorted(run.t_s.tolist())
    assert np.isnan(run.measured[5, 0])
    assert len(run.t_s) == 11
    trace = trace_of(run, "a")
    assert trace is not None
    assert trace.errors.calibrated_rmse == pytest.approx(np.sqrt((0.3**2 + 0.1**2) / 2))
    assert pooled_nominal_rmse([trace]) == pytest.approx(2 * np.sqrt((0.3**2 + 0.1**2) / 2))
    assert trace_of(run, "b") is None


def test_worst_and_typical_are_the_largest_and_the_median_error() -> None:
    runs = join_by_log([piece(name, 0.0, error) for name, error in (("a", 0.1), ("b", 0.9), ("c", 0.2))])
    traces = [trace for run in runs if (trace := trace_of(run, "a")) is not None]
    assert [trace.log for trace in worst_and_typical(traces)] == ["b", "c"]


def test_an_envelope_keeps_extremes_and_gaps() -> None:
    t = np.arange(10_000.0)
    values = np.zeros(10_000)
    values[1234], values[8765] = 5.0, -7.0
    values[4000:6000] = np.nan
    thin_t, thin = envelope(t, values, 200)
    assert len(thin) <= 200
    assert np.nanmax(thin) == 5.0
    assert np.nanmin(thin) == -7.0
    assert np.isnan(thin[(thin_t > 4100) & (thin_t < 5900)]).all()
    assert (np.diff(thin_t) >= 0).all()


def test_numbers_are_said_with_the_digits_they_deserve() -> None:
    assert number(None) == NOT_KNOWN
    assert number(float("nan")) == NOT_KNOWN
    assert number(0.0) == "0"
    assert number(9.996) == "10.0"
    assert number(-0.0123) == "−0.0123"
    assert number(1.234e-7) == "1.23 × 10⁻⁷"
    assert with_sd(0.21034, 0.0041) == "0.2103 ± 0.0041"
    assert with_sd(1.2341e-6, 2.1e-8) == "(1.234 ± 0.021) × 10⁻⁶"
    assert interval((0.2032, 0.2171)) == "0.2032 … 0.2171"


@pytest.mark.parametrize(
    ("quantity", "label", "unit"),
    [
        ("armature_kg_m2", "armature", "kg·m²"),
        ("viscous_damping_nm_s_per_rad", "viscous damping", "N·m·s/rad"),
        ("no_load_speed_rad_s", "no load speed", "rad/s"),
        ("com_x_m", "centre of mass x", "m"),
        ("load_friction", "load friction", ""),
        ("coulomb_friction_n", "Coulomb friction", "N"),
        ("viscous_damping_n_s_per_m", "viscous damping", "N·s/m"),
    ],
)
def test_units_are_read_off_a_parameters_name(quantity: str, label: str, unit: str) -> None:
    assert label_and_unit(quantity) == (label, unit)


def test_a_lone_parameter_has_no_correlations() -> None:
    lone = Covariance.model_validate({"names": ("a",), "transform": {"a": "log"}, "matrix": ((1.0,),)})
    assert correlation_map(lone, {"a": 1.0}) is None


@pytest.mark.parametrize(
    ("rho", "value", "known"),
    [(0.9, 0.5, "ratio"), (-0.9, 0.5, "product"), (0.9, 5.0, "weighted difference"), (-0.9, 0.0, "weighted sum")],
)
def test_a_ratio_is_claimed_only_of_two_that_are_equally_uncertain(rho: float, value: float, known: str) -> None:
    sd = 0.1
    pair = Covariance.model_validate(
        {
            "names": ("joint/a/kp_nm_per_rad", "joint/a/coulomb_friction_nm"),
            "transform": {"joint/a/kp_nm_per_rad": "log", "joint/a/coulomb_friction_nm": "linear"},
            "matrix": ((0.04, rho * 0.2 * sd), (rho * 0.2 * sd, sd**2)),
        }
    )
    found = correlation_map(pair, {"joint/a/kp_nm_per_rad": 3.0, "joint/a/coulomb_friction_nm": value})
    assert found is not None
    (told,) = found.pairs
    assert f"know {'their' if value == 0.5 else 'a'} {known} better" in told.meaning
    assert told.rho == ("+0.90" if rho > 0 else "−0.90")


def test_correlations_are_those_of_the_covariance_and_0_beside_no_variance() -> None:
    matrix = np.array([[4.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert correlations(matrix).tolist() == [[1.0, -0.5, 0.0], [-0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
