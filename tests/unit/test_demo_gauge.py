"""What the demonstration keeps of what the product says of a robot's drift."""

from __future__ import annotations

from typing import Any

from app.demo.gauge import Gauge


def drift(version: int, state: str, score: float | None, second: int = 0) -> dict[str, Any]:
    return {
        "version": version,
        "state": state,
        "score": score,
        "worst_joint": None if score is None else "elbow",
        "since": "2026-01-05T08:00:00Z",
        "scored_at": None if score is None else f"2026-01-05T08:00:{second:02d}Z",
    }


def test_a_score_counts_once_however_often_it_is_asked_for() -> None:
    gauge = Gauge("arm-01")
    for answer in (drift(1, "idle", None), drift(1, "ok", 1.1, 3), drift(1, "ok", 1.1, 3), drift(1, "ok", 1.1, 6)):
        gauge.take(answer)
    assert gauge.scores == [1.1, 1.1]
    assert (gauge.highest, gauge.worst_joint, gauge.states) == (1.1, "elbow", {"idle", "ok"})


def test_a_new_version_starts_its_scores_anew_and_the_trace_goes_on() -> None:
    gauge = Gauge("arm-01")
    for answer in (drift(1, "ok", 1.0, 1), drift(1, "drifted", 9.0, 4), drift(2, "idle", None), drift(2, "ok", 0.9, 9)):
        gauge.take(answer)
    assert (gauge.version, gauge.scores, gauge.trace, gauge.highest) == (2, [0.9], [1.0, 9.0, 0.9], 9.0)
