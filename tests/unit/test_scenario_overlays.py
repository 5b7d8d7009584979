"""Overlays lie on top of the draw, are listed, and what can't be is refused by the name of its field."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from app.errors import InvalidInputError
from app.scenario.generate import source_of
from app.scenario.request import MAX_SCENARIOS, ScenarioRequest
from app.twin.document import TwinDocument
from tests.scenarios import LATENCY, arm, choice_of, chunk_records, declared, joint, origin_of, parameter, twin_of

PAYLOAD: dict[str, Any] = {"kind": "payload", "link": "elbow_link", "mass_kg": {"uniform": [0.5, 2.0]}}
WEAR: dict[str, Any] = {"kind": "wear", "friction_factor": {"loguniform": [1.0, 3.0]}, "backlash_rad": 0.01}
LATE: dict[str, Any] = {"kind": "latency", "base_s": 0.002, "per_episode_s": {"uniform": [0, 0.01]}, "jitter_s": 0.001}


def drawn(*overlays: dict[str, Any], n: int = 1000, twin: TwinDocument | None = None, **asked: Any) -> list[Any]:
    return chunk_records(origin_of(choice_of(n=n, overlays=list(overlays), **asked), twin or arm()))


def test_a_scenario_says_what_it_is_and_holds_every_parameter() -> None:
    twin = arm()
    scenario = drawn(n=3, twin=twin)[2]
    assert (scenario["schema"], scenario["index"]) == ("twincal.scenario/1", 2)
    assert scenario["keys"] == {"seed": 7, "robot": "arm-07", "version": 7}
    assert list(scenario["parameters"]) == list(twin.parameters)
    assert scenario["parameters"][joint("elbow", "kp_nm_per_rad")] == 40.0
    assert scenario["overlays"] == []
    assert scenario["sensors"] == [
        {
            "channel": "joint/elbow/position",
            "noise_sd": 1e-4,
            "quantum": 0.0,
            "outlier_rate": 0.0,
            "drop_rate": None,
        }
    ]
    assert scenario["episode"] == {
        "latency_s": scenario["parameters"][LATENCY],
        "jitter_s": 0.0,
        "drop": 0.0,
        "seed": scenario["episode"]["seed"],
    }
    assert 0 <= scenario["episode"]["seed"] < 2**53


def test_overlays_are_listed_and_leave_the_draw_as_it_was() -> None:
    plain, laden = drawn(), drawn(PAYLOAD, WEAR, LATE)
    assert [s["parameters"] for s in plain] == [s["parameters"] for s in laden]
    assert [overlay["kind"] for overlay in laden[0]["overlays"]] == ["payload", "wear", "latency"]
    masses = [s["overlays"][0]["mass_kg"] for s in laden]
    assert 0.5 <= min(masses) < 0.51
    assert 1.99 < max(masses) <= 2.0
    assert np.mean(masses) == pytest.approx(1.25, abs=0.05)


def test_an_overlay_of_another_kind_changes_no_draw_of_the_others_wherever_it_stands() -> None:
    alone = [s["overlays"][0] for s in drawn(PAYLOAD)]
    assert [s["overlays"][2] for s in drawn(LATE, WEAR, PAYLOAD)] == alone
    assert [s["overlays"][0] for s in drawn(PAYLOAD, {**PAYLOAD, "link": "shoulder_link"})] == alone
    twice = drawn(PAYLOAD, PAYLOAD)
    assert [s["overlays"][0] for s in twice] == alone
    assert all(s["overlays"][0]["mass_kg"] != s["overlays"][1]["mass_kg"] for s in twice)


def test_a_payload_adds_its_inertia_about_the_link_s_origin_by_parallel_axes() -> None:
    com = [0.1, -0.2, {"uniform": [0.0, 0.3]}]
    for scenario in drawn({**PAYLOAD, "com_m": com, "radius_m": 0.05}, n=20):
        load = scenario["overlays"][0]
        at, mass = np.array(load["com_m"]), load["mass_kg"]
        expected = 0.4 * mass * 0.05**2 * np.eye(3) + mass * (at @ at * np.eye(3) - np.outer(at, at))
        found = load["inertia_about_link_kg_m2"]
        for i, a in enumerate("xyz"):
            for j, b in enumerate("xyz"[i:], start=i):
                assert found[a + b] == pytest.approx(expected[i, j], abs=1e-15)


def test_wear_is_each_joint_s_own_and_a_sliding_joint_s_gap_is_in_metres() -> None:
    twin = twin_of(
        {
            joint("lift", "armature_kg"): declared(1.0),
            joint("elbow", "armature_kg_m2"): parameter(0.2, 0.01, (0.0, 1.0)),
        }
    )
    worn = drawn({**WEAR, "backlash_m": 0.001}, n=10, twin=twin)[3]["overlays"][0]["joints"]
    assert worn["lift"]["friction_factor"] != worn["elbow"]["friction_factor"]
    assert (worn["lift"]["backlash_m"], worn["elbow"]["backlash_rad"]) == (0.001, 0.01)
    assert "backlash_rad" not in worn["lift"]


def test_the_long_tail_comes_as_often_as_asked_and_says_what_it_did() -> None:
    tail = {"kind": "long_tail", "parameters": ["joint/*/coulomb_friction_nm"], "probability": 0.1, "factor": 5.0}
    factors = [s["overlays"][0]["factors"] for s in drawn(tail, n=5000)]
    hit = [f for f in factors if f]
    assert len(hit) == pytest.approx(500, abs=65)
    assert hit[0] == {joint("shoulder", "coulomb_friction_nm"): 5.0, joint("elbow", "coulomb_friction_nm"): 5.0}


def test_an_episode_s_latency_is_the_twin_s_and_all_that_lies_on_it() -> None:
    tail = {"kind": "long_tail", "parameters": [LATENCY], "probability": 1.0, "factor": 2.0}
    for scenario in drawn(LATE, tail, {"kind": "latency", "jitter_s": 0.002, "drop": 0.1}, n=50):
        added, episode = scenario["overlays"][0]["added_s"], scenario["episode"]
        assert 0.002 <= added <= 0.012
        assert episode["latency_s"] == pytest.approx(2.0 * scenario["parameters"][LATENCY] + added)
        assert episode["jitter_s"] == pytest.approx(math.hypot(0.001, 0.002))
        assert episode["drop"] == pytest.approx(0.1)


def test_patches_pushes_light_and_weather_describe_the_world() -> None:
    patches = {"kind": "friction_patches", "count": 2, "mu_static": {"uniform": [0.2, 0.8]}, "dynamic_ratio": 0.5}
    pushes = {"kind": "pushes", "link": "elbow_link", "count": 3, "within_s": 10.0, "force_n": 5.0}
    light = {"kind": "light", "illuminance_lux": {"loguniform": [10, 1e5]}, "color_temperature_k": {"choice": [3000]}}
    weather = {"kind": "weather", "rain_mm_h": {"truncnorm": [0, 5, 0, 20]}}
    for scenario in drawn(patches, pushes, light, weather, n=200):
        ground, push, sun, sky = scenario["overlays"]
        assert len(ground["patches"]) == 2
        assert all(p["mu_dynamic"] == 0.5 * p["mu_static"] for p in ground["patches"])
        assert push["link"] == "elbow_link"
        assert all(np.linalg.norm(p["force_n"]) == pytest.approx(5.0) for p in push["pushes"])
        assert all(0.0 <= p["at_s"] <= 10.0 for p in push["pushes"])
        assert (sun["color_temperature_k"], 10 <= sun["illuminance_lux"] <= 1e5) == (3000.0, True)
        assert 0.0 <= sky["rain_mm_h"] <= 20.0


def test_sensors_keep_their_calibrated_noise_where_nothing_else_is_asked() -> None:
    change = {"channel": "joint/elbow/position", "bias": {"uniform": [-0.01, 0.01]}, "drop_rate": 0.02}
    found = drawn(n=5, sensors=[change, {"channel": "joint/elbow/velocity", "noise_sd": 0.1}])[4]["sensors"]
    assert [one["channel"] for one in found] == ["joint/elbow/position", "joint/elbow/velocity"]
    assert (found[0]["noise_sd"], found[0]["drop_rate"], found[1]["noise_sd"]) == (1e-4, 0.02, 0.1)
    assert -0.01 <= found[0]["bias"] <= 0.01


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"overlays": [PAYLOAD, {**PAYLOAD, "link": "nose"}]}, "overlays.1.link"),
        ({"overlays": [{"kind": "pushes", "link": "nose", "within_s": 1.0, "force_n": 1.0}]}, "overlays.0.link"),
        ({"overlays": [{**WEAR, "joints": ["*", "knee"]}]}, "overlays.0.joints.1"),
        (
            {"overlays": [{"kind": "long_tail", "parameters": ["joint/*/encoder_offset_rad"], "factor": 2.0}]},
            "overlays.0.parameters.0",
        ),
        ({"sensors": [{"channel": "joint/knee/position"}]}, "sensors.0.channel"),
    ],
)
def test_what_the_robot_does_not_have_is_refused_by_the_field_s_name(asked: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        source_of(arm(), choice_of(**asked))
    assert raised.value.where == where


def test_a_link_without_parameters_is_known_from_the_description() -> None:
    flange = choice_of(overlays=[{**PAYLOAD, "link": "flange"}])
    assert source_of(arm(), flange, ["base", "flange"]).subject.links == ("base", "flange")


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"n": 0}, "n"),
        ({"n": MAX_SCENARIOS + 1}, "n"),
        ({"seed": -1}, "seed"),
        ({"difficulty": 2.5}, "difficulty"),
        ({"format": "usda"}, "format"),
        ({"robot": None}, ""),
        ({"fleet": "arms"}, ""),
        ({"robot": None, "fleet": "arms", "version": 3}, ""),
        ({"colour": "red"}, "colour"),
        ({"overlays": [{"kind": "ghost"}]}, "overlays.0"),
        ({"overlays": [{**PAYLOAD, "mass_kg": {"uniform": [-1, 2]}}]}, "overlays.0.payload.mass_kg"),
        ({"overlays": [{**PAYLOAD, "mass_kg": {"normal": [1, 2]}}]}, "overlays.0.payload.mass_kg"),
        ({"overlays": [{**PAYLOAD, "mass_kg": {"uniform": [2, 1]}}]}, "overlays.0.payload.mass_kg.uniform"),
        ({"overlays": [{**LATE, "drop": {"uniform": [0, 1.5]}}]}, "overlays.0.latency.drop"),
        ({"overlays": [{"kind": "light"}]}, "overlays.0.light"),
        ({"overlays": [{"kind": "weather", "wind_m_s": float("nan")}]}, "overlays.0.weather.wind_m_s.number"),
        ({"sensors": [{"channel": "a"}, {"channel": "a"}]}, ""),
    ],
)
def test_a_request_that_makes_no_sense_names_the_field(asked: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ScenarioRequest.model_validate({"n": 10, "robot": "arm-07"} | asked)
    assert ".".join(map(str, raised.value.errors()[0]["loc"])) == where


def test_only_the_scenarios_a_robot_wins_change_when_it_joins_a_fleet() -> None:
    twins = [arm(robot=f"arm-{i}") for i in range(4)]
    before = chunk_records(origin_of(choice_of(n=2000), *twins[:3], fleet="arms"))
    after = chunk_records(origin_of(choice_of(n=2000), *twins, fleet="arms"))
    owners = [s["keys"]["robot"] for s in after]
    assert {robot: owners.count(robot) for robot in owners} == pytest.approx({t.robot: 500 for t in twins}, abs=80)
    assert all(a == b for a, b in zip(after, before, strict=True) if a["keys"]["robot"] != "arm-3")
    own = chunk_records(origin_of(choice_of(n=2000), twins[3]))
    assert all(s == own[s["index"]] for s in after if s["keys"]["robot"] == "arm-3")
    assert [s["index"] for s in after] == list(range(2000))


def test_records_hold_no_number_that_json_does_not_know() -> None:
    for scenario in drawn(PAYLOAD, WEAR, LATE, n=100, difficulty=2.0):
        assert all(math.isfinite(value) for value in scenario["parameters"].values())
