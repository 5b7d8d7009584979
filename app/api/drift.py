"""Drift: how well a robot's active twin still fits it, now and over time."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, BaseModel, Field

from app.api.access import Reader
from app.api.context import ApiContext
from app.api.paging import MAX_LIMIT, Cursor, Limit, Page, decode_cursor, encode_cursor
from app.api.registered import RobotPath, find_robot
from app.api.route import ApiRoute
from app.calibration import versions
from app.calibration.versions import VersionSummary
from app.errors import InvalidInputError
from app.registry.drift import (
    STALE_AFTER_S,
    Drift,
    DriftPoint,
    DriftState,
    Period,
    has_more_points,
    read_drift,
    read_history,
)
from app.registry.recalibrations import open_proposal
from app.registry.recordings import last_sample_ns

_DEFAULT_PERIOD: Final = timedelta(days=1)
_POINTS: Final = 500
"""Points that a period is thinned to: as many as a page holds, and more than a chart shows."""

_LONGEST_S: Final = 10**9
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

router = APIRouter(prefix="/v1/robots/{robot}", tags=["drift"], route_class=ApiRoute)


class DriftPointView(BaseModel):
    """The robot's drift at one time."""

    at: datetime = Field(description="end of the judged window, by the robot's clock")
    version: int = Field(description="that was active")
    state: DriftState = Field(description="after this window")
    score: float | None = Field(description="multiple of the version's baseline; null: nothing moved enough to judge")
    worst_joint: str | None = Field(description="the joint that was farthest off")
    worst_score: float | None = Field(description="its score")
    per_joint: dict[str, float] = Field(description="score of each joint that moved")

    @classmethod
    def of(cls, point: DriftPoint) -> DriftPointView:
        """The view of a point."""
        return cls(
            at=point.at,
            version=point.version,
            state=point.state,
            score=point.score,
            worst_joint=point.worst_joint,
            worst_score=point.worst_score,
            per_joint=dict(point.per_joint),
        )


class DriftHistory(Page[DriftPointView]):
    """Drift over time, the earliest first."""

    every_s: int = Field(
        description="of each stretch of so many seconds the point with the highest score; 0: every point that is kept"
    )


class ProposalView(BaseModel):
    """A calibration that the monitor proposes, by the policy of the robot's fleet."""

    reason: str = Field(
        description="how far the robot has drifted, since when, and how much there is to calibrate from"
    )
    request: dict[str, Any] = Field(description="body of the `POST` to the robot's calibrations that would do it")
    proposed_at: datetime


class DriftView(BaseModel):
    """How well the active twin fits the robot."""

    robot: str
    version: int = Field(description="the active version, which this is about")
    state: DriftState = Field(description="ok, watch, drifted, idle (not moving), stale (nothing heard)")
    since: datetime = Field(description="when it came into this state")
    score: float | None = Field(
        description="root mean square error on the robot's latest motion, as a multiple of the version's own baseline: "
        "1 is as good as when it was calibrated; null: nothing to judge yet"
    )
    worst_joint: str | None = Field(description="the joint that is farthest off")
    worst_score: float | None = Field(description="its score")
    per_joint: dict[str, float] = Field(description="score of each joint that moved")
    scored_at: datetime | None = Field(description="end of the latest motion that was judged, by the robot's clock")
    telemetry_at: datetime | None = Field(description="when the monitor last saw telemetry arrive, by our clock")
    reason: str | None = Field(description="why the robot can't be judged, in words; null while it can")
    proposal: ProposalView | None = Field(default=None, description="what would answer the drift; null: nothing is due")
    history: DriftHistory


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A page of the history.

    Attributes:
        period: of which all pages are.
        after: instant of the last point already seen; None on the first page.
    """

    period: Period
    after: datetime | None

    @classmethod
    def of(cls, from_at: datetime | None, to_at: datetime | None, cursor: str | None, now: datetime) -> _Wanted:
        """What was asked for.

        Raises:
            InvalidInputError: naming the field.
        """
        key = decode_cursor(cursor, int, int, int, int)
        if key is not None:
            every_s, *instants = key
            begin, end, after = (_instant(part) for part in instants)
            return cls(Period(begin, end, min(max(int(every_s), 0), _LONGEST_S)), after)
        # Within what a database and our arithmetic can hold.
        end = min(max(to_at or now, _EPOCH + _DEFAULT_PERIOD), _LATEST).astimezone(UTC)
        begin = end - _DEFAULT_PERIOD if from_at is None else max(from_at, _EPOCH)
        if begin >= end:
            raise InvalidInputError("from", "is not before `to`", "an instant before `to`, or before now without it")
        return cls(Period(begin.astimezone(UTC), end), None)

    def thinned(self) -> _Wanted:
        """The same with no more points than a page holds."""
        span_s = (self.period.to_at - self.period.from_at).total_seconds()
        return replace(self, period=replace(self.period, every_s=math.ceil(span_s / _POINTS)))

    def next_after(self, at: datetime) -> str:
        """The cursor of the page after a point."""
        instants = (self.period.from_at, self.period.to_at, at)
        return encode_cursor(self.period.every_s, *(_microseconds(instant) for instant in instants))


def _wanted(
    from_: Annotated[
        AwareDatetime | None, Query(alias="from", description="begin of the history; a day before its end without it")
    ] = None,
    to: Annotated[AwareDatetime | None, Query(description="end of the history; now without it")] = None,
    cursor: Cursor = None,
) -> _Wanted:
    return _Wanted.of(from_, to, cursor, datetime.now(UTC))


@router.get("/drift", summary="Drift now and over time")
async def read_robot_drift(
    robot: RobotPath,
    context: ApiContext,
    who: Reader,
    wanted: Annotated[_Wanted, Depends(_wanted)],
    limit: Limit = MAX_LIMIT,
) -> DriftView:
    """404 `no-active-twin` if there is no version to drift from.

    A period with more points than a page holds is thinned; `history.every_s` says how. With a cursor, `from` and `to`
    are those of the first page.
    """
    now = datetime.now(UTC)
    async with context.engine.connect() as connection:
        registered = await find_robot(connection, robot, who)
        active = (await versions.read_active(connection, registered.robot)).summary
        found = await read_drift(connection, registered.robot)
        latest_ns = await last_sample_ns(connection, registered.robot)
        first = wanted.after is None
        if first and await has_more_points(connection, registered.robot, wanted.period, _POINTS):
            wanted = wanted.thinned()
        points = await read_history(connection, registered.robot, wanted.period, wanted.after, limit)
        proposed = await open_proposal(connection, registered.robot)
    history = DriftHistory(
        items=[DriftPointView.of(point) for point in points],
        next=wanted.next_after(points[-1].at) if len(points) == limit else None,
        every_s=wanted.period.every_s,
    )
    if found is None or found.version != active.version:
        return _unseen(registered.robot, active, found, now, history)
    view = _seen(registered.robot, found, latest_ns, now, history)
    proposal = None if proposed is None else ProposalView(**asdict(proposed))
    return view.model_copy(update={"proposal": proposal})


def _seen(robot: str, found: Drift, latest_ns: int | None, now: datetime, history: DriftHistory) -> DriftView:
    """What the monitor found, as far as it still holds."""
    state, since = found.seen_at(now)
    reason = found.reason
    if state == "stale" and latest_ns is not None and latest_ns != found.telemetry_ns:
        reason = "telemetry has come that the monitor has not looked at (is `twincal monitor` running?)"
    return DriftView(
        robot=robot,
        version=found.version,
        state=state,
        since=since,
        score=found.score,
        worst_joint=found.worst_joint,
        worst_score=found.worst_score,
        per_joint=dict(found.per_joint),
        scored_at=found.scored_at,
        telemetry_at=found.telemetry_at,
        reason=reason,
        history=history,
    )


def _unseen(
    robot: str, active: VersionSummary, before: Drift | None, now: datetime, history: DriftHistory
) -> DriftView:
    """A version that the monitor has not looked at yet: nothing is known, and what was of the one before is no help."""
    telemetry_at = None if before is None else before.telemetry_at
    heard = telemetry_at is not None and now - telemetry_at < timedelta(seconds=STALE_AFTER_S)
    return DriftView(
        robot=robot,
        version=active.version,
        state="idle" if heard else "stale",
        since=active.state_changed_at,
        score=None,
        worst_joint=None,
        worst_score=None,
        per_joint={},
        scored_at=None,
        telemetry_at=telemetry_at,
        reason=f"the monitor has not looked at version {active.version} yet",
        history=history,
    )


def _instant(microseconds: int | str) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=int(microseconds))
    except OverflowError as error:
        raise InvalidInputError("cursor", "is not a cursor of this list", "`next` of the page before") from error


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
