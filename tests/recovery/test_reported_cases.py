"""Logs with the faults that users reported, fitted as they are: what is found, what is said, what is left unknown.

The logs' robot was simulated with explicit steps and the described masses (`truth_clean.json`). It followed the chirp
itself, while the log holds it for 10 ms at a time: latency doesn't come out as planted, and what a delay can't explain
of that goes into the damping of short logs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lxml.html
import numpy as np
import pytest

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest
from app.errors import FitImpossibleError
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


MASSES_KNOWN = {"frozen": {"link/*/mass_kg": 0.5, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": 0.1}}


def fitted(shared: Path, arm: Description, truth: dict[str, Any], case: str, **declared: Any) -> TwinDraft:
    """The case's log under declared gains and, unless told otherwise, known masses."""
    return calibrate(request(shared, arm, truth, case, **declared), lambda _: None).draft


def request(shared: Path, arm: Description, truth: dict[str, Any], case: str, **declared: Any) -> FitRequest:
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
            "fit": MASSES_KNOWN,
            **declared,
        }
    )
    return FitRequest(declaration, arm, (assemble(lines(shared, case)),), (), 0, 600.0, None)


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
    for link, mass in (("upper", 1.2), ("lower", 0.8)):
        found = draft.parameters[f"link/{link}/mass_kg"]
        assert found.sd is not None
        assert abs(found.value - mass) < 2.5 * found.sd


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
    assert any("of its rows are missing" in warning for warning in draft.quality.warnings)


# --- what a twin lacks ------------------------------------------------------------------------------------------------


def figure(text: str, before: str, after: str) -> float:
    """The number between two words of a warning."""
    return float(text.split(before)[1].split(after, maxsplit=1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("declared", [{}, {"fit": {}}], ids=["masses known", "masses fitted"])
def test_t22_a_payload_picked_up_half_way_is_named_with_link_and_time_and_makes_a_poor_twin(
    shared: Path, arm: Description, truth: dict[str, Any], declared: dict[str, Any]
) -> None:
    quality = fitted(shared, arm, truth, "t22", **declared).quality
    assert quality.grade == "poor"
    text = quality.warnings[0]
    assert text.startswith("the mass of link lower rises by about ")
    assert "as if a payload was picked up; no one set of parameters is right for both" in text
    assert figure(text, " kg at ", " s of case") == pytest.approx(3.0, abs=0.3)


@pytest.mark.slow
def test_t21_friction_that_warms_up_is_named_and_keeps_the_grade_from_good(
    shared: Path, arm: Description, truth: dict[str, Any]
) -> None:
    quality = fitted(shared, arm, truth, "t21", fit={}).quality
    assert quality.grade in ("fair", "poor")
    text = quality.warnings[0]
    assert text.startswith("the Coulomb friction of ")
    assert "from beginning to end, as when it warms up" in text
    assert 20.0 < figure(text, "falls by about ", " %") < 70.0


@pytest.mark.slow
def test_t25_an_averaging_filter_is_no_delay(shared: Path, arm: Description, truth: dict[str, Any]) -> None:
    draft = fitted(shared, arm, truth, "t25", fit={})
    assert draft.quality.grade != "good"
    filtered = [text for text in draft.quality.warnings if "as if averaged over about " in text]
    # a twin with a first-order lag has taken up a part of it
    if draft.structure.lag == "delay":
        assert "a filter between command and controller, which no delay explains" in filtered[0]
        assert figure(filtered[0], "averaged over about ", " ms") == pytest.approx(150.0, rel=0.2)


@pytest.mark.slow
def test_t13_readings_with_another_zero_than_the_commands_are_named_joint_by_joint(
    shared: Path, arm: Description, truth: dict[str, Any]
) -> None:
    draft = fitted(shared, arm, truth, "t13")
    assert draft.quality.grade == "poor"
    shifted = [text for text in draft.quality.warnings if "readings and commands have different zeros" in text]
    by_joint = {text.split(" reads ")[0]: text for text in shifted}
    assert set(by_joint) == set(JOINTS)
    assert figure(by_joint["shoulder"], " reads ", " mrad more") == pytest.approx(110.0, rel=0.1)
    assert figure(by_joint["elbow"], " reads ", " mrad less") == pytest.approx(70.0, rel=0.1)


@pytest.mark.slow
def test_t18_lost_packets_and_a_gap_are_told(shared: Path, arm: Description, truth: dict[str, Any]) -> None:
    warnings = fitted(shared, arm, truth, "t18").quality.warnings
    assert any("case: about 8 % of its rows are missing" in text for text in warnings)
    assert "case: a gap of 1.51 s at 1.99 s; nothing is fitted across it" in warnings


@pytest.mark.slow
def test_t20_twelve_bits_make_a_good_twin_that_leaves_only_rounding(
    shared: Path, arm: Description, truth: dict[str, Any]
) -> None:
    quality = fitted(shared, arm, truth, "t20").quality
    assert quality.grade == "good"
    assert quality.holdout.rmse_mean < 1e-3


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        ("t16", "no joint moves in the training data"),
        ("t24", "command_position is missing"),
        ("t14", "no joint's values can be right"),
    ],
)
def test_a_fit_that_is_impossible_ends_with_a_report_of_what_is_missing(
    shared: Path, arm: Description, truth: dict[str, Any], case: str, missing: str
) -> None:
    with pytest.raises(FitImpossibleError, match=missing) as refused:
        calibrate(request(shared, arm, truth, case), lambda _: None)
    page = " ".join(str(text) for text in lxml.html.fromstring(refused.value.report_html).itertext())
    assert missing in page
    assert "don't allow a fit" in page
