"""What a calibration is asked to do: the body of `POST /v1/robots/{robot}/calibrations`."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from app.twin.document import MAX_EXACT_INTEGER

DEFAULT_BUDGET_S: Final = 300.0
DEFAULT_HOLDOUT_FRACTION: Final = 0.25
MAX_BUDGET_S: Final = 86_400.0
MAX_RECORDINGS: Final = 1000
"""More than this is a window, not a list."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Window(_Body):
    """All of the robot's telemetry between two instants."""

    from_: AwareDatetime = Field(alias="from", description="first instant, with its time zone")
    to: AwareDatetime = Field(description="last instant, with its time zone")

    @model_validator(mode="after")
    def _forwards(self) -> Window:
        if self.to <= self.from_:
            msg = "to must be later than from"
            raise ValueError(msg)
        return self


RecordingIds = Annotated[tuple[UUID, ...], Field(min_length=1, max_length=MAX_RECORDINGS)]


class Holdout(_Body):
    """What only judges the fit: recordings of their own, or the end of each that is fitted."""

    recordings: RecordingIds | None = Field(default=None, description="ids of recordings that are not fitted")
    fraction: float | None = Field(default=None, gt=0, le=0.5, description="share of each recording, from its end")

    @model_validator(mode="after")
    def _one_of_them(self) -> Holdout:
        if (self.recordings is None) == (self.fraction is None):
            msg = "give either recordings or fraction"
            raise ValueError(msg)
        return self


class CalibrationRequest(_Body):
    """One calibration: which data, how long at most, and what becomes of the twin."""

    window: Window | None = Field(default=None, description="telemetry to use; default: the last hour with motion")
    recordings: RecordingIds | None = Field(
        default=None, description="ids of the recordings to use, instead of a window"
    )
    holdout: Holdout = Field(default=Holdout(fraction=DEFAULT_HOLDOUT_FRACTION))
    seed: int = Field(default=0, ge=0, le=MAX_EXACT_INTEGER, description="of every random draw")
    budget_s: float = Field(
        default=DEFAULT_BUDGET_S,
        gt=0,
        le=MAX_BUDGET_S,
        description="safety limit on the fit's wall time [s]; a fit it cuts short warns `budget_reached`",
    )
    activate: Literal["if_better", "never"] = Field(
        default="if_better", description="whether a version that passes its gate is served at once"
    )

    @model_validator(mode="after")
    def _window_or_recordings(self) -> CalibrationRequest:
        if self.window is not None and self.recordings is not None:
            msg = "give either window or recordings"
            raise ValueError(msg)
        if self.recordings and self.holdout.recordings and set(self.recordings) & set(self.holdout.recordings):
            msg = "a recording can't be fitted and held out"
            raise ValueError(msg)
        return self
