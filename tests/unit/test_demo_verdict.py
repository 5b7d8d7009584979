"""What the demonstration says about a calibration is what the twin document and the truth say."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from app.demo.tables import contrast_table, kind_table, parameter_table, robot_table
from app.demo.verdict import RobotOutcome, contrasts, judge, summary

TRUTH = {
    "robot/command_latency_s": 0.012,
    "joint/elbow/coulomb_friction_nm": 0.5,
    "joint/elbow/armature_kg_m2": 0.2,
    "link/forearm/mass_kg": 1.5,
}


def entry(value: float, interval: list[float] | None, verdict: str | None) -> dict[str, Any]:
    return {"value": value, "interval90": interval, "verdict": verdict}


def outcome_of(robot: str, armature: float) -> RobotOutcome:
    twin = {
        "quality": {"holdout": {"nominal_rmse_mean": 0.02, "rmse_mean": 0.0004}},
        "parameters": {
            "joint/elbow/armature_kg_m2": entry(armature, [armature - 0.03, armature + 0.03], "identified"),
            "joint/elbow/coulomb_friction_nm": entry(0.51, [0.48, 0.54], "weak"),
            "joint/elbow/kp_nm_per_rad": entry(80.0, None, None),
            "link/forearm/mass_kg": entry(1.4, [1.1, 1.7], "weak"),
            "robot/command_latency_s": entry(0.0119, [0.0115, 0.0123], "identified"),
        },
    }
    return judge(robot, twin, TRUTH, "better than the description")


@pytest.fixture
def outcome() -> RobotOutcome:
    return outcome_of("arm-01", 0.25)


def cells(text: str, beginning: str) -> list[str]:
    """The cells of the row that begins so."""
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return next(row for row in rows if row[0] == beginning)


def test_findings_pair_every_fitted_parameter_with_its_truth_in_the_truths_order(outcome: RobotOutcome) -> None:
    assert [finding.name for finding in outcome.findings] == list(TRUTH)
    assert [finding.holds for finding in outcome.findings] == [True, True, False, True]
    assert outcome.improvement == pytest.approx(50.0)


def test_the_summary_counts_what_must_be_identified_apart_from_the_rest(outcome: RobotOutcome) -> None:
    failed = RobotOutcome("arm-02", False, "the hold-out is not better")
    assert summary([outcome, failed])[:4] == (
        "1 of 2 robots calibrated; hold-out error smaller by a factor of: arm-01 50",
        "friction, damping, armature and latency: 2 of 3 identified",
        "their 90 % intervals hold the truth in 1 of 2 (50 %)",
        "the intervals of all fitted parameters do in 3 of 4 (75 %)",
    )
    assert summary([failed]) == ("none of 1 robots has a twin",)


def test_robots_differ_where_no_two_intervals_overlap(outcome: RobotOutcome) -> None:
    found = contrasts([outcome, outcome_of("arm-02", 0.32), outcome_of("arm-03", 0.10)])
    assert {contrast.name: contrast.is_apart for contrast in found} == {
        "robot/command_latency_s": False,
        "joint/elbow/coulomb_friction_nm": False,
        "joint/elbow/armature_kg_m2": True,
    }
    assert not any(contrast.is_apart for contrast in contrasts([outcome, outcome_of("arm-02", 0.30)]))


def test_the_tables_show_truth_estimate_interval_and_verdict(outcome: RobotOutcome) -> None:
    shown = StringIO()
    console = Console(width=140, file=shown)
    other = outcome_of("arm-03", 0.1)
    for table in (
        parameter_table(outcome),
        robot_table([outcome, RobotOutcome("arm-02", False, "not better")]),
        contrast_table([outcome, other]),
        kind_table([outcome, other]),
    ):
        console.print(table)
    text = shown.getvalue()
    armature = "joint/elbow/armature_kg_m2"
    assert cells(text, armature) == [armature, "0.200", "0.250", "0.220 … 0.280", "identified", "no"]
    assert cells(text.partition("different robots")[2], armature) == [
        armature,
        "0.25 ± 0.03",
        "0.10 ± 0.03",
        "yes",
    ]
    assert "20.00 mrad as described, 0.400 mrad calibrated, 50 times smaller" in text
    assert cells(text, "arm-01") == ["arm-01", "20.00", "0.400", "50", "3 of 4 (75 %)", "yes"]
    assert cells(text, "arm-02") == ["arm-02", "no"]
    assert cells(text, "mass_kg") == ["mass_kg", "0 of 2", "2 of 2 (100 %)"]
