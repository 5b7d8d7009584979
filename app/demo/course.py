"""One robot's course through the demonstration, followed from outside through the product's interface."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from app.demo.arm import arm_urdf
from app.demo.client import ApiClient
from app.demo.display import RobotStatus
from app.demo.fleet import DemoOptions, expected_samples
from app.demo.gauge import Gauge
from app.demo.robots import Robot, RobotSpec
from app.demo.verdict import RobotOutcome, judge
from app.errors import ServiceError
from app.twin.description import parse_urdf

ARRIVAL_DEADLINE_S: Final = 60.0
"""After a robot has fallen silent: by then everything it sent is stored."""
LOOK_EVERY_S: Final = 2.0
"""At work; it costs three requests."""
FINISHED: Final = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(slots=True)
class Course:
    """It publishes, its samples are stored, it is calibrated and judged, and goes to work with its twin watched.

    Attributes:
        robot: which.
        gauge: what the monitor says of it.
        stored: samples in the store.
        job: its latest calibration; None before there is one.
        outcome: what came of its first calibration.
        first_version: which version that published.
    """

    robot: Robot
    gauge: Gauge
    stored: int = 0
    job: dict[str, Any] | None = None
    outcome: RobotOutcome | None = None
    first_version: int | None = None
    _silent_since_s: float | None = field(default=None, init=False)
    _looked_at_s: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, robot: Robot) -> Course:
        """At its start."""
        return cls(robot, Gauge(robot.spec.robot))

    @property
    def spec(self) -> RobotSpec:
        """Which robot it is."""
        return self.robot.spec

    def advance(self, api: ApiClient, options: DemoOptions) -> None:
        """See how far it is, and do what comes next.

        Raises:
            ServiceError: if the robot has ended or samples got lost.
        """
        self.robot.check()
        if self.outcome is not None:
            self._watch(api)
        elif self.job is not None:
            self._await_twin(api, self.job)
        else:
            self._await_samples(api, options)

    @property
    def status(self) -> RobotStatus:
        """What is shown of it."""
        job = self.job or {}
        at_work = self.outcome is not None
        return RobotStatus(
            robot=self.spec.robot,
            dialect=self.spec.dialect,
            stored=self.stored,
            expected=0 if at_work else expected_samples(self.spec),
            state=job.get("state", ""),
            stage=job.get("stage", ""),
            progress=job.get("progress", 0.0),
            result=self._result,
            version=self.gauge.version,
            drift=self.gauge.state,
            score=self.gauge.score,
            trace=tuple(self.gauge.trace),
        )

    @property
    def _result(self) -> str:
        if self.outcome is None or self.job is None or self.job["state"] not in FINISHED:
            return ""
        if not self.outcome.accepted:
            return "no twin is served"
        if self.job["version"] == self.first_version:
            return f"error {self.outcome.improvement:.0f} times smaller"
        return f"{self.job['state']}, version {self.job['version']}"

    def _await_samples(self, api: ApiClient, options: DemoOptions) -> None:
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

    def _await_twin(self, api: ApiClient, job: dict[str, Any]) -> None:
        self.job = job = api.get(f"/calibrations/{job['id']}")
        if job["state"] in FINISHED:
            self.outcome = outcome_of(api, self.spec, job)
            self.first_version = job["version"]
            if self.outcome.accepted:
                self.robot.orders.work.set()

    def _watch(self, api: ApiClient) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        robot = self.spec.robot
        self.gauge.look(api)
        self.job = api.get(f"/robots/{robot}/calibrations?limit=1")["items"][0]
        self.stored = sum(recording["samples"] for recording in api.get(f"/robots/{robot}/recordings")["items"])

    def _notice_loss(self) -> None:
        if not self.robot.orders.told.is_set():
            return
        now_s = time.monotonic()
        self._silent_since_s = self._silent_since_s or now_s
        if now_s - self._silent_since_s > ARRIVAL_DEADLINE_S:
            raise ServiceError(f"{self.spec.robot}: {self.stored} of {expected_samples(self.spec)} samples arrived")


def outcome_of(api: ApiClient, spec: RobotSpec, job: dict[str, Any], friction_factor: float = 1.0) -> RobotOutcome:
    """Hold what a calibration that has ended made against the robot's truth.

    Args:
        api: to ask for the served twin.
        spec: which robot.
        job: its calibration.
        friction_factor: how many times its first friction it has now.
    """
    reason = job["reason"] or ""
    twin = api.find(f"/robots/{spec.robot}/twin")
    if job["state"] != "succeeded" or twin is None or twin["version"] != job["version"]:
        return RobotOutcome(spec.robot, False, reason or f"calibration {job['state']}, not served")
    description = parse_urdf(arm_urdf())
    truth = spec.truth(description).with_friction(friction_factor).parameters(description)
    return judge(spec.robot, twin, truth, reason)
