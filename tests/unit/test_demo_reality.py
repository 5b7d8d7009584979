"""The simulated reality against closed forms: a planted truth is only worth finding if it is really in there."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from app.demo.arm import GAINS, TYPICAL, Drivetrain, Gains, arm_urdf
from app.demo.motion import Commands, excitation, work
from app.demo.reality import Reality, simulate
from app.demo.truth import (
    LATENCY_RANGE_S,
    PERFECT_ENCODER,
    Encoder,
    Truth,
    draw_truth,
    nominal_truth,
)
from app.telemetry import FloatArray, Recording
from app.twin.description import Description, Joint, Link, parse_urdf

GRAVITY = 9.81
INERTIA = 0.02
MASS = 2.0
ARM_M = 0.1
GAIN = Gains(kp_nm_per_rad=40.0, kd_nm_s_per_rad=1.0)


def one_joint(axis: tuple[float, float, float], com: tuple[float, float, float]) -> Description:
    base = Link("base", 1.0, np.zeros(3), 0.01 * np.eye(3))
    bar = Link("bar", MASS, np.array(com), INERTIA * np.eye(3))
    joint = Joint(
        "hinge", "revolute", "base", "bar", np.zeros(3), np.eye(3), np.array(axis), -3.0, 3.0, 100.0, 5.0, None, None
    )
    return Description("bar", "", {"base": base, "bar": bar}, {"hinge": joint}, "base", (), b"")


def truth(drive: Drivetrain, latency_s: float = 0.0, mass_scale: float = 1.0) -> Truth:
    return Truth({"hinge": drive}, {"bar": mass_scale}, latency_s, PERFECT_ENCODER, noise_seed=0)


def commands(position: FloatArray) -> Commands:
    return Commands(np.arange(len(position), dtype=np.int64) * 5_000_000, ("hinge",), position[:, None])


def positions(recording: Recording) -> FloatArray:
    return recording.channels["position"][:, 0]


def test_steady_sliding_takes_exactly_coulomb_plus_viscous_torque_and_the_latency() -> None:
    drive = Drivetrain(coulomb_friction_nm=0.7, viscous_damping_nm_s_per_rad=0.3, armature_kg_m2=0.05)
    speed, latency_s = 0.4, 0.0137
    t = np.arange(800) / 200.0
    level = one_joint(axis=(0, 0, 1), com=(0, 0, 0))  # no gravity about a vertical axis
    log = simulate(level, {"hinge": GAIN}, truth(drive, latency_s), commands(speed * t))
    # A ramp held for 5 ms at a time is on average 2.5 ms late.
    torque = 0.7 + (0.3 + GAIN.kd_nm_s_per_rad) * speed
    expected = speed * (t - latency_s - 0.0025) - torque / GAIN.kp_nm_per_rad
    np.testing.assert_allclose(positions(log)[600:], expected[600:], atol=2e-6)
    np.testing.assert_allclose(log.channels["velocity"][600:, 0], speed, atol=2e-4)


def test_a_step_without_friction_follows_the_damped_oscillator_of_its_inertia_and_armature() -> None:
    drive = Drivetrain(coulomb_friction_nm=0.0, viscous_damping_nm_s_per_rad=0.2, armature_kg_m2=0.05)
    latency_s, step_rad = 0.0083, 0.3
    asked = np.full(400, step_rad)
    asked[:100] = 0.0
    level = one_joint(axis=(0, 0, 1), com=(0.1, 0, 0))
    log = simulate(level, {"hinge": GAIN}, truth(drive, latency_s, mass_scale=1.2), commands(asked))
    inertia = 1.2 * (INERTIA + MASS * ARM_M**2) + 0.05
    decay = (0.2 + GAIN.kd_nm_s_per_rad) / (2.0 * inertia)
    frequency = math.sqrt(GAIN.kp_nm_per_rad / inertia - decay**2)
    t = np.maximum(np.arange(400) / 200.0 - 0.5 - latency_s, 0.0)
    expected = step_rad * (
        1.0 - np.exp(-decay * t) * (np.cos(frequency * t) + decay / frequency * np.sin(frequency * t))
    )
    np.testing.assert_allclose(positions(log), expected, atol=2e-6)


def test_a_joint_held_by_dry_friction_does_not_creep() -> None:
    drive = Drivetrain(coulomb_friction_nm=1.0, viscous_damping_nm_s_per_rad=0.1, armature_kg_m2=0.05)
    asked = np.zeros(1000)
    asked[200:] = 0.9 / GAIN.kp_nm_per_rad  # 90 % of the friction
    level = one_joint(axis=(0, 0, 1), com=(0, 0, 0))
    held = positions(simulate(level, {"hinge": GAIN}, truth(drive), commands(asked)))
    assert abs(held[200]) < 1e-9
    assert np.abs(held - held[0]).max() < 5e-6  # over four seconds; a fiftieth of the coarsest encoder's step


def test_gravity_pulls_with_the_true_mass_not_the_described_one() -> None:
    hanging_out = one_joint(axis=(0, 1, 0), com=(ARM_M, 0, 0))
    frictionless = truth(Drivetrain(0.0, 0.5, 0.0), mass_scale=0.85)
    log = simulate(hanging_out, {"hinge": GAIN}, frictionless, commands(np.zeros(200)))
    sag = positions(log)[-1]
    assert sag == pytest.approx(0.85 * MASS * GRAVITY * ARM_M * math.cos(sag) / GAIN.kp_nm_per_rad, abs=1e-6)


def test_encoders_round_to_their_step_after_adding_noise() -> None:
    encoder = Encoder(1e-3, 5e-4, 0.02, 0.01)
    still = replace(truth(Drivetrain(0.1, 0.1, 0.01)), encoder=encoder)
    log = simulate(one_joint((0, 0, 1), (0, 0, 0)), {"hinge": GAIN}, still, commands(np.zeros(4000)))
    for channel, noise, step in (("position", 1e-3, 5e-4), ("velocity", 0.02, 0.01)):
        values = log.channels[channel][:, 0]  # type: ignore[index]  # literal keys, written as a loop
        np.testing.assert_allclose(values / step, np.round(values / step), atol=1e-9)
        assert values.std() == pytest.approx(math.hypot(noise, step / math.sqrt(12.0)), rel=0.05)


@pytest.fixture(scope="module")
def arm() -> Description:
    return parse_urdf(arm_urdf())


def test_the_same_seed_gives_the_same_robot_and_the_same_recording(arm: Description) -> None:
    motion = excitation(arm, seed=3, duration_s=4.0)
    logs = [simulate(arm, GAINS, draw_truth(arm, seed=5, robot_index=1), motion) for _ in range(2)]
    assert logs[0].digest() == logs[1].digest()
    other = simulate(arm, GAINS, draw_truth(arm, seed=5, robot_index=2), motion)
    assert other.digest() != logs[0].digest()


def test_truths_stay_in_their_stated_ranges_and_differ_between_robots(arm: Description) -> None:
    truths = [draw_truth(arm, seed=0, robot_index=i) for i in range(40)]
    for joint, typical in TYPICAL.items():
        for name in ("coulomb_friction_nm", "viscous_damping_nm_s_per_rad", "armature_kg_m2"):
            ratios = np.array([getattr(t.drivetrains[joint], name) / getattr(typical, name) for t in truths])
            assert ratios.min() >= 1 / 3
            assert ratios.max() <= 3.0
            assert ratios.max() / ratios.min() > 4.0
    latencies = [t.command_latency_s for t in truths]
    assert LATENCY_RANGE_S[0] <= min(latencies) < 0.006
    assert 0.026 < max(latencies) <= LATENCY_RANGE_S[1]
    assert all(0.8 <= scale <= 1.2 for t in truths for scale in t.mass_scale.values())


def test_the_excitation_stays_within_the_limits_and_visits_every_regime(arm: Description) -> None:
    motion = excitation(arm, seed=1, duration_s=60.0)
    speed = np.gradient(motion.position, 0.005, axis=0)
    for column, name in enumerate(motion.names):
        joint = arm.joints[name]
        assert joint.lower is not None
        assert joint.upper is not None
        assert joint.velocity_limit is not None
        assert motion.position[:, column].min() > joint.lower + 0.1
        assert motion.position[:, column].max() < joint.upper - 0.1
        assert np.abs(speed[:, column]).max() < joint.velocity_limit
        assert np.abs(speed[:, column]).max() > 1.2  # damping and armature show
        assert np.mean(np.abs(speed[:, column]) < 0.1) > 0.1  # dry friction shows
    assert np.ptp(motion.position[:200], axis=0).max() == 0.0


def test_reality_is_accurate_to_a_hundredth_of_an_encoder_step(arm: Description) -> None:
    hidden = replace(draw_truth(arm, seed=0, robot_index=0), encoder=PERFECT_ENCODER)
    motion = excitation(arm, seed=2, duration_s=12.0)
    coarse = simulate(arm, GAINS, hidden, motion).channels["position"]
    fine = simulate(arm, GAINS, hidden, motion, step_ns=62_500).channels["position"]
    assert math.sqrt(float(np.mean((coarse - fine) ** 2))) < 4e-6


def test_a_robot_that_follows_in_pieces_goes_where_it_goes_in_one(arm: Description) -> None:
    hidden = replace(draw_truth(arm, seed=0, robot_index=0), encoder=PERFECT_ENCODER)
    whole = excitation(arm, seed=2, duration_s=4.0)
    reality = Reality(arm, GAINS, hidden)
    pieces = [
        reality.follow(Commands(whole.t_ns[:50].copy(), whole.names, whole.position[first : first + 50].copy()))
        for first in range(0, 800, 50)
    ]
    in_one = simulate(arm, GAINS, hidden, whole)
    joined = np.vstack([piece.channels["position"] for piece in pieces])
    np.testing.assert_allclose(joined, in_one.channels["position"], atol=1e-9)
    joined = np.vstack([piece.channels["velocity"] for piece in pieces])
    np.testing.assert_allclose(joined, in_one.channels["velocity"], atol=1e-7)


def test_friction_that_rises_in_mid_motion_moves_nothing_at_once_and_takes_half_as_much_torque_again() -> None:
    drive = Drivetrain(coulomb_friction_nm=0.7, viscous_damping_nm_s_per_rad=0.3, armature_kg_m2=0.05)
    healthy = truth(drive)
    worn = healthy.with_friction(1.5)
    assert worn.drivetrains["hinge"].coulomb_friction_nm == pytest.approx(1.05)
    assert worn.drivetrains["hinge"].viscous_damping_nm_s_per_rad == pytest.approx(0.45)
    assert worn.drivetrains["hinge"].armature_kg_m2 == 0.05
    speed = 0.4
    asked = np.asarray(speed * np.arange(1600) / 200.0, dtype=np.float64)
    reality = Reality(one_joint(axis=(0, 0, 1), com=(0, 0, 0)), {"hinge": GAIN}, healthy)
    before = positions(reality.follow(commands(asked[:800])))
    reality.become(worn)
    after = positions(reality.follow(commands(asked[800:])))
    assert after[0] - before[-1] == pytest.approx(speed / 200.0, abs=2e-6)
    lag = (0.5 * (0.7 + 0.3 * speed)) / GAIN.kp_nm_per_rad
    assert (after[-1] - asked[-1]) - (before[-1] - asked[799]) == pytest.approx(-lag, abs=2e-6)


def test_work_is_another_motion_within_the_limits_and_goes_on_where_it_was(arm: Description) -> None:
    pieces = list(itertools.islice(work(arm, seed=1, rows=50), 240))
    assert all(piece.t_ns[0] == 0 and len(piece.t_ns) == 50 for piece in pieces)
    position = np.vstack([piece.position for piece in pieces])
    speed = np.abs(np.diff(position, axis=0)) * 200.0
    for column, name in enumerate(pieces[0].names):
        joint = arm.joints[name]
        assert joint.lower is not None
        assert joint.upper is not None
        assert joint.velocity_limit is not None
        assert joint.lower < position[:, column].min()
        assert position[:, column].max() < joint.upper
        assert 0.25 * joint.velocity_limit < speed[:, column].max() < 0.75 * joint.velocity_limit
    # No jump between pieces: the highest acceleration is that of a move.
    assert np.abs(np.diff(speed, axis=0)).max() * 200.0 < 30.0
    assert np.mean(speed.max(axis=1) > 0.05) > 0.6  # it works most of the time
    again = list(itertools.islice(work(arm, seed=1, rows=50), 2))
    np.testing.assert_array_equal(again[1].position, pieces[1].position)


def test_the_described_robot_is_far_from_every_real_one(arm: Description) -> None:
    motion = excitation(arm, seed=2, duration_s=12.0)
    nominal = simulate(arm, GAINS, nominal_truth(arm), motion).channels["position"]
    for index in range(3):
        log = simulate(arm, GAINS, draw_truth(arm, seed=0, robot_index=index), motion)
        error = np.sqrt(np.mean((log.channels["position"] - nominal) ** 2, axis=0))
        assert error.mean() > 0.010


def test_parameters_carry_the_names_of_a_twin_document(arm: Description) -> None:
    hidden = draw_truth(arm, seed=0, robot_index=0)
    values = hidden.parameters(arm)
    assert values["robot/command_latency_s"] == hidden.command_latency_s
    assert values["joint/elbow_pitch/armature_kg_m2"] == hidden.drivetrains["elbow_pitch"].armature_kg_m2
    assert values["link/forearm_link/mass_kg"] == pytest.approx(2.5 * hidden.mass_scale["forearm_link"])
    assert values["link/forearm_link/com_z_m"] == pytest.approx(0.115)
    assert "link/tool0/mass_kg" not in values
