"""One robot: how well its twin describes it, joint by joint, and what was done about it."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from monitoring.grafana.page import CALIBRATION_STATES, VERSION_STATES, page, score_limits
from monitoring.grafana.panels import (
    BLUE,
    CONNECTION,
    DRIFT_STATES,
    GREEN,
    ORANGE,
    YELLOW,
    Column,
    limits,
    lines,
    listing,
    number,
    states,
    with_limits,
    word,
    words,
)
from monitoring.grafana.sources import POSTGRES, annotation, now, over_time, rows, series

PER_JOINT: Final = """
    SELECT at AS time, joint AS metric, ratio::double precision AS value
    FROM drift_scores, jsonb_each_text(per_joint) AS joints (joint, ratio)
    WHERE robot = ${robot:sqlstring} AND $__timeFilter(at)
    ORDER BY at"""

VERSIONS: Final = """
    SELECT version, state, created_at, document #>> '{quality,grade}' AS grade,
      (document #>> '{quality,improvement}')::double precision AS improvement,
      (document #>> '{quality,holdout,rmse_mean}')::double precision AS rmse,
      document #>> '{structure,friction}' AS friction
    FROM (SELECT version, state, created_at, convert_from(document, 'UTF8')::jsonb AS document
          FROM twin_versions WHERE robot = ${robot:sqlstring} ORDER BY version DESC LIMIT 50) AS versions
    ORDER BY version DESC"""

CALIBRATIONS: Final = """
    SELECT created_at, state, stage, trials, version, extract(epoch FROM finished_at - started_at) AS duration,
      requested_by, reason
    FROM calibrations WHERE robot = ${robot:sqlstring} ORDER BY created_at DESC LIMIT 50"""

AUDIT: Final = """
    SELECT at, what, old, new, who, reason FROM audit WHERE robot = ${robot:sqlstring} ORDER BY id DESC LIMIT 50"""

RECORDINGS: Final = """
    SELECT to_timestamp(first_ns / 1e9) AS first, (last_ns - first_ns) / 1e9 AS duration, samples, boot_id
    FROM recordings WHERE robot = ${robot:sqlstring} ORDER BY last_ns DESC LIMIT 50"""

LETTERS: Final = """
    SELECT received_at, reason, detail, topic FROM dead_letters
    WHERE robot = ${robot:sqlstring} AND replayed_at IS NULL ORDER BY id DESC LIMIT 50"""

CALIBRATED: Final = """
    SELECT started_at AS time, coalesce(finished_at, now()) AS timeend,
      'calibration ' || state || coalesce(' (' || stage || ')', '') AS text, state AS tags
    FROM calibrations
    WHERE robot = ${robot:sqlstring} AND started_at IS NOT NULL AND $__timeFilter(started_at) ORDER BY 1 LIMIT 200"""

MOVED: Final = """
    SELECT at AS time, what || coalesce(' version ' || new, '') || coalesce(': ' || nullif(reason, ''), '') AS text,
      what AS tags
    FROM audit WHERE robot = ${robot:sqlstring} AND $__timeFilter(at) ORDER BY 1 LIMIT 200"""


def gauge(metric: str) -> str:
    """A gauge of the chosen robot, once however many monitors there are."""
    return f'max(twincal_robot_{metric}{{robot_id="$robot"}})'


def build() -> dashboard.Dashboard:
    """The dashboard of one robot."""
    made = (
        page("twincal-robot", "Robot", __doc__ or "")
        .with_variable(
            dashboard.QueryVariable("robot")
            .label("Robot")
            .datasource(POSTGRES)
            .query("SELECT robot FROM robots ORDER BY robot")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.DISABLED)
        )
        .annotation(annotation("Calibrations", BLUE, CALIBRATED))
        .annotation(annotation("Versions moved", GREEN, MOVED))
    )
    _now(made)
    _over_time(made)
    _what_happened(made)
    return made


def _now(made: dashboard.Dashboard) -> None:
    worst = "SELECT worst_joint FROM drift WHERE robot = ${robot:sqlstring}"
    version = "SELECT version FROM twin_versions WHERE robot = ${robot:sqlstring} AND state = 'active'"
    score = "Error on the latest motion as a multiple of the active version's own baseline; 1 is as good as calibrated."
    age = "Time since the latest sample, by the robot's own stamp."
    made.with_panel(
        number("State", "Of its drift, with hysteresis.", "none", now(gauge("drift_state")))
        .mappings([words(DRIFT_STATES)])
        .thresholds(limits(base="text"))
    )
    for title, metric in (("Score", "drift_score_ratio"), ("Worst joint's score", "worst_joint_drift_score_ratio")):
        panel = number(title, score, "none", now(gauge(metric))).decimals(2)
        made.with_panel(panel.thresholds(limits(*score_limits())))
    made.with_panel(word("Worst joint", "The joint that its twin describes worst.", rows(worst)))
    made.with_panel(number("Active version", "Of its twin; the table below has all.", "none", rows(version)))
    made.with_panel(
        number("Telemetry's age", age, "s", now(gauge("telemetry_age_seconds"))).thresholds(
            limits((60, YELLOW), (300, ORANGE))
        )
    )
    made.with_panel(
        number("Connection", "What the robot, or the broker for it, last said.", "none", now(gauge("connected")))
        .mappings([words(CONNECTION)])
        .thresholds(limits(base="text"))
    )
    unstored = "SELECT count(*) FROM dead_letters WHERE robot = ${robot:sqlstring} AND replayed_at IS NULL"
    made.with_panel(
        number("Dead letters", "Messages refused and not stored since.", "none", rows(unstored)).thresholds(
            limits((1, YELLOW))
        )
    )


def _over_time(made: dashboard.Dashboard) -> None:
    made.with_panel(
        with_limits(
            lines(
                "Drift score",
                "Of the active version. A step that stays is a robot that changed; a step at a new version is a new "
                "baseline.",
                "none",
                over_time(gauge("drift_score_ratio"), "all joints"),
                over_time(gauge("worst_joint_drift_score_ratio"), "worst joint"),
            ),
            *score_limits(),
        )
    )
    made.with_panel(
        with_limits(
            lines(
                "Score by joint",
                "From the history in Postgres. One joint alone is wear or a collision; all together, a payload or a "
                "supply.",
                "none",
                series(PER_JOINT),
            ),
            *score_limits(),
        )
    )
    made.with_panel(
        states("State", "Of its drift over time.", over_time(gauge("drift_state"), "state"))
        .mappings([words(DRIFT_STATES)])
        .span(12)
    )
    made.with_panel(
        states("Connection", "What it said of its connection over time.", over_time(gauge("connected"), "connection"))
        .mappings([words(CONNECTION)])
        .span(12)
    )


def _what_happened(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Twin"))
    made.with_panel(
        listing(
            "Versions",
            "The latest 50. Improvement: the nominal twin's error as a multiple of this one's.",
            (
                Column("version", width=90),
                Column("state", values=VERSION_STATES, width=110),
                Column("created_at", width=190),
                Column("improvement", decimals=1),
                Column("rmse", decimals=5),
            ),
            rows(VERSIONS),
        ).span(12)
    )
    made.with_panel(
        listing(
            "Calibrations",
            "The latest 50.",
            (
                Column("created_at", width=190),
                Column("state", values=CALIBRATION_STATES, width=110),
                Column("duration", unit="s", width=100),
            ),
            rows(CALIBRATIONS),
        ).span(12)
    )
    made.with_panel(
        listing("Audit trail", "Who moved what when, the latest 50.", (Column("at", width=190),), rows(AUDIT))
    )
    made.with_row(dashboard.Row("Telemetry"))
    made.with_panel(
        listing(
            "Recordings",
            "The latest 50: what came with one boot_id.",
            (Column("first", width=190), Column("duration", unit="s"), Column("samples", unit="short")),
            rows(RECORDINGS),
        ).span(12)
    )
    made.with_panel(
        listing(
            "Dead letters",
            "The latest 50 refused and not stored since.",
            (Column("received_at", width=190), Column("reason", width=170)),
            rows(LETTERS),
        ).span(12)
    )
