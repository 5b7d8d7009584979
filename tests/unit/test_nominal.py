"""The nominal twin: description and declaration, and nothing that data would have to say."""

from __future__ import annotations

import math

from app.twin.declaration import RobotDeclaration
from app.twin.description import parse_urdf
from app.twin.document import to_json
from app.twin.nominal import nominal_twin
from tests.integration.serving import DECLARATION, URDF

DAMPED = URDF.replace(b'<axis xyz="0 1 0"/>', b'<axis xyz="0 1 0"/><dynamics damping="0.7" friction="0.2"/>')


def twin(urdf: bytes = URDF, **changes: object) -> dict[str, float]:
    declaration = RobotDeclaration.model_validate(DECLARATION | changes)
    document = nominal_twin(declaration, parse_urdf(urdf), "/somewhere")
    return {name: parameter.value for name, parameter in document.parameters.items()}


def test_what_is_declared_is_there_and_what_is_not_is_0() -> None:
    values = twin()
    assert (values["joint/elbow/kp_nm_per_rad"], values["joint/elbow/kd_nm_s_per_rad"]) == (40.0, 2.0)
    assert values["link/upper/mass_kg"] == 1.0
    for unknown in ("armature_kg_m2", "viscous_damping_nm_s_per_rad", "coulomb_friction_nm", "encoder_offset_rad"):
        assert values[f"joint/elbow/{unknown}"] == 0.0
    assert values["robot/command_latency_s"] == 0.0


def test_damping_and_friction_of_the_description_are_taken() -> None:
    values = twin(DAMPED)
    assert values["joint/shoulder/viscous_damping_nm_s_per_rad"] == 0.7
    assert values["joint/shoulder/coulomb_friction_nm"] == 0.2


def test_gains_that_nobody_declared_stand_at_their_prior_s_median() -> None:
    declaration = RobotDeclaration.model_validate(DECLARATION | {"controller": {"kind": "pd"}})
    gain = nominal_twin(declaration, parse_urdf(URDF), "/x").parameters["joint/elbow/kp_nm_per_rad"]
    assert gain.source == "prior"
    assert gain.value > 0
    assert math.isfinite(gain.value)


def test_it_changes_its_digest_with_the_declaration_and_not_otherwise() -> None:
    def digest(**changes: object) -> str:
        declaration = RobotDeclaration.model_validate(DECLARATION | changes)
        return nominal_twin(declaration, parse_urdf(URDF), "/x").digest

    assert digest() == digest()
    assert digest() != digest(controller={"kind": "pd", "kp": 41.0, "kd": 2.0})


def test_it_is_written_as_json_with_nulls_for_what_data_would_say() -> None:
    declaration = RobotDeclaration.model_validate(DECLARATION)
    text = to_json(nominal_twin(declaration, parse_urdf(URDF), "/x"))
    for expected in (b'"quality":null', b'"provenance":null', b'"version":0', b'"created_at":null'):
        assert expected in text
