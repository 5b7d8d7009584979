"""The twin document: exact numbers, one digest for one content, nothing that JSON can't hold."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.errors import InvalidInputError
from app.twin.document import (
    FILE_VERSION,
    Covariance,
    Parameter,
    TwinDocument,
    TwinDraft,
    read_document,
    seal,
    to_json,
)
from tests.twins import ARMATURE, CREATED, draft, fitted


def document(value: float = 0.21) -> TwinDocument:
    return seal(draft(value), version=7, parent=6, created_at=CREATED)


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(to_json(document())) | fields).encode()


def test_the_digest_of_a_known_document_never_changes() -> None:
    assert document().digest == "sha256:6972e8ef271663236600a9e9e4649308903b69930d2c2f5e65889a29704b5b86"


def test_the_digest_is_that_of_the_canonical_json_without_it() -> None:
    content = json.loads(to_json(document()))
    digest = content.pop("digest")
    # For this document's numbers Python's shortest form is RFC 8785's, but for whole floats and exponents.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for ours, theirs in (("1e-06", "0.000001"), ("10.0", "10")):
        canonical = canonical.replace(ours, theirs)
    assert digest == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def test_reading_what_was_written_gives_the_same_document_and_the_same_bytes() -> None:
    written = to_json(document())
    assert read_document(written) == document()
    assert to_json(read_document(written)) == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_survives_to_the_last_bit(value: float) -> None:
    read = read_document(to_json(document(value)))
    assert read.parameters[ARMATURE].value == value


def test_numpy_scalars_are_the_numbers_they_hold() -> None:
    assert document(np.float64(0.21)).digest == document(0.21).digest


def test_a_document_formatted_differently_is_the_same_document() -> None:
    pretty = json.dumps(json.loads(to_json(document())), indent=2, sort_keys=False).encode()
    assert read_document(pretty) == document()


def test_an_instant_is_the_same_in_every_time_zone() -> None:
    elsewhere = CREATED.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert seal(draft(), 7, 6, elsewhere) == document()
    assert json.loads(to_json(document()))["created_at"] == "2026-03-01T12:30:15.250000Z"


def test_a_twin_from_files_has_version_0_and_no_parent() -> None:
    twin = seal(draft(), FILE_VERSION, None, CREATED)
    assert (twin.version, twin.provenance.parent, twin.description.href) == (0, None, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        fitted(value)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"1e400"])
def test_a_number_that_json_cannot_hold_is_refused_when_read(text: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not JSON"):
        read_document(to_json(document()).replace(b"0.21,", text + b",", 1))


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not JSON"):
        read_document(b"[" * 100_000)


def test_a_changed_number_is_detected() -> None:
    tampered = to_json(document()).replace(b'"value":0.21', b'"value":0.22')
    with pytest.raises(InvalidInputError, match=r"^digest: sha256:.* is not that of this content"):
        read_document(tampered)


@pytest.mark.parametrize(
    ("field", "value"), [("version", 8), ("robot", "arm-08"), ("created_at", "2026-03-01T00:00:00Z")]
)
def test_a_changed_field_is_detected(field: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^digest"):
        read_document(changed(**{field: value}))


def test_a_number_as_text_is_not_a_number() -> None:
    content = json.loads(to_json(document()))
    content["parameters"][ARMATURE]["value"] = "0.21"
    with pytest.raises(InvalidInputError, match=rf"^parameters\.{ARMATURE}\.value"):
        read_document(json.dumps(content).encode())


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"^colour: Extra inputs"):
        read_document(changed(colour="red"))


def test_a_covariance_must_have_a_row_and_a_column_a_name() -> None:
    with pytest.raises(ValidationError, match="1 × 1"):
        Covariance(names=(ARMATURE,), transform={ARMATURE: "log"}, matrix=((1.0, 0.0),))


def test_a_covariance_names_only_parameters() -> None:
    other = "joint/wrist/armature_kg_m2"
    covariance = Covariance(names=(other,), transform={other: "log"}, matrix=((1.0,),))
    content = draft().model_dump(by_alias=True) | {"covariance": covariance}
    with pytest.raises(ValidationError, match="joint/wrist/armature_kg_m2"):
        TwinDraft.model_validate(content)


def test_a_parameter_that_was_not_fitted_has_no_uncertainty_at_all() -> None:
    with pytest.raises(ValidationError, match="together or not at all"):
        Parameter(
            value=1.0,
            sd=0.1,
            interval90=None,
            verdict=None,
            source="declared",
            nominal=1.0,
            prior=None,
            bounds=None,
        )
