"""What is asked for: the body of `POST /v1/scenarios`, and what `twincal scenarios` makes of its options."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.errors import InvalidInputError
from app.scenario.distributions import Distribution, within
from app.scenario.draws import MAX_DIFFICULTY
from app.scenario.keys import MAX_INDEX
from app.scenario.overlays import Overlay
from app.twin.document import MAX_EXACT_INTEGER

MAX_SCENARIOS: Final = 1_000_000
MAX_OVERLAYS: Final = 50
MAX_SENSORS: Final = 200
_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$"

Format = Literal["json", "ndjson", "npz", "parquet"]
_Noise = Annotated[Distribution, within(0.0, 1000.0)]
_Rate = Annotated[Distribution, within(0.0, 1.0)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SensorChange(_Body):
    """What to put in the place of a channel's calibrated noise; what isn't given stays as the twin has it."""

    channel: str = Field(max_length=300, description="e.g. joint/elbow/position")
    noise_sd: _Noise | None = Field(None, description="standard deviation of white noise, in the channel's unit")
    bias: Annotated[Distribution, within(-1000.0, 1000.0)] | None = Field(None, description="in the channel's unit")
    quantum: _Noise | None = Field(None, description="step between readings, in the channel's unit")
    outlier_rate: _Rate | None = Field(None, description="share of samples far off")
    drop_rate: _Rate | None = Field(None, description="share of samples missing")


class ScenarioChoice(_Body):
    """Which scenarios, of whatever robot."""

    n: int = Field(ge=1, le=MAX_SCENARIOS, description="how many")
    first: int = Field(default=0, ge=0, le=MAX_INDEX - MAX_SCENARIOS, description="index of the first")
    seed: int = Field(default=0, ge=0, le=MAX_EXACT_INTEGER, description="of every draw")
    difficulty: float = Field(
        default=1.0,
        ge=0,
        le=MAX_DIFFICULTY,
        description="factor on the posterior's standard deviations: 0 is the twin itself; overlays stay as asked",
    )
    overlays: Annotated[tuple[Overlay, ...], Field(max_length=MAX_OVERLAYS)] = ()
    sensors: Annotated[tuple[SensorChange, ...], Field(max_length=MAX_SENSORS)] = ()

    @model_validator(mode="after")
    def _one_change_a_channel(self) -> Self:
        channels = [change.channel for change in self.sensors]
        twice = next((name for name in channels if channels.count(name) > 1), None)
        if twice is not None:
            msg = f"sensors change {twice!r} twice"
            raise ValueError(msg)
        return self


class ScenarioRequest(ScenarioChoice):
    """Which scenarios of which robot or fleet, as which kind of file."""

    robot: str | None = Field(default=None, pattern=_ID, description="whose scenarios")
    fleet: str | None = Field(default=None, pattern=_ID, description="instead: each scenario is of one of its robots")
    version: Literal["active"] | Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default="active", description="of the robot's twin"
    )
    format: Format = "json"

    @model_validator(mode="after")
    def _of_one(self) -> Self:
        if (self.robot is None) == (self.fleet is None):
            msg = "give either robot or fleet"
            raise ValueError(msg)
        if self.fleet is not None and self.version != "active":
            msg = "version numbers are a robot's own; of a fleet the active ones are drawn from"
            raise ValueError(msg)
        return self


_Choice = TypeVar("_Choice", bound=ScenarioChoice)


def read_choice(kind: type[_Choice], values: dict[str, Any]) -> _Choice:
    """A request from plain values.

    Raises:
        InvalidInputError: naming the field at fault.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "request"
        raise InvalidInputError(where, first["msg"].removeprefix("Value error, ")) from error


def check_sensors(choice: ScenarioChoice, joints: tuple[str, ...]) -> None:
    """Hold the sensors against a robot.

    Raises:
        InvalidInputError: naming a channel that the robot can't have.
    """
    known = {f"joint/{joint}/{quantity}" for joint in joints for quantity in ("position", "velocity", "effort")}
    for i, change in enumerate(choice.sensors):
        if change.channel not in known:
            remedy = "joint/<joint>/position, velocity or effort of a joint that moves"
            raise InvalidInputError(f"sensors.{i}.channel", f"the robot has no channel {change.channel!r}", remedy)
