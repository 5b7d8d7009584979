"""What one look at a robot covers, and when its telemetry counts as arrived."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.errors import (
    DeclarationError,
    FitImpossibleError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    SimulationError,
)
from app.monitor.failure import kind_of
from app.monitor.look import COMMANDS_NS, HORIZON_NS, SETTLING_NS, arrived_at, conclude, span_of
from app.monitor.publish import drift_message, drift_topic
from app.monitor.score import WindowScore
from app.monitor.state import DRIFTED_S
from app.monitor.store import Due, Retained, instant
from app.registry.drift import STALE_AFTER_S, Drift
from app.telemetry import FleetId, RobotId

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
HOUR_NS = 3600 * 10**9
FOUND = Drift(
    version=3,
    state="ok",
    since=NOW - timedelta(minutes=5),
    scored_at=NOW - timedelta(seconds=12),
    scored_ns=NOW_NS - 12 * 10**9,
    score=1.1,
    worst_score=1.2,
    worst_joint="elbow",
    per_joint={"elbow": 1.2},
    memory={"held": 0.0, "held_since_s": (NOW - timedelta(minutes=5)).timestamp(), "moved_at_s": NOW.timestamp() - 12},
    telemetry_ns=NOW_NS - 10 * 10**9,
    telemetry_at=NOW - timedelta(seconds=10),
    recorded_at=NOW - timedelta(seconds=12),
    reason=None,
    updated_at=NOW - timedelta(seconds=10),
)
DUE = Due(RobotId("arm-07"), FleetId("arms"), 3, NOW, "0" * 64, NOW_NS, FOUND)


def score(value: float | None, stamp_ns: int = NOW_NS) -> WindowScore:
    per_joint = {} if value is None else {"elbow": value}
    # Not enough for a verdict by itself.
    joint, windows = (None, 0) if value is None else ("elbow", int(0.8 * DRIFTED_S / 2.0))
    steps = tuple({} if value is None else {"elbow": value} for _ in range(windows))
    return WindowScore(stamp_ns, value, value, joint, per_joint, 2.0 * windows, windows, steps)


def test_a_look_reads_what_is_new_and_the_commands_just_before_it() -> None:
    span = span_of(DUE)
    assert (span.from_ns, span.to_ns) == (NOW_NS - 12 * 10**9 - COMMANDS_NS, NOW_NS - SETTLING_NS)


def test_a_look_goes_back_a_minute_at_most() -> None:
    away = replace(DUE, found=replace(FOUND, scored_ns=NOW_NS - HOUR_NS))
    never = replace(DUE, found=None)
    assert span_of(away) == span_of(never)
    assert span_of(never).to_ns - span_of(never).from_ns == HORIZON_NS


def test_telemetry_that_moved_on_between_two_passes_arrived_now_however_wrong_the_clock() -> None:
    slow = replace(DUE, last_ns=NOW_NS - HOUR_NS, found=replace(FOUND, telemetry_ns=NOW_NS - HOUR_NS - 10**9))
    assert arrived_at(slow, NOW, continuous=True) == NOW


def test_telemetry_of_an_unknown_time_arrived_when_it_is_stamped_but_not_in_the_future() -> None:
    assert arrived_at(replace(DUE, last_ns=NOW_NS - HOUR_NS, found=None), NOW, continuous=True) == instant(
        NOW_NS - HOUR_NS
    )
    assert arrived_at(replace(DUE, last_ns=NOW_NS + HOUR_NS, found=None), NOW, continuous=True) == NOW
    # A monitor that was away can't tell when it came, only that it isn't older than what it knew.
    assert arrived_at(replace(DUE, last_ns=NOW_NS - HOUR_NS), NOW, continuous=False) == FOUND.telemetry_at


def test_telemetry_that_has_not_moved_on_arrived_when_it_did() -> None:
    same = replace(DUE, last_ns=NOW_NS - 10 * 10**9)
    assert arrived_at(same, NOW + timedelta(hours=1), continuous=True) == FOUND.telemetry_at


def test_a_robot_that_rests_keeps_what_was_measured_last_and_its_time() -> None:
    seen = conclude(DUE, [score(None)], NOW, NOW)
    assert (seen.found.score, seen.found.scored_at) == (1.1, FOUND.scored_at)
    assert (seen.found.scored_ns, seen.score) == (NOW_NS, score(None))


def test_a_new_version_starts_without_score_memory_or_state_of_the_one_before() -> None:
    drifted = replace(FOUND, state="drifted", memory={**FOUND.memory, "held": 2.0, "evidence_s/elbow": 30.0})
    seen = conclude(replace(DUE, version=4, found=drifted), [], NOW, NOW)
    assert (seen.found.version, seen.found.state, seen.found.since) == (4, "idle", NOW)
    assert (seen.found.score, seen.found.worst_joint, seen.found.scored_at) == (None, None, None)
    assert "evidence_s/elbow" not in seen.found.memory
    # What was judged by the version before isn't judged again.
    assert seen.found.scored_ns == FOUND.scored_ns


def test_several_boots_in_one_look_are_weighed_one_after_the_other() -> None:
    once = conclude(DUE, [score(20.0)], NOW, NOW)
    twice = conclude(DUE, [score(20.0, NOW_NS - 10**9), score(20.0)], NOW, NOW)
    assert (once.found.state, twice.found.state) == ("watch", "drifted")


def test_what_was_said_last_goes_stale_with_the_telemetry_it_was_about() -> None:
    heard = FOUND.telemetry_at
    assert heard is not None
    stale_at = heard + timedelta(seconds=STALE_AFTER_S)
    assert FOUND.seen_at(stale_at) == ("ok", FOUND.since)
    assert FOUND.seen_at(stale_at + timedelta(seconds=1)) == ("stale", stale_at)
    assert replace(FOUND, telemetry_at=None).seen_at(NOW)[0] == "stale"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DeclarationError("kp", "is wrong"), "declaration"),
        (SimulationError("diverged"), "simulation"),
        (FitImpossibleError("command_position is missing"), "telemetry"),
        (InvalidInputError("quality.windowed", "is null"), "version"),
        (NotFoundError("description", "0"), "version"),
        (ConnectionRefusedError(), "database"),
        (ServiceError("gone"), "unexpected"),
        (ValueError("what"), "unexpected"),
    ],
)
def test_every_failure_is_counted_under_what_is_at_fault(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_robots_are_told_in_the_protocols_words() -> None:
    told = Retained(RobotId("arm-07"), FleetId("arms"), 3, "watch", 1.31, NOW)
    assert drift_topic(told.fleet, told.robot) == "twincal/v1/arms/arm-07/drift"
    assert drift_message(told) == b'{"score":1.31,"state":"watch","version":3,"stamp":"2026-03-01T12:00:00Z"}'
    assert b'"score":null' in drift_message(replace(told, score=None))
