"""What is known of a drift: since when, how far, and how much telemetry there is from after the change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from app.calibration.request import CalibrationRequest, Window
from app.monitor.score import WindowScore
from app.monitor.state import Standing
from app.registry.recalibration_policy import RecalibrationPolicy
from app.registry.recalibrations import Episode, NewData

_SLOTS: Final = 60
"""Stretches that new data are counted in."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def continued(
    episode: Episode | None, standing: Standing, score: WindowScore | None, window_s: float, version: int
) -> Episode | None:
    """What is known of a drift after another look; None before its first score."""
    if score is None:
        return episode
    data = grown(None if episode is None else episode.data, score, window_s)
    evidence = _evidence(score) or (episode.evidence if episode else "drifted")
    if episode is None:
        return Episode(version, standing.since, evidence, data)
    return replace(episode, evidence=evidence, data=data)


def grown(data: NewData | None, score: WindowScore, window_s: float) -> NewData:
    """New data with what was scored just now.

    They begin where the score that told the drift ended: everything later is from after the change, whenever in the
    windows before that it came. Times are the robot's own, as those of its telemetry are. A clock that went back begins
    anew: what was counted can't be found by its times any more.
    """
    if data is None or score.stamp_ns < data.to_ns:
        return NewData(score.stamp_ns, score.stamp_ns)
    window_ns = round(window_s * 1e9)
    begin_ns = max(data.from_ns, score.stamp_ns - window_ns)
    moved = [stretch for stretch in data.moved if stretch[0] > begin_ns]
    if score.stamp_ns > data.to_ns and score.moving_s > 0.0:
        slot_ns = max(1, window_ns // _SLOTS)
        seconds = score.moving_s
        if moved and moved[-1][0] // slot_ns == score.stamp_ns // slot_ns:
            seconds += moved.pop()[1]
        moved.append((score.stamp_ns, seconds))
    return NewData(begin_ns, score.stamp_ns, tuple(moved))


def lack(episode: Episode, policy: RecalibrationPolicy) -> str:
    """What the data lack; empty: nothing."""
    if episode.data.moving_s >= policy.min_moving_s:
        return ""
    return f"{episode.data.moving_s:.0f} s of new moving data, {policy.min_moving_s:.0f} s needed"


def request_for(episode: Episode, policy: RecalibrationPolicy) -> CalibrationRequest:
    """The calibration that answers a drift: on all that is new, judged like any other."""
    window = Window.model_validate({"from": _instant(episode.data.from_ns), "to": _instant(episode.data.to_ns)})
    return CalibrationRequest(window=window, budget_s=policy.budget_s, activate="if_better")


def words(episode: Episode) -> str:
    """How far a robot has drifted, since when, and how much there is to calibrate from."""
    since = at_time(episode.since)
    return f"{episode.evidence}, since {since}; {episode.data.moving_s:.0f} s of new moving data"


def at_time(at: datetime) -> str:
    """A time for people, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _evidence(score: WindowScore) -> str:
    """How far a robot has drifted; empty where the latest windows don't say."""
    if score.score is None:
        return ""
    worst = "" if score.worst_joint is None else f", worst joint {score.worst_joint} ({score.worst_score:.1f})"
    return f"drift score {score.score:.1f}{worst}"


def _instant(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
