"""`twincal demo` and `twincal up`: everything on this machine, nothing installed but Python."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.errors import ServiceError

if TYPE_CHECKING:
    from app.demo.services import Running

_CHECK_S: Final = 0.5


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("demo")(demo)
    app.command("up")(up)


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit after the report instead of staying up.")] = False,
    robots: Annotated[int, typer.Option(min=1, max=12, help="How many arms the simulated fleet has.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of hidden truths, motions and fits.")] = 0,
    duration_s: Annotated[float, typer.Option(min=20.0, max=600.0, help="Each robot's motion to calibrate it.")] = 30.0,
    speed: Annotated[float, typer.Option(min=0.1, max=100.0, help="Times faster than real time that is told.")] = 3.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the API; 0 for any free one.")] = 0,
) -> None:
    """A simulated fleet with hidden truths, calibrated end to end on this machine, and again when one robot wears.

    Exits with 1 if a robot got no twin, if the wear wasn't noticed and answered, or if anything else was.
    """
    for module in ("mujoco", "httpx"):
        if find_spec(module) is None:
            raise ServiceError(
                f"the simulated fleet needs {module}, which isn't installed (pip install 'twincal[demo,embedded]')"
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with services(settings, host, port, lambda line: typer.echo(f"{line} …")) as running:
            typer.echo(f"up after {time.monotonic() - began:.1f} s; Ctrl-C stops everything\n")
            for line in _next_steps(running, settings.data_dir):
                typer.echo(line)
            _watch(running)
            typer.echo("stopping …")
    except KeyboardInterrupt:
        # While it was starting, or a second time.
        typer.echo("stopped early")
    else:
        typer.echo("stopped")


def _watch(running: Running) -> None:
    """Return on Ctrl-C.

    Raises:
        ServiceError: when a service ends.
    """
    try:
        while True:
            running.check()
            time.sleep(_CHECK_S)
    except KeyboardInterrupt:
        return


def _next_steps(running: Running, data_dir: Path) -> list[str]:
    twincal, api_url = _typed_command(data_dir), running.api_url
    return [
        f"  API    {api_url}/v1    (description: {api_url}/docs)",
        f"  MQTT   {running.mqtt_url}    robots publish to twincal/v1/{{fleet}}/{{robot}}/telemetry/{{stream}}",
        f"  gauges {running.metrics_urls['monitor']}    of all robots, for Prometheus",
        f"  files  {data_dir.absolute()}    (logs of the services in {data_dir}/logs)",
        "",
        "next, in another shell in this folder:",
        f"  {twincal} robots put robot.yaml",
        f"  {twincal} replay --robot robot.yaml --log log.csv      (or let the robot itself publish)",
        f"  {twincal} calibrate ROBOT",
        f"  KEY=$({twincal} keys create --scope read)",
        f'  curl -H "Authorization: Bearer $KEY" {api_url}/v1/robots/ROBOT/twin',
    ]


def _typed_command(data_dir: Path) -> str:
    """What a shell in this folder has to be given to run `twincal` on these services."""
    from app.settings import Settings

    program = "twincal" if shutil.which("twincal") else shlex.quote(sys.argv[0])
    return (
        program
        if data_dir == Settings.model_fields["data_dir"].default
        else f"TWINCAL_DATA_DIR={shlex.quote(str(data_dir))} {program}"
    )
