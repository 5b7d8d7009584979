"""The fleet at work: robots move and publish, each is calibrated as soon as all it sent is stored."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, Final

from app.demo.arm import arm_urdf
from app.demo.client import ApiClient
from app.demo.display import Display, RobotStatus
from app.demo.fleet import DemoOptions, expected_samples, fleet
from app.demo.robots import RobotSpec, run_robot_process
from app.demo.services import Running
from app.demo.truth import draw_truth
from app.demo.verdict import RobotOutcome, judge
from app.errors import ServiceError
from app.twin.description import parse_urdf

POLL_S: Final = 0.5
ARRIVAL_DEADLINE_S: Final = 60.0
"""After a robot has fallen silent: by then everything it sent is stored."""
CALIBRATION_MARGIN_S: Final = 120.0
FINISHED: Final = frozenset({"succeeded", "failed", "cancelled"})


def calibrate_fleet(
    api: ApiClient, running: Running, display: Display, options: DemoOptions
) -> tuple[RobotOutcome, ...]:
    """Let the registered robots move and calibrate each of them.

    Returns:
        What came of it, in the robots' order.

    Raises:
        ServiceError: if a service or a robot ends, samples get lost, or a calibration doesn't end.
    """
    robots = fleet(options)
    give_up_at = time.monotonic() + len(robots) * (options.budget_s + CALIBRATION_MARGIN_S)
    with _moving(robots, running.mqtt_url) as processes:
        courses = [_Course(spec, process) for spec, process in zip(robots, processes, strict=True)]
        while True:
            running.check()
            for course in courses:
                course.advance(api, options)
            display.show(course.status for course in courses)
            outcomes = tuple(course.outcome for course in courses if course.outcome is not None)
            if len(outcomes) == len(robots):
                return outcomes
            if time.monotonic() > give_up_at:
                raise ServiceError(f"the calibrations did not end; logs are in {running.logs}")
            time.sleep(POLL_S)


@dataclass(slots=True)
class _Course:
    """One robot on its way: it publishes, its samples are stored, it is calibrated, it is judged."""

    spec: RobotSpec
    process: BaseProcess
    stored: int = 0
    silent_since_s: float | None = None
    job: dict[str, Any] | None = None
    outcome: RobotOutcome | None = None

    def advance(self, api: ApiClient, options: DemoOptions) -> None:
        """See how far it is, and do what comes next."""
        if self.outcome is not None:
            return
        if self.job is not None:
            self.job = api.get(f"/calibrations/{self.job['id']}")
            if self.job["state"] in FINISHED:
                self.outcome = _outcome(api, self.spec, self.job)
            return
        recordings = api.get(f"/robots/{self.spec.robot}/recordings")["items"]
        self.stored = sum(recording["samples"] for recording in recordings)
        if self.stored < expected_samples(self.spec):
            self._notice_loss()
            return
        body = {
            "recordings": [recording["id"] for recording in recordings],
            "seed": options.seed,
            "budget_s": options.budget_s,
            "activate": "if_better",
        }
        self.job = api.post(f"/robots/{self.spec.robot}/calibrations", body)

    @property
    def status(self) -> RobotStatus:
        """What is shown of it."""
        job = self.job or {}
        return RobotStatus(
            robot=self.spec.robot,
            dialect=self.spec.dialect,
            stored=self.stored,
            expected=expected_samples(self.spec),
            state=job.get("state", ""),
            stage=job.get("stage", ""),
            progress=job.get("progress", 0.0),
            trials=job.get("trials", 0),
            result=self._result,
        )

    @property
    def _result(self) -> str:
        if self.outcome is None:
            return ""
        if not self.outcome.accepted:
            return "no twin is served"
        return f"served: error {self.outcome.improvement:.0f} times smaller"

    def _notice_loss(self) -> None:
        if self.process.exitcode is None:
            return
        if self.process.exitcode != 0:
            raise ServiceError(f"the simulated robot {self.spec.robot} ended with exit code {self.process.exitcode}")
        now_s = time.monotonic()
        self.silent_since_s = self.silent_since_s or now_s
        if now_s - self.silent_since_s > ARRIVAL_DEADLINE_S:
            raise ServiceError(f"{self.spec.robot}: {self.stored} of {expected_samples(self.spec)} samples arrived")


def _outcome(api: ApiClient, spec: RobotSpec, job: dict[str, Any]) -> RobotOutcome:
    reason = job["reason"] or ""
    twin = api.find(f"/robots/{spec.robot}/twin")
    if job["state"] != "succeeded" or twin is None or twin["version"] != job["version"]:
        return RobotOutcome(spec.robot, False, reason or f"calibration {job['state']}, not served")
    description = parse_urdf(arm_urdf())
    truth = draw_truth(description, spec.seed, spec.index).parameters(description)
    return judge(spec.robot, twin, truth, reason)


@contextmanager
def _moving(robots: Sequence[RobotSpec], mqtt_url: str) -> Iterator[list[BaseProcess]]:
    """The robots as processes of their own; whatever happens, none outlives the demonstration."""
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = [
        context.Process(target=run_robot_process, args=(spec, mqtt_url), name=spec.robot, daemon=True)
        for spec in robots
    ]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()
