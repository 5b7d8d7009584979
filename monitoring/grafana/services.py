"""The processes themselves: are they there, how busy, and how the API answers."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from monitoring.grafana.page import page
from monitoring.grafana.panels import GREEN, RED, limits, lines, number, stacked, states, with_limits, words
from monitoring.grafana.sources import now, over_time

OURS: Final = 'job=~"api|ingest|worker|monitor"'
MONITOR: Final = 'job="monitor"'
RATE: Final = "[$__rate_interval]"
# Streams of progress stay open as long as a calibration runs.
ANSWERS: Final = 'route!~".*/events"'


def build() -> dashboard.Dashboard:
    """The dashboard of services."""
    made = page("twincal-services", "Services", __doc__ or "")
    for job in ("api", "ingest", "worker", "monitor"):
        made.with_panel(
            number(job, "Processes that Prometheus reaches.", "none", now(f'sum(up{{job="{job}"}}) or vector(0)'))
            .thresholds(limits((1, GREEN), base=RED))
            .span(6)
        )
    made.with_panel(
        states("Up", "Whether Prometheus reached each process.", over_time(f"up{{{OURS}}}", "{{job}} {{instance}}"))
        .mappings([words({"0": ("down", RED), "1": ("up", GREEN)})])
        .height(7)
    )
    _api(made)
    _processes(made)
    return made


def _api(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("API"))
    made.with_panel(
        stacked(
            lines(
                "Requests",
                "Answered a second, by class of status.",
                "reqps",
                over_time(f"sum by (status) (rate(twincal_api_request_seconds_count{RATE}))", "{{status}}"),
            )
        )
    )
    buckets = f"rate(twincal_api_request_seconds_bucket{{{ANSWERS}}}{RATE})"
    made.with_panel(
        with_limits(
            lines(
                "Time to answer",
                "All routes, without streams of progress.",
                "s",
                over_time(f"histogram_quantile(0.5, sum by (le) ({buckets}))", "median"),
                over_time(f"histogram_quantile(0.99, sum by (le) ({buckets}))", "99 %"),
            ),
            (1, RED),
        )
    )
    made.with_panel(
        lines(
            "Slowest routes",
            "99 % of their answers take less, the ten slowest.",
            "s",
            over_time(
                f"topk(10, histogram_quantile(0.99, sum by (le, route, method) ({buckets})))", "{{method}} {{route}}"
            ),
        )
    )
    made.with_panel(
        lines(
            "Busiest routes",
            "Requests a second, the ten busiest.",
            "reqps",
            over_time(
                f"topk(10, sum by (route, method) (rate(twincal_api_request_seconds_count{RATE})))",
                "{{method}} {{route}}",
            ),
        )
    )


def _processes(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Processes"))
    made.with_panel(
        lines(
            "CPU",
            "Cores used; a worker's fits are children of their own and not in it.",
            "none",
            over_time(f"rate(process_cpu_seconds_total{{{OURS}}}{RATE})", "{{job}} {{instance}}"),
        )
    )
    made.with_panel(
        lines(
            "Memory",
            "Resident.",
            "bytes",
            over_time(f"process_resident_memory_bytes{{{OURS}}}", "{{job}} {{instance}}"),
        )
    )
    made.with_row(dashboard.Row("Monitor"))
    looks = f"histogram_quantile(0.9, sum by (le) (rate(twincal_monitor_pass_seconds_bucket{{{MONITOR}}}{RATE})))"
    made.with_panel(
        lines(
            "Looks at robots",
            "A second, by what they gave: scored, unmoved (nothing moved enough), unchanged (nothing new), failed.",
            "cps",
            over_time(f"sum by (outcome) (rate(twincal_monitor_looks_total{RATE}))", "{{outcome}}"),
        ).span(8)
    )
    made.with_panel(
        lines(
            "Time of a look at all robots",
            "90 % take less. Drift shows that much later.",
            "s",
            over_time(looks, "look"),
            over_time("max(twincal_exporter_read_seconds)", "exporter's read of the database"),
        ).span(8)
    )
    made.with_panel(
        lines(
            "Looks that failed",
            "A second, by what was at fault.",
            "cps",
            over_time(f"sum by (kind) (rate(twincal_monitor_failures_total{RATE}))", "{{kind}}"),
        ).span(8)
    )
