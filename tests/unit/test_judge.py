"""Judging a twin: PyBullet and the compiled rollout agree, and an engine that dies is an error in words."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from app.calibration import judge
from app.calibration.dataset import Dataset
from app.calibration.reference import NOMINAL, nominal_reference, values_of
from app.errors import SimulationError
from app.telemetry import FloatArray
from app.twin.description import parse_urdf
from app.twin.document import seal
from app.twin.model import build_model
from tests.physics import two_link
from tests.planted import dataset_of, declare, follow, hanging_joint, level_joint, log, swings
from tests.twins import draft

CONTROLLER = {"kind": "pd", "kp": 60.0, "kd": 3.0}


@pytest.fixture(scope="module")
def planted() -> tuple[Dataset, FloatArray]:
    model = build_model(two_link(), declare(CONTROLLER), {"shoulder", "elbow"}, {"position", "command_position"})
    truth = model.values({"joint/shoulder/coulomb_friction_nm": 0.6, "robot/command_latency_s": 0.013})
    targets = swings(np.arange(400) / 100.0, 2)
    recordings = [follow(model, truth, targets * sign, name=name) for name, sign in (("a", 1.0), ("b", -1.0))]
    return dataset_of(two_link(), declare(CONTROLLER), recordings[0], holdout=recordings), truth


def test_the_world_and_the_kernel_judge_alike(planted: tuple[Dataset, FloatArray]) -> None:
    data, truth = planted
    compiled = judge.simulated(data.model, data.holdout, truth)
    world = judge.simulated_in_world(data.model, data.holdout, truth)
    assert [part.shape for part in world] == [(400, 2), (400, 2)]
    for ours, theirs in zip(compiled, world, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


class _Killer:
    """Ends the process that unpickles it, as a model that PyBullet can't bear does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (139,)


def test_a_model_that_kills_pybullet_is_an_error_in_words(planted: tuple[Dataset, FloatArray]) -> None:
    data, _ = planted
    with pytest.raises(SimulationError, match="PyBullet died of this description"):
        judge.simulated_in_world(data.model, data.holdout, _Killer())  # type: ignore[arg-type] # on purpose


def test_a_twin_that_runs_away_in_the_world_is_an_error_in_words() -> None:
    torque = {"kind": "torque"}
    t = np.arange(201) / 100.0
    runaway = log("log", t, position=0.0 * t, command_effort=np.full(201, 50.0))
    data = dataset_of(level_joint(), declare(torque), runaway, holdout=[runaway])
    with pytest.raises(SimulationError, match="diverges in PyBullet"):
        judge.simulated_in_world(data.model, data.holdout, data.model.initial())


WORLD = """
import numpy as np
from app.calibration import judge
from tests.planted import dataset_of, declare, level_joint, log
if __name__ == "__main__":
    t = np.arange(400) / 100.0
    recording = log("log", t, position=0.0 * t, command_position=0.0 * t)
    data = dataset_of(level_joint(), declare(), recording)
    judge.simulated_in_world(data.model, data.holdout, data.model.initial())
    print("done")
"""


def test_the_engines_own_messages_stay_off_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", WORLD], capture_output=True, text=True, check=True, timeout=120)
    # the parent of these tests imports PyBullet itself; what its children say goes to standard error
    assert [line for line in done.stdout.splitlines() if "build time" not in line] == ["done"]


# --- errors -----------------------------------------------------------------------------------------------------------


def errors_of(*columns: FloatArray) -> list[FloatArray]:
    return [np.column_stack(columns)]


def test_errors_are_pooled_over_samples_and_averaged_plainly_over_joints() -> None:
    found = [np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[3.0, 0.5], [np.nan, -0.5], [np.nan, 0.5]])]
    pooled = judge.joint_errors(("a", "b"), found)
    assert pooled.mae == pytest.approx({"a": 5 / 3, "b": 0.3})
    assert pooled.rmse == pytest.approx({"a": (11 / 3) ** 0.5, "b": (0.75 / 5) ** 0.5})
    assert pooled.mae_mean == pytest.approx((5 / 3 + 0.3) / 2)
    assert pooled.rmse_mean == pytest.approx(((11 / 3) ** 0.5 + (0.75 / 5) ** 0.5) / 2)


def test_a_joint_without_a_sample_is_no_joint_without_an_error() -> None:
    pooled = judge.joint_errors(("a", "b"), errors_of(np.full(5, 0.2), np.full(5, np.nan)))
    assert pooled.mae == pytest.approx({"a": 0.2})
    assert pooled.rmse_mean == pytest.approx(0.2)


def test_each_log_has_its_own_mean_whatever_its_stretches(planted: tuple[Dataset, FloatArray]) -> None:
    data, _ = planted
    found = [np.full((400, 2), size) for size in (0.1, 0.3)]
    rows = judge.log_errors((*data.holdout, data.holdout[0]), [*found, 0.5 * found[0]])
    sizes = {row.log: row.mae_mean for row in rows}
    first = data.holdout[0].log
    assert sizes[first] == pytest.approx(0.075)
    assert sizes[{"a": "b", "b": "a"}[first]] == pytest.approx(0.3)


def test_a_rollout_that_diverged_counts_ten_radians_where_something_was_measured(
    planted: tuple[Dataset, FloatArray],
) -> None:
    data, _ = planted
    part = data.holdout[0]
    position = part.position.copy()
    position[100:] = np.nan
    (error,) = judge.errors([part], [position])
    np.testing.assert_array_equal(error[:100], 0.0)
    np.testing.assert_array_equal(error[100:], 10.0)


def test_short_windows_start_anew_from_what_was_measured(planted: tuple[Dataset, FloatArray]) -> None:
    data, truth = planted
    windowed = judge.windowed_errors(data.model, data.holdout, truth)
    assert windowed is not None
    assert windowed.window_s == 2.0
    assert max(windowed.rmse.values()) < 1e-3
    short = [part for part in data.holdout if part.duration_s > 100.0]
    assert judge.windowed_errors(data.model, short, truth) is None


def test_an_error_in_angles_is_millimetres_at_the_tip() -> None:
    # a frame 0.1 m from the axis moves 1 mm when the joint turns by 10 mrad
    source = hanging_joint().source.replace(
        b"</robot>",
        b'<link name="tool0"/><joint name="to_tool" type="fixed"><parent link="bar"/><child link="tool0"/>'
        b'<origin xyz="0 0 -0.1"/></joint></robot>',
    )
    t = np.arange(200) / 100.0
    recording = log("log", t, position=np.sin(t), command_position=np.sin(t))
    data = dataset_of(parse_urdf(source), declare(), recording, holdout=[recording])
    positions = [part.position + 0.01 for part in data.holdout]
    assert judge.tip_rmse_mm(data.model, data.holdout, positions) == pytest.approx(1.0, rel=1e-4)


# --- what a twin has to beat ------------------------------------------------------------------------------------------


def test_with_declared_gains_nominal_is_the_description(planted: tuple[Dataset, FloatArray]) -> None:
    data, _ = planted
    positions, name = nominal_reference(data.model, data.holdout)
    assert name == NOMINAL
    nominal = data.model.nominal()
    assert nominal[data.model.names.index("robot/command_latency_s")] == 0.0
    assert nominal[data.model.names.index("joint/elbow/coulomb_friction_nm")] == 0.0
    for ours, theirs in zip(positions, judge.simulated(data.model, data.holdout, nominal), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_with_unknown_gains_nominal_is_whatever_is_nearer_and_says_which(planted: tuple[Dataset, FloatArray]) -> None:
    t = np.arange(400) / 100.0
    targets = swings(t, 1)[:, 0]
    near = log("log", t, position=targets + 1e-4, command_position=targets)
    far = log("log", t, position=targets[::-1] + 0.0, command_position=targets)
    for recording, expected in ((near, "told to be"), (far, "")):
        data = dataset_of(hanging_joint(), declare({"kind": "pd"}), recording)
        positions, name = nominal_reference(data.model, data.holdout)
        assert expected in name
        own = judge.joint_errors(data.model.joints, judge.errors(data.holdout, positions)).rmse_mean
        for other in (
            judge.commanded(data.holdout),
            judge.simulated(data.model, data.holdout, data.model.nominal()),
        ):
            assert own <= judge.joint_errors(data.model.joints, judge.errors(data.holdout, other)).rmse_mean


def test_where_the_joints_were_told_to_be_is_the_command_held(planted: tuple[Dataset, FloatArray]) -> None:
    data, _ = planted
    (first, _) = judge.commanded(data.holdout)
    np.testing.assert_array_equal(first, data.holdout[0].motion.command[:, :, 0])


def test_a_published_twin_s_values_go_by_name_and_the_rest_is_nominal(planted: tuple[Dataset, FloatArray]) -> None:
    data, _ = planted
    values = values_of(data.model, seal(draft(0.33), 1, None, datetime(2026, 1, 1, tzinfo=UTC)))
    armature = data.model.names.index("joint/elbow/armature_kg_m2")
    assert values[armature] == 0.33
    np.testing.assert_array_equal(np.delete(values, armature), np.delete(data.model.nominal(), armature))
