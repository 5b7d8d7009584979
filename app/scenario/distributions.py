"""The distributions a request may ask for: all of bounded support, so that what leaves physical bounds is seen at once.

A plain number is one as well: always that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from scipy.special import ndtr, ndtri

from app.telemetry import FloatArray

MAX_CHOICES: Final = 1000

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Uniform(_Part):
    """Every value in [low, high] is equally likely."""

    uniform: tuple[Finite, Finite]

    @model_validator(mode="after")
    def _upright(self) -> Self:
        _require_order(self.uniform)
        return self

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.uniform

    def at(self, share: FloatArray) -> FloatArray:
        """The value below which this share of all values is."""
        low, high = self.uniform
        return low + share * (high - low)


class LogUniform(_Part):
    """The logarithm is uniform between those of [low, high]: as likely twice as large as half as large."""

    loguniform: tuple[Positive, Positive]

    @model_validator(mode="after")
    def _upright(self) -> Self:
        _require_order(self.loguniform)
        return self

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.loguniform

    def at(self, share: FloatArray) -> FloatArray:
        """The value below which this share of all values is."""
        low, high = self.loguniform
        return np.asarray(np.clip(low * np.exp(share * math.log(high / low)), low, high), dtype=np.float64)


class TruncatedNormal(_Part):
    """Normal, cut at both ends: [mean, sd, low, high]."""

    truncnorm: tuple[Finite, Positive, Finite, Finite]

    @model_validator(mode="after")
    def _upright(self) -> Self:
        mean, sd, low, high = self.truncnorm
        _require_order((low, high))
        if ndtr((high - mean) / sd) - ndtr((low - mean) / sd) < 1e-9:
            msg = f"between {low} and {high} a normal of mean {mean} and sd {sd} has next to nothing"
            raise ValueError(msg)
        return self

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.truncnorm[2:]

    def at(self, share: FloatArray) -> FloatArray:
        """The value below which this share of all values is."""
        mean, sd, low, high = self.truncnorm
        below = ndtr((low - mean) / sd)
        cut = below + share * (ndtr((high - mean) / sd) - below)
        return np.asarray(np.clip(mean + sd * ndtri(cut), low, high), dtype=np.float64)


class Choice(_Part):
    """One of these, each equally likely."""

    choice: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=MAX_CHOICES)]

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return min(self.choice), max(self.choice)

    def at(self, share: FloatArray) -> FloatArray:
        """The value below which this share of all values is."""
        index = np.minimum((share * len(self.choice)).astype(np.int64), len(self.choice) - 1)
        return np.array(self.choice)[index]


_KINDS: Final = ("uniform", "loguniform", "truncnorm", "choice")


def _kind_of(value: Any) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    if isinstance(value, dict):
        found = [kind for kind in _KINDS if kind in value]
        return found[0] if len(found) == 1 and len(value) == 1 else None
    return next((kind for kind in _KINDS if hasattr(value, kind)), None)


Distribution = Annotated[
    Annotated[Finite, Tag("number")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[LogUniform, Tag("loguniform")]
    | Annotated[TruncatedNormal, Tag("truncnorm")]
    | Annotated[Choice, Tag("choice")],
    Discriminator(
        _kind_of,
        custom_error_type="distribution",
        custom_error_message="is no distribution: a number, or one of {uniform: [low, high]}, "
        "{loguniform: [low, high]}, {truncnorm: [mean, sd, low, high]}, {choice: [values]}",
    ),
]


def within(low: float, high: float) -> AfterValidator:
    """Refuses a distribution that can give values outside [low, high]."""
    return AfterValidator(_within(low, high))


def support_of(distribution: Distribution) -> tuple[float, float]:
    """Lowest and highest value a distribution gives."""
    return (distribution, distribution) if isinstance(distribution, int | float) else distribution.support


def values_at(distribution: Distribution, share: FloatArray) -> FloatArray:
    """The values below which these shares, in (0, 1), of all values are."""
    if isinstance(distribution, int | float):
        return np.full(len(share), float(distribution))
    return distribution.at(share)


def _within(low: float, high: float) -> Callable[[Distribution], Distribution]:
    def check(distribution: Distribution) -> Distribution:
        smallest, largest = support_of(distribution)
        if smallest < low or largest > high:
            outside = smallest if smallest < low else largest
            msg = f"reaches {outside:g}, beyond what is physical: {low:g} to {high:g}"
            raise ValueError(msg)
        return distribution

    return check


def _require_order(ends: tuple[float, float]) -> None:
    if ends[0] > ends[1]:
        msg = f"[{ends[0]}, {ends[1]}] is upside down"
        raise ValueError(msg)
