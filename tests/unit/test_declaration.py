"""What a declaration may say, how it is refused, and that it speaks of the robot described."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from app.errors import DeclarationError, DescriptionError
from app.twin.declaration import RobotDeclaration, check_against, load_declaration
from app.twin.description import Description, parse_urdf
from app.twin.document import UniformPrior

BODY = '<inertial><mass value="0.5"/><inertia ixx="0.002" iyy="0.002" izz="0.0003"/></inertial>'
LIMIT = '<limit lower="-2" upper="2" effort="10" velocity="8"/>'


def joint(name: str, parent: str, child: str, kind: str = "revolute") -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{LIMIT}</joint><link name="{child}">{BODY}</link>'


URDF = (
    '<robot name="arm"><link name="base"/>'
    + joint("shoulder", "base", "upper")
    + joint("elbow", "upper", "lower")
    + joint("finger", "lower", "tip", "prismatic")
    + joint("flange_fixed", "lower", "flange", "fixed")
    + "</robot>"
).encode()

MOVABLE = ("shoulder", "elbow", "finger")
MINIMAL: dict[str, Any] = {"schema": "twincal.robot/1", "robot": "arm-07", "fleet": "arms"}


@pytest.fixture(scope="module")
def description() -> Description:
    return parse_urdf(URDF)


def declared(**fields: Any) -> RobotDeclaration:
    return RobotDeclaration.model_validate({**MINIMAL, **fields})


def refusal(**fields: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        declared(**fields)
    message = str(caught.value)
    assert "\n" not in message
    return message


def mismatch(description: Description, **fields: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        check_against(declared(**fields), description)
    return str(caught.value)


# --- values -----------------------------------------------------------------------------------------------------------


def test_what_is_omitted_is_plain_si_of_a_fixed_robot_with_unknown_effort_and_controller() -> None:
    plain = declared()
    assert (plain.base, plain.effort_unit, plain.controller.kind) == ("fixed", "unknown", "none")
    assert (plain.description, plain.payload, plain.joints) == (None, None, {})
    wrist = plain.joint("wrist")
    assert (wrist.source, wrist.unit, wrist.sign, wrist.scale, wrist.offset, wrist.ignore) == (
        None,
        None,
        1,
        1,
        0,
        False,
    )


def test_every_field_of_the_contract_is_read() -> None:
    full = declared(
        description={"sha256": "ab" * 32},
        base="floating",
        joints={
            "wrist": {"source": "Wrist_Pitch", "unit": "deg", "sign": -1, "scale": 2, "offset": 0.1},
            "gripper": {"ignore": True, "hold_at": 0.5},
        },
        effort_unit="mA",
        controller={"kind": "pd", "rate_hz": 500, "kp": {"joint1": 80}, "kd": 2.5},
        payload={"link": "flange", "mass_kg": 0.4, "com_m": [0, 0, 0.05]},
        fit={"free": ["link/*/inertia_*"], "frozen": {"joint/a/b": 1}, "prior": {"joint/a/c": {"uniform": [1, 2]}}},
    )
    assert full.joint("wrist").model_dump() == {
        "source": "Wrist_Pitch",
        "unit": "deg",
        "sign": -1,
        "scale": 2.0,
        "offset": 0.1,
        "encoder": "link",
        "ignore": False,
        "hold_at": None,
    }
    assert full.joint("gripper").hold_at == 0.5
    assert (full.controller.kp_of("joint1"), full.controller.kp_of("joint2")) == (80.0, None)
    assert (full.controller.kd_of("joint1"), full.controller.kd_of("joint2")) == (2.5, 2.5)
    assert full.payload is not None
    assert full.payload.com_m == (0.0, 0.0, 0.05)
    assert full.fit.prior["joint/a/c"] == UniformPrior(uniform=(1.0, 2.0))
    assert RobotDeclaration.model_validate_json(full.model_dump_json()) == full
    assert RobotDeclaration.model_validate(json.loads(full.model_dump_json())) == full
    assert pickle.loads(pickle.dumps(full)) == full


@pytest.mark.parametrize("spelled", ["N·m", "N*m", "Nm", "N.m", "n⋅m"])
def test_newton_metres_may_be_typed_in_many_ways_and_are_stored_in_one(spelled: str) -> None:
    assert declared(effort_unit=spelled).effort_unit == "N·m"


@pytest.mark.parametrize("prior", [{"lognormal": [-2, 1]}, {"normal": [0.0, 0.1]}, {"uniform": [0, 2]}])
def test_each_kind_of_prior_is_kept_as_given(prior: dict[str, list[float]]) -> None:
    kept = declared(fit={"prior": {"robot/command_latency_s": prior}}).fit.prior["robot/command_latency_s"]
    assert kept.model_dump(mode="json") == prior


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"schema": "twincal.robot/2"}, "schema: 'twincal.robot/2' is not usable ('twincal.robot/1')"),
        ({"robot": 7}, "robot: 7 is not usable (text, in quotes)"),
        ({"robot": "a/b"}, "robot: 'a/b' is not an id (1 to 64 characters"),
        ({"fleet": ""}, "fleet: '' is not an id"),
        ({"colour": 1}, "colour: is not a field (one of schema, robot, fleet, description, base, joints"),
        ({"description": 3}, "description: 3 is not usable (text, in quotes)"),
        ({"description": {"sha256": "x"}}, "description.sha256: 'x' is not usable"),
        ({"description": {"url": "x"}}, "description.sha256: is missing"),
        ({"base": "wheeled"}, "base: 'wheeled' is not usable ('fixed' or 'floating')"),
        ({"joints": []}, "joints: [] is not usable (a mapping)"),
        ({"joints": {1: {}}}, "joints.1: the name 1 is not text (quote it)"),
        (
            {"joints": {"a": {"unit": "percent"}}},
            "joints.a.unit: 'percent' is not a unit; one of rad, mrad, deg, rev, m",
        ),
        ({"joints": {"a": {"sign": 0}}}, "joints.a.sign: 0 is not usable (1 or -1)"),
        ({"joints": {"a": {"scale": 0}}}, "joints.a: scale is 0"),
        ({"joints": {"a": {"scale": "2"}}}, "joints.a.scale: '2' is not usable (a number)"),
        ({"joints": {"a": {"offset": float("nan")}}}, "joints.a.offset: nan is not usable (a finite number)"),
        ({"joints": {"a": {"ofset": 1}}}, "joints.a.ofset: is not a field (one of source, unit, sign, scale, offset"),
        ({"joints": {"a": {"source": "b"}, "b": {}}}, "joints: 'a' and 'b' both read 'b'"),
        ({"effort_unit": "lb"}, "effort_unit: 'lb' is not usable ('N·m', 'A', 'mA', 'ratio' or 'unknown')"),
        ({"controller": {}}, "controller.kind: is missing"),
        ({"controller": {"kind": "pid"}}, "controller.kind: 'pid' is not usable ('pd', 'torque', 'velocity'"),
        ({"controller": {"kind": "pd", "rate_hz": 0}}, "controller.rate_hz: 0 is not usable (greater than 0)"),
        ({"controller": {"kind": "pd", "kp": "x"}}, "controller.kp: 'x' is not usable (a number)"),
        (
            {"controller": {"kind": "pd", "kd": {"a": -1}}},
            "controller.kd.a: -1 is not usable (greater than or equal to 0)",
        ),
        ({"controller": {"kind": "torque", "kp": 1}}, "controller: a torque controller has no kp"),
        ({"controller": {"kind": "pd", "nominal_supply_v": 12}}, "nominal_supply_v belongs to a servo_duty controller"),
        ({"payload": {"link": "x"}}, "payload.mass_kg: is missing"),
        ({"payload": {"link": "x", "mass_kg": -1}}, "payload.mass_kg: -1 is not usable"),
        ({"payload": {"link": "x", "mass_kg": 1, "com_m": [0, 0]}}, "payload.com_m.2: is missing"),
        ({"fit": {"free": "joint/*"}}, "fit.free: 'joint/*' is not usable"),
        ({"fit": {"frozen": {"joint/a/b": True}}}, "fit.frozen.joint/a/b: True is not usable (a number)"),
        ({"fit": {"free": ["x"], "frozen": {"x": 1}}}, "fit: 'x' is in frozen and in free"),
        ({"fit": {"prior": {"x": {"gamma": [1, 2]}}}}, "fit.prior.x: must be one of {lognormal: [a, b]}"),
        ({"fit": {"prior": {"x": {"normal": [1, 2], "uniform": [1, 2]}}}}, "fit.prior.x: must be one of"),
        ({"fit": {"prior": {"x": {"normal": [1]}}}}, "fit.prior.x: normal takes two finite numbers, not [1]"),
        ({"fit": {"prior": {"x": {"normal": [1, 0]}}}}, "fit.prior.x: normal takes [mean, sd] with sd above 0"),
        ({"fit": {"prior": {"x": {"uniform": [2, 1]}}}}, "fit.prior.x: uniform takes [low, high] with low below high"),
    ],
)
def test_a_bad_value_is_refused_by_its_fields_path(fields: dict[str, Any], said: str) -> None:
    assert said in refusal(**fields)


def test_a_missing_field_and_a_body_that_is_no_mapping_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"^robot: is missing"):
        RobotDeclaration.model_validate({"schema": "twincal.robot/1", "fleet": "arms"})
    with pytest.raises(DeclarationError, match=r"^declaration: \[1\] is not usable \(a mapping\)"):
        RobotDeclaration.model_validate([1])
    with pytest.raises(DeclarationError, match=r"^declaration: "):
        RobotDeclaration.model_validate_json(b"{")


# --- against the description ------------------------------------------------------------------------------------------


def test_a_declaration_that_fits_the_description_passes(description: Description) -> None:
    fitting = declared(
        joints={"elbow": {"source": "J2", "unit": "deg"}, "finger": {"unit": "mm", "ignore": True, "hold_at": 1.5}},
        controller={"kind": "pd", "kp": {"shoulder": 1}},
        payload={"link": "flange", "mass_kg": 1},
        fit={"free": ["joint/*/backlash_rad", "link/lower/mass_kg", "*", "robot/payload_mass_kg"]},
    )
    check_against(fitting, description)


@pytest.mark.parametrize(
    ("fields", "path", "said"),
    [
        ({"joints": {"wrist": {}}}, "joints.wrist", "no movable joint 'wrist' (one of shoulder, elbow, finger)"),
        ({"joints": {"flange_fixed": {}}}, "joints.flange_fixed", "no movable joint 'flange_fixed' (it is fixed)"),
        ({"controller": {"kind": "pd", "kp": {"wrist": 1}}}, "controller.kp.wrist", "no movable joint 'wrist'"),
        ({"controller": {"kind": "velocity", "kd": {"w": 1}}}, "controller.kd.w", "no movable joint 'w'"),
        ({"joints": {"elbow": {"unit": "mm"}}}, "joints.elbow.unit", "mm can't measure a revolute joint (one"),
        (
            {"joints": {"finger": {"unit": "deg"}}},
            "joints.finger.unit",
            "deg can't measure a prismatic joint (one",
        ),
        (
            {"joints": {"elbow": {"hold_at": 2.5}}},
            "joints.elbow.hold_at",
            "2.5 is outside the joint's limits (-2.0 …",
        ),
        ({"joints": {"elbow": {"source": "shoulder"}}}, "joints.elbow.source", "read by joint 'shoulder' too"),
        (
            {"joints": {j: {"ignore": True} for j in ("shoulder", "elbow", "finger")}},
            "joints",
            "every joint is ignored",
        ),
        ({"payload": {"link": "tool", "mass_kg": 1}}, "payload.link", "no link 'tool' (one of base, upper, lower, tip"),
        ({"base": "floating"}, "base", "is floating, but the base link 'base' has no mass"),
        ({"fit": {"free": ["joint/wrist/a_nm"]}}, "fit.free.joint/wrist/a_nm", "no joint 'wrist' (one of shoulder"),
        ({"fit": {"frozen": {"link/tool/mass_kg": 1}}}, "fit.frozen.link/tool/mass_kg", "no link 'tool' (one of base"),
        ({"fit": {"prior": {"arm": {"normal": [0, 1]}}}}, "fit.prior.arm", "'arm' is no pattern of parameter names"),
    ],
)
def test_what_the_description_doesnt_have_is_refused_with_what_it_has(
    description: Description, fields: dict[str, Any], path: str, said: str
) -> None:
    message = mismatch(description, **fields)
    assert message.startswith(f"{path}: ")
    assert said in message


def test_joints_may_swap_names_when_both_say_so(description: Description) -> None:
    check_against(declared(joints={"elbow": {"source": "shoulder"}, "shoulder": {"source": "elbow"}}), description)
    check_against(declared(joints={"elbow": {"source": "shoulder"}, "shoulder": {"ignore": True}}), description)


# --- files ------------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str, name: str = "robot.yaml") -> Path:
    (folder / "arm.urdf").write_bytes(URDF)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


HEAD = "schema: twincal.robot/1\nrobot: arm\nfleet: arms\ndescription: arm.urdf\n"


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    body = {**MINIMAL, "robot": "arm", "description": "arm.urdf", "controller": {"kind": "pd", "kp": 1e-6}}
    from_yaml = load_declaration(written(tmp_path, HEAD + "controller: {kind: pd, kp: 1e-6}\n"))[0]
    from_json = load_declaration(written(tmp_path, json.dumps(body), "robot.json"))[0]
    assert from_yaml == from_json
    assert from_yaml.controller.kp_of("elbow") == 1e-6


def test_the_description_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "arm.urdf").write_bytes(URDF)
    path = tmp_path / "config" / "robot.yaml"
    path.write_text(HEAD.replace("arm.urdf", "../arm.urdf"), encoding="utf-8")
    assert list(load_declaration(path)[1].joints) == ["shoulder", "elbow", "finger", "flange_fixed"]


def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path: Path) -> None:
    text = HEAD.replace("robot: arm", "robot: 010").replace("fleet: arms", "fleet: 12:30")
    declaration = load_declaration(written(tmp_path, text))[0]
    assert (declaration.robot, declaration.fleet) == ("010", "12:30")


def test_a_mapping_may_be_merged_from_another(tmp_path: Path) -> None:
    text = HEAD + "joints:\n  elbow: &all {unit: deg, sign: -1}\n  shoulder: {<<: *all, sign: 1}\n"
    shoulder = load_declaration(written(tmp_path, text))[0].joint("shoulder")
    assert (shoulder.unit, shoulder.sign) == ("deg", 1)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (HEAD + "robot: arm2\n", "robot.yaml", "robot.yaml, line 5: 'robot' is given twice, first on line 2"),
        (HEAD + "joints:\n  a: {unit: deg, unit: rad}\n", "robot.yaml", "robot.yaml, line 6: 'unit' is given twice"),
        (HEAD + "joints: {a: [\n", "robot.yaml", "robot.yaml, line 6: not well-formed YAML"),
        (HEAD + "x: !!python/name:os.system\n", "robot.yaml", "robot.yaml, line 5: not well-formed YAML"),
        (HEAD + "\tx: 1", "robot.yaml", "robot.yaml, line 5: not well-formed YAML"),
        (HEAD + "x: \x07", "robot.yaml", "not well-formed YAML"),
        (HEAD + "x: " + "[" * 5000, "robot.yaml", "robot.yaml: is nested too deeply"),
        ("", "robot.yaml", "declaration: None is not usable (a mapping)"),
        ('{"robot": "a",\n"robot": "b"}', "robot.json", "robot.json, 'robot': is given twice"),
        ('{"robot": "a"\n', "robot.json", "robot.json, line 2: not well-formed JSON"),
        ('{"robot": NaN}', "robot.json", "NaN: is not JSON"),
        (HEAD, "robot.toml", "is a .toml"),
        (HEAD.replace("description: arm.urdf\n", ""), "robot.yaml", "description: names no file"),
        (HEAD.replace("arm.urdf", "{sha256: " + "ab" * 32 + "}"), "robot.yaml", "description: names no file"),
        (HEAD.replace("arm.urdf", "other.urdf"), "robot.yaml", "other.urdf: No such file or directory"),
        (HEAD + "joints: {wrist: {}}", "robot.yaml", "joints.wrist: the description has no movable joint"),
    ],
)
def test_a_bad_file_is_refused_by_line_or_field(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        load_declaration(written(tmp_path, text, name))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"none\.yaml: No such file"):
        load_declaration(tmp_path / "none.yaml")
    path = tmp_path / "robot.yaml"
    path.write_bytes(b"schema: x\nrobot: \xff\n")
    with pytest.raises(DeclarationError, match=r"^robot\.yaml, line 2: is not UTF-8"):
        load_declaration(path)


def test_a_bad_description_is_refused_with_its_files_name(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD)
    (tmp_path / "arm.urdf").write_text("<robot>\n<link/></robot>", encoding="utf-8")
    with pytest.raises(DescriptionError, match=r"^arm\.urdf, line 2: <link> without a name"):
        load_declaration(path)


@pytest.mark.parametrize(
    ("robot", "kind", "effort_unit", "gains"),
    [
        ("double_pendulum", "torque", "N·m", {}),
        ("go2", "pd", "unknown", {"FL_calf_joint": (20.0, 1.5)}),
        ("so101", "pd", "unknown", {"elbow_flex": (None, None)}),
        ("xl330", "servo_duty", "unknown", {}),
        ("z1", "pd", "unknown", {"joint1": (80.0, 2.5), "joint2": (120.0, 2.5)}),
    ],
)
def test_declarations_of_recorded_robots_are_read(
    shared: Path, robot: str, kind: str, effort_unit: str, gains: dict[str, tuple[float | None, float | None]]
) -> None:
    declaration, description = load_declaration(shared / "data" / robot / "robot.yaml")
    assert (declaration.controller.kind, declaration.effort_unit, declaration.base) == (kind, effort_unit, "fixed")
    assert {j: (declaration.controller.kp_of(j), declaration.controller.kd_of(j)) for j in gains} == gains
    assert declaration.joint("gripper").ignore == (robot == "so101")
    assert declaration.controller.nominal_supply_v == (7.4 if robot == "xl330" else None)
    assert gains.keys() <= description.joints.keys()
