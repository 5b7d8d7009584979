"""What the demonstration says about a calibration is what the twin document and the truth say."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from app.demo.verdict import RobotOutcome, judge, kind_table, parameter_table, robot_table, summary

TRUTH = {
    "robot/command_latency_s": 0.012,
    "joint/elbow/coulomb_friction_nm": 0.5,
    "joint/elbow/armature_kg_m2": 0.2,
    "link/forearm/mass_kg": 1.5,
}


def entry(value: float, interval: list[float] | None, verdict: str | None) -> dict[str, Any]:
    return {"value": value, "interval90": interval, "verdict": verdict}


@pytest.fixture
def outcome() -> RobotOutcome:
    twin = {
        "quality": {"holdout": {"nominal_rmse_mean": 0.02, "rmse_mean": 0.0004}},
        "parameters": {
            "joint/elbow/armature_kg_m2": entry(0.25, [0.22, 0.28], "identified"),
            "joint/elbow/coulomb_friction_nm": entry(0.51, [0.48, 0.54], "identified"),
            "joint/elbow/kp_nm_per_rad": entry(80.0, None, None),
            "link/forearm/mass_kg": entry(1.4, [1.1, 1.7], "weak"),
            "robot/command_latency_s": entry(0.0119, [0.0115, 0.0123], "identified"),
        },
    }
    return judge("arm-01", twin, TRUTH, "better than the description")


def test_findings_pair_every_fitted_parameter_with_its_truth_in_the_truths_order(outcome: RobotOutcome) -> None:
    assert [finding.name for finding in outcome.findings] == list(TRUTH)
    assert [finding.holds for finding in outcome.findings] == [True, True, False, True]
    assert outcome.improvement == pytest.approx(50.0)


def test_the_summary_counts_friction_damping_armature_and_latency_alone(outcome: RobotOutcome) -> None:
    failed = RobotOutcome("arm-02", False, "the hold-out is not better")
    line = summary([outcome, failed])
    assert line == (
        "1 of 2 robots calibrated; hold-out error 50 to 50 times smaller; friction, damping, armature and latency: "
        "3 of 3 identified, 90 % intervals hold the truth in 2 of 3 (67 %)"
    )
    assert summary([failed]) == "none of 1 robots has a twin"


def test_the_tables_show_truth_estimate_interval_and_verdict(outcome: RobotOutcome) -> None:
    shown = StringIO()
    console = Console(width=140, file=shown)
    console.print(parameter_table(outcome))
    console.print(robot_table([outcome, RobotOutcome("arm-02", False, "not better")]))
    console.print(kind_table([outcome]))
    text = shown.getvalue()
    row = next(line for line in text.splitlines() if "joint/elbow/armature_kg_m2" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
        "joint/elbow/armature_kg_m2",
        "0.2",
        "0.25",
        "0.22 … 0.28",
        "identified",
        "no",
    ]
    assert "20.00 mrad as described, 0.400 mrad calibrated, 50 times smaller" in text
    assert "mass_kg" in text
