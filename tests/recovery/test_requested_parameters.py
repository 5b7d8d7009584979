"""Parameters that a twin has on request come back out of a fit: load and tilt, motor limits, gap and lag, inertia."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest
from app.telemetry import FloatArray
from app.twin.document import TwinDraft
from app.twin.model import build_model
from tests.physics import two_link
from tests.planted import declare, follow, swings

CONTROLLER = {"kind": "pd", "kp": 60.0, "kd": 2.0}
BODY = {
    "link/upper/mass_kg": 1.2,
    "link/lower/mass_kg": 0.8,
    "link/upper/com_x_m": 0.2,
    "link/lower/com_x_m": 0.15,
    "link/*/com_[yz]_m": 0.0,
    "joint/*/armature_kg_m2": 0.04,
    "joint/*/encoder_offset_rad": 0.0,
}
USUAL = {
    "joint/shoulder/viscous_damping_nm_s_per_rad": 0.3,
    "joint/elbow/viscous_damping_nm_s_per_rad": 0.2,
    "joint/shoulder/coulomb_friction_nm": 0.3,
    "joint/elbow/coulomb_friction_nm": 0.2,
    "robot/command_latency_s": 0.015,
}
NOISE_RAD = 3e-4


def fitted(free: list[str], truth: dict[str, float], amplitude: float = 0.6) -> TwinDraft:
    """What a fit finds of a two-link arm that has these values; its links and armatures are known."""
    description, declared = two_link(), declare(CONTROLLER, fit={"free": free, "frozen": BODY})
    model = build_model(description, declared, {"shoulder", "elbow"}, {"position", "command_position"})
    t: FloatArray = np.arange(1500) / 100.0
    targets = swings(np.maximum(t - 1.0, 0.0), 2, 0, amplitude)
    recording = follow(model, model.values(USUAL | truth), targets, noise_sd=NOISE_RAD)
    result = calibrate(FitRequest(declared, description, (recording,), (), 0, 600.0, None), lambda _: None)
    assert isinstance(result.draft, TwinDraft)
    return result.draft


def assert_near(draft: TwinDraft, truth: dict[str, float], share: float) -> None:
    for name, value in truth.items():
        assert draft.parameters[name].value == pytest.approx(value, rel=share), name
        assert draft.parameters[name].verdict == "identified", name


@pytest.mark.slow
def test_a_load_is_weighed_and_found() -> None:
    truth = {"robot/payload_mass_kg": 0.5, "robot/payload_com_x_m": 0.3}
    assert_near(fitted(["robot/payload_mass_kg", "robot/payload_com_x_m"], truth), truth, 0.02)


@pytest.mark.slow
def test_a_base_that_leans_is_noticed() -> None:
    truth = {"robot/tilt_pitch_rad": 0.06}
    assert_near(fitted(["robot/tilt_pitch_rad"], truth), truth, 0.05)


@pytest.mark.slow
def test_a_motor_that_reaches_its_limits_shows_its_curve() -> None:
    truth = {"joint/elbow/torque_limit_nm": 3.0, "joint/elbow/no_load_speed_rad_s": 6.0}
    draft = fitted(list(truth), truth, amplitude=1.5)
    assert_near(draft, truth, 0.05)


@pytest.mark.slow
def test_a_gap_and_a_lag_are_told_from_a_delay() -> None:
    truth = {"joint/elbow/backlash_rad": 0.015, "joint/shoulder/backlash_rad": 0.01, "robot/controller_lag_s": 0.02}
    draft = fitted(["joint/*/backlash_rad", "robot/controller_lag_s"], truth)
    assert_near(draft, truth, 0.1)
    assert draft.parameters["robot/command_latency_s"].value == pytest.approx(0.015, abs=0.001)
    assert (draft.structure.lag, draft.structure.backlash) == ("delay+lag", True)


@pytest.mark.slow
def test_an_inertia_is_found_where_the_motion_shows_it() -> None:
    truth = {"link/lower/inertia_yy_kg_m2": 0.03}
    draft = fitted(["link/lower/inertia_yy_kg_m2"], truth)
    assert_near(draft, truth, 0.05)
