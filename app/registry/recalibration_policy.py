"""What a fleet wants done about a robot that has drifted."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.tables import fleets, robots
from app.errors import NotFoundError
from app.telemetry import FleetId, RobotId

_DAY_S: Final = 86_400.0

RecalibrationMode = Literal["never", "propose", "automatic"]


class RecalibrationPolicy(BaseModel):
    """When a drifted robot is calibrated again, and on which data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: RecalibrationMode = Field(
        default="propose",
        description="never: only show the drift; propose: say what calibration would answer it, and leave it to "
        "people; automatic: start it",
    )
    cooldown_s: Annotated[float, Field(ge=0, le=30 * _DAY_S)] = Field(
        default=3600.0,
        description="from the end of the robot's last calibration to the next [s]; doubled for each in a row that "
        "failed, was cancelled or rejected, up to a day",
    )
    min_moving_s: Annotated[float, Field(ge=10, le=_DAY_S)] = Field(
        default=120.0, description="moving data needed from after the change [s]; at most window_s"
    )
    window_s: Annotated[float, Field(ge=10, le=_DAY_S)] = Field(
        default=3600.0, validate_default=True, description="the most telemetry that is fitted, up to the latest [s]"
    )
    budget_s: Annotated[float, Field(gt=0, le=_DAY_S)] = Field(
        default=300.0, description="safety limit on the fit's wall time [s]"
    )
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=4, description="calibrations of the fleet that the monitor has queued or running at a time"
    )

    @field_validator("window_s")
    @classmethod
    def _holds_enough(cls, window_s: float, others: ValidationInfo) -> float:
        least = others.data.get("min_moving_s")
        if least is not None and window_s < least:
            msg = f"{window_s:g} s can't hold min_moving_s, {least:g} s: give a longer window or ask for less"
            raise ValueError(msg)
        return window_s


async def policy_of(connection: AsyncConnection, robot: RobotId) -> tuple[FleetId, RecalibrationPolicy]:
    """The robot's fleet, and its policy; what the fleet doesn't say is at its default.

    Raises:
        NotFoundError: if the robot isn't registered.
    """
    query = select(fleets.c.fleet, fleets.c.document).join(robots, robots.c.fleet == fleets.c.fleet)
    row = (await connection.execute(query.where(robots.c.robot == robot))).one_or_none()
    if row is None:
        raise NotFoundError("robot", robot)
    return FleetId(row.fleet), RecalibrationPolicy.model_validate(row.document.get("recalibration", {}))
