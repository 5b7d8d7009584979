"""The demonstration from end to end: robots with hidden truths in, calibrated twins out, through the product alone."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from app.demo.arm import arm_urdf
from app.demo.client import ApiClient
from app.demo.display import Display, RobotStatus
from app.demo.fleet import FLEET, DemoOptions, declaration, expected_samples, fleet
from app.demo.robots import RobotSpec, run_robot_process
from app.demo.services import Running, services
from app.demo.tables import contrast_table, kind_table, parameter_table, robot_table
from app.demo.truth import draw_truth
from app.demo.verdict import RobotOutcome, judge, summary
from app.embedded.child import LOOPBACK
from app.errors import ServiceError, TwincalError
from app.settings import Settings
from app.twin.description import parse_urdf

POLL_S: Final = 0.5
ARRIVAL_DEADLINE_S: Final = 60.0
"""After a robot has fallen silent: by then everything it sent is stored."""
CALIBRATION_MARGIN_S: Final = 120.0
FINISHED: Final = frozenset({"succeeded", "failed", "cancelled"})


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
                    calibrations = _collect_and_calibrate(api, running, display, options)
                outcomes = [_outcome(api, spec, calibrations[spec.robot]) for spec in robots]
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


def _collect_and_calibrate(
    api: ApiClient, running: Running, display: Display, options: DemoOptions
) -> dict[str, dict[str, Any]]:
    """Let the robots move; calibrate each as soon as all it sent is stored. The jobs as they ended, by robot."""
    robots = fleet(options)
    jobs: dict[str, dict[str, Any]] = {}
    give_up_at = time.monotonic() + len(robots) * (options.budget_s + CALIBRATION_MARGIN_S)
    with _moving(robots, running.mqtt_url) as processes:
        silent_since: dict[str, float] = {}
        while len(jobs) < len(robots) or any(job["state"] not in FINISHED for job in jobs.values()):
            running.check()
            statuses = []
            for spec in robots:
                recording = _recording(api, spec)
                stored = 0 if recording is None else int(recording["samples"])
                if spec.robot in jobs:
                    jobs[spec.robot] = api.get(f"/calibrations/{jobs[spec.robot]['id']}")
                elif recording is not None and stored >= expected_samples(spec):
                    jobs[spec.robot] = _calibrate(api, spec, recording["id"], options)
                else:
                    _notice_loss(spec, processes[spec.robot], stored, silent_since)
                statuses.append(_status(spec, stored, jobs.get(spec.robot)))
            display.show(statuses)
            if time.monotonic() > give_up_at:
                raise ServiceError(f"the calibrations did not end; logs are in {running.logs}")
            time.sleep(POLL_S)
    return jobs


def _recording(api: ApiClient, spec: RobotSpec) -> dict[str, Any] | None:
    items: list[dict[str, Any]] = api.get(f"/robots/{spec.robot}/recordings")["items"]
    return items[0] if items else None


def _calibrate(api: ApiClient, spec: RobotSpec, recording: str, options: DemoOptions) -> dict[str, Any]:
    body = {"recordings": [recording], "seed": options.seed, "budget_s": options.budget_s, "activate": "if_better"}
    job: dict[str, Any] = api.post(f"/robots/{spec.robot}/calibrations", body)
    return job


def _notice_loss(spec: RobotSpec, process: BaseProcess, stored: int, silent_since: dict[str, float]) -> None:
    if process.exitcode is None:
        return
    if process.exitcode != 0:
        raise ServiceError(f"the simulated robot {spec.robot} ended with exit code {process.exitcode}")
    if time.monotonic() - silent_since.setdefault(spec.robot, time.monotonic()) > ARRIVAL_DEADLINE_S:
        raise ServiceError(f"{spec.robot}: {stored} of {expected_samples(spec)} samples arrived in the store")


def _status(spec: RobotSpec, stored: int, job: dict[str, Any] | None) -> RobotStatus:
    expected = expected_samples(spec)
    if job is None:
        return RobotStatus(spec.robot, spec.dialect, stored, expected)
    return RobotStatus(
        spec.robot,
        spec.dialect,
        stored,
        expected,
        job["state"],
        job.get("stage") or "",
        job.get("progress") or 0.0,
        job.get("trials") or 0,
        job.get("best"),
    )


def _outcome(api: ApiClient, spec: RobotSpec, job: dict[str, Any]) -> RobotOutcome:
    reason = job.get("reason") or ""
    twin = api.find(f"/robots/{spec.robot}/twin")
    if job["state"] != "succeeded" or twin is None or twin["version"] != job["version"]:
        return RobotOutcome(spec.robot, False, reason or f"calibration {job['state']}, not served")
    description = parse_urdf(arm_urdf())
    truth = draw_truth(description, spec.seed, spec.index).parameters(description)
    return judge(spec.robot, twin, truth, reason)


def _report(console: Console, outcomes: Sequence[RobotOutcome]) -> None:
    for outcome in outcomes:
        console.print()
        if outcome.accepted:
            console.print(parameter_table(outcome))
        else:
            console.print(f"[bold red]{outcome.robot}: no twin is served[/]: {outcome.reason}")
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
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder of this run's own, which goes with it; after an error it stays, for its logs."""
    folder = Path(tempfile.mkdtemp(prefix="twincal-demo-"))
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


@contextmanager
def _moving(robots: Sequence[RobotSpec], mqtt_url: str) -> Iterator[dict[str, BaseProcess]]:
    """The robots as processes of their own; whatever happens, none outlives the demonstration."""
    context = multiprocessing.get_context("spawn")
    processes: dict[str, BaseProcess] = {
        spec.robot: context.Process(target=run_robot_process, args=(spec, mqtt_url), name=spec.robot, daemon=True)
        for spec in robots
    }
    try:
        for process in processes.values():
            process.start()
        yield processes
    finally:
        for process in processes.values():
            if process.pid is not None:
                process.terminate()
                process.join()
