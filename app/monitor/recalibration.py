"""What is done about a robot that has drifted: nothing, a proposal or a calibration, as its fleet's policy has it.

A calibration that the monitor asks for goes the way of any other: the same queue, the same gate. It is fitted on data
from after the change alone: mixed with data from before, it would be a robot that never was. That is why the monitor
waits for enough of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.calibration import jobs
from app.calibration.audit import Move, record_move
from app.database.tables import fleets, twin_versions
from app.monitor.attempts import Attempt, in_flight, recent_attempts, rest_until
from app.monitor.episode import at_time, continued, lack, request_for, words
from app.monitor.score import WindowScore
from app.monitor.state import Standing
from app.registry.recalibration_policy import RecalibrationPolicy, policy_of
from app.registry.recalibrations import Episode, Proposal, forget_episode, open_proposal, read_episode, save_episode
from app.telemetry import FleetId, RobotId

MONITOR: Final = "monitor"
"""Who asks, in jobs and in the audit trail."""

Action = Literal["nothing", "waiting", "proposed", "queued"]
"""`waiting`: it has drifted, and what must come first hasn't; `proposed`, `queued`: done just now."""

_log = structlog.get_logger(__name__)

__all__ = ["Action", "Decision", "consider", "open_proposal"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was done about a standing, just now.

    Attributes:
        action: nothing, waiting, proposed or queued.
        reason: for people; empty where there is nothing to say.
        calibration: the job that was queued.
    """

    action: Action
    reason: str = ""
    calibration: UUID | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """Whose drift it is, and by which rules it is dealt with."""

    connection: AsyncConnection
    robot: RobotId
    fleet: FleetId
    policy: RecalibrationPolicy
    now: datetime


async def consider(
    connection: AsyncConnection,
    robot: RobotId,
    standing: Standing,
    score: WindowScore | None,
    version: int,
    now: datetime,
) -> Decision:
    """Do what the policy of the robot's fleet says about a new standing, in the caller's transaction.

    Args:
        connection: in the transaction that stores the standing.
        robot: registered.
        standing: the new one.
        score: what it was made of; None where there was nothing new to score.
        version: of the robot's twin, which was scored.
        now: aware.
    """
    episode = await read_episode(connection, robot)
    if episode is None and standing.state != "drifted":
        return Decision("nothing")
    fleet, policy = await policy_of(connection, robot)
    if episode is not None and (over := _over(episode, standing, version, policy)):
        if episode.proposal is not None:
            await _withdraw(connection, robot, episode, over)
        await forget_episode(connection, robot)
        episode = None
    if standing.state != "drifted" or policy.mode == "never":
        return Decision("nothing")
    if await _active_version(connection, robot) != version:
        return Decision("nothing")
    episode = continued(episode, standing, score, policy.window_s, version)
    if episode is None:
        return Decision("waiting", "no telemetry since the drift was found")
    case = _Case(connection, robot, fleet, policy, now)
    return await (_propose if policy.mode == "propose" else _calibrate)(case, episode)


def _over(episode: Episode, standing: Standing, version: int, policy: RecalibrationPolicy) -> str:
    """Why a drift needs nothing done about it any more; empty: it does."""
    if episode.version != version:
        return f"version {version} is active now"
    if standing.state == "ok":
        return "the drift score is back to normal"
    if policy.mode == "never":
        return "the fleet's robots are never to be calibrated again by themselves"
    return ""


async def _propose(case: _Case, episode: Episode) -> Decision:
    """Propose a calibration once it would have what it needs, and take the proposal back once there was another."""
    attempts = await recent_attempts(case.connection, case.robot)
    proposal = episode.proposal
    if proposal is not None and (ended := _ended_since(attempts, proposal.proposed_at)):
        why = f"calibration {ended.id} ended meanwhile: {ended.outcome}"
        await _withdraw(case.connection, case.robot, episode, why)
        episode, proposal = replace(episode, proposal=None), None
    obstacle = "proposed already" if proposal else lack(episode, case.policy) or _rest(case, attempts)
    reason = words(episode)
    if not obstacle:
        body = request_for(episode, case.policy).model_dump(mode="json", by_alias=True, exclude_none=True)
        episode = replace(episode, proposal=Proposal(reason, body, case.now))
        change = ("propose", str(episode.version), None)
        await record_move(case.connection, case.robot, Move(MONITOR, reason), change)
        _log.info("recalibration proposed", robot=case.robot, version=episode.version, reason=reason)
    await save_episode(case.connection, case.robot, episode)
    return Decision("waiting", obstacle) if obstacle else Decision("proposed", reason)


async def _calibrate(case: _Case, episode: Episode) -> Decision:
    """Queue a calibration once it has what it needs and nothing stands in its way."""
    connection, robot = case.connection, case.robot
    if episode.proposal is not None:
        await _withdraw(connection, robot, episode, "the fleet's robots are calibrated automatically now")
        episode = replace(episode, proposal=None)
    await save_episode(connection, robot, episode)
    obstacle = lack(episode, case.policy) or await _obstacle(case)
    if not obstacle:
        # Asked again behind a lock: whoever decided for a robot of this fleet at the same time has done so by then.
        turn = select(fleets.c.fleet).where(fleets.c.fleet == case.fleet).with_for_update(key_share=True)
        await connection.execute(turn)
        obstacle = await _obstacle(case)
    if obstacle:
        return Decision("waiting", obstacle)
    reason = words(episode)
    request = request_for(episode, case.policy)
    job = await jobs.submit(connection, robot, request, MONITOR, f"recalibrated: {reason}")
    move = Move(MONITOR, f"{reason}; calibration {job.id}")
    await record_move(connection, robot, move, ("calibrate", str(episode.version), None))
    _log.info("recalibration queued", robot=robot, version=episode.version, calibration=str(job.id), reason=reason)
    return Decision("queued", reason, job.id)


async def _obstacle(case: _Case) -> str:
    """What stands in the way of calibrating now, besides the data; empty: nothing."""
    resting = _rest(case, await recent_attempts(case.connection, case.robot))
    if resting:
        return resting
    number, most = await in_flight(case.connection, case.fleet, MONITOR), case.policy.max_in_flight
    if number >= most:
        return f"{number} calibrations of fleet {case.fleet!r} are under way, at most {most} may be"
    return ""


def _rest(case: _Case, attempts: Sequence[Attempt]) -> str:
    """Why the robot's own calibrations say to wait; empty: they don't."""
    unfinished = next((attempt for attempt in attempts if attempt.finished_at is None), None)
    if unfinished is not None:
        return f"calibration {unfinished.id} is {unfinished.outcome}"
    until = rest_until(attempts, case.policy.cooldown_s)
    if until is None or until <= case.now:
        return ""
    return f"resting until {at_time(until)}: the last calibration {attempts[0].in_words}"


def _ended_since(attempts: Sequence[Attempt], at: datetime) -> Attempt | None:
    return next((a for a in attempts if a.finished_at is not None and a.finished_at > at), None)


async def _active_version(connection: AsyncConnection, robot: RobotId) -> int | None:
    query = select(twin_versions.c.version).where(twin_versions.c.robot == robot, twin_versions.c.state == "active")
    version: int | None = await connection.scalar(query)
    return version


async def _withdraw(connection: AsyncConnection, robot: RobotId, episode: Episode, why: str) -> None:
    move = Move(MONITOR, f"proposal withdrawn: {why}")
    await record_move(connection, robot, move, ("withdraw", str(episode.version), None))
