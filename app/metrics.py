"""Every Prometheus metric, in one place: names end in their unit, no label grows with the number of robots."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

# Ingest: robots' messages into rows.

ingest_messages: Final = Counter(
    "twincal_ingest_messages_total",
    "Messages by what became of them: stored, duplicate, dead_letter, retained, connection.",
    ["outcome"],
)
ingest_samples: Final = Counter("twincal_ingest_samples_total", "Samples stored: rows of all of a robot's joints.")
ingest_dead_letters: Final = Counter("twincal_ingest_dead_letters_total", "Messages refused, by reason.", ["reason"])
ingest_commit_seconds: Final = Histogram(
    "twincal_ingest_commit_seconds",
    "Time a batch took from its first statement to its commit.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
ingest_commit_failures: Final = Counter(
    "twincal_ingest_commit_failures_total",
    "Commits that failed: transient (tried again), row (one message set aside), lasting (given back to the broker).",
    ["kind"],
)
ingest_lag_seconds: Final = Histogram(
    "twincal_ingest_lag_seconds",
    "Time from receipt of a message to the commit that stored it.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
ingest_clock_skew_seconds: Final = Histogram(
    "twincal_ingest_clock_skew_seconds",
    "Distance between our receipt and the robot's own stamp of a message's last sample, either way.",
    buckets=(0.1, 1, 5, 30, 60, 300, 3600, 86400),
)
ingest_sequence_gaps: Final = Counter(
    "twincal_ingest_sequence_gaps_total", "Messages missing by their robots' own numbers: lost before they reached us."
)
ingest_buffered_bytes: Final = Gauge("twincal_ingest_buffered_bytes", "Payload bytes received and not yet committed.")
ingest_connected: Final = Gauge("twincal_ingest_connected", "1 while subscribed at the broker, else 0.")
ingest_disconnects: Final = Counter(
    "twincal_ingest_disconnects_total",
    "Connections that ended: lost, refused, silent, buffer_full, commit_failed, stopping.",
    ["cause"],
)

# API: requests by route template, never by path.

api_request_seconds: Final = Histogram(
    "twincal_api_request_seconds",
    "Time from a request's first byte to its answer's last, by route template, method and class of status.",
    ["route", "method", "status"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)

# Calibration: jobs and what became of them.

calibrations_ended: Final = Counter(
    "twincal_calibrations_total", "Calibrations ended, by how: succeeded, failed, cancelled.", ["state"]
)
calibration_seconds: Final = Histogram(
    "twincal_calibration_seconds",
    "Time from a worker taking a calibration up to its end.",
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600),
)

# Monitor: drift of live robots. What is said of each robot is read from the database (app.monitor.exporter).

monitor_last_pass: Final = Gauge(
    "twincal_monitor_last_pass_timestamp_seconds",
    "When the monitor last looked at all live robots to the end, seconds since the epoch.",
)
monitor_pass_seconds: Final = Histogram(
    "twincal_monitor_pass_seconds",
    "Time one look at all live robots took.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120),
)
monitor_active: Final = Gauge(
    "twincal_monitor_active", "1 while this monitor is the one at work, 0 while it stands by."
)
monitor_passes: Final = Counter(
    "twincal_monitor_passes_total", "Passes over all live robots, by how they ended: done, failed.", ["outcome"]
)
monitor_robots: Final = Gauge("twincal_monitor_robots", "Robots that the last pass looked at.")
monitor_looks: Final = Counter(
    "twincal_monitor_looks_total",
    "Looks at a robot, by what they gave: scored, unmoved (nothing moved enough), unchanged (no new window), failed.",
    ["outcome"],
)
monitor_failures: Final = Counter(
    "twincal_monitor_failures_total",
    "Looks that failed, by what was at fault: declaration, description, version, telemetry, simulation, database, "
    "unexpected.",
    ["kind"],
)

# A series that first appears with its first event hides that event: Prometheus' increase() needs a value before it.
for _counter, _values in (
    (ingest_messages, ("stored", "duplicate", "dead_letter", "retained", "connection")),
    (ingest_commit_failures, ("transient", "row", "lasting")),
    (ingest_disconnects, ("lost", "refused", "silent", "buffer_full", "commit_failed", "stopping")),
    (calibrations_ended, ("succeeded", "failed", "cancelled")),
    (monitor_passes, ("done", "failed")),
    (monitor_looks, ("scored", "unmoved", "unchanged", "failed")),
):
    for _value in _values:
        _counter.labels(_value)
