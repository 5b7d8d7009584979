"""`twincal demo` and `twincal up`: everything on this machine, nothing installed but Python."""

from __future__ import annotations

import signal
import threading
import time
from importlib.util import find_spec
from typing import Annotated

import typer

from app.errors import ServiceError


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("demo")(demo)
    app.command("up")(up)


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit after the report instead of staying up.")] = False,
    robots: Annotated[int, typer.Option(min=1, max=12, help="How many arms the simulated fleet has.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of hidden truths, motions and fits.")] = 0,
    duration_s: Annotated[float, typer.Option(min=20.0, max=600.0, help="How long each robot moves.")] = 60.0,
    speed: Annotated[float, typer.Option(min=0.1, max=100.0, help="Times faster than real time.")] = 6.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the API; 0 for any free one.")] = 0,
) -> None:
    """A simulated fleet with hidden truths, calibrated end to end on this machine.

    Exits with 1 if a robot got no twin.
    """
    if find_spec("mujoco") is None:
        raise ServiceError(
            "the simulated fleet needs MuJoCo, which plays reality (pip install 'twincal[demo,embedded]')"
        )
    from rich.console import Console

    from app.demo.fleet import DemoOptions
    from app.demo.story import run_demo
    from app.settings import Settings

    options = DemoOptions(robots=robots, seed=seed, duration_s=duration_s, speed=speed, port=port, once=once)
    console = Console()
    # A table is read by people and by scripts alike: not folded to 80 columns where there is no terminal.
    if not console.is_terminal:
        console = Console(width=140)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise typer.Exit(run_demo(options, Settings(), console))


def up(
    host: Annotated[str, typer.Option(help="Address the API listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the API; 0 for any free one.")] = 8080,
) -> None:
    """All services for real robots, with an embedded database and broker where the environment names none."""
    from app.demo.services import services
    from app.settings import Settings

    settings = Settings()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    began = time.monotonic()
    with services(settings, host, port, lambda line: typer.echo(f"{line} …")) as running:
        typer.echo(f"up after {time.monotonic() - began:.1f} s; Ctrl-C stops everything\n")
        for line in _next_steps(running.api_url, running.mqtt_url, str(settings.data_dir.absolute())):
            typer.echo(line)
        while not stop.wait(0.5):
            running.check()
        typer.echo("stopping …")


def _next_steps(api_url: str, mqtt_url: str, data_dir: str) -> list[str]:
    return [
        f"  API    {api_url}/v1    (description: {api_url}/docs)",
        f"  MQTT   {mqtt_url}    robots publish to twincal/v1/{{fleet}}/{{robot}}/telemetry/{{stream}}",
        f"  files  {data_dir}    (logs in {data_dir}/logs)",
        "",
        "next: make a key, register a robot, let it publish, calibrate",
        "  twincal keys create --scope admin",
        f"  curl -X PUT -H 'Authorization: Bearer KEY' --json @robot.json {api_url}/v1/robots/ROBOT",
        f"  curl -X POST -H 'Authorization: Bearer KEY' --json '{{}}' {api_url}/v1/robots/ROBOT/calibrations",
        f"  curl -H 'Authorization: Bearer KEY' {api_url}/v1/robots/ROBOT/twin",
    ]
