"""A robot that changed: its next fit has to beat the twin that no longer fits, on data from after the change."""

from __future__ import annotations

import numpy as np
import pytest

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, FitResult
from app.telemetry import Recording
from app.twin.document import TwinDocument, seal
from tests.physics import model_of
from tests.planted import declare, follow, hanging_joint, swings
from tests.twins import CREATED

pytestmark = pytest.mark.slow

COULOMB = "joint/hinge/coulomb_friction_nm"
KNOWN_LINK = {"link/*/mass_kg": 2.0, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": -0.1}
RATE_HZ = 100.0
T = np.arange(round(30.0 * RATE_HZ)) / RATE_HZ
CONTROLLER = {"kind": "pd", "kp": 40.0, "kd": 1.0}


def worked(coulomb_nm: float, seed: int) -> Recording:
    """Half a minute of a robot with this much dry friction, at a motion and with a noise of its own."""
    model = model_of(hanging_joint(), CONTROLLER)
    truth = {COULOMB: coulomb_nm, "joint/hinge/viscous_damping_nm_s_per_rad": 0.2}
    values = np.array([truth.get(s.name, n) for s, n in zip(model.specs, model.nominal(), strict=True)])
    return follow(model, values, swings(T, 1, seed), noise_sd=3e-4, seed=seed, name=f"seed {seed}")


def fitted(recording: Recording, active: TwinDocument | None) -> FitResult:
    request = FitRequest(
        declare(CONTROLLER, fit={"frozen": KNOWN_LINK}), hanging_joint(), (recording,), (), 0, 600.0, active
    )
    return calibrate(request, lambda _: None)


@pytest.fixture(scope="module")
def active() -> TwinDocument:
    """The version from before the change."""
    return seal(fitted(worked(0.4, seed=1), None).draft, 1, None, CREATED)


def test_a_robot_whose_friction_rose_by_half_gets_a_twin_that_beats_the_stale_one(active: TwinDocument) -> None:
    result = fitted(worked(0.6, seed=2), active)
    assert result.acceptance.accepted, result.acceptance.reason
    assert "beats version 1: error" in result.acceptance.reason
    assert result.draft.parameters[COULOMB].value == pytest.approx(0.6, rel=0.05)


def test_a_robot_that_did_not_change_keeps_its_twin(active: TwinDocument) -> None:
    result = fitted(worked(0.4, seed=3), active)
    assert not result.acceptance.accepted
    assert "does not clearly beat version 1" in result.acceptance.reason
