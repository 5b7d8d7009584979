"""Which parameters a robot has, what they are called, and what their values do to the dynamics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from app.errors import DeclarationError, DescriptionError
from app.twin import friction, world
from app.twin.declaration import Controller
from app.twin.description import parse_urdf
from app.twin.document import LognormalPrior, NormalPrior
from app.twin.model import GRAVITY_M_S2, TwinModel
from app.twin.parameters import ParameterSpec
from app.twin.priors import default_specs, scales_of
from tests.physics import commands, mass_and_bias, model_of, pendulum, pybullet_mass_and_bias, read, two_link, watched

PD = {"kind": "pd"}


def spec_of(model: TwinModel, name: str) -> ParameterSpec:
    return model.specs[model.names.index(name)]


def test_a_joint_under_pd_has_these_parameters_in_this_order() -> None:
    joint = [
        "joint/hinge/armature_kg_m2",
        "joint/hinge/viscous_damping_nm_s_per_rad",
        "joint/hinge/coulomb_friction_nm",
        "joint/hinge/encoder_offset_rad",
        "joint/hinge/kp_nm_per_rad",
        "joint/hinge/kd_nm_s_per_rad",
    ]
    link = ["link/rod/mass_kg", "link/rod/com_x_m", "link/rod/com_y_m", "link/rod/com_z_m"]
    assert model_of(pendulum(), PD).names == (*joint, *link, "robot/command_latency_s")


def test_a_sliding_joint_has_newtons_metres_and_kilograms() -> None:
    model = model_of(pendulum(kind="prismatic"), PD)
    assert model.names[:6] == (
        "joint/hinge/armature_kg",
        "joint/hinge/viscous_damping_n_s_per_m",
        "joint/hinge/coulomb_friction_n",
        "joint/hinge/encoder_offset_m",
        "joint/hinge/kp_n_per_m",
        "joint/hinge/kd_n_s_per_m",
    )
    duty = model_of(pendulum(kind="prismatic"), {"kind": "servo_duty", "nominal_supply_v": 12.0})
    assert duty.names[4:7] == (
        "joint/hinge/duty_stiffness_n_per_m",
        "joint/hinge/stall_torque_n",
        "joint/hinge/back_emf_n_s_per_m",
    )


@pytest.mark.parametrize(
    ("controller", "gains"),
    [
        ({"kind": "none"}, []),
        ({"kind": "torque"}, []),
        ({"kind": "velocity"}, ["kd_nm_s_per_rad"]),
        ({"kind": "pd"}, ["kp_nm_per_rad", "kd_nm_s_per_rad"]),
        (
            {"kind": "servo_duty", "nominal_supply_v": 7.4},
            ["duty_stiffness_nm_per_rad", "stall_torque_nm", "back_emf_nm_s_per_rad"],
        ),
    ],
)
def test_a_controller_brings_its_own_parameters(controller: dict[str, object], gains: list[str]) -> None:
    model = model_of(pendulum(), controller)
    assert list(model.names[4:-5]) == [f"joint/hinge/{gain}" for gain in gains]
    assert spec_of(model, "robot/command_latency_s").fitted == (controller["kind"] != "none")


def test_declared_gains_are_taken_and_not_fitted() -> None:
    model = model_of(two_link(), {"kind": "pd", "kp": {"shoulder": 60.0}, "kd": 1.5})
    declared, free = spec_of(model, "joint/shoulder/kp_nm_per_rad"), spec_of(model, "joint/elbow/kp_nm_per_rad")
    assert (declared.initial, declared.nominal, declared.fitted, declared.source) == (60.0, 60.0, False, "declared")
    assert (free.fitted, free.source) == (True, "prior")
    rows = model.pack(model.initial()[None]).joint
    assert rows[friction.KP, 0, 0] == 60.0
    assert rows[friction.KD, :, 0].tolist() == [1.5, 1.5]


def test_gains_in_the_log_are_a_factor_of_one() -> None:
    model = model_of(pendulum(), PD, channels=frozenset({"position", "command_position", "command_kp", "command_kd"}))
    for name in ("joint/hinge/kp_nm_per_rad", "joint/hinge/kd_nm_s_per_rad"):
        assert (spec_of(model, name).initial, spec_of(model, name).fitted) == (1.0, False)


def test_a_velocity_gain_that_nothing_tells_from_damping_is_fitted_as_damping() -> None:
    blind = model_of(pendulum(), PD, channels=frozenset({"position", "command_position"}))
    gain = spec_of(blind, "joint/hinge/kd_nm_s_per_rad")
    assert (gain.initial, gain.fitted) == (0.0, False)
    assert any("viscous damping" in note for note in blind.notes)
    seeing = model_of(pendulum(), PD, channels=frozenset({"position", "command_position", "command_velocity"}))
    assert spec_of(seeing, "joint/hinge/kd_nm_s_per_rad").fitted
    assert seeing.notes == ()
    declared = model_of(pendulum(), {"kind": "pd", "kd": 2.0}, channels=frozenset({"position", "command_position"}))
    assert declared.notes == ()


def test_nominal_is_the_description_and_declaration_and_nothing_else(shared: Path) -> None:
    model = model_of(read(shared / "cases/urdf/ok_two_link.urdf"), {"kind": "pd", "kp": 30.0})
    nominal = dict(zip(model.names, model.nominal().tolist(), strict=True))
    for body in model.mechanism.bodies:
        assert nominal[f"link/{body.link.name}/mass_kg"] == body.link.mass_kg
        assert [nominal[f"link/{body.link.name}/com_{a}_m"] for a in "xyz"] == body.link.com_m.tolist()
    for name in model.joints:
        joint = model.mechanism.description.joints[name]
        assert nominal[f"joint/{name}/armature_kg_m2"] == 0.0
        assert nominal[f"joint/{name}/encoder_offset_rad"] == 0.0
        assert nominal[f"joint/{name}/viscous_damping_nm_s_per_rad"] == (joint.damping or 0.0)
        assert nominal[f"joint/{name}/coulomb_friction_nm"] == (joint.friction or 0.0)
        assert nominal[f"joint/{name}/kp_nm_per_rad"] == 30.0
        # neither declared nor in the log: the prior's median
        gain = spec_of(model, f"joint/{name}/kd_nm_s_per_rad")
        assert nominal[gain.name] == gain.initial > 0.0
    assert nominal["robot/command_latency_s"] == 0.0


def test_values_by_name_leave_the_rest_where_a_fit_starts() -> None:
    model = model_of(pendulum(), PD)
    values = model.values({"link/rod/mass_kg": 3.0})
    assert values[model.names.index("link/rod/mass_kg")] == 3.0
    others = [name != "link/rod/mass_kg" for name in model.names]
    np.testing.assert_array_equal(values[others], model.initial()[others])


def test_a_fit_starts_within_its_bounds_and_every_prior_has_a_width(shared: Path) -> None:
    for path in ("so101/so101.urdf", "z1/z1.urdf", "go2/go2.urdf", "xl330/xl330_rig.urdf"):
        for spec in model_of(read(shared / "data" / path), PD).specs:
            low, high = spec.bounds
            assert low < high, spec.name
            assert low <= spec.initial <= high, spec.name
            mean, sd = spec.prior_moments()
            assert math.isfinite(mean), spec.name
            assert 0 < sd < math.inf, spec.name
            coordinate = float(spec.coordinate(spec.initial))
            assert float(spec.value(coordinate)) == pytest.approx(spec.initial, rel=1e-12), spec.name


def test_a_point_mass_at_its_links_origin_has_a_prior_for_its_centre_of_mass() -> None:
    none = '<inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/>'
    points = "".join(f'<link name="{n}"><inertial><mass value="1"/>{none}</inertial></link>' for n in "abc")
    text = f"""<robot name="r"><link name="base"/>{points}
    <joint name="hinge" type="continuous"><parent link="base"/><child link="a"/><axis xyz="0 1 0"/></joint>
    <joint name="w" type="fixed"><parent link="a"/><child link="b"/><origin xyz="0.2 0 0"/></joint>
    <joint name="u" type="fixed"><parent link="a"/><child link="c"/><origin xyz="0 0.1 0.1"/></joint></robot>"""
    for spec in model_of(parse_urdf(text.encode())).specs:
        assert spec.prior_moments()[1] > 0, spec.name
        assert spec.bounds[0] < spec.bounds[1], spec.name


def test_a_joint_about_a_vertical_axis_may_have_friction_too() -> None:
    model = model_of(pendulum(inertia=0.1))
    assert scales_of(model.mechanism).torque_nm[0] == pytest.approx(1.0)
    assert spec_of(model, "joint/hinge/coulomb_friction_nm").bounds[1] > 1.0


def test_mass_scales_the_inertia_about_the_centre_of_mass() -> None:
    model = model_of(pendulum(com="0.3 0 0", mass=2.0, inertia=0.05, axis="0 1 0"))
    values = model.values({"link/rod/mass_kg": 3.0, "link/rod/com_x_m": 0.4})
    M, h = mass_and_bias(model, values, np.zeros((1, 1)), np.zeros((1, 1)))
    assert M[0, 0, 0] == pytest.approx(0.05 * 1.5 + 3.0 * 0.16, rel=1e-14)
    assert h[0, 0] == pytest.approx(-3.0 * 9.81 * 0.4, rel=1e-14)
    link = model.links(values)["rod"]
    assert link.mass_kg == 3.0
    assert link.com_m.tolist() == [0.4, 0.0, 0.0]
    np.testing.assert_allclose(link.inertia_kg_m2, 1.5 * 0.05 * np.eye(3))


def test_every_parameter_set_of_a_batch_is_packed_by_itself() -> None:
    model = model_of(two_link(), PD)
    draw = np.random.default_rng(0)
    values = model.initial() * draw.uniform(0.5, 1.5, (5, len(model.specs)))
    packed = model.pack(values)
    assert packed.gravity[:, 3].tolist() == list(GRAVITY_M_S2)
    for i in range(5):
        alone = model.pack(values[i : i + 1])
        np.testing.assert_array_equal(packed.joint[:, :, i], alone.joint[:, :, 0])
        np.testing.assert_array_equal(packed.inertial[:, :, i], alone.inertial[:, :, 0])
        assert packed.latency[i] == alone.latency[0] == values[i, model.names.index("robot/command_latency_s")]
    # breakaway is never below Coulomb friction, and a limit that isn't given is none
    assert (packed.joint[friction.BREAKAWAY] == packed.joint[friction.COULOMB]).all()
    assert np.isinf(packed.joint[friction.TORQUE_LIMIT]).all()


def test_a_payload_is_welded_to_its_link_in_both_worlds() -> None:
    payload = {"link": "lower", "mass_kg": 0.5, "com_m": [0.3, 0.0, -0.02]}
    bare, loaded = model_of(two_link()), model_of(two_link(), payload=payload)
    assert loaded.names == bare.names
    q, v = np.array([[0.4, -0.9]]), np.array([[1.0, 2.0]])
    M, h = mass_and_bias(loaded, loaded.nominal(), q, v)
    M_bare, _ = mass_and_bias(bare, bare.nominal(), q, v)
    assert M[0, 1, 1] - M_bare[0, 1, 1] == pytest.approx(0.5 * (0.3**2 + 0.02**2), rel=1e-12)
    with world.loaded(loaded, loaded.nominal()) as body:
        J = body.jacobian
        M_world, h_world = pybullet_mass_and_bias(body.client, body.uid, J @ q[0], J @ v[0])
    np.testing.assert_allclose(M[0], J.T @ M_world @ J, rtol=1e-12)
    np.testing.assert_allclose(h[0], J.T @ h_world, rtol=1e-12)


def test_a_payload_on_the_base_changes_nothing() -> None:
    model = model_of(two_link(), payload={"link": "base", "mass_kg": 5.0})
    states = np.array([[0.4, -0.9]])
    for one, other in zip(
        mass_and_bias(model, model.nominal(), states, states),
        mass_and_bias(model_of(two_link()), model.nominal(), states, states),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    motion = watched(np.array([0.2]), commands(1, 2), states[0])
    assert np.isfinite(world.simulate(model, motion, model.nominal())[0]).all()


def test_ignored_and_unlogged_joints_are_locked_where_declared_or_nearest_to_zero(shared: Path) -> None:
    description = read(shared / "data/so101/so101.urdf")
    logged = [name for name in description.joints if name != "wrist_roll"]
    model = model_of(description, logged=logged, joints={"gripper": {"ignore": True, "hold_at": 0.4}})
    assert set(model.mechanism.locked) == {"gripper", "wrist_roll"}
    assert model.mechanism.locked["gripper"] == 0.4
    assert model.mechanism.locked["wrist_roll"] == 0.0
    assert not any("gripper/" in name or "wrist_roll" in name for name in model.names if name.startswith("joint/"))
    # the parts they carried are weighed with the link that holds them
    whole, locked = (sum(m.pack(m.nominal()[None]).inertial[:, 0, 0]) for m in (model_of(description), model))
    assert locked == pytest.approx(whole, rel=1e-12)


def test_no_joint_left_to_move_is_an_error() -> None:
    with pytest.raises(DescriptionError, match="no joint that moves"):
        model_of(two_link(), logged=[])


def test_a_floating_base_is_refused() -> None:
    with pytest.raises(DeclarationError, match="base: floating bases"):
        model_of(two_link(), base="floating")


def test_frozen_parameters_keep_their_value_and_say_so() -> None:
    model = model_of(two_link(), PD, fit={"frozen": {"joint/*/armature_kg_m2": 0.02, "robot/*": 0.005}})
    for name in ("joint/shoulder/armature_kg_m2", "joint/elbow/armature_kg_m2"):
        spec = spec_of(model, name)
        assert (spec.initial, spec.fitted, spec.source) == (0.02, False, "declared")
    assert spec_of(model, "robot/command_latency_s").initial == 0.005
    assert spec_of(model, "joint/elbow/coulomb_friction_nm").fitted


def test_what_is_strictly_positive_may_still_be_frozen_at_nothing() -> None:
    model = model_of(two_link(), fit={"frozen": {"joint/*/armature_kg_m2": 0.0}})
    assert (model.pack(model.initial()[None]).joint[friction.ARMATURE] == 0.0).all()


def test_freed_parameters_are_fitted() -> None:
    model = model_of(pendulum(), {"kind": "pd", "kp": 10.0}, fit={"free": ["joint/?inge/kp_*"]})
    assert spec_of(model, "joint/hinge/kp_nm_per_rad").fitted
    assert spec_of(model, "joint/hinge/kp_nm_per_rad").initial == 10.0


def test_a_declared_prior_replaces_ours_and_a_fit_starts_at_its_median() -> None:
    prior = {"link/rod/mass_kg": {"lognormal": [math.log(2.0), 0.1]}, "*_friction_nm": {"normal": [0.4, 0.1]}}
    model = model_of(pendulum(), fit={"prior": prior})
    mass, coulomb = spec_of(model, "link/rod/mass_kg"), spec_of(model, "joint/hinge/coulomb_friction_nm")
    assert mass.prior == LognormalPrior(lognormal=(math.log(2.0), 0.1))
    assert mass.initial == pytest.approx(2.0)
    assert mass.nominal == 1.0
    assert coulomb.prior == NormalPrior(normal=(0.4, 0.1))
    assert coulomb.initial == 0.4


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({"free": ["joint/*/wobble_rad"]}, r"fit\.free\.joint/\*/wobble_rad: matches no parameter.*armature_kg_m2"),
        ({"frozen": {"link/rod/*_lbs": 1.0}}, r"fit\.frozen\.link/rod/\*_lbs: matches no parameter"),
        ({"prior": {"robot/x": {"normal": [0, 1]}}}, r"fit\.prior\.robot/x: matches no parameter"),
        ({"frozen": {"link/rod/mass_kg": -1.0}}, r"fit\.frozen\.link/rod/mass_kg: -1\.0 is outside \["),
        ({"frozen": {"robot/command_latency_s": 5.0}}, r"fit\.frozen\.robot/command_latency_s: 5\.0 is outside \[0"),
    ],
)
def test_a_choice_that_fits_nothing_names_its_field(fit: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        model_of(pendulum(), fit=fit)


def test_all_parameters_have_names_of_their_own(shared: Path) -> None:
    for path in ("data/go2/go2.urdf", "cases/urdf/gripper_mimic.urdf", "cases/urdf/chain_25.urdf"):
        names = model_of(read(shared / path), PD).names
        assert len(set(names)) == len(names)


def test_a_mimic_joint_has_no_parameters_but_its_link_has(shared: Path) -> None:
    model = model_of(read(shared / "cases/urdf/gripper_mimic.urdf"), PD)
    joints = model.mechanism.description.joints
    follower = next(j for j in joints.values() if j.mimic is not None)
    assert not any(name.startswith(f"joint/{follower.name}/") for name in model.names)
    assert f"link/{follower.child}/mass_kg" in model.names


def test_widths_follow_the_robots_own_size() -> None:
    """Ten times the mass is ten times the torque that friction is believed to take."""
    small, large = (
        default_specs(
            model_of(pendulum(com="0.3 0 0", mass=mass, inertia=0.01 * mass, axis="0 1 0")).mechanism,
            Controller(kind="none"),
            set(),
        )
        for mass in (1.0, 10.0)
    )
    assert large[2].name == "joint/hinge/coulomb_friction_nm"
    assert large[2].prior_moments()[1] == pytest.approx(10 * small[2].prior_moments()[1])
