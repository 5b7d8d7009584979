"""Telemetry on its way in: how much, what is refused, and how far behind the database is."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from monitoring.grafana.page import page
from monitoring.grafana.panels import (
    GREEN,
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
    words,
)
from monitoring.grafana.sources import now, over_time, rows

RATE: Final = "[$__rate_interval]"

LETTERS: Final = """
    SELECT received_at, robot, fleet, reason, detail, topic, payload_bytes AS bytes
    FROM dead_letters WHERE replayed_at IS NULL AND $__timeFilter(received_at) ORDER BY id DESC LIMIT 100"""


def rate(counter: str, *by: str) -> str:
    """Events a second, of all ingesters together."""
    words_by = f" by ({', '.join(by)})" if by else ""
    return f"sum{words_by} (rate(twincal_ingest_{counter}{RATE}))"


def quantile(q: float, histogram: str) -> str:
    """A quantile of a histogram, of all ingesters together."""
    return f"histogram_quantile({q}, sum by (le) (rate(twincal_ingest_{histogram}_bucket{RATE})))"


def build() -> dashboard.Dashboard:
    """The dashboard of ingest."""
    made = page("twincal-ingest", "Ingest", __doc__ or "")
    _now(made)
    _flow(made)
    _refused(made)
    _database(made)
    return made


def _now(made: dashboard.Dashboard) -> None:
    connected = {"0": ("cut off", RED), "1": ("subscribed", GREEN)}
    made.with_panel(
        number(
            "Ingesters",
            "The worst: subscribed at the broker, or cut off.",
            "none",
            now('min(twincal_ingest_connected{job="ingest"})'),
        )
        .mappings([words(connected)])
        .thresholds(limits(base="text"))
    )
    made.with_panel(number("Messages", "Received a second.", "mps", now(rate("messages_total"))).decimals(1))
    made.with_panel(
        number("Samples", "Stored a second: rows of all of a robot's joints.", "cps", now(rate("samples_total")))
    )
    made.with_panel(
        number("Lag", "Of 99 % of messages, from receipt to commit.", "s", now(quantile(0.99, "lag_seconds")))
        .decimals(2)
        .thresholds(limits((1, YELLOW), (5, RED)))
    )
    made.with_panel(
        number("Refused", "Share of messages.", "percentunit", now("twincal:ingest_dead_letters:ratio_rate5m"))
        .decimals(2)
        .thresholds(limits((0.001, YELLOW), (0.01, RED)))
    )
    made.with_panel(
        number("Lost", "Share of messages that never came.", "percentunit", now("twincal:ingest_gaps:ratio_rate5m"))
        .decimals(3)
        .thresholds(limits((0.0001, YELLOW), (0.001, RED)))
    )
    made.with_panel(
        number(
            "Buffered", "Received and not committed.", "bytes", now("sum(twincal_ingest_buffered_bytes)")
        ).thresholds(limits((16 << 20, YELLOW), (64 << 20, RED)))
    )
    made.with_panel(
        number(
            "Dead letters",
            "Kept and not stored since.",
            "short",
            now("sum(max by (reason) (twincal_dead_letters_pending)) or vector(0)"),
        ).thresholds(limits((1, YELLOW)))
    )


def _flow(made: dashboard.Dashboard) -> None:
    made.with_panel(
        stacked(
            lines(
                "Messages",
                "By what became of them. Duplicates are repeats after a reconnect, and harmless.",
                "mps",
                over_time(rate("messages_total", "outcome"), "{{outcome}}"),
            )
        )
    )
    made.with_panel(
        lines("Samples", "Stored a second.", "cps", over_time(rate("samples_total"), "samples")),
    )
    made.with_panel(
        with_limits(
            lines(
                "Lag",
                "From receipt to commit: what a fresh sample waits for.",
                "s",
                over_time(quantile(0.5, "lag_seconds"), "median"),
                over_time(quantile(0.99, "lag_seconds"), "99 %"),
            ),
            (5, RED),
        )
    )
    made.with_panel(
        with_limits(
            lines(
                "Buffer",
                "Payload received and not committed, by ingester. At the red line the broker has to wait.",
                "bytes",
                over_time('twincal_ingest_buffered_bytes{job="ingest"}', "{{instance}}"),
            ),
            (64 << 20, RED),
        )
    )


def _refused(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Refused and lost"))
    made.with_panel(
        stacked(
            lines(
                "Dead letters",
                "Refused a second, by reason; docs/protocol.md says what each means.",
                "mps",
                over_time(rate("dead_letters_total", "reason"), "{{reason}}"),
            )
        )
    )
    made.with_panel(
        bars(
            "Dead letters kept",
            "Not stored since, by reason. Once the cause is gone: twincal dead-letters replay.",
            "short",
            now("max by (reason) (twincal_dead_letters_pending)", "{{reason}}"),
        )
    )
    made.with_panel(
        lines(
            "Sequence gaps",
            "Messages a second that are missing by the robots' own numbers: lost before they reached us.",
            "mps",
            over_time(rate("sequence_gaps_total"), "missing"),
        )
    )
    made.with_panel(
        lines(
            "Clock skew",
            "Distance between a robot's stamp and our receipt, either way.",
            "s",
            over_time(quantile(0.5, "clock_skew_seconds"), "median"),
            over_time(quantile(0.99, "clock_skew_seconds"), "99 %"),
        )
    )
    made.with_panel(
        listing(
            "The latest dead letters",
            "Of the chosen time, at most 100, without their payloads (twincal dead-letters show ID).",
            (
                Column("received_at", width=190),
                Column("robot", link="/d/twincal-robot?var-robot=${__value.raw}&${__url_time_range}"),
                Column("reason", width=170),
                Column("bytes", unit="bytes", width=100),
            ),
            rows(LETTERS),
        )
    )


def _database(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Broker and database"))
    made.with_panel(
        lines(
            "Commits",
            "Time a batch takes from its first statement to its commit.",
            "s",
            over_time(quantile(0.5, "commit_seconds"), "median"),
            over_time(quantile(0.99, "commit_seconds"), "99 %"),
        ).span(8)
    )
    made.with_panel(
        lines(
            "Commits that failed",
            "Transient ones are tried again; lasting ones go back to the broker; row sets one message aside.",
            "cps",
            over_time(rate("commit_failures_total", "kind"), "{{kind}}"),
        ).span(8)
    )
    made.with_panel(
        with_limits(
            lines(
                "Disconnects",
                "Connections to the broker that ended in the last 15 minutes, by cause.",
                "none",
                over_time("sum by (cause) (increase(twincal_ingest_disconnects_total[15m]))", "{{cause}}"),
            ),
            (3, ORANGE),
        ).span(8)
    )
