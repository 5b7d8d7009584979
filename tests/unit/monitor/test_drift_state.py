"""States and hysteresis: seconds of motion count, not looks; rest and silence forget nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.monitor.score import UNUSUAL, WindowScore
from app.monitor.state import DRIFTED_S, IDLE_AFTER_S, MOST_S, WATCH_S, DriftState, Standing, next_standing
from app.registry.drift import STALE_AFTER_S

START = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
WINDOW_S = 2.0
WILD = 50.0
"""A score at which a window counts as much as it can."""


def scored(*ratios: float, joint: str = "elbow") -> WindowScore:
    """A look at one window a ratio, in which one joint moved."""
    worst = max(ratios, default=None)
    per_joint = {} if worst is None else {joint: worst}
    steps = tuple({joint: ratio} for ratio in ratios)
    name = None if worst is None else joint
    return WindowScore(0, worst, worst, name, per_joint, WINDOW_S * len(ratios), len(ratios), steps)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def after(looks: Sequence[WindowScore], previous: Standing | None = None, begin_s: float = 0.0) -> Standing:
    """The standing after looks, each as long after the one before as it saw motion."""
    now_s = begin_s
    for look in looks:
        now_s += look.moving_s
        previous = next_standing(previous, look, at(now_s), at(now_s))
    assert previous is not None
    return previous


@pytest.mark.parametrize(
    ("ratios", "state"),
    [
        ([1.0], "ok"),
        ([1.7] * 200, "ok"),
        ([WILD], "ok"),  # one window, however wild, is nothing yet
        ([WILD] * 2, "watch"),
        ([WILD] * 4, "watch"),
        ([WILD] * 5, "drifted"),
        ([WILD, 0.5] * 100, "ok"),  # now and then
        ([3.0] * 9, "watch"),  # 18 s of motion
        ([3.0] * 10, "drifted"),
        ([2.1] * 28, "drifted"),  # within a minute
        ([WILD] * 5 + [1.0] * 8, "drifted"),  # what is well for 16 s of motion may be chance
        ([WILD] * 5 + [1.0] * 9, "ok"),
        ([WILD] * 2 + [1.0] * 2, "watch"),  # below the threshold it came by
        ([WILD] * 2 + [1.0] * 3, "ok"),
        ([WILD] * 1000 + [0.5] * 10, "ok"),  # a long past is not held against it for long
    ],
)
def test_evidence_adds_up_over_seconds_of_motion(ratios: list[float], state: DriftState) -> None:
    assert after([scored(*ratios)]).state == state
    assert after([scored(ratio) for ratio in ratios]).state == state


def test_how_often_anyone_looks_makes_no_difference() -> None:
    ratios = [1.0, 4.0, 3.0, 7.0, 1.2, 2.5, WILD, 9.0, 4.0, 3.3, 2.2, 1.9]
    seldom = after([scored(*ratios)])
    often = after([scored(ratio) for ratio in ratios])
    assert seldom.memory["evidence_s/elbow"] == often.memory["evidence_s/elbow"]


def test_joints_are_judged_each_by_itself() -> None:
    half = [scored(*[WILD] * 3, joint="elbow"), scored(*[WILD] * 3, joint="shoulder")]
    assert after(half).state == "watch"
    assert after([*half, scored(*[WILD] * 2, joint="shoulder")]).state == "drifted"


def test_a_joint_is_well_again_only_by_its_own_motion() -> None:
    drifted = after([scored(*[WILD] * 5, joint="elbow")])
    assert after([scored(*[1.0] * 100, joint="shoulder")], drifted, 10.0).state == "drifted"
    assert after([scored(*[1.0] * 9, joint="elbow")], drifted, 10.0).state == "ok"


def test_evidence_stays_within_its_bounds() -> None:
    assert after([scored(*[WILD] * 100)]).memory["evidence_s/elbow"] == MOST_S
    assert "evidence_s/elbow" not in after([scored(*[0.1] * 100)]).memory


def test_the_thresholds_are_those_documented() -> None:
    assert (UNUSUAL, WATCH_S, DRIFTED_S, MOST_S, IDLE_AFTER_S, STALE_AFTER_S) == (1.75, 4.0, 10.0, 20.0, 30.0, 60.0)


def test_since_is_when_the_state_began() -> None:
    watch = after([scored(WILD), scored(WILD)])
    assert (watch.state, watch.since) == ("watch", at(4.0))
    assert after([scored(WILD)], watch, 4.0).since == at(4.0)
    assert after([scored(WILD)] * 3, watch, 4.0).since == at(10.0)


def test_a_robot_that_never_moved_is_idle_and_one_never_heard_of_is_stale() -> None:
    assert next_standing(None, scored(), at(0.0), at(0.0)).state == "idle"
    assert next_standing(None, None, at(0.0), at(0.0)).state == "idle"
    assert next_standing(None, None, at(0.0), None).state == "stale"


def test_a_robot_rests_a_while_before_it_is_idle() -> None:
    moved = after([scored(1.0)])
    assert next_standing(moved, scored(), at(2.0 + IDLE_AFTER_S), at(2.0 + IDLE_AFTER_S)).state == "ok"
    assert next_standing(moved, scored(), at(2.1 + IDLE_AFTER_S), at(2.1 + IDLE_AFTER_S)).state == "idle"


def test_telemetry_may_pause_a_while_before_a_robot_is_stale() -> None:
    moved = after([scored(1.0)])
    idle = next_standing(moved, None, at(2.0 + STALE_AFTER_S), at(2.0))
    assert idle.state == "idle"
    stale = next_standing(idle, None, at(2.1 + STALE_AFTER_S), at(2.0))
    assert (stale.state, stale.since) == ("stale", at(2.1 + STALE_AFTER_S))
    assert next_standing(stale, None, at(500.0), at(2.0)).since == stale.since


@pytest.mark.parametrize("gap", ["idle", "stale"])
def test_neither_rest_nor_silence_forgets_that_a_robot_has_drifted(gap: DriftState) -> None:
    drifted = after([scored(*[WILD] * 5)])
    heard_s = 10_000.0 if gap == "idle" else 10.0
    away = next_standing(drifted, None, at(10_000.0), at(heard_s))
    assert away.state == gap
    back = next_standing(away, scored(1.0), at(10_002.0), at(10_002.0))
    assert (back.state, back.since) == ("drifted", drifted.since)
    assert after([scored(*[1.0] * 10)], back, 10_002.0).state == "ok"


def test_a_monitor_that_starts_again_goes_on_where_it_was() -> None:
    ratios = [1.0, 4.0, 3.0, 7.0, 1.2, 2.5, WILD, 9.0, 4.0, 3.3, 6.0, 5.0, 4.0]
    standing: Standing | None = None
    for i, ratio in enumerate(ratios):
        standing = next_standing(standing, scored(ratio), at(2.0 * i), at(2.0 * i))
        stored = json.loads(json.dumps(dict(standing.memory), allow_nan=False))
        standing = Standing(standing.state, standing.since, stored)
    uninterrupted: Standing | None = None
    for i, ratio in enumerate(ratios):
        uninterrupted = next_standing(uninterrupted, scored(ratio), at(2.0 * i), at(2.0 * i))
    assert standing == uninterrupted
    assert standing is not None
    assert standing.state == "drifted"


def test_a_perfect_window_speaks_against_drift_by_no_more_than_its_length() -> None:
    before = after([scored(*[WILD] * 8)]).memory["evidence_s/elbow"]
    assert after([scored(*[WILD] * 8, 0.0)]).memory["evidence_s/elbow"] == before - WINDOW_S
