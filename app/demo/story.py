"""The demonstration from end to end: robots with hidden truths in, calibrated twins out, through the product alone."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from app.demo.arm import arm_urdf
from app.demo.campaign import calibrate_fleet
from app.demo.client import ApiClient
from app.demo.display import Display
from app.demo.fleet import FLEET, DemoOptions, declaration, fleet
from app.demo.robots import RobotSpec
from app.demo.services import Running, services
from app.demo.tables import contrast_table, kind_table, parameter_table, robot_table
from app.demo.verdict import RobotOutcome, summary
from app.embedded.child import LOOPBACK
from app.errors import ServiceError, TwincalError
from app.settings import Settings

CHECK_S: Final = 0.5


def run_demo(options: DemoOptions, settings: Settings, console: Console) -> int:
    """Run the demonstration.

    Args:
        options: how many robots, and the like.
        settings: only `postgres_bin` counts: database and broker are the demonstration's own, in a folder that goes.
        console: where it is shown.

    Returns:
        The exit code: 0 if every robot has got a twin that its gate accepted, 1 otherwise.
    """
    display = Display(console)
    with _scratch_folder() as folder:
        own = settings.model_copy(update={"data_dir": folder, "database_url": None, "mqtt_url": None})
        with services(own, LOOPBACK, options.port, display.say) as running:
            key = running.twincal("keys", "create", "--scope", "admin")
            with ApiClient(running.api_url, key) as api:
                robots = fleet(options)
                _register(api, robots)
                display.say(
                    f"{len(robots)} robots registered; each moves for {options.duration_s:g} s, "
                    f"told {options.speed:g} times as fast"
                )
                with display:
                    outcomes = calibrate_fleet(api, running, display, options)
                _report(console, outcomes)
                _say_what_to_try(console, running, api, robots[0])
            if options.once:
                display.say("stopping; without --once everything stays up")
            else:
                console.print("Everything stays up. Ctrl-C ends it.")
                _stay_up(running)
    return 0 if all(outcome.accepted for outcome in outcomes) else 1


def _register(api: ApiClient, robots: Sequence[RobotSpec]) -> None:
    api.put(f"/fleets/{FLEET}", {})
    api.put_bytes(f"/fleets/{FLEET}/description", arm_urdf(), "application/xml")
    for spec in robots:
        api.put(f"/robots/{spec.robot}", declaration(spec))


def _report(console: Console, outcomes: Sequence[RobotOutcome]) -> None:
    for outcome in outcomes:
        console.print()
        if outcome.accepted:
            console.print(parameter_table(outcome))
        else:
            console.print(f"[bold red]{outcome.robot}: no twin is served[/]: {escape(outcome.reason)}")
    for table in (contrast_table(outcomes), kind_table(outcomes), robot_table(outcomes)):
        console.print()
        console.print(table)
    console.print()
    for line in summary(outcomes):
        console.print(line, highlight=False, soft_wrap=True)


def _say_what_to_try(console: Console, running: Running, api: ApiClient, spec: RobotSpec) -> None:
    """Lines to copy; the key in them can only read, and the second answers 304."""
    key = api.post("/keys", {"scopes": ["read"]})["token"]
    twin = f"{running.api_url}/v1/robots/{spec.robot}/twin"
    etag = api.etag(f"/robots/{spec.robot}/twin")
    console.print(f"\nAPI   {running.api_url}/docs\nMQTT  {running.mqtt_url}\nlogs  {running.logs}\n", highlight=False)
    lines = [f"curl -s -H 'Authorization: Bearer {key}' {twin}"]
    if etag is not None:
        lines.append(f"curl -si -H 'Authorization: Bearer {key}' -H 'If-None-Match: {etag}' {twin}")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _stay_up(running: Running) -> None:
    try:
        while True:
            running.check()
            time.sleep(CHECK_S)
    except KeyboardInterrupt:
        return


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder of this run's own, which goes with it; after an error it stays, for its logs."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="twincal-demo-"))
    except OSError as error:
        raise ServiceError(f"no folder for the demonstration's data: {error.strerror} (set TMPDIR)") from error
    # Under root Postgres runs as another user, who must be able to enter it.
    folder.chmod(0o711)
    keep = False
    try:
        yield folder
    except TwincalError:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
