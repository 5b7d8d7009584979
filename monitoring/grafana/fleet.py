"""How all robots are doing: which ones have drifted, which are silent, and the numbers behind it."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import common, dashboard
from grafana_foundation_sdk.models import dashboard as models

from monitoring.grafana.page import page, score_limits
from monitoring.grafana.panels import (
    CONNECTION,
    DRIFT_STATES,
    ORANGE,
    RED,
    YELLOW,
    Column,
    joined,
    limits,
    lines,
    listing,
    number,
    stacked,
    with_limits,
)
from monitoring.grafana.sources import PROMETHEUS, as_table, label_values, now, over_time

INFO: Final = 'max by (robot_id, fleet, version) (twincal_robot_twin_info{fleet=~"$fleet"})'


def of_fleet(metric: str) -> str:
    """A gauge of the chosen fleets' robots, once each however many monitors there are."""
    return f'max by (robot_id) ({metric} and on (robot_id) twincal_robot_twin_info{{fleet=~"$fleet"}})'


SCORE: Final = of_fleet("twincal_robot_drift_score_ratio")
WORST: Final = of_fleet("twincal_robot_worst_joint_drift_score_ratio")
STATE: Final = of_fleet("twincal_robot_drift_state")
AGE: Final = of_fleet("twincal_robot_telemetry_age_seconds")
CONNECTED: Final = of_fleet("twincal_robot_connected")

COLUMNS: Final = (
    Column("robot_id", "Robot", link="/d/twincal-robot?var-robot=${__value.raw}&${__url_time_range}"),
    Column("fleet", "Fleet"),
    Column("version", "Version", width=90),
    Column("Value #A", "State", values=DRIFT_STATES, width=110),
    Column("Value #B", "Score", decimals=2, limits=score_limits(), width=110),
    Column("Value #C", "Worst joint's score", decimals=2, limits=score_limits(), width=160),
    Column("Value #D", "Telemetry's age", unit="s", limits=((60, YELLOW), (300, ORANGE)), width=140),
    Column("Value #E", "Connection", values=CONNECTION, width=120),
)


def build() -> dashboard.Dashboard:
    """The dashboard of fleets."""
    return (
        page("twincal-fleet", "Fleet", __doc__ or "")
        .with_variable(
            dashboard.QueryVariable("fleet")
            .label("Fleet")
            .datasource(PROMETHEUS)
            .query(label_values("twincal_robot_twin_info", "fleet"))
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(models.VariableOption(text="All", value="$__all"))
        )
        .with_panel(number("Robots", "Registered robots of the chosen fleets.", "none", now(f"count({INFO})")))
        .with_panel(
            number(
                "Drifted",
                "Robots whose twin no longer describes them.",
                "none",
                now(f"count({STATE} == 2) or vector(0)"),
            ).thresholds(limits((1, RED)))
        )
        .with_panel(
            number(
                "Watch",
                "Robots whose twin begins to be off.",
                "none",
                now(f"count({STATE} == 1) or vector(0)"),
            ).thresholds(limits((1, YELLOW)))
        )
        .with_panel(
            number(
                "Stale",
                "Robots whose telemetry has stopped.",
                "none",
                now(f"count({STATE} == 4) or vector(0)"),
            ).thresholds(limits((1, ORANGE)))
        )
        .with_panel(
            number("Online", "Robots that say they are connected.", "none", now(f"sum({CONNECTED}) or vector(0)"))
        )
        .with_panel(
            number(
                "Median score",
                "Half of the watched robots are below; 1 is as good as when calibrated.",
                "none",
                now(f"quantile(0.5, {SCORE})"),
            )
            .decimals(2)
            .thresholds(limits(*score_limits()))
        )
        .with_panel(
            number(
                "Left out",
                "Robots without series of their own, of all fleets, because there are too many for Prometheus.",
                "none",
                now("max(twincal_robots_omitted)"),
            ).thresholds(limits((1, YELLOW)))
        )
        .with_panel(
            number(
                "Alerts",
                "Alerts of twincal that are firing.",
                "none",
                now('count(ALERTS{alertstate="firing", alertname=~"Twincal.*"}) or vector(0)'),
            ).thresholds(limits((1, RED)))
        )
        .with_panel(
            joined(
                listing(
                    "Robots",
                    "The worst first. Score: error on the latest motion as a multiple of the version's own baseline.",
                    COLUMNS,
                    as_table(STATE),
                    as_table(SCORE),
                    as_table(WORST),
                    as_table(AGE),
                    as_table(CONNECTED),
                    as_table(INFO),
                )
                .height(14)
                .sort_by([common.TableSortByFieldState().display_name("Score").desc(True)]),
                "robot_id",
                COLUMNS,
            )
        )
        .with_row(dashboard.Row("Over time"))
        .with_panel(
            with_limits(
                lines(
                    "Drift score",
                    "How scores are spread over the chosen fleets. All rising together is a change of work or of "
                    "software rather than of each robot.",
                    "none",
                    over_time(f"quantile(0.5, {SCORE})", "median"),
                    over_time(f"quantile(0.9, {SCORE})", "90 %"),
                    over_time(f"max({SCORE})", "highest"),
                ),
                *score_limits(),
            )
        )
        .with_panel(
            with_limits(
                lines(
                    "The ten highest scores",
                    "Of the chosen fleets, at each instant.",
                    "none",
                    over_time(f"topk(10, {SCORE})", "{{robot_id}}"),
                ),
                *score_limits(),
            )
        )
        .with_panel(
            stacked(
                lines(
                    "Robots by state",
                    "Of all fleets; unwatched: without an active version, or not scored yet.",
                    "none",
                    over_time("max by (state) (twincal_robots)", "{{state}}"),
                )
            )
        )
        .with_panel(
            lines(
                "Telemetry's age",
                "Time since the latest sample of robots that say they are online.",
                "s",
                over_time(f"quantile(0.5, {AGE} and on (robot_id) twincal_robot_connected == 1)", "median"),
                over_time(f"max({AGE} and on (robot_id) twincal_robot_connected == 1)", "oldest"),
            )
        )
    )
