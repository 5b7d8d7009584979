"""Dashboards, rules and what they read, with everything real: the services, their database, and a Prometheus."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import numpy as np
import pytest
from sqlalchemy.engine import make_url

from app.database.engine import create_engine
from app.demo.services import Running, services
from app.ingest.broker import BrokerAddress
from app.ingest.encode import encode_json
from app.ingest.payload import JSON_CONTENT_TYPE
from app.ingest.replay import Publisher
from app.settings import Settings
from app.telemetry import SampleBatch
from tests.integration.ingesting import FLEET, register
from tests.integration.observing import (
    MONITORING,
    Prometheus,
    binary,
    filled_promql,
    filled_sql,
    prometheus,
    promql,
    rules,
    sql,
)

pytestmark = pytest.mark.slow

ROBOT = "arm-07"
OURS = 'job=~"api|ingest|worker|monitor"'
READER_PASSWORD = "of-a-test"
# Metrics of Prometheus itself and of its client's standard collectors.
STANDARD = {"up", "ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}
# What only shows once something ended or failed, which none did here.
QUIET = {"calibrations / Failed", "services / Looks that failed"}

# What of a fleet in service the panels show, apart from what the services themselves count.
FILL = f"""
    INSERT INTO twin_versions (robot, version, document, digest, state)
      SELECT '{ROBOT}', v, convert_to('{{"quality": {{"grade": "good", "improvement": 27.4,
        "holdout": {{"rmse_mean": 0.01}}}}, "structure": {{"friction": "coulomb"}}}}', 'UTF8'), 'sha256:' || v, s
      FROM (VALUES (1, 'retired'), (2, 'active')) AS versions (v, s);
    INSERT INTO drift (robot, version, state, since, scored_at, telemetry_at, score, worst_score, worst_joint)
      VALUES ('{ROBOT}', 2, 'drifted', now(), now(), now(), 2.5, 4.0, 'elbow');
    INSERT INTO drift_scores (robot, at, version, state, score, worst_score, worst_joint, per_joint)
      SELECT '{ROBOT}', now() - i * interval '1 minute', 2, 'ok', 1.0, 1.5, 'elbow', '{{"shoulder": 0.5, "elbow": 1.5}}'
      FROM generate_series(1, 3) AS i;
    INSERT INTO connections (robot, state, stamp, received_at) VALUES ('{ROBOT}', 'ONLINE', now(), now());
    INSERT INTO calibrations (robot, state, request, created_at, started_at, finished_at, trials, version)
      SELECT '{ROBOT}', s, '{{}}', now() - interval '10 minutes', now() - interval '9 minutes', f, 12, 2
      FROM (VALUES ('succeeded', now()), ('running', NULL)) AS jobs (s, f);
    INSERT INTO audit (robot, who, what, old, new, reason)
      VALUES ('{ROBOT}', 'local', 'activate', '1', '2', 'better');
    INSERT INTO recalibrations (robot, version, since, evidence, from_ns, to_ns, reason, proposed_at)
      VALUES ('{ROBOT}', 2, now(), 'elbow 4.0', 0, 1, 'elbow has drifted', now());
"""


@pytest.fixture(scope="module")
def running(service_dir: Path) -> Iterator[Running]:
    """All services, with a robot that has a history and sends."""
    binary("prometheus")
    settings = Settings(data_dir=service_dir / "monitoring")
    # One look at the beginning: the monitor leaves alone what is written here.
    with services(settings, "127.0.0.1", 0, monitor_options=("--interval-s", "3600")) as running:
        asyncio.run(_fill(running))
        yield running


async def _fill(running: Running) -> None:
    url = running.environment["TWINCAL_DATABASE_URL"]
    engine = create_engine(url)
    await register(engine, ROBOT)
    await engine.dispose()
    connection = await asyncpg.connect(url)
    await connection.execute(FILL)
    await connection.execute("SELECT set_config('twincal.reader_password', $1, false)", READER_PASSWORD)
    await connection.execute((MONITORING / "grafana" / "reader.sql").read_text())
    await connection.close()


def _message(seq: int) -> bytes:
    batch = SampleBatch(
        stamp_ns=time.time_ns(),
        dt_ns=np.array([0, 10**6], dtype=np.int64),
        names=("shoulder", "elbow"),
        channels={"position": np.zeros((2, 2))},
    )
    return encode_json(batch, "boot", seq)


@pytest.fixture(scope="module")
def observed(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped them and evaluated every rule."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), running.metrics_urls) as found:
        # What happens between two scrapes is what rates are made of.
        found.wait_until(lambda: found.value(f"count(up{{{OURS}}} == 1)") == 4, "every process is scraped")
        _use(running)
        found.wait_until(lambda: found.value("twincal:ingest_gaps:ratio_rate5m") is not None, "messages are counted")
        found.wait_until(lambda: all(r["health"] == "ok" for r in _rules_of(found)), "every rule is evaluated")
        yield found


def _use(running: Running) -> None:
    """Four messages that are stored, two that are missing among them, one that is refused, and a request."""
    with Publisher(BrokerAddress.parse(running.mqtt_url), client_id=ROBOT) as publisher:
        topic = f"twincal/v1/{FLEET}/{ROBOT}/telemetry/joints"
        for seq in (0, 1, 2, 5):
            publisher.publish(topic, _message(seq), JSON_CONTENT_TYPE)
        publisher.publish(topic, b"{", JSON_CONTENT_TYPE)
        publisher.flush()
    assert httpx.get(f"{running.api_url}/v1/robots").status_code == 401


def _rules_of(found: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in found.ask("rules")["groups"] for rule in group["rules"]]


def test_shares_of_refused_and_lost_messages_are_right(observed: Prometheus) -> None:
    observed.wait_until(
        lambda: observed.value("sum(twincal_ingest_messages_total)") == 5, "all five messages were scraped"
    )
    observed.wait_until(
        lambda: observed.value("twincal:ingest_dead_letters:ratio_rate5m") == pytest.approx(1 / 5), "1 of 5 refused"
    )
    assert observed.value("twincal:ingest_gaps:ratio_rate5m") == pytest.approx(2 / 6)


def test_every_process_and_every_robot_is_seen(observed: Prometheus) -> None:
    up = observed.ask("query", query=f"up{{{OURS}}}")["result"]
    assert {(series["metric"]["job"], series["value"][1]) for series in up} == {
        (job, "1") for job in ("api", "ingest", "worker", "monitor")
    }
    (score,) = observed.ask("query", query="twincal_robot_drift_score_ratio")["result"]
    assert (score["metric"]["robot_id"], score["value"][1]) == (ROBOT, "2.5")


def test_every_query_of_every_dashboard_has_an_answer(observed: Prometheus) -> None:
    empty = []
    for asked in promql():
        text = filled_promql(asked.text, ROBOT)
        now = time.time()
        if asked.instant:
            found = observed.ask("query", query=text)
        else:
            found = observed.ask("query_range", query=text, start=str(now - 60), end=str(now), step="1")
        if not found["result"]:
            empty.append(asked.where)
    assert set(empty) == QUIET, sorted(empty)
    assert len(promql()) > 60


def test_every_metric_that_dashboards_and_rules_name_exists(observed: Prometheus) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    texts = [asked.text for asked in promql()] + [rule["expr"] for rule in rules()]
    named = {name for text in texts for name in _metrics_in(text)}
    assert named - observed.names() - recorded - STANDARD == set()
    assert len(named) > 30


def _metrics_in(text: str) -> list[str]:
    return re.findall(r"\b(?:twincal[_:][\w:]+|up|ALERTS|process_\w+)\b(?=[{\[ )]|$)", re.sub(r'"[^"]*"', '""', text))


def test_every_rule_is_evaluated_without_an_error(observed: Prometheus) -> None:
    evaluated = _rules_of(observed)
    assert {rule["name"] for rule in evaluated} == {rule.get("alert", rule.get("record")) for rule in rules()}
    assert [(rule["name"], rule.get("lastError")) for rule in evaluated if rule["health"] != "ok"] == []


async def test_every_sql_query_of_every_dashboard_has_an_answer_for_the_role_that_only_reads(running: Running) -> None:
    reader = await asyncpg.connect(_reader_url(running))
    try:
        found = {asked: await reader.fetch(filled_sql(asked.text, ROBOT)) for asked in sql()}
    finally:
        await reader.close()
    assert [asked.where for asked, rows in found.items() if not rows] == []
    for asked, rows in found.items():
        names = list(rows[0].keys())
        if asked.format == "time_series":
            assert names == ["time", "metric", "value"], asked
            assert [row["time"] for row in rows] == sorted(row["time"] for row in rows), asked
        elif asked.format == "annotation":
            assert names[0] == "time", asked
            assert {"text", "tags"} <= set(names), asked
    assert len(found) > 15


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT token_sha256 FROM api_keys",
        "SELECT payload FROM dead_letters",
        "SELECT report_html FROM calibrations",
        "SELECT data FROM telemetry_batches",
        # Whoever has the role may switch its default off; it has no right to write besides.
        "BEGIN READ WRITE; DELETE FROM robots",
        "BEGIN READ WRITE; CREATE ROLE another",
        "BEGIN READ WRITE; CREATE TABLE scratch (x int)",
    ],
)
async def test_grafanas_role_reads_no_secret_and_writes_nothing(running: Running, statement: str) -> None:
    reader = await asyncpg.connect(_reader_url(running))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.execute(statement)
    finally:
        await reader.close()


def _reader_url(running: Running) -> str:
    url = make_url(running.environment["TWINCAL_DATABASE_URL"])
    return url.set(username="twincal_reader", password=READER_PASSWORD).render_as_string(hide_password=False)


async def test_the_role_is_not_made_without_a_password(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.RaiseError, match="set GRAFANA_DATABASE_PASSWORD"):
            await connection.execute((MONITORING / "grafana" / "reader.sql").read_text())
    finally:
        await connection.close()


def test_promtool_accepts_configuration_and_rules() -> None:
    checked = _promtool("check", "config", str(MONITORING / "prometheus" / "prometheus.yml"))
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("rules found") == len(list((MONITORING / "prometheus" / "rules").glob("*.yml")))


def test_alerts_fire_when_they_should_and_not_when_they_should_not() -> None:
    tested = _promtool("test", "rules", *map(str, sorted((MONITORING / "prometheus" / "tests").glob("*.yml"))))
    assert tested.returncode == 0, tested.stderr


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary("promtool"), *arguments], capture_output=True, text=True, check=False)
