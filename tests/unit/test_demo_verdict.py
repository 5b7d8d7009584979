"""What the demonstration says about a calibration is what the twin document and the truth say."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from app.demo.tables import (
    contrast_table,
    drift_table,
    friction_table,
    kind_table,
    parameter_table,
    robot_table,
    step_table,
    trail_table,
)
from app.demo.verdict import RobotOutcome, contrasts, judge, summary
from app.demo.wear import RobotDrift, Step, WearOutcome, wear_summary

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


WORN = RobotDrift("arm-02", 1.04, 12.3, 0.98, (1, 2), 1, True)
QUIET = RobotDrift("arm-01", 1.01, 1.2, 1.02, (1, 1), 0, False)


def wear_of(first: RobotOutcome) -> WearOutcome:
    """The story as it should go; the friction is half as high again afterwards."""
    entries = {"joint/elbow/coulomb_friction_nm": entry(0.74, [0.71, 0.77], "identified")}
    again = judge(
        "arm-02",
        {"quality": {"holdout": {"nominal_rmse_mean": 0.02, "rmse_mean": 0.0004}}, "parameters": entries},
        TRUTH | {"joint/elbow/coulomb_friction_nm": 0.75},
        "better than version 1",
    )
    trail = (
        {"who": "monitor", "what": "calibrate", "old": "1", "new": None, "reason": "drift score 12.3"},
        {"who": "calibration:[7]", "what": "activate", "old": "1", "new": "2", "reason": "better than version 1"},
    )
    seconds: dict[Step, float] = {"drifting": 24.2, "raising": 60.0, "fitting": 88.7, "settling": 101.0}
    return WearOutcome("arm-02", "done", 11.0, "elbow", seconds, (QUIET, WORN), first, again, trail)


def test_the_story_of_the_robot_that_wore_in_a_few_lines(outcome: RobotOutcome) -> None:
    worn = wear_of(outcome)
    assert worn.happened
    assert wear_summary(worn) == (
        "arm-02: called drifted 24 s after its friction rose, score 1.04 before, 11.00 then",
        "calibrated again by itself: version 2 active after 89 s, intervals hold the new frictions in 1 of 1 (100 %)",
        "score 0.98 again after 101 s",
        "the other 1, at the same work, raised nothing",
    )


def test_a_story_that_stops_early_or_that_another_robot_joins_did_not_happen(outcome: RobotOutcome) -> None:
    worn = wear_of(outcome)
    stopped = replace(worn, missing="raising", seconds={"drifting": 24.2}, again=None)
    assert not stopped.happened
    assert wear_summary(stopped)[1] == "what did not happen in time: the monitor raises a calibration"
    for loud in (replace(QUIET, drifted=True), replace(QUIET, raised=1), replace(QUIET, versions=(1, 2))):
        joined = replace(worn, drifts=(loud, WORN))
        assert not joined.happened
        assert wear_summary(joined)[-1] == "raised though nothing wore: arm-01"


def test_the_tables_of_the_story_show_scores_frictions_steps_and_who_did_what(outcome: RobotOutcome) -> None:
    worn = wear_of(outcome)
    shown = StringIO()
    console = Console(width=140, file=shown)
    for table in (drift_table(worn), friction_table(worn), step_table(worn), trail_table(worn)):
        console.print(table)
    text = shown.getvalue()
    assert cells(text, "arm-01") == ["arm-01", "1.01", "1.20", "1.02", "v1", "no", "0"]
    assert cells(text, "arm-02") == ["arm-02", "1.04", "12.30", "0.98", "v1 → v2", "yes", "1"]
    friction = "joint/elbow/coulomb_friction_nm"
    assert cells(text, friction) == [friction, "0.510", "0.750", "0.740", "0.710 … 0.770", "yes"]
    assert cells(text, "until the robot is called drifted")[1] == "24.2"
    assert cells(text, "monitor") == ["monitor", "calibrate", "v1", "drift score 12.3"]
    assert cells(text, "calibration:[7]") == ["calibration:[7]", "activate", "v1 → v2", "better than version 1"]
