"""The twin document, `twincal.twin/1`: what a calibration publishes and a training job fetches.

A document never changes. Its digest is the SHA-256 of its RFC 8785 canonical JSON without the digest, and `to_json` is
that canonical form, so that two equal documents are the same bytes whoever wrote them. Every number is finite and SI;
what isn't known is null, never NaN.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import orjson
import rfc8785
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.errors import InvalidInputError

SCHEMA: Final = "twincal.twin/1"
FILE_VERSION: Final = 0
"""Version of a twin fitted from files, which no registry numbers; its parent is null."""

MAX_EXACT_INTEGER: Final = 2**53 - 1
"""The largest integer every JSON reader holds exactly (RFC 7493)."""

Verdict = Literal["identified", "weak", "not_identified", "no_effect", "at_bound"]
"""What the data said about a fitted parameter."""

Source = Literal["declared", "prior", "fit"]
"""Where a value came from: the description or declaration, the prior, or the data."""

Transform = Literal["log", "linear"]
"""Coordinate of the covariance: ln(value) or the value itself."""

Grade = Literal["good", "fair", "poor"]

_ID = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$"
_DIGEST = r"^sha256:[0-9a-f]{64}$"
_HEX_DIGEST = r"^[0-9a-f]{64}$"

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]
Version = Annotated[int, Field(ge=0, le=MAX_EXACT_INTEGER)]
Instant = Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]


class _Part(BaseModel):
    # Strict: a `true` or "0.2" where a number belongs would otherwise have the digest of 1 and 0.2.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LognormalPrior(_Part):
    """ln(value) is normal; cut at the parameter's bounds. [mean, sd] of ln(value in its SI unit)."""

    lognormal: tuple[float, Positive]


class NormalPrior(_Part):
    """The value is normal; cut at the parameter's bounds. [mean, sd] in the parameter's unit."""

    normal: tuple[float, Positive]


class UniformPrior(_Part):
    """Every value in [lowest, highest] is equally likely, in the parameter's unit."""

    uniform: tuple[float, float]


Prior = LognormalPrior | NormalPrior | UniformPrior


class Parameter(_Part):
    """One parameter of the twin, in the unit its name ends with.

    A parameter that wasn't fitted (`source` is `declared` or `prior` and nothing was asked of the data) has null `sd`,
    `interval90` and `verdict`.
    """

    value: float = Field(description="the value the twin uses, in the unit the parameter's name ends with")
    sd: NonNegative | None = Field(description="posterior standard deviation, same unit; null if not fitted")
    interval90: tuple[float, float] | None = Field(description="90 % posterior interval, same unit; null if not fitted")
    verdict: Verdict | None = Field(description="what the data said about it; null if not fitted")
    source: Source = Field(description="where the value came from")
    nominal: float = Field(description="what description and declaration say, same unit; 0 where they say nothing")
    prior: Prior | None = Field(description="what was believed before the data; null if not fitted")
    bounds: tuple[float | None, float | None] | None = Field(
        description="[lowest, highest] the fit may go, same unit; null is unbounded"
    )

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Parameter:
        fitted = (self.sd is not None, self.interval90 is not None, self.verdict is not None)
        if any(fitted) != all(fitted):
            msg = "sd, interval90 and verdict are given together or not at all"
            raise ValueError(msg)
        if self.interval90 is not None and self.interval90[0] > self.interval90[1]:
            msg = f"interval90 {list(self.interval90)} is upside down"
            raise ValueError(msg)
        return self


class Covariance(_Part):
    """Posterior covariance of the fitted parameters.

    In ln(value) where `transform` is log, in the value itself where it is linear.
    """

    names: tuple[str, ...] = Field(description="parameter names, in the order of the rows and columns")
    transform: dict[str, Transform] = Field(description="the coordinate of each name")
    matrix: tuple[tuple[float, ...], ...] = Field(description="symmetric, one row and column a name")

    @model_validator(mode="after")
    def _square(self) -> Covariance:
        size = len(self.names)
        if len(self.matrix) != size or any(len(row) != size for row in self.matrix):
            msg = f"matrix must be {size} × {size}, one row and column a name"
            raise ValueError(msg)
        if set(self.transform) != set(self.names):
            msg = "transform must name exactly the parameters in names"
            raise ValueError(msg)
        return self


class SensorNoise(_Part):
    """What a channel's sensor adds to the truth; null where the data couldn't tell."""

    noise_sd: NonNegative | None = Field(description="standard deviation of the noise, in the channel's unit")
    quantum: NonNegative | None = Field(description="step between readings, in the channel's unit; 0 is none")
    outlier_rate: Rate | None = Field(description="share of samples far off")
    drop_rate: Rate | None = Field(description="share of samples missing")


class JointErrors(_Part):
    """Errors of simulated against measured positions per fitted joint, pooled over all samples of all logs."""

    mae: dict[str, NonNegative] = Field(description="mean absolute error per joint [rad or m]")
    rmse: dict[str, NonNegative] = Field(description="root mean square error per joint [rad or m]")
    mae_mean: NonNegative = Field(description="plain mean of `mae` over the joints")
    rmse_mean: NonNegative = Field(description="plain mean of `rmse` over the joints")


class LogErrors(_Part):
    """Errors on one log or recording."""

    log: str = Field(description="the log's or recording's name")
    mae_mean: NonNegative
    rmse_mean: NonNegative


class HoldoutErrors(JointErrors):
    """Errors on data the fit never saw, beside those of the nominal twin on the same data."""

    nominal_mae_mean: NonNegative
    nominal_rmse_mean: NonNegative
    per_log: tuple[LogErrors, ...]


class WindowedErrors(_Part):
    """Hold-out errors of short free runs from measured states: the baseline drift is measured against."""

    window_s: Positive = Field(description="length of a window [s]")
    rmse: dict[str, NonNegative] = Field(description="root mean square error per joint [rad or m]")


class Gauge(_Part):
    """A combination of parameters this motion can't tell apart; their common scale comes from the prior."""

    name: str
    parameters: tuple[str, ...]
    text: str = Field(description="the same in words")


class Quality(_Part):
    """How well the twin does on data it hasn't seen, and what to be careful about."""

    grade: Grade
    holdout: HoldoutErrors
    train: JointErrors
    windowed: WindowedErrors | None = Field(description="null where the hold-out is shorter than a window")
    improvement: NonNegative | None = Field(
        description="nominal_rmse_mean ÷ rmse_mean of the hold-out; null if that is 0"
    )
    tip_rmse_mm: NonNegative | None = Field(
        description="hold-out RMSE at the tip link [mm]; null where there is no tip"
    )
    gauges: tuple[Gauge, ...]
    warnings: tuple[str, ...]


class DescriptionRef(_Part):
    """The description the twin's parameters belong to."""

    sha256: str = Field(pattern=_HEX_DIGEST)
    href: str | None = Field(description="where the service has it; null for a twin from files")


class Engine(_Part):
    """The physics engine the twin is judged in; the time step is part of the twin."""

    name: str
    version: str
    timestep_s: Positive
    gravity_m_s2: tuple[float, float, float]


class Structure(_Part):
    """Which laws the twin uses."""

    friction: str = Field(min_length=1, description="friction law, e.g. coulomb+viscous+stribeck")
    controller: str = Field(min_length=1, description="pd, torque, velocity, servo_duty or none")
    lag: str = Field(min_length=1, description="what lies between command and controller, e.g. delay")
    backlash: bool


class DraftProvenance(_Part):
    """What the twin was made from, as far as a fit knows."""

    recordings: tuple[str, ...] = Field(description="names or ids of what was fitted and judged")
    window: tuple[Instant, Instant] | None = Field(description="[from, to] of the data asked for; null if none was")
    dataset_digest: str = Field(pattern=_DIGEST, description="times, values, joint map and split; never absolute time")
    seed: int = Field(ge=0, le=MAX_EXACT_INTEGER)
    software: str = Field(description="name and version of what fitted it")


class Provenance(DraftProvenance):
    """What the twin was made from."""

    parent: Version | None = Field(description="the version that was active when it was fitted; null if none was")


class _Body(_Part):
    schema_: Literal["twincal.twin/1"] = Field(default=SCHEMA, alias="schema")
    robot: str = Field(pattern=_ID)
    fleet: str = Field(pattern=_ID)
    description: DescriptionRef
    engine: Engine
    structure: Structure
    parameters: dict[str, Parameter] = Field(description="by name; the unit is at the name's end")
    covariance: Covariance
    sensors: dict[str, SensorNoise] = Field(description="by channel, e.g. joint/elbow/position")

    @model_validator(mode="after")
    def _covariance_names_are_parameters(self) -> _Body:
        unknown = sorted(set(self.covariance.names) - set(self.parameters))
        if unknown:
            msg = f"covariance names {unknown[0]!r}, which is not among the parameters"
            raise ValueError(msg)
        return self


class TwinDraft(_Body):
    """A twin before it has a version: everything a fit knows."""

    quality: Quality
    provenance: DraftProvenance


class TwinDocument(_Body):
    """A published twin, `twincal.twin/1`. Made by `seal` or `read_document` only."""

    version: Version
    digest: str = Field(pattern=_DIGEST)
    created_at: Instant
    quality: Quality
    provenance: Provenance


class NominalTwin(_Body):
    """What description and declaration alone say, in the shape of a twin: no data, so neither quality nor provenance.

    It has no version of its own; its digest changes when description or declaration do.
    """

    version: Literal[0] = FILE_VERSION
    digest: str = Field(pattern=_DIGEST)
    created_at: None = None
    quality: None = None
    provenance: None = None


def seal(draft: TwinDraft, version: int, parent: int | None, created_at: datetime) -> TwinDocument:
    """Give a draft its version and digest.

    Args:
        draft: what the fit found.
        version: the robot's next version; `FILE_VERSION` for a twin from files.
        parent: the version that was active; None if none was.
        created_at: aware.

    Raises:
        InvalidInputError: naming the field that can't be published.
    """
    content = _dump(draft)
    content["version"] = version
    content["provenance"]["parent"] = parent
    content["created_at"] = created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    content["digest"] = _digest(content)
    return read_document(rfc8785.dumps(content))


def seal_nominal(**content: Any) -> NominalTwin:
    """A nominal twin with its digest, from the fields of its body."""
    unsealed = NominalTwin(digest="sha256:" + "0" * 64, **content)
    return unsealed.model_copy(update={"digest": _digest(_dump(unsealed))})


def to_json(document: TwinDocument | NominalTwin) -> bytes:
    """The document's canonical JSON (RFC 8785)."""
    return rfc8785.dumps(_dump(document))


def read_document(data: bytes) -> TwinDocument:
    """Read a document and check its digest.

    Raises:
        InvalidInputError: naming the field at fault, or `digest` if the content isn't what was published.
    """
    try:
        orjson.loads(data)  # refuses NaN, 1e400 and endless nesting, which pydantic's reader takes
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(
            f"line {error.lineno}", f"not JSON: {error.msg}", "a twincal.twin/1 document"
        ) from error
    document = _validate(data)
    digest = _digest(_dump(document))
    if digest != document.digest:
        raise InvalidInputError(
            "digest", f"{document.digest} is not that of this content ({digest})", "an unchanged document"
        )
    return document


def _validate(data: bytes) -> TwinDocument:
    try:
        return TwinDocument.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise InvalidInputError(where, first["msg"]) from error


def _dump(model: BaseModel) -> dict[str, Any]:
    # mode="json" gives datetimes as the reader will see them; floats stay floats.
    return model.model_dump(mode="json", by_alias=True)


def _digest(content: dict[str, Any]) -> str:
    body = {key: value for key, value in content.items() if key != "digest"}
    try:
        canonical = rfc8785.dumps(body)
    except rfc8785.CanonicalizationError as error:
        raise InvalidInputError("document", f"can't be written as canonical JSON: {error}") from error
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
