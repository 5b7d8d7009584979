"""The demonstration from end to end: robots with hidden truths in, twins that stay true out, by the product alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from app.demo.arm import arm_urdf
from app.demo.campaign import Campaign
from app.demo.client import ApiClient
from app.demo.course import Course
from app.demo.display import Display
from app.demo.fleet import FLEET, RECALIBRATION, DemoOptions, declaration, fleet
from app.demo.robots import RobotSpec, on_duty
from app.demo.services import Running, services
from app.demo.tables import (
    contrast_table,
    drift_table,
    friction_table,
    kind_table,
    parameter_table,
    robot_table,
    step_table,
    trail_table,
)
from app.demo.verdict import RobotOutcome, summary
from app.demo.wear import WearOutcome, wear_summary
from app.embedded.child import LOOPBACK
from app.errors import ServiceError, TwincalError
from app.settings import Settings

MONITOR_OPTIONS: Final = ("--interval-s", "3", "--history-s", "3")
"""It looks more often than it does by itself, so that there is something to see."""


def run_demo(options: DemoOptions, settings: Settings, console: Console) -> int:
    """Run the demonstration.

    Args:
        options: how many robots, and the like.
        settings: only `postgres_bin` counts: database and broker are the demonstration's own, in a folder that goes.
        console: where it is shown.

    Returns:
        The exit code: 0 if every robot has got a twin that its gate accepted, and only the robot that wore was
        calibrated again and has been well since; 1 otherwise.
    """
    display = Display(console)
    with _scratch_folder() as folder:
        own = settings.model_copy(update={"data_dir": folder, "database_url": None, "mqtt_url": None})
        with services(own, LOOPBACK, options.port, display.say, MONITOR_OPTIONS) as running:
            key = running.twincal("keys", "create", "--scope", "admin")
            with ApiClient(running.api_url, key) as api:
                specs = fleet(options)
                _register(api, specs)
                display.say(
                    f"{len(specs)} robots registered; each moves for {options.duration_s:g} s, "
                    f"told {options.speed:g} times as fast, is calibrated, and goes to work"
                )
                with on_duty(specs, running.mqtt_url) as robots:
                    courses = [Course.of(robot) for robot in robots]
                    campaign = Campaign(api, running, display, options)
                    as_promised = _run(campaign, courses, display)
                    _say_what_to_try(console, running, api, courses)
                    if options.once:
                        display.say("stopping; without --once everything stays up")
                    else:
                        console.print("Everything stays up, and the robots go on working. Ctrl-C ends it.\n")
                        with display:
                            campaign.watch(courses)
    return 0 if as_promised else 1


def _run(campaign: Campaign, courses: Sequence[Course], display: Display) -> bool:
    """Calibrate the fleet, let one robot wear, and report; whether everything went as promised."""
    console = display.console
    with display:
        outcomes = campaign.calibrate(courses)
        accepted = all(outcome.accepted for outcome in outcomes)
        # A robot without a twin can't drift from it.
        worn = campaign.wear_one(courses) if accepted else None
    _report(console, outcomes)
    if worn is None:
        return False
    _report_wear(console, worn)
    return worn.happened


def _register(api: ApiClient, robots: Sequence[RobotSpec]) -> None:
    api.put(f"/fleets/{FLEET}", {"recalibration": RECALIBRATION})
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


def _report_wear(console: Console, worn: WearOutcome) -> None:
    tables = [drift_table(worn), step_table(worn), trail_table(worn)]
    if worn.again is not None:
        tables.insert(1, friction_table(worn))
    for table in tables:
        console.print()
        console.print(table)
    console.print()
    for line in wear_summary(worn):
        console.print(line, highlight=False, soft_wrap=True)


def _say_what_to_try(console: Console, running: Running, api: ApiClient, courses: Sequence[Course]) -> None:
    """Lines to copy; the key in them can only read, and the second answers 304."""
    key = api.post("/keys", {"scopes": ["read"]})["token"]
    robot = courses[0].spec.robot
    worn = courses[len(courses) // 2].spec.robot
    twin = f"{running.api_url}/v1/robots/{robot}/twin"
    etag = api.etag(f"/robots/{robot}/twin")
    console.print(f"\nAPI   {running.api_url}/docs\nMQTT  {running.mqtt_url}\nlogs  {running.logs}\n", highlight=False)
    lines = [f"curl -s -H 'Authorization: Bearer {key}' {twin}"]
    if etag is not None:
        lines.append(f"curl -si -H 'Authorization: Bearer {key}' -H 'If-None-Match: {etag}' {twin}")
    lines.append(f"curl -s -H 'Authorization: Bearer {key}' {running.api_url}/v1/robots/{worn}/drift")
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


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
