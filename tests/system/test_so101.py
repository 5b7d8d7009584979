"""A real arm from its logs: what the project promises of the SO-101, by the commands a user would type."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.twin.document import read_document
from tests.system.commands import last_line, twincal

TRAIN = ("multisine", "friction_gravity", "chirp_sweep", "velocity_ramp")
HOLDOUT = (
    "backlash_detection", "figure_eight", "inertia_coupling", "pick_place", "prbs_excitation", "random_waypoints",
    "step_response", "trapezoidal_profile",
)  # fmt: skip
JOINTS = {"shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"}
DEADLINE_S = 1500.0


def options(folder: Path, option: str, names: tuple[str, ...]) -> list[object]:
    return [word for name in names for word in (option, folder / f"{name}.csv")]


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 700.0)
def test_four_motions_give_a_twin_that_is_within_8_mrad_on_eight_it_has_not_seen(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "so101"
    robot = ("--robot", folder / "robot.yaml")
    logs = [*options(folder, "--log", TRAIN), *options(folder, "--holdout-log", HOLDOUT)]
    done = twincal("fit", *robot, *logs, "--budget-s", DEADLINE_S, "--json", cwd=tmp_path, timeout_s=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    quality = last_line(done)
    holdout = quality["holdout"]
    assert set(holdout["mae"]) == JOINTS
    assert holdout["mae_mean"] <= 8e-3
    assert 0.020 <= holdout["nominal_mae_mean"] <= 0.035
    assert {row["log"] for row in holdout["per_log"]} == set(HOLDOUT)
    assert [gauge["name"] for gauge in quality["gauges"]] == ["scale"]
    assert "budget_reached" not in " ".join(quality["warnings"])
    twin = read_document((tmp_path / "twin.json").read_bytes())
    offsets = {name: p.value for name, p in twin.parameters.items() if name.endswith("/encoder_offset_rad")}
    assert len(offsets) == len(JOINTS)
    assert max(map(abs, offsets.values())) <= 0.05
    on_gauge = quality["gauges"][0]["parameters"]
    assert {f"joint/{joint}/kp_nm_per_rad" for joint in JOINTS} <= set(on_gauge)
    assert "identified" not in {twin.parameters[name].verdict for name in on_gauge}

    judged = twincal(
        "evaluate",
        *robot,
        "--twin",
        "twin.json",
        *options(folder, "--log", HOLDOUT),
        "--json",
        cwd=tmp_path,
        timeout_s=600,
    )
    assert judged.returncode == 0, judged.stderr
    assert last_line(judged)["holdout"] == holdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_another_hold_out_changes_no_parameter(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "so101"
    fit = ("fit", "--robot", folder / "robot.yaml", *options(folder, "--log", ("multisine", "chirp_sweep")))
    twins = []
    for name in ("random_waypoints", "figure_eight"):
        out = tmp_path / f"{name}.json"
        judge = options(folder, "--holdout-log", (name,))
        done = twincal(*fit, *judge, "--to-s", 8, "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        twins.append(read_document(out.read_bytes()))
    first, second = twins
    assert first.parameters == second.parameters
    assert first.covariance == second.covariance
    assert first.quality.train == second.quality.train
    assert first.quality.gauges == second.quality.gauges
    assert first.quality.holdout != second.quality.holdout
    assert first.provenance.dataset_digest != second.provenance.dataset_digest
