"""What may be asked of a calibration, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.calibration.request import CalibrationRequest

ONE, TWO = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def test_everything_has_its_documented_default() -> None:
    request = CalibrationRequest.model_validate({})
    assert (request.window, request.recordings, request.holdout.fraction) == (None, None, 0.25)
    assert (request.seed, request.budget_s, request.activate) == (0, 300.0, "if_better")


def test_a_request_survives_its_way_through_the_database() -> None:
    request = CalibrationRequest.model_validate(
        {
            "window": {"from": "2026-01-05T08:00:00+01:00", "to": "2026-01-05T09:00:00Z"},
            "holdout": {"recordings": [ONE]},
        }
    )
    assert CalibrationRequest.model_validate(request.model_dump(mode="json", by_alias=True)) == request


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"window": {"from": "2026-01-05T09:00:00Z", "to": "2026-01-05T08:00:00Z"}}, "to must be later than from"),
        ({"window": {"from": "2026-01-05T09:00:00", "to": "2026-01-05T10:00:00Z"}}, "timezone"),
        (
            {"window": {"from": "2026-01-05T08:00:00Z", "to": "2026-01-05T09:00:00Z"}, "recordings": [ONE]},
            "either window",
        ),
        ({"recordings": [ONE, TWO], "holdout": {"recordings": [TWO]}}, "fitted and held out"),
        ({"holdout": {}}, "either recordings or fraction"),
        ({"holdout": {"fraction": 0.25, "recordings": [ONE]}}, "either recordings or fraction"),
        ({"holdout": {"fraction": 0.9}}, "less than or equal to 0.5"),
        ({"recordings": []}, "at least 1 item"),
        ({"budget_s": float("nan")}, "finite"),
        ({"budget_s": 0}, "greater than 0"),
        ({"seed": 2**53}, "less than or equal"),
        ({"activate": "always"}, "if_better"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_what_contradicts_itself_is_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        CalibrationRequest.model_validate(body)
