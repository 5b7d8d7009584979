"""Parameters beyond the usual ones: there where a structure or a declaration asks for them, and then they act."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.errors import DeclarationError, InvalidInputError
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.description import Description
from app.twin.inertia import consistent_inertia
from app.twin.model import PLAIN, Structure, TwinModel, named_structure
from app.twin.packing import gravity_in_base
from app.twin.rollout import Motion
from tests.physics import (
    commands,
    from_pybullet,
    mass_and_bias,
    model_of,
    pendulum,
    rolled,
    sweeping,
    two_link,
    watched,
)

PD = {"kind": "pd", "kp": 60.0, "kd": 3.0}
EVERYTHING = Structure("coulomb+viscous+stribeck+load", "delay+lag", backlash=True)


def asking(*free: str, **declared: Any) -> TwinModel:
    return model_of(two_link(), PD, fit={"free": list(free)}, **declared)


def added(model: TwinModel) -> list[str]:
    plain = model_of(two_link(), PD).names
    return [name for name in model.names if name not in plain]


def test_a_plain_robot_has_no_more_than_it_had() -> None:
    assert model_of(two_link(), PD).structure == PLAIN
    assert added(asking("*")) == []
    assert added(asking("robot/*")) == []


@pytest.mark.parametrize(
    ("structure", "joint", "robot"),
    [
        (Structure("coulomb+viscous+stribeck"), ["breakaway_friction_nm", "stribeck_velocity_rad_s"], []),
        (Structure("coulomb+viscous+load"), ["load_friction"], []),
        (Structure(lag="delay+lag"), [], ["robot/controller_lag_s"]),
        (Structure(backlash=True), ["backlash_rad"], []),
    ],
)
def test_a_law_brings_its_parameters(structure: Structure, joint: list[str], robot: list[str]) -> None:
    names = [f"joint/{j}/{name}" for j in ("shoulder", "elbow") for name in joint] + robot
    model = model_of(two_link(), PD, structure=structure)
    assert added(model) == names
    assert all(spec.fitted for spec in model.specs if spec.name in names)
    assert structure.extras == 1
    # the same laws, asked for by their parameters
    asked = asking(*(name.replace("shoulder", "*").replace("elbow", "*") for name in names))
    assert asked.structure == structure
    assert asked.names == model.names


def test_laws_add_up_and_are_known_by_name() -> None:
    assert PLAIN | EVERYTHING == EVERYTHING
    assert EVERYTHING.extras == 4
    assert named_structure("coulomb+viscous+load", "delay", backlash=True) == Structure(
        "coulomb+viscous+load", "delay", backlash=True
    )
    with pytest.raises(InvalidInputError, match=r"structure\.friction: 'dahl' is no friction law"):
        named_structure("dahl", "delay", backlash=False)


def test_the_laws_parameters_reach_their_places() -> None:
    model = model_of(two_link(), PD, structure=EVERYTHING)
    by_name = {
        "joint/elbow/coulomb_friction_nm": 0.5,
        "joint/elbow/breakaway_friction_nm": 0.8,
        "joint/elbow/stribeck_velocity_rad_s": 0.07,
        "joint/elbow/load_friction": 0.03,
        "joint/elbow/backlash_rad": 0.004,
        "robot/controller_lag_s": 0.02,
    }
    packed = model.pack(model.values(by_name)[None])
    rows = (friction.COULOMB, friction.BREAKAWAY, friction.STRIBECK, friction.LOAD, friction.BACKLASH)
    assert packed.joint[list(rows), 1, 0].tolist() == [0.5, 0.8, 0.07, 0.03, 0.004]
    assert packed.lag.tolist() == [0.02]
    # less breakaway than Coulomb friction is none
    below = model.pack(model.values(by_name | {"joint/elbow/breakaway_friction_nm": 0.3})[None])
    assert below.joint[friction.BREAKAWAY, 1, 0] == 0.5


def test_an_encoder_on_the_motor_sees_no_gap() -> None:
    model = model_of(two_link(), PD, structure=EVERYTHING, joints={"elbow": {"encoder": "motor"}})
    assert "joint/shoulder/backlash_rad" in model.names
    assert "joint/elbow/backlash_rad" not in model.names
    assert any("'elbow' is on the motor" in note for note in model.notes)


def test_patterns_for_another_structure_wait_for_it_and_unknown_ones_are_refused() -> None:
    believed = {"prior": {"joint/*/backlash_rad": {"normal": [0.01, 0.002]}}}
    assert added(model_of(two_link(), PD, fit=believed)) == []
    model = model_of(two_link(), PD, fit=believed, structure=Structure(backlash=True))
    assert model.specs[model.names.index("joint/elbow/backlash_rad")].initial == 0.01
    with pytest.raises(DeclarationError, match="payload_mass_kg, stribeck_velocity_rad_s"):
        asking("robot/nonsense")


def test_an_unknown_payload_is_the_declared_one_at_its_values() -> None:
    load = {"link": "lower", "mass_kg": 0.7, "com_m": [0.1, 0.02, 0.05]}
    declared, unknown = model_of(two_link(), PD, payload=load), asking("robot/payload_*", payload=load)
    assert added(unknown) == ["robot/payload_mass_kg", *(f"robot/payload_com_{axis}_m" for axis in "xyz")]
    assert unknown.nominal()[-4:].tolist() == [0.7, 0.1, 0.02, 0.05]
    motion = sweeping(2, 1.0)
    values = dict(zip(declared.names, declared.initial().tolist(), strict=True))
    same = unknown.values(values)
    np.testing.assert_allclose(rolled(unknown, motion, same)[0], rolled(declared, motion)[0], rtol=0, atol=1e-12)
    heavier = unknown.values(values | {"robot/payload_mass_kg": 1.4})
    assert np.abs(rolled(unknown, motion, heavier)[0] - rolled(declared, motion)[0]).max() > 1e-3


def test_an_undeclared_payload_hangs_at_the_end_of_the_chain() -> None:
    model = asking("robot/payload_mass_kg")
    assert model.load is not None
    assert model.load.body == 1
    fitted = [spec.name for spec in model.specs if spec.fitted and "payload" in spec.name]
    assert fitted == ["robot/payload_mass_kg"]
    motion = sweeping(2, 1.0)
    none = model.values({"robot/payload_mass_kg": 0.0})
    np.testing.assert_allclose(
        rolled(model, motion, none)[0], rolled(model_of(two_link(), PD), motion)[0], rtol=0, atol=1e-12
    )


def test_a_tilt_is_a_base_that_leans() -> None:
    """A hinge's gravity torque, in the horizontal plane until the base leans by 0.3 rad about an axis in it."""
    assert gravity_in_base(0.0, 0.0) == (0.0, 0.0, -9.81)
    np.testing.assert_allclose(gravity_in_base(0.3, 0.0), [0.0, -9.81 * np.sin(0.3), -9.81 * np.cos(0.3)])
    np.testing.assert_allclose(gravity_in_base(0.0, 0.3), [9.81 * np.sin(0.3), 0.0, -9.81 * np.cos(0.3)])
    model = asking("robot/tilt_*")
    assert added(model) == ["robot/tilt_roll_rad", "robot/tilt_pitch_rad"]
    _, level = mass_and_bias(model, model.initial(), np.zeros((1, 2)), np.zeros((1, 2)))
    pitched = model.values({"robot/tilt_pitch_rad": 0.3})
    _, leaning = mass_and_bias(model, pitched, np.zeros((1, 2)), np.zeros((1, 2)))
    # both joints turn about y: stretched out along x, pitching by 0.3 is lowering the arm by as much
    _, lowered = mass_and_bias(model, model.initial(), np.array([[0.3, 0.0]]), np.zeros((1, 2)))
    np.testing.assert_allclose(leaning, lowered, rtol=1e-12)
    assert abs(leaning[0, 1] - level[0, 1]) > 0.01


def test_a_tilt_that_no_joint_feels_is_not_fitted() -> None:
    """Two joints about y: rolling the base only makes gravity a little weaker, to either side alike."""
    model = asking("robot/tilt_*")
    fitted = {spec.name: spec.fitted for spec in model.specs if "tilt" in spec.name}
    assert fitted == {"robot/tilt_roll_rad": False, "robot/tilt_pitch_rad": True}
    assert any("tilt_roll_rad is not fitted" in note for note in model.notes)
    free = {"free": ["robot/tilt_*"]}
    arm = model_of(from_pybullet("kuka_iiwa/model.urdf"), PD, fit=free)
    assert [spec.fitted for spec in arm.specs if "tilt" in spec.name] == [True, True]
    # a slide feels what lies along it
    upright, across = (model_of(pendulum(kind="prismatic", axis=axis), PD, fit=free) for axis in ("0 0 1", "1 0 0"))
    assert [spec.fitted for spec in upright.specs if "tilt" in spec.name] == [False, False]
    assert [spec.fitted for spec in across.specs if "tilt" in spec.name] == [False, True]


def with_inertia(description: Description, name: str, tensor: FloatArray) -> Description:
    link = replace(description.links[name], inertia_kg_m2=tensor)
    return replace(description, links={**description.links, name: link})


def test_a_free_inertia_is_the_links_own() -> None:
    model = asking("link/upper/inertia_*")
    assert added(model) == [f"link/upper/inertia_{ab}_kg_m2" for ab in ("xx", "yy", "zz", "xy", "xz", "yz")]
    tensor = np.array([[0.004, 0.0005, -0.0002], [0.0005, 0.03, 0.001], [-0.0002, 0.001, 0.03]])
    six = dict(zip(added(model), tensor[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].tolist(), strict=True))
    # with its own inertia free, a mass no longer scales it
    values = model.values(six | {"link/upper/mass_kg": 2.0})
    other = model_of(with_inertia(two_link(), "upper", tensor * 1.2 / 2.0), PD)
    motion = sweeping(2, 1.0)
    expected = rolled(other, motion, other.values(dict(zip(model.names, values.tolist(), strict=True))))[0]
    np.testing.assert_allclose(rolled(model, motion, values)[0], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.links(values)["upper"].inertia_kg_m2, tensor, rtol=1e-12)


def test_an_impossible_inertia_becomes_the_nearest_possible_one() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        half = draw.normal(size=(3, 3))
        tensor = half + half.T
        possible = consistent_inertia(tensor)
        moments = np.linalg.eigvalsh(possible)
        assert moments[0] > 0.0
        assert moments[2] < moments[0] + moments[1]
        np.testing.assert_allclose(consistent_inertia(possible), possible, rtol=0, atol=1e-12)
    body = np.diag([0.01, 0.02, 0.025])
    np.testing.assert_array_equal(consistent_inertia(body), body)


def test_a_torque_constant_scales_what_is_asked_of_the_motor() -> None:
    model = model_of(two_link(), {"kind": "torque"}, fit={"free": ["joint/*/torque_constant_nm_per_unit"]})
    assert len(added(model)) == 2
    command = commands(1, 2)
    command[0, :, 2] = 3.0
    doubled = command.copy()
    doubled[0, :, 2] = 6.0
    t = np.linspace(0.0, 0.3, 11)
    twice = model.values({f"joint/{name}/torque_constant_nm_per_unit": 2.0 for name in model.joints})
    start: FloatArray = np.zeros(2)
    q, _ = rolled(model, watched(t, command, start), twice)
    np.testing.assert_allclose(q, rolled(model, watched(t, doubled, start))[0], rtol=0, atol=1e-13)


def test_a_published_twins_parameters_are_had_by_name() -> None:
    asked = asking("robot/tilt_*", "joint/*/backlash_rad", "joint/*/torque_limit_nm")
    again = model_of(two_link(), PD, also=asked.names)
    assert again.structure == asked.structure
    assert again.names == asked.names
    values = asked.values({"robot/tilt_roll_rad": 0.1, "joint/elbow/backlash_rad": 0.01})
    motion: Motion = sweeping(2, 0.5)
    np.testing.assert_array_equal(rolled(again, motion, values)[0], rolled(asked, motion, values)[0])
