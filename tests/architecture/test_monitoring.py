"""What dashboards, rules and the runbook claim, without running anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import REGISTRY

import app.metrics  # noqa: F401 - registers what every process exposes
from app.monitor.exporter import RobotCollector
from monitoring.grafana.generate import FOLDER, render

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring" / "prometheus"
SEVERITIES = {"critical", "warning", "info"}
DASHBOARDS = sorted(FOLDER.glob("*.json"))


def test_the_dashboards_are_what_their_code_makes() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.iterdir()}
    differing = {name for name, text in render().items() if committed.get(name) != text}
    assert differing == set(), "run `make dashboards`"
    assert committed.keys() == render().keys()


def _read(path: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(path.read_text())
    return dashboard


def _panels(path: Path) -> Iterator[dict[str, Any]]:
    return (panel for panel in _read(path)["panels"] if panel["type"] != "row")


def test_uids_never_change_and_links_lead_to_dashboards() -> None:
    uids = {_read(path)["uid"] for path in DASHBOARDS}
    assert uids == {f"twincal-{path.stem}" for path in DASHBOARDS}
    linked = {uid for path in DASHBOARDS for uid in re.findall(r'"/d/([\w-]+)', path.read_text())}
    assert linked == {"twincal-robot"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafanas_own_types_read_a_dashboard_without_losing_anything(path: Path) -> None:
    register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(_read(path)), cls=JSONEncoder))
    committed = _read(path)
    # An annotation's SQL is a datasource's own, which these types don't have.
    for dashboard in (read, committed):
        for mark in dashboard.get("annotations", {}).get("list", ()):
            del mark["target"]
    assert read == committed


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_says_what_it_shows_in_which_unit(path: Path) -> None:
    for panel in _panels(path):
        assert panel["description"], panel["title"]
        if panel["type"] in {"timeseries", "stat", "bargauge"}:
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    titles = [panel["title"] for panel in _panels(path)]
    assert titles
    assert all(titles)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_asks_a_datasource_that_can_be_chosen(path: Path) -> None:
    chosen = {variable["name"] for variable in _read(path)["templating"]["list"] if variable["type"] == "datasource"}
    assert chosen == {"prometheus", "postgres"}
    for panel in _panels(path):
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids <= {"${prometheus}", "${postgres}"}, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)), panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_lie_beside_one_another_and_within_the_page(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _read(path)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_rates_follow_the_scrape_interval(path: Path) -> None:
    for panel in _panels(path):
        for target in panel["targets"]:
            assert re.findall(r"\brate\([^[\]]*\[(?!\$__rate_interval\])", target.get("expr", "")) == [], panel["title"]


def _alerts() -> dict[str, dict[str, Any]]:
    files = sorted((RULES / "rules").glob("*.yml"))
    found = [rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in found if "alert" in rule}


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    sections = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE))
    assert sections == set(_alerts())
    for name, rule in _alerts().items():
        assert rule["labels"]["severity"] in SEVERITIES, name
        assert {"summary", "description"} <= rule["annotations"].keys(), name
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert name.startswith("Twincal"), name


def test_every_section_of_the_runbook_says_what_it_means_where_to_see_it_and_what_to_do() -> None:
    _, *sections = re.split(r"^### ", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)
    for section in sections:
        assert re.findall(r"^\*\*(\w+)\*\*", section, re.MULTILINE) == ["Means", "See", "Do"], section.split("\n")[0]


def test_panels_that_the_runbook_names_exist() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text()
    named = set(re.findall(r"\*([A-Z][^*\n]+)\*(?!\*)", re.sub(r"\*\*\w+\*\*", "", text)))
    titles = {panel["title"] for path in DASHBOARDS for panel in _read(path)["panels"]}
    titles |= {_read(path)["title"].removeprefix("twincal / ") for path in DASHBOARDS}
    titles |= {"Telemetry's age"}
    assert named - titles == set()
    assert len(named) > 15


def test_every_alert_is_proved_to_fire_and_not_to_fire() -> None:
    fires: set[str] = set()
    quiet: set[str] = set()
    for file in sorted((RULES / "tests").glob("*.yml")):
        for case in yaml.safe_load(file.read_text())["tests"]:
            for expected in case["alert_rule_test"]:
                (fires if expected["exp_alerts"] else quiet).add(expected["alertname"])
    assert fires == set(_alerts())
    assert quiet == set(_alerts())


def test_drift_waits_for_samples_and_for_ten_minutes() -> None:
    drifted = _alerts()["TwincalRobotDrifted"]
    assert drifted["for"] == "10m"
    assert "count_over_time" in drifted["expr"]


def test_every_metric_is_in_the_operations_document() -> None:
    described = [family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()]
    collector = RobotCollector("postgresql://nobody@127.0.0.1:1/nowhere")
    described += [family.name + ("_info" if family.type == "info" else "") for family in collector.describe()]
    collector.close()
    ours = {name for name in described if name.startswith("twincal_")}
    text = (ROOT / "docs" / "operations.md").read_text()
    assert sorted(name for name in ours if f"`{name}`" not in text) == []
    assert len(ours) > 25
