"""A real hobby servo with a load: what its supply, its firmware's gain and its clipping tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.commands import last_line, twincal


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_motions_give_a_servo_s_twin_that_is_as_near_as_published_ones(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "xl330"
    names = ("kp100_sin_time_square", "kp400_lift_and_drop")
    logs = [word for name in names for word in ("--log", folder / f"{name}.csv")]
    judge = ("--holdout-log", folder / "kp200_sin_sin.csv")
    done = twincal("fit", "--robot", folder / "robot.yaml", *logs, *judge, "--json", cwd=tmp_path, timeout_s=500)
    assert done.returncode == 0, done.stderr
    quality = last_line(done)
    # published models of this servo are at 69 to 82 mrad, their best refit at 57.5
    assert quality["holdout"]["mae_mean"] <= 0.069
    assert quality["improvement"] > 3.0
    (gauge,) = quality["gauges"]
    assert gauge["name"] == "scale"
    assert {"joint/pendulum/duty_stiffness_nm_per_rad", "joint/pendulum/stall_torque_nm"} <= set(gauge["parameters"])
