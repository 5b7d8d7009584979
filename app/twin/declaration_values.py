"""Kinds of values in a declaration, and how they complain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from app.errors import InvalidInputError
from app.telemetry import FleetId, RobotId, parse_fleet_id, parse_robot_id
from app.twin.units import UNITS

_NEWTON_METRES: Final = {"nm", "n*m", "n.m", "n⋅m", "n•m", "n·m", "n m"}
_PRIOR_KINDS: Final = ("lognormal", "normal", "uniform")


def canonical_effort_unit(value: object) -> object:
    """People type N·m in many ways; one is stored."""
    return "N·m" if isinstance(value, str) and value.lower() in _NEWTON_METRES else value


def known_unit(value: object) -> object:
    """Lists the units there are."""
    if value is not None and value not in UNITS:
        msg = f"{value!r} is not a unit; one of {', '.join(UNITS)} (anything else: `scale` is SI units per raw unit)"
        raise ValueError(msg)
    return value


def prior_of_one_kind(value: object) -> object:
    """Told in the declaration's own words: pydantic would report each kind's failure."""
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _PRIOR_KINDS:
        msg = f"must be one of {', '.join(f'{{{kind}: [a, b]}}' for kind in _PRIOR_KINDS)}"
        raise ValueError(msg)
    ((kind, numbers),) = value.items()
    plain = isinstance(numbers, list | tuple) and all(type(n) in (int, float) and math.isfinite(n) for n in numbers)
    if not plain or len(numbers) != 2:
        msg = f"{kind} takes two finite numbers, not {numbers!r}"
        raise ValueError(msg)
    if kind == "uniform" and not numbers[0] < numbers[1]:
        msg = f"uniform takes [low, high] with low below high, not {list(numbers)}"
        raise ValueError(msg)
    if kind != "uniform" and not numbers[1] > 0:
        msg = f"{kind} takes [mean, sd] with sd above 0, not {list(numbers)}"
        raise ValueError(msg)
    return {kind: (float(numbers[0]), float(numbers[1]))}


def as_tuple(value: object) -> object:
    """JSON and YAML know lists only."""
    return tuple(value) if isinstance(value, list) else value


Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


def _shape(value: object) -> str:
    """Which member of a union is meant, so that only that one complains."""
    return "<map>" if isinstance(value, dict | BaseModel) else "<plain>"


MAP: Final = Tag("<map>")
PLAIN: Final = Tag("<plain>")
BY_SHAPE: Final = Discriminator(_shape)

Gains = Annotated[Annotated[dict[Name, NonNegative], MAP] | Annotated[NonNegative, PLAIN], BY_SHAPE]
Patterns = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]


def robot_id(text: str) -> RobotId:
    """The one id grammar, complaining as pydantic understands it."""
    try:
        return parse_robot_id(text)
    except InvalidInputError as error:
        raise ValueError(f"{error.problem} ({error.remedy})") from error


def fleet_id(text: str) -> FleetId:
    """The one id grammar, complaining as pydantic understands it."""
    try:
        return parse_fleet_id(text)
    except InvalidInputError as error:
        raise ValueError(f"{error.problem} ({error.remedy})") from error
