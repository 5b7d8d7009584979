"""What is fitted and what only judges: cut by time, by gaps and by windows; told apart by one digest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.dataset import Dataset, Split, Stretch, judged_stretches, make_dataset
from app.calibration.standing import still_joints
from app.errors import FitImpossibleError, InvalidInputError, LogError
from app.ingest.encode import encode_json, encode_msgpack
from app.ingest.files import read_log
from app.ingest.packet import Origin, decode_packet
from app.ingest.replay import split as split_into_messages
from app.telemetry import Channel, FloatArray, Recording, assemble_recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf
from tests.physics import two_link
from tests.planted import dataset_of, declare, level_joint, log, swings
from tests.unit.test_telemetry_cases import assemble, lines

NAN = float("nan")
HALVES = Split(holdout_fraction=0.5)
"""For logs of a second or two."""
T = np.arange(1000) / 100.0
SWING = swings(T, 1)


def swing(name: str, t_s: FloatArray = T, seed: int = 0, **channels: FloatArray) -> Recording:
    motion = swings(t_s, 1, seed)
    return log(name, t_s, position=motion, command_position=motion, **channels)


def spans(parts: Sequence[Stretch]) -> list[tuple[str, float, float]]:
    """Log, first and last compared instant of each stretch [s]."""
    return [(p.log, round(float(p.motion.t_out_s[0]), 6), round(float(p.motion.t_out_s[-1]), 6)) for p in parts]


def dataset(*train: Recording, holdout: Sequence[Recording] = (), **split: float) -> Dataset:
    return dataset_of(level_joint(), declare(), *train, holdout=holdout, split=Split(**split))


# --- training and hold-out --------------------------------------------------------------------------------------------


def test_without_a_log_to_judge_by_the_end_of_each_is_held_out() -> None:
    found = dataset(swing("a"), swing("b", T[:400], seed=1), holdout_fraction=0.25)
    assert sorted(spans(found.train)) == [("a", 0.0, 7.49), ("b", 0.0, 2.99)]
    assert sorted(spans(found.holdout)) == [("a", 7.5, 9.99), ("b", 3.0, 3.99)]


def test_no_instant_is_fitted_and_judged() -> None:
    found = dataset(swing("a"), swing("b", np.delete(T, range(300, 420)), seed=1), from_s=1.0, to_s=9.0)
    instants = [
        {(p.log, t) for p in parts for t in p.motion.t_out_s.tolist()} for parts in (found.train, found.holdout)
    ]
    assert not instants[0] & instants[1]
    assert min(t for _, t in instants[0] | instants[1]) == 1.0
    assert max(t for _, t in instants[0] | instants[1]) == pytest.approx(8.99)


def test_a_cut_shortens_what_is_fitted_and_never_a_log_that_judges() -> None:
    found = dataset(swing("a"), holdout=[swing("b", seed=1)], from_s=2.0, to_s=6.0)
    assert spans(found.train) == [("a", 2.0, 5.99)]
    assert spans(found.holdout) == [("b", 0.0, 9.99)]


def test_a_log_that_judges_leaves_the_others_whole() -> None:
    found = dataset(swing("a"), holdout=[swing("b", seed=1)], holdout_fraction=0.5)
    assert spans(found.train) == [("a", 0.0, 9.99)]


def test_a_gap_splits_a_log_and_each_part_starts_from_what_was_measured_there() -> None:
    found = dataset(swing("a", np.delete(T, range(300, 420))), holdout=[swing("b", seed=1)])
    assert spans(found.train) == [("a", 0.0, 2.99), ("a", 4.2, 9.99)]
    assert found.train[1].motion.q0[0] == pytest.approx(SWING[420, 0], abs=2e-3)
    assert found.train[1].motion.v0[0] == pytest.approx(np.gradient(SWING[:, 0], T)[420], abs=0.15)


def test_the_commands_before_a_stretch_stay_with_it_for_their_latency() -> None:
    found = dataset(swing("a"), holdout=[swing("b", seed=1)], from_s=5.0)
    assert found.train[0].motion.t_s[0] == 0.0
    assert found.train[0].motion.begin_s == 5.0


def test_scraps_between_gaps_are_left_out() -> None:
    seconds = np.concatenate([T[:300], T[400:430], T[600:]])
    assert spans(dataset(swing("a", seconds), holdout=[swing("b", seed=1)]).train) == [
        ("a", 0.0, 2.99),
        ("a", 6.0, 9.99),
    ]


def test_missing_values_stay_missing() -> None:
    position = SWING.copy()
    position[100:103] = NAN
    found = dataset(log("a", T, position=position, command_position=SWING), holdout=[swing("b", seed=1)])
    np.testing.assert_array_equal(found.train[0].position, position)


def test_a_torque_driven_robot_is_compared_in_windows_of_a_second() -> None:
    torque = {"position": SWING, "command_effort": SWING}
    found = dataset_of(level_joint(), declare({"kind": "torque"}), log("a", T, **torque))
    assert spans(found.train) == [("a", i, i + 0.99) for i in range(7)]
    assert spans(found.holdout) == [("a", 7.5 + i, 8.49 + i) for i in range(2)]
    for part in found.train:
        row = round(part.motion.begin_s * 100)
        assert part.motion.q0[0] == pytest.approx(SWING[row, 0], abs=2e-3)


def test_nothing_to_fit_or_to_judge_by_is_said() -> None:
    with pytest.raises(FitImpossibleError, match="no recording to fit"):
        dataset()
    with pytest.raises(FitImpossibleError, match=r"no stretch of 0\.5 s without a gap is left to fit"):
        dataset(swing("a", T[:40]))
    with pytest.raises(FitImpossibleError, match="left to judge the fit by"):
        dataset(swing("a"), holdout=[swing("b", T[:40])])
    with pytest.raises(FitImpossibleError, match="left to fit"):
        dataset(swing("a"), holdout=[swing("b")], from_s=20.0)


def test_a_span_outside_the_logs_leaves_nothing_to_judge() -> None:
    with pytest.raises(InvalidInputError, match="--from-s, --to-s: leave nothing to judge"):
        judged_stretches(level_joint(), declare(), [swing("a")], (20.0, None), None)


def test_what_is_judged_can_be_cut_and_windowed() -> None:
    _, parts = judged_stretches(level_joint(), declare(), [swing("a")], (2.0, 6.5), None)
    assert spans(parts) == [("a", 2.0, 6.49)]
    _, parts = judged_stretches(level_joint(), declare(), [swing("a")], (2.0, 6.5), 2.0)
    assert spans(parts) == [("a", 2.0, 3.99), ("a", 4.0, 5.99)]


# --- the digest -------------------------------------------------------------------------------------------------------


def digest(declaration: RobotDeclaration, *train: Recording, holdout: Sequence[Recording] = (), **split: float) -> str:
    return make_dataset(level_joint(), declaration, train, holdout, Split(**split)).digest


@pytest.fixture(scope="module")
def logs() -> tuple[Recording, Recording]:
    return swing("a", T[:300]), swing("b", T[:300], seed=1)


def test_the_digest_knows_neither_order_nor_names_nor_absolute_time(logs: tuple[Recording, Recording]) -> None:
    usual = digest(declare(), *logs)
    assert usual.startswith("sha256:")
    assert digest(declare(), *reversed(logs)) == usual
    moved = [replace(recording, name="other", origin_ns=recording.origin_ns + 10**18) for recording in logs]
    assert digest(declare(), *moved) == usual


def test_the_digest_knows_no_transport(logs: tuple[Recording, Recording], tmp_path: Path) -> None:
    usual = digest(declare(), *logs)
    path = tmp_path / "a.csv"
    columns = (logs[0].t_ns / 1e9, *(logs[0].channels[c][:, 0] for c in ("position", "command_position")))
    rows = [",".join(repr(float(v)) for v in row) for row in zip(*columns, strict=True)]
    path.write_text("t_s,hinge.position,hinge.command_position\n" + "\n".join(rows) + "\n")
    assert digest(declare(), read_log(path), logs[1]) == usual
    for encode, rows_per_message in ((encode_json, 7), (encode_msgpack, 50)):
        origin = Origin("f", "r", "joints", 1_770_000_000_000_000_000)
        sent = split_into_messages(logs[0], rows_per_message, origin_ns=1_770_000_000_123_456_789)
        packets = [decode_packet(encode(batch, "boot", seq), origin) for seq, batch in enumerate(sent)]
        assert digest(declare(), assemble_recording("a", [p.batch for p in packets]), logs[1]) == usual


def one_bit_more(recording: Recording, channel: Channel) -> Recording:
    values = recording.channels[channel].copy()
    values[17, 0] = np.nextafter(values[17, 0], 10.0)
    return replace(recording, channels={**recording.channels, channel: values})


def test_the_digest_changes_with_any_value_time_joint_map_or_split(logs: tuple[Recording, Recording]) -> None:
    a, b = logs
    t_ns = a.t_ns.copy()
    t_ns[5] += 1
    digests = [
        digest(declare(), a, b),
        digest(declare(), a),
        digest(declare(), a, holdout=[b]),
        digest(declare(), b, holdout=[a]),
        digest(declare(), one_bit_more(a, "position"), b),
        digest(declare(), one_bit_more(a, "command_position"), b),
        digest(declare(), replace(a, t_ns=t_ns), b),
        digest(declare(joints={"hinge": {"offset": 0.01}}), a, b),
        digest(declare(joints={"hinge": {"sign": -1}}), a, b),
        digest(declare(effort_unit="N·m"), a, b),
        digest(declare(), a, b, from_s=0.1),
        digest(declare(), a, b, to_s=2.5),
        digest(declare(), a, b, holdout_fraction=0.3),
    ]
    assert len(set(digests)) == len(digests)


def test_the_share_held_out_is_no_part_of_the_digest_where_a_log_judges(logs: tuple[Recording, Recording]) -> None:
    a, b = logs
    assert digest(declare(), a, holdout=[b], holdout_fraction=0.3) == digest(declare(), a, holdout=[b])


def test_stretches_come_in_one_order_whatever_the_logs_are_called(logs: tuple[Recording, Recording]) -> None:
    first, again = (dataset(*order) for order in (logs, tuple(reversed(logs))))
    assert spans(first.train) == spans(again.train)
    for ours, theirs in itertools.zip_longest(first.train, again.train):
        np.testing.assert_array_equal(ours.position, theirs.position)


# --- joints -----------------------------------------------------------------------------------------------------------


def two(name: str, joints: Sequence[str], **channels: FloatArray) -> Recording:
    motion = swings(T, len(joints))
    return log(name, T, joints, **({"position": motion, "command_position": motion} | channels))


def test_joints_that_the_description_has_not_are_ignored_and_named() -> None:
    found = dataset_of(two_link(), declare(), two("monday", ("shoulder", "elbow", "lamp")))
    assert found.model.joints == ("shoulder", "elbow")
    assert found.warnings == ("monday: not in the description and ignored: lamp",)


def test_names_with_a_prefix_are_refused_with_a_hint() -> None:
    with pytest.raises(LogError, match=r"begin with 'left_'.*joints\.\w+\.source"):
        dataset_of(two_link(), declare(), two("monday", ("left_shoulder", "left_elbow")))


def test_a_joint_that_only_what_judges_holds_is_locked_in_the_twin() -> None:
    found = dataset_of(two_link(), declare(), two("a", ("shoulder",)), holdout=[two("b", ("shoulder", "elbow"))])
    assert found.model.joints == ("shoulder",)


def test_a_joint_in_a_wrong_unit_is_left_out_with_a_guess_and_the_other_is_fitted(ok_arm: Description) -> None:
    motion = swings(T, 2)
    motion[:, 1] *= 180.0 / np.pi
    found = dataset_of(ok_arm, declare(), two("a", ("shoulder", "elbow"), position=motion, command_position=motion))
    assert found.model.joints == ("shoulder",)
    (warning,) = found.warnings
    assert warning.startswith("joint 'elbow'")
    assert warning.endswith("degrees?")


# --- faults that users reported ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ok_arm(shared: Path) -> Description:
    return parse_urdf((shared / "cases" / "urdf" / "ok_two_link.urdf").read_bytes())


def reported(shared: Path, ok_arm: Description, case: str, **declared: Any) -> Dataset:
    return dataset_of(ok_arm, declare(**declared), assemble(lines(shared, case)), split=HALVES)


def test_t02_a_changing_order_of_names_changes_nothing(shared: Path, ok_arm: Description) -> None:
    shuffled, usual = reported(shared, ok_arm, "t02"), assemble(lines(shared, "t01")[:300])
    assert shuffled.digest == dataset_of(ok_arm, declare(), usual, split=HALVES).digest


def test_t03_messages_that_hold_one_joint_each_are_one_motion(shared: Path, ok_arm: Description) -> None:
    found = reported(shared, ok_arm, "t03")
    measured = ~np.isnan(np.concatenate([p.position for p in (*found.train, *found.holdout)]))
    assert measured.sum(axis=0).tolist() == [300, 300]
    assert len(found.train) == 1
    assert still_joints(found) == ()


def test_t04_a_fit_needs_no_velocity_and_no_effort(shared: Path, ok_arm: Description) -> None:
    found = reported(shared, ok_arm, "t04")
    assert np.isnan(found.train[0].velocity).all()
    assert found.warnings == ()


def test_t10_a_log_sent_twice_counts_once(shared: Path, ok_arm: Description) -> None:
    twice = lines(shared, "t10")
    once = assemble(twice[:200])
    assert len(twice) == 400
    assert reported(shared, ok_arm, "t10").digest == dataset_of(ok_arm, declare(), once, split=HALVES).digest


def test_t11_a_stale_message_kept_by_a_broker_is_no_part_of_what_is_fitted(shared: Path, ok_arm: Description) -> None:
    # an ingester drops what is retained; in a log it is days before the rest, which no rollout is carried across
    rows = lines(shared, "t11")
    stamp = rows[-1]["stamp"]
    rows += [row | {"stamp": stamp + 0.01 * (k + 1)} for k, row in enumerate(rows[1:])]
    found = dataset_of(ok_arm, declare(), assemble(rows), holdout=[assemble(rows[1:])])
    (part,) = found.train
    assert part.motion.begin_s > 86_400.0
    assert any("a gap of 2.59e+05 s at 0 s" in warning for warning in found.warnings)


def test_t12_angles_that_wrap_at_pi_are_one_motion(shared: Path, ok_arm: Description) -> None:
    free = parse_urdf(ok_arm.source.replace(b'type="revolute"', b'type="continuous"'))
    found = reported(shared, free, "t12")
    assert found.warnings == ()
    for part in (*found.train, *found.holdout):
        assert np.abs(np.diff(part.position, axis=0)).max() < 0.2
        rows = np.searchsorted(part.motion.t_s, part.motion.t_out_s)
        assert np.abs(part.motion.command[rows, :, 0] - part.position).max() < 1.0


def test_t14_degrees_are_said_and_not_converted_in_silence(shared: Path, ok_arm: Description) -> None:
    with pytest.raises(FitImpossibleError, match=r"no joint's values can be right: .*'elbow'.*degrees\?.*'shoulder'"):
        reported(shared, ok_arm, "t14")
    declared = {name: {"unit": "deg"} for name in ("shoulder", "elbow")}
    assert reported(shared, ok_arm, "t14", joints=declared).warnings == ()


def test_t16_a_robot_that_stands_still_is_refused_with_what_to_record(shared: Path, ok_arm: Description) -> None:
    with pytest.raises(FitImpossibleError, match=r"no joint moves .* record a motion in which every joint turns"):
        still_joints(reported(shared, ok_arm, "t16"))


def test_t17_the_joint_that_stands_still_is_named_beside_the_one_that_moves(shared: Path, ok_arm: Description) -> None:
    # the shoulder isn't commanded, but the elbow's swings shake it by 0.1 rad
    shaken = still_joints(reported(shared, ok_arm, "t17"))
    still = lines(shared, "t17")
    for case in still:
        case["position"][case["name"].index("shoulder")] = 0.1
    assert shaken == ()
    assert still_joints(dataset_of(ok_arm, declare(), assemble(still))) == ("shoulder",)


def test_a_joint_that_training_never_measures_counts_as_still() -> None:
    motion = swings(T, 2)
    late = np.where(T[:, None] < 8.0, np.array([1.0, NAN]), 1.0) * motion
    arm = dataset_of(two_link(), declare(), log("a", T, ("shoulder", "elbow"), position=late, command_position=motion))
    assert still_joints(arm) == ("elbow",)


def test_t18_a_gap_is_split_at_and_lost_packets_are_only_missing(shared: Path, ok_arm: Description) -> None:
    found = reported(shared, ok_arm, "t18")
    (_, begin, end), (_, again, _) = spans((*found.train, *found.holdout))
    assert begin == 0.0
    assert again - end == pytest.approx(1.51)
    compared = sum(len(p.position) for p in (*found.train, *found.holdout))
    assert compared == len(lines(shared, "t18"))


def test_t19_uneven_rows_are_compared_where_they_are(shared: Path, ok_arm: Description) -> None:
    found = reported(shared, ok_arm, "t19")
    stamps = np.concatenate([p.motion.t_out_s for p in (*found.train, *found.holdout)])
    expected = [round(case["stamp"] * 1e6) * 1000 for case in lines(shared, "t19")]
    np.testing.assert_allclose(stamps, (np.array(expected) - expected[0]) * 1e-9, atol=1e-9)


def test_t24_a_log_without_commands_is_refused_with_what_that_costs(shared: Path, ok_arm: Description) -> None:
    with pytest.raises(FitImpossibleError, match=r"command_position is missing.*gains, latency, friction and inertia"):
        reported(shared, ok_arm, "t24")


def test_t26_a_gripper_in_percent_is_left_out_with_a_guess(shared: Path, ok_arm: Description) -> None:
    gripper = ok_arm.source.replace(
        b"</robot>",
        b"""<link name="finger">
        <inertial><mass value="0.02"/><inertia ixx="1e-5" iyy="1e-5" izz="1e-5"/></inertial></link>
        <joint name="finger_l_joint" type="prismatic"><parent link="lower"/><child link="finger"/><axis xyz="0 1 0"/>
        <limit lower="0" upper="0.04" effort="10" velocity="1"/></joint></robot>""",
    )
    found = reported(shared, parse_urdf(gripper), "t26")
    assert found.model.joints == ("shoulder", "elbow")
    (warning,) = found.warnings
    assert warning.startswith("joint 'finger_l_joint'")
    assert warning.endswith("percent?")


def test_t27_prefixed_names_are_refused_with_the_remedy(shared: Path, ok_arm: Description) -> None:
    with pytest.raises(LogError, match=r"they begin with 'left_'"):
        reported(shared, ok_arm, "t27")
    named = {name: {"source": f"left_{name}"} for name in ("shoulder", "elbow")}
    assert reported(shared, ok_arm, "t27", joints=named).model.joints == ("shoulder", "elbow")


# --- stops ------------------------------------------------------------------------------------------------------------


def test_samples_of_a_joint_that_rests_at_its_limit_are_left_out_and_those_that_pass_it_are_not() -> None:
    description = level_joint()
    joint = description.joints["hinge"]
    limited = replace(description, joints={**description.joints, "hinge": replace(joint, lower=-0.5, upper=0.5)})
    swung = 0.8 * np.sin(2.0 * np.pi * T / 5.0)[:, None]
    stopped = np.clip(swung, -0.5, 0.5)
    resting = np.abs(stopped[:, 0]) == 0.5
    for motion, left_out in ((stopped, int(resting.sum())), (swung, 0)):
        recording = log("a", T, position=motion, command_position=swung)
        (stretch,) = dataset_of(limited, declare(), recording, holdout=[swing("b")], split=Split()).train
        # the first sample at the stop is where the joint still came from
        assert left_out - 8 <= int(np.isnan(stretch.position).sum()) <= left_out
        assert not np.isnan(stretch.position[~resting]).any()
