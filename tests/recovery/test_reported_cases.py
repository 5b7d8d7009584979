"""Logs with the faults that users reported, fitted as they are: what is found, what is said, what is left unknown.

The logs' robot was simulated with explicit steps and the described masses (`truth_clean.json`). It followed the chirp
itself, while the log holds it for 10 ms at a time: latency doesn't come out as planted, and what a delay can't explain
of that goes into the damping of short logs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf
from app.twin.document import TwinDraft
from app.twin.model import build_model
from tests.physics import two_link
from tests.planted import declare, follow, swings
from tests.unit.test_telemetry_cases import assemble, lines

JOINTS = ("shoulder", "elbow")
DRIVETRAIN = ("coulomb_friction_nm", "viscous_damping_nm_s_per_rad", "armature_kg_m2")


@pytest.fixture(scope="module")
def truth(shared: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((shared / "cases" / "telemetry" / "truth_clean.json").read_bytes())
    return loaded


@pytest.fixture(scope="module")
def arm(shared: Path) -> Description:
    return parse_urdf((shared / "cases" / "urdf" / "ok_two_link.urdf").read_bytes())


def fitted(shared: Path, arm: Description, truth: dict[str, Any], case: str, **declared: Any) -> TwinDraft:
    """The case's log under declared gains and masses."""
    declaration = RobotDeclaration.model_validate(
        {
            "schema": "twincal.robot/1",
            "robot": "arm-01",
            "fleet": "arms",
            "controller": {
                "kind": "pd",
                "kp": dict(zip(JOINTS, truth["kp"], strict=True)),
                "kd": dict(zip(JOINTS, truth["kd"], strict=True)),
            },
            "fit": {"frozen": {"link/*/mass_kg": 0.5, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": 0.1}},
            **declared,
        }
    )
    request = FitRequest(declaration, arm, (assemble(lines(shared, case)),), (), 0, 600.0, None)
    return calibrate(request, lambda _: None).draft


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "within", "gain"),
    [
        ("t01", 0.04, 20.0),
        ("t03", 0.06, 5.0),  # each joint's command is known a few milliseconds late
        ("t05", 0.04, 15.0),  # no effort, some values missing
        ("t15", 0.04, 15.0),  # effort in mA: undeclared, and no part of the fit
        ("t18", 0.35, 1.5),  # a gap of 1.5 s, and lost packets with the commands that were in them
        ("t20", 0.04, 15.0),  # twelve bits
    ],
)
def test_friction_comes_out_of_every_usable_log(
    shared: Path, arm: Description, truth: dict[str, Any], case: str, within: float, gain: float
) -> None:
    draft = fitted(shared, arm, truth, case)
    for joint, coulomb in zip(JOINTS, truth["coulomb"], strict=True):
        found = draft.parameters[f"joint/{joint}/coulomb_friction_nm"]
        assert found.value == pytest.approx(coulomb, rel=within)
        assert found.verdict == "identified"
    assert draft.quality.improvement is not None
    assert draft.quality.improvement > gain
    if case == "t01":
        for joint, damping in zip(JOINTS, truth["damping"], strict=True):
            found = draft.parameters[f"joint/{joint}/viscous_damping_nm_s_per_rad"]
            assert found.value == pytest.approx(damping, rel=0.1)


@pytest.mark.slow
def test_t17_a_joint_that_is_only_shaken_by_the_other_tells_its_friction_too(
    shared: Path, arm: Description, truth: dict[str, Any]
) -> None:
    draft = fitted(shared, arm, truth, "t17")
    for joint, coulomb in zip(JOINTS, truth["coulomb"], strict=True):
        assert draft.parameters[f"joint/{joint}/coulomb_friction_nm"].value == pytest.approx(coulomb, rel=0.05)


@pytest.mark.slow
def test_a_joint_that_stands_still_is_named_and_left_unknown_and_the_other_is_fitted() -> None:
    declared = declare({"kind": "pd", "kp": 60.0, "kd": 3.0})
    model = build_model(two_link(), declared, set(JOINTS), {"position", "command_position"})
    stuck = {"joint/shoulder/coulomb_friction_nm": 60.0, "joint/elbow/coulomb_friction_nm": 0.5}
    targets = swings(np.arange(800) / 100.0, 2)
    targets[:, 0] = 0.0
    recording = follow(model, model.values(stuck), targets, noise_sd=1e-4)
    draft = calibrate(FitRequest(declared, two_link(), (recording,), (), 0, 600.0, None), lambda _: None).draft
    assert any(w.startswith("stands still") and w.endswith(": shoulder") for w in draft.quality.warnings)
    elbow = draft.parameters["joint/elbow/coulomb_friction_nm"]
    assert elbow.value == pytest.approx(0.5, rel=0.05)
    assert elbow.verdict == "identified"
    verdicts = {draft.parameters[f"joint/shoulder/{kind}"].verdict for kind in DRIVETRAIN}
    assert "identified" not in verdicts


@pytest.mark.slow
def test_t19_commands_that_were_lost_make_a_poor_twin_and_wide_intervals(
    shared: Path, arm: Description, truth: dict[str, Any]
) -> None:
    # two thirds of the rows are gone, and with them what the joints were told
    draft = fitted(shared, arm, truth, "t19")
    clean = fitted(shared, arm, truth, "t01")
    assert draft.quality.grade == "poor"
    for joint in JOINTS:
        name = f"joint/{joint}/coulomb_friction_nm"
        wide, narrow = draft.parameters[name].sd, clean.parameters[name].sd
        assert wide is not None
        assert narrow is not None
        assert wide > 20.0 * narrow
