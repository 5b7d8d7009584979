"""What docker-compose.yml claims exists in the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.command_line import commands, setting_names

ROOT = Path(__file__).parents[2]
OURS = ("migrate", "api", "ingest", "worker", "monitor")
OBSERVERS = ("prometheus", "grafana", "grafana-reader")
SCRAPED = ("api", "ingest", "worker", "monitor")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return parsed


def test_it_describes_the_service_and_what_it_needs(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"postgres", "broker", *OURS, *OBSERVERS}


@pytest.mark.parametrize("name", OURS)
def test_every_command_and_option_exists(services: dict[str, dict[str, Any]], name: str) -> None:
    command, *arguments = services[name]["command"]
    known = commands()
    assert command in known
    assert {word for word in arguments if word.startswith("--")} <= known[command]


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting(services: dict[str, dict[str, Any]], name: str) -> None:
    variables = set(services[name]["environment"])
    assert {"TWINCAL_DATABASE_URL"} <= variables <= setting_names()


def test_only_the_api_is_open_to_the_network(services: dict[str, dict[str, Any]]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert set(published) == {"api", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in published["grafana"])


def test_the_api_is_published_on_the_port_it_listens_on(services: dict[str, dict[str, Any]]) -> None:
    assert [entry.rsplit(":", 1)[1] for entry in services["api"]["ports"]] == [_option(services["api"], "--port")]


@pytest.mark.parametrize(
    ("name", "option", "path"),
    [
        ("api", "--port", "livez"),
        ("ingest", "--metrics-port", "livez"),
        ("worker", "--metrics-port", "metrics"),
        ("monitor", "--metrics-port", "metrics"),
    ],
)
def test_health_is_asked_of_the_port_that_is_listened_on(
    services: dict[str, dict[str, Any]], name: str, option: str, path: str
) -> None:
    service = services[name]
    assert f"'http://127.0.0.1:{_option(service, option)}/{path}'" in service["healthcheck"]["test"][-1]


def _option(service: dict[str, Any], name: str) -> str:
    command: list[str] = service["command"]
    return command[command.index(name) + 1]


def test_urls_name_services_and_the_ports_these_listen_on(services: dict[str, dict[str, Any]]) -> None:
    environment = services["ingest"]["environment"]
    broker = re.search(r"^listener (\d+)", (ROOT / "deploy/mosquitto/mosquitto.conf").read_text(), re.MULTILINE)
    assert broker is not None
    assert environment["TWINCAL_MQTT_URL"].endswith(f"@broker:{broker[1]}")
    assert re.search(r"@postgres:5432/twincal$", environment["TWINCAL_DATABASE_URL"])


def test_services_wait_for_what_they_need(services: dict[str, dict[str, Any]]) -> None:
    for name in ("api", "ingest", "worker", "monitor"):
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert services[name]["restart"] == "unless-stopped"
    assert services["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert services["migrate"]["restart"] == "no"
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[needed], f"{name} waits for {needed} to be healthy"


@pytest.mark.parametrize("name", [*OURS, *OBSERVERS])
def test_services_can_write_nowhere_and_gain_nothing(services: dict[str, dict[str, Any]], name: str) -> None:
    service = services[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", SCRAPED)
def test_prometheus_scrapes_where_metrics_are_served(services: dict[str, dict[str, Any]], name: str) -> None:
    jobs = yaml.safe_load((ROOT / "monitoring/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["dns_sd_configs"] for job in jobs if "dns_sd_configs" in job}
    assert set(targets) == set(SCRAPED)
    (found,) = targets[name]
    assert (found["names"], found["type"]) == ([name], "A")
    assert str(found["port"]) == _option(services[name], "--metrics-port")
    assert _option(services[name], "--metrics-host") == "0.0.0.0"


def test_grafana_finds_its_sources_and_dashboards(services: dict[str, dict[str, Any]]) -> None:
    folder = ROOT / "monitoring/grafana/provisioning"
    prometheus, postgres = yaml.safe_load((folder / "datasources/twincal.yml").read_text())["datasources"]
    environment = services["grafana"]["environment"]
    assert prometheus["url"] == "http://prometheus:9090"
    assert postgres["url"] == "postgres:5432"
    assert postgres["secureJsonData"]["password"].removeprefix("$") in environment
    (provider,) = yaml.safe_load((folder / "dashboards/twincal.yml").read_text())["providers"]
    mounted = {entry.split(":")[1]: ROOT / entry.split(":")[0] for entry in services["grafana"]["volumes"]}
    assert mounted[provider["options"]["path"]] == ROOT / "monitoring/grafana/dashboards"
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).exists()


def test_every_variable_to_be_set_is_in_the_example() -> None:
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    example = set(re.findall(r"^([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert used == example


def test_every_mounted_file_exists(services: dict[str, dict[str, Any]]) -> None:
    mounted = [entry.split(":")[0] for service in services.values() for entry in service.get("volumes", ())]
    assert [path for path in mounted if path.startswith(".") and not (ROOT / path).exists()] == []


def test_the_image_copies_files_that_exist_and_that_its_build_may_see() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    visible = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists()
        assert path in visible


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="docker-compose is not installed: the file is NOT checked against the compose specification",
)
def test_docker_compose_accepts_it() -> None:
    result = subprocess.run(
        ["docker-compose", "--file", ROOT / "docker-compose.yml", "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
