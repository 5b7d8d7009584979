"""Calibrations: what waits, how long fits take, how they end, and what the twins are worth."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from monitoring.grafana.page import CALIBRATION_STATES, page
from monitoring.grafana.panels import (
    ORANGE,
    RED,
    YELLOW,
    Column,
    bars,
    limits,
    lines,
    listing,
    number,
    stacked,
    with_limits,
)
from monitoring.grafana.sources import Query, now, over_time, rows, series

ROBOT_LINK: Final = "/d/twincal-robot?var-robot=${__value.raw}&${__url_time_range}"

UNFINISHED: Final = """
    SELECT robot, state, stage, progress, trials, created_at, extract(epoch FROM now() - created_at) AS age,
      attempts, requested_by
    FROM calibrations WHERE state IN ('queued', 'running') ORDER BY created_at LIMIT 100"""

ENDED: Final = """
    SELECT finished_at, robot, state, extract(epoch FROM started_at - created_at) AS waited,
      extract(epoch FROM finished_at - started_at) AS duration, trials, best, version, requested_by, reason
    FROM calibrations WHERE finished_at IS NOT NULL AND $__timeFilter(finished_at)
    ORDER BY finished_at DESC LIMIT 100"""

DRIFTS: Final = """
    SELECT robot, version, since, evidence, proposed_at, reason FROM recalibrations ORDER BY since DESC LIMIT 100"""

TRIALS: Final = """
    SELECT finished_at AS time, 'trials' AS metric, trials AS value
    FROM calibrations WHERE finished_at IS NOT NULL AND $__timeFilter(finished_at) ORDER BY finished_at"""

WAITED: Final = """
    SELECT started_at AS time, 'waited' AS metric, extract(epoch FROM started_at - created_at) AS value
    FROM calibrations WHERE started_at IS NOT NULL AND $__timeFilter(started_at) ORDER BY started_at"""

GRADES: Final = """
    SELECT count(*) FILTER (WHERE grade = 'good') AS good, count(*) FILTER (WHERE grade = 'fair') AS fair,
      count(*) FILTER (WHERE grade = 'poor') AS poor
    FROM (SELECT convert_from(document, 'UTF8')::jsonb #>> '{quality,grade}' AS grade
          FROM twin_versions WHERE state = 'active') AS active"""


def build() -> dashboard.Dashboard:
    """The dashboard of calibrations."""
    made = page("twincal-calibrations", "Calibrations", __doc__ or "")
    _now(made)
    _over_time(made)
    made.with_row(dashboard.Row("One by one"))
    made.with_panel(
        listing(
            "Unfinished",
            "The oldest first, at most 100.",
            (
                Column("robot", link=ROBOT_LINK),
                Column("state", values=CALIBRATION_STATES, width=110),
                Column("progress", unit="percentunit", width=110),
                Column("created_at", width=190),
                Column("age", unit="s", width=110),
                Column("attempts", width=90, limits=((2, ORANGE),)),
            ),
            rows(UNFINISHED),
        )
    )
    made.with_panel(
        listing(
            "Drifts under way",
            "What the monitor waits for; what has a reason is proposed and waits for somebody to start it.",
            (
                Column("robot", link=ROBOT_LINK),
                Column("version", width=90),
                Column("since", width=190),
                Column("proposed_at", width=190),
            ),
            rows(DRIFTS),
        )
    )
    made.with_panel(
        listing(
            "Ended",
            "In the chosen time, the latest first, at most 100. The reason is why it failed, or what the gate said.",
            (
                Column("finished_at", width=190),
                Column("robot", link=ROBOT_LINK),
                Column("state", values=CALIBRATION_STATES, width=110),
                Column("waited", unit="s", width=100),
                Column("duration", unit="s", width=100),
            ),
            rows(ENDED),
        )
    )
    return made


def _now(made: dashboard.Dashboard) -> None:
    def unfinished(state: str) -> Query:
        return now(f'max(twincal_calibrations_unfinished{{state="{state}"}})')

    def oldest(state: str) -> Query:
        return now(f'max(twincal_calibrations_oldest_seconds{{state="{state}"}})')

    made.with_panel(number("Waiting", "For a worker.", "none", unfinished("queued")).thresholds(limits((20, YELLOW))))
    made.with_panel(
        number("Waiting longest", "0 when none waits.", "s", oldest("queued")).thresholds(
            limits((900, YELLOW), (3600, RED))
        )
    )
    made.with_panel(number("Running", "On all workers.", "none", unfinished("running")))
    made.with_panel(
        number("Running longest", "0 when none runs.", "s", oldest("running")).thresholds(
            limits((1800, YELLOW), (7200, RED))
        )
    )
    made.with_panel(number("Workers", "That Prometheus reaches.", "none", now('sum(up{job="worker"})')))
    made.with_panel(
        number(
            "Failed",
            "Share of those that ended in the last hour.",
            "percentunit",
            now("twincal:calibrations_failed:ratio_increase1h"),
        ).thresholds(limits((0.2, YELLOW), (0.5, RED)))
    )
    made.with_panel(
        number(
            "Proposed",
            "Drifted robots whose calibration waits for somebody to start it.",
            "none",
            now("max(twincal_recalibrations_proposed)"),
        ).thresholds(limits((1, YELLOW)))
    )
    made.with_panel(
        bars("Active twins by grade", "How good the twins are that robots have now.", "none", rows(GRADES))
        .span(3)
        .height(4)
    )


def _over_time(made: dashboard.Dashboard) -> None:
    duration = "sum by (le) (rate(twincal_calibration_seconds_bucket[$__rate_interval]))"
    made.with_panel(
        stacked(
            lines(
                "Queue",
                "Calibrations waiting for a worker and running.",
                "none",
                over_time("max by (state) (twincal_calibrations_unfinished)", "{{state}}"),
            )
        )
    )
    made.with_panel(
        stacked(
            lines(
                "Outcomes",
                "Calibrations that ended, an hour, by how.",
                "none",
                over_time("sum by (state) (increase(twincal_calibrations_total[1h]))", "{{state}}"),
            )
        )
    )
    made.with_panel(
        lines(
            "Durations",
            "From a worker taking a calibration up to its end.",
            "s",
            over_time(f"histogram_quantile(0.5, {duration})", "median"),
            over_time(f"histogram_quantile(0.9, {duration})", "90 %"),
        ).span(8)
    )
    made.with_panel(
        with_limits(
            lines("Waited", "From being asked for to a worker taking it up.", "s", series(WAITED)).span(8), (3600, RED)
        )
    )
    made.with_panel(
        lines("Trials", "Tried by the search of each calibration that ended.", "none", series(TRIALS)).span(8)
    )
