"""What every dashboard has in common: name, time range, links to the others."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from app.monitor.score import UNUSUAL
from monitoring.grafana.panels import BLUE, GREEN, GREY, ORANGE, RED, YELLOW
from monitoring.grafana.sources import SOURCES

TAG: Final = "twincal"

CALIBRATION_STATES: Final = {
    "queued": ("queued", GREY),
    "running": ("running", BLUE),
    "succeeded": ("succeeded", GREEN),
    "failed": ("failed", RED),
    "cancelled": ("cancelled", ORANGE),
}
VERSION_STATES: Final = {
    "candidate": ("candidate", BLUE),
    "active": ("active", GREEN),
    "retired": ("retired", GREY),
    "rejected": ("rejected", ORANGE),
}


def page(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """An empty dashboard with a uid that stays, so that links to it stay."""
    others = (
        dashboard.DashboardLink("twincal")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .keep_time(True)
        .include_vars(False)
    )
    made = (
        dashboard.Dashboard(f"twincal / {title}")
        .uid(uid)
        .description(description.splitlines()[0])
        .tags([TAG])
        .link(others)
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .editable()
    )
    for source in SOURCES:
        made.with_variable(source)
    return made


def score_limits() -> tuple[tuple[float, str], ...]:
    """From which drift score on what colour: red is where it speaks for drift."""
    return ((0.75 * UNUSUAL, YELLOW), (UNUSUAL, RED))
