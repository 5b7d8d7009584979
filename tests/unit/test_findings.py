"""A bad model looks bad: what a twin leaves over is traced to what made it, named with joint and time, and graded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.calibration.dataset import Dataset, Split
from app.calibration.explanation import suspect
from app.calibration.findings import Finding, Whiteness, coarse_joints, look, motion_share, sensors_of, told, whiteness
from app.calibration.grade import grade
from app.calibration.leftover import smoothed, take_leftover
from app.calibration.solver import Problem, Solution, solve
from app.calibration.types import Acceptance
from app.telemetry import FloatArray, Recording
from app.twin.actuator import TARGET
from app.twin.model import TwinModel, build_model
from app.twin.rollout import Motion, rollout
from tests.physics import commands, two_link
from tests.planted import dataset_of, declare, hanging_joint, log, swings

RATE_HZ = 100.0
NOISE_RAD = 1e-4
MASS = "link/bar/mass_kg"
COULOMB = "joint/hinge/coulomb_friction_nm"
PLANTED = {
    COULOMB: 0.3,
    "joint/hinge/viscous_damping_nm_s_per_rad": 0.2,
    "joint/hinge/armature_kg_m2": 0.02,
    "robot/command_latency_s": 0.01,
}
ARM = {
    "joint/shoulder/coulomb_friction_nm": 0.5,
    "joint/elbow/coulomb_friction_nm": 0.3,
    "joint/shoulder/armature_kg_m2": 0.05,
    "joint/elbow/armature_kg_m2": 0.02,
    "robot/command_latency_s": 0.01,
}


def hinge() -> TwinModel:
    return build_model(hanging_joint(), declare(), {"hinge"}, {"position", "command_position"})


def arm() -> TwinModel:
    declared = declare({"kind": "pd", "kp": 60.0, "kd": 3.0})
    return build_model(two_link(), declared, {"shoulder", "elbow"}, {"position", "command_position"})


def followed(
    model: TwinModel,
    parts: Sequence[tuple[float, FloatArray]],
    *,
    filter_s: float = 0.0,
    name: str = "log",
    seed: int = 1,
) -> Recording:
    """A robot whose parameters change on the way: (until when, its values) one after the other, in one log."""
    rows = round(parts[-1][0] * RATE_HZ)
    t_s = np.arange(rows) / RATE_HZ
    command = commands(rows, len(model.joints))
    command[:, :, TARGET] = swings(t_s, len(model.joints), seed)
    q, v = command[0, :, TARGET], np.zeros(len(model.joints))
    measured, begin = [], 0.0
    for until, values in parts:
        out = np.append(t_s[(t_s >= begin - 1e-9) & (t_s < until - 1e-9)], until)
        motion = Motion(t_s, command, out, begin, q, v)
        if filter_s > 0.0:
            motion = smoothed(motion, filter_s)
        trajectory = rollout(model, [motion], values[None, :])[0]
        measured.append(trajectory.position[0, :-1])
        q, v, begin = trajectory.position[0, -1], trajectory.velocity[0, -1], until
    position = np.concatenate(measured)
    position = position + NOISE_RAD * np.random.default_rng([seed, 4]).standard_normal(position.shape)
    return log(name, t_s, model.joints, position=position, command_position=command[:, :, TARGET])


def fitted(model: TwinModel, *recordings: Recording, free: Sequence[str] = ()) -> tuple[Dataset, Solution]:
    gains = {"kp": 40.0, "kd": 1.0} if len(model.joints) == 1 else {"kp": 60.0, "kd": 3.0}
    choice: dict[str, Any] = {"fit": {"free": list(free)}} if free else {}
    description = hanging_joint() if len(model.joints) == 1 else two_link()
    dataset = dataset_of(description, declare({"kind": "pd", **gains}, **choice), *recordings, split=Split())
    own = dataset.model
    problem = Problem(
        own, dataset.train, tuple(i for i, s in enumerate(own.specs) if s.fitted), np.full(own.mechanism.n, 2e-5)
    )
    return dataset, solve(problem, own.initial(), 8)


def seen(model: TwinModel, *recordings: Recording) -> tuple[Finding, ...]:
    return look(*fitted(model, *recordings))


def with_positions(recording: Recording, position: FloatArray) -> Recording:
    columns = list(recording.names)
    return log(
        recording.name,
        (recording.t_ns * 1e-9).tolist(),
        columns,
        position=position,
        command_position=recording.channels["command_position"],
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_good_twin_leaves_nothing_over_that_looks_like_something(seed: int) -> None:
    model = arm() if seed % 2 else hinge()
    values = model.values(ARM if seed % 2 else PLANTED)
    assert seen(model, followed(model, [(10.0, values)], seed=seed)) == ()


@pytest.mark.parametrize(("change", "word"), [(1.5, "picked up"), (-0.8, "put down")])
def test_a_payload_is_seen_when_it_comes_and_when_it_goes(change: float, word: str) -> None:
    model = hinge()
    before, after = model.values(PLANTED), model.values(PLANTED | {MASS: 2.0 + change})
    (finding, *_) = seen(model, followed(model, [(6.0, before), (12.0, after)]))
    verb = "rises" if change > 0.0 else "falls"
    assert finding.text.startswith(f"the mass of link bar {verb} by about ")
    assert f"a payload was {word}" in finding.text
    at = float(finding.text.split(" kg at ")[1].split(" s")[0])
    assert at == pytest.approx(6.0, abs=0.3)
    kilograms = float(finding.text.split("by about ")[1].split(" kg")[0])
    assert kilograms == pytest.approx(abs(change), rel=0.4)


def test_a_payload_that_comes_in_the_hold_out_is_seen_too() -> None:
    model = hinge()
    before, after = model.values(PLANTED), model.values(PLANTED | {MASS: 3.5})
    (finding, *_) = seen(model, followed(model, [(10.0, before), (12.0, after)]))
    assert "a payload was picked up" in finding.text


def test_friction_that_falls_over_the_log_is_a_robot_that_warms_up() -> None:
    model = hinge()
    steps = [(t, model.values(PLANTED | {COULOMB: 0.6 - 0.3 * t / 20.0})) for t in np.arange(1.0, 20.5, 1.0).tolist()]
    (finding, *_) = seen(model, followed(model, steps))
    assert finding.text.startswith("the Coulomb friction of hinge falls by about ")
    assert "as when it warms up" in finding.text
    fall = float(finding.text.split("by about ")[1].split(" N·m")[0])
    assert fall == pytest.approx(0.3, rel=0.2)
    assert "from beginning to end" in finding.text


def test_a_filter_on_the_commands_is_told_from_a_delay() -> None:
    model = arm()
    values = model.values(ARM | {"robot/command_latency_s": 0.075})
    (finding, *_) = seen(model, followed(model, [(12.0, values)], filter_s=0.15))
    assert finding.text.startswith("commands are followed as if averaged over about ")
    length = float(finding.text.split("averaged over about ")[1].split(" ms")[0])
    assert length == pytest.approx(150.0, rel=0.15)
    delayed = followed(model, [(12.0, values)])
    assert seen(model, delayed) == ()


def test_a_joint_that_is_read_later_than_another_is_named() -> None:
    model = arm()
    recording = followed(model, [(12.0, model.values(ARM))])
    position = recording.channels["position"].copy()
    elbow = recording.names.index("elbow")
    position[2:, elbow] = position[:-2, elbow].copy()
    findings = seen(model, with_positions(recording, position))
    # one delay for both joints lies between them
    assert findings[0].text.startswith(("elbow lags its twin by ", "shoulder leads its twin by "))
    assert "which a delay common to all joints doesn't explain" in findings[0].text


@pytest.mark.parametrize("gap", [0.004, 0.02])
def test_backlash_on_the_way_to_the_reading_leaves_hysteresis(gap: float) -> None:
    model = hinge()
    recording = followed(model, [(12.0, model.values(PLANTED))])
    position = recording.channels["position"][:, 0]
    link = position.copy()
    for k in range(1, len(link)):
        link[k] = min(max(link[k - 1], position[k] - gap / 2), position[k] + gap / 2)
    (finding, *_) = seen(model, with_positions(recording, link[:, None]))
    assert finding.text.startswith("hinge is read behind its direction as by a play of about ")
    assert "hysteresis is left over" in finding.text
    play = 1e-3 * float(finding.text.split("play of about ")[1].split(" mrad")[0])
    # friction takes up a part of it
    assert 0.4 * gap < play < 1.1 * gap


def test_readings_with_another_zero_than_the_commands_are_named() -> None:
    model = arm()
    recording = followed(model, [(10.0, model.values(ARM))])
    position = recording.channels["position"].copy()
    position[:, recording.names.index("elbow")] += 0.1
    findings = seen(model, with_positions(recording, position))
    assert any(f.text.startswith("elbow reads 1") and "more than its twin throughout" in f.text for f in findings)


def test_a_log_with_another_payload_is_named() -> None:
    model = hinge()
    values, heavy = model.values(PLANTED), model.values(PLANTED | {MASS: 3.5})
    logs = [followed(model, [(8.0, heavy if k == 2 else values)], name=f"run-{k}", seed=k) for k in range(4)]
    (finding, *_) = seen(model, *logs)
    assert "run-2" in finding.text
    assert "mass of link bar" in finding.text
    assert "as with another payload" in finding.text


def test_of_a_long_log_windows_all_over_it_are_looked_at() -> None:
    model = hinge()
    before, after = model.values(PLANTED), model.values(PLANTED | {MASS: 3.5})
    dataset, solution = fitted(model, followed(model, [(40.0, before), (60.0, after)]))
    looked_at = take_leftover(dataset, solution, most_s=24.0)
    (finding, *_) = told(looked_at, suspect(looked_at))
    seen_s = looked_at.t_s
    assert len(seen_s) == pytest.approx(24.0 * RATE_HZ, rel=0.2)
    assert seen_s[0] < 1.0
    assert seen_s[-1] > 59.0
    assert "a payload was picked up" in finding.text
    # between the last window before it and the first one after
    assert 36.0 < figure_at(finding) < 53.0


def figure_at(finding: Finding) -> float:
    return float(finding.text.split(" kg at ")[1].split(" s")[0])


def test_the_time_of_a_long_log_does_not_cost_memory_without_end() -> None:
    model = arm()
    dataset, solution = fitted(model, followed(model, [(12.0, model.values(ARM))]))
    thin = take_leftover(dataset, solution, most_numbers=10_000)
    assert thin.free.size + sum(s.size for s in thin.slopes.values()) < 20_000
    assert thin.t_s[-1] > 11.0


# --- figures and grade ------------------------------------------------------------------------------------------------


def test_what_is_left_over_is_measured_by_motion_and_by_noise() -> None:
    model = hinge()
    dataset, solution = fitted(model, followed(model, [(12.0, model.values(PLANTED))]))
    errors = np.split(solution.found.error[0], solution.found.edges[1:-1])
    white = whiteness(dataset.model.joints, dataset.train, errors, sensors_of(("hinge",), dataset.train, errors))
    assert white["hinge"].of_noise == pytest.approx(1.1, abs=0.15)
    assert white["hinge"].of_motion is not None
    assert white["hinge"].of_motion < 0.002
    assert motion_share(dataset.train, errors) == pytest.approx(white["hinge"].of_motion, rel=1e-6)
    assert coarse_joints(white) == []


def test_a_joint_far_from_its_motion_and_its_noise_is_named() -> None:
    found = {
        "a": Whiteness(0.15, 25.0),
        "b": Whiteness(0.15, 3.0),
        "c": Whiteness(0.02, 80.0),
        "d": Whiteness(None, 9.0),
    }
    assert coarse_joints(found) == ["a: an error of 15 % of its motion is left over, 25 times its sensor's noise"]


@pytest.mark.parametrize(
    ("accepted", "improvement", "generalisation", "share", "effects", "expected"),
    [
        (True, 5.0, 1.2, 0.03, (), "good"),
        (True, None, 1.2, 0.03, (), "good"),
        (True, 5.0, 1.2, 0.03, (0.004,), "fair"),
        (True, 5.0, 1.2, 0.03, (0.004, 0.08), "poor"),
        (True, 5.0, 1.2, 0.2, (), "fair"),
        (True, 5.0, 1.2, 0.4, (), "poor"),
        (True, 5.0, 2.5, 0.03, (), "fair"),
        (True, 2.0, 1.2, 0.03, (), "fair"),
        (True, 1.2, 1.2, 0.03, (), "poor"),
        (False, 5.0, 1.2, 0.03, (), "poor"),
    ],
)
def test_a_grade_is_what_the_worst_look_allows(
    accepted: bool,
    improvement: float | None,
    generalisation: float,
    share: float,
    effects: tuple[float, ...],
    expected: str,
) -> None:
    findings = [Finding("something", effect) for effect in effects]
    assert grade(Acceptance(accepted, ""), improvement, generalisation, share, findings) == expected


def test_smoothing_commands_shifts_nothing_in_time() -> None:
    t_s = np.arange(400) / RATE_HZ
    command = commands(400, 1)
    command[:, 0, TARGET] = np.sin(2.0 * math.pi * t_s)
    out = smoothed(Motion(t_s, command, t_s, 0.0, np.zeros(1), np.zeros(1)), 0.2)
    middle = (out.t_s > 1.0) & (out.t_s < 3.0)
    wave = np.stack([np.sin(2.0 * math.pi * out.t_s[middle]), np.cos(2.0 * math.pi * out.t_s[middle])], axis=1)
    (along, across), *_ = np.linalg.lstsq(wave, out.command[middle, 0, TARGET], rcond=None)
    # a row holds for 10 ms, whose middle is 5 ms late; averaging over 0.2 s leaves sin(x)/x at x = 0.2 π
    held = 2.0 * math.pi * 0.005
    assert math.atan2(across, along) == pytest.approx(-held + 2.0 * math.pi * 0.0025, abs=2e-3)
    assert math.hypot(along, across) == pytest.approx(math.sin(0.2 * math.pi) / (0.2 * math.pi), rel=1e-3)
