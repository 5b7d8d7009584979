"""A real Prometheus with our own configuration and rules, and what dashboards and rules ask of it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "monitoring"
RULES = MONITORING / "prometheus" / "rules"
DEADLINE_S = 60.0
# In OpenMetrics, which most processes answer with, TYPE names the family, and its samples have these suffixes.
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("", "_total"), "info": ("_info",)}


def binary(name: str) -> str:
    """The path of prometheus or promtool, or a loud skip."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(
            f"NO {name.upper()} ON THIS MACHINE: rules and dashboards are NOT checked (apt-get install prometheus)"
        )
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one."""

    client: httpx.Client

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer that must be a success."""
        answer = self.client.get(f"/api/v1/{path}", params=parameters)
        body = answer.json()
        assert body["status"] == "success", f"{parameters}: {body.get('error')}"
        return body["data"]

    def value(self, query: str) -> float | None:
        """The only value of a query now; None without one."""
        found = self.ask("query", query=query)["result"]
        assert len(found) <= 1, query
        return float(found[0]["value"][1]) if found else None

    def names(self) -> set[str]:
        """Every metric that was scraped, by what its HELP and TYPE say."""
        found = set()
        for name, (metadata, *_) in self.ask("metadata").items():
            assert metadata["help"], name
            found |= {f"{name}{suffix}" for suffix in _SUFFIXES.get(metadata["type"], ("",))}
        return found

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, not for a time."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
            time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, metrics_urls: Mapping[str, str]) -> Iterator[Prometheus]:
    """One that scrapes these services every second, by our configuration but for where they are and how often."""
    config = yaml.safe_load((MONITORING / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES / "*.yml")]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for job in config["scrape_configs"]:
        job.pop("dns_sd_configs", None)
        url = metrics_urls.get(job["job_name"])
        job["static_configs"] = [{"targets": [address if url is None else urlsplit(url).netloc]}]
    (folder / "prometheus.yml").write_text(json.dumps(config))
    arguments = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [binary("prometheus"), *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=30.0) as client:
            running = Prometheus(client)
            running.wait_until(lambda: _is_ready(client, process), (folder / "prometheus.log").read_text())
            yield running
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _is_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    try:
        return client.get("/-/ready").is_success
    except httpx.TransportError:
        return False


def rules() -> list[dict[str, Any]]:
    """Every recording and alert rule."""
    files = sorted(RULES.glob("*.yml"))
    return [rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard as committed, by its file's name."""
    files = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text()) for file in files}


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a dashboard.

    Attributes:
        where: dashboard and panel, variable or annotation.
        text: PromQL or SQL, as committed.
        format: of SQL: table, time_series, variable or annotation; of PromQL empty.
        instant: whether PromQL is asked for one instant only.
    """

    where: str
    text: str
    format: str = ""
    instant: bool = False


def promql() -> list[Asked]:
    """Every PromQL expression of every dashboard."""
    return [
        Asked(f"{name} / {panel['title']}", target["expr"], instant=target.get("instant", False))
        for name, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        if "expr" in target
    ]


def sql() -> list[Asked]:
    """Every SQL query of every dashboard: of panels, variables and annotations."""
    found = []
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            targets = [target for target in panel.get("targets", ()) if "rawSql" in target]
            found += [Asked(f"{name} / {panel['title']}", target["rawSql"], target["format"]) for target in targets]
        for variable in dashboard["templating"]["list"]:
            if variable.get("datasource", {}).get("uid") == "${postgres}":
                found.append(Asked(f"{name} / ${variable['name']}", variable["query"], "variable"))
        for mark in dashboard.get("annotations", {}).get("list", ()):
            found.append(Asked(f"{name} / {mark['name']}", mark["target"]["rawSql"], "annotation"))
    return found


def filled_promql(text: str, robot: str) -> str:
    """PromQL as Grafana sends it."""
    filled = text.replace("$__rate_interval", "10s").replace("$fleet", ".*").replace("$robot", robot)
    assert "$" not in filled, filled
    return filled


def filled_sql(text: str, robot: str) -> str:
    """SQL as Grafana sends it."""
    filled = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '6 hours' AND now()", text)
    filled = filled.replace("${robot:sqlstring}", f"'{robot}'")
    assert "$" not in filled, filled
    return filled
