"""One robot wears while the fleet works, seen through from outside step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final, assert_never

from app.demo.client import ApiClient
from app.demo.course import Course, outcome_of
from app.demo.robots import FRICTION_RISE
from app.demo.verdict import RobotOutcome
from app.demo.wear import RobotDrift, Step, WearOutcome
from app.ingest.stamp import NS_PER_S

STEADY_SCORES: Final = 3
"""So many scores of a version, and ok: before the friction rises, and at the end."""
STEP_DEADLINE_S: Final = 420.0


class WearStory:
    """Sees the story through: wears one robot once all are steady, then only watches.

    Args:
        courses: of the whole fleet; all work.
        say: told what happens.
    """

    def __init__(self, courses: Sequence[Course], say: Callable[[str], None]) -> None:
        self._courses, self._say = courses, say
        self._worn = courses[len(courses) // 2]
        self._first_job = None if self._worn.job is None else self._worn.job["id"]
        self._step: Step = "steady"
        self._step_began_s = time.monotonic()
        self._before: dict[str, float] = {}
        self._changed_ns = 0
        self._seconds: dict[Step, float] = {}
        self._score_at_drift: float | None = None
        self._worst_joint: str | None = None
        self._again: RobotOutcome | None = None

    @property
    def has_ended(self) -> bool:
        """Whether everything has happened, or the next thing was waited for too long."""
        return self._step == "done" or time.monotonic() - self._step_began_s > STEP_DEADLINE_S

    def advance(self, api: ApiClient) -> None:
        """Look at what the courses have seen and do what comes next."""
        match self._step:
            case "steady":
                self._await_steadiness()
            case "wearing":
                self._await_wear()
            case "drifting":
                self._await_drift()
            case "raising":
                self._await_calibration()
            case "fitting":
                self._await_version(api)
            case "settling":
                self._await_recovery()
            case "done":
                pass
            case _:
                assert_never(self._step)

    def outcome(self, api: ApiClient) -> WearOutcome:
        """How it went."""
        robot, first = self._worn.spec.robot, self._worn.outcome
        assert first is not None
        return WearOutcome(
            robot=robot,
            missing=self._step,
            score_at_drift=self._score_at_drift,
            worst_joint=self._worst_joint,
            seconds=dict(self._seconds),
            drifts=tuple(self._drift(api, course) for course in self._courses),
            first=first,
            again=self._again,
            trail=tuple(reversed(api.get(f"/robots/{robot}/audit")["items"])),
        )

    def _await_steadiness(self) -> None:
        gauges = [course.gauge for course in self._courses]
        if all(gauge.state == "ok" and len(gauge.scores) >= STEADY_SCORES for gauge in gauges):
            self._worn.robot.orders.wear.set()
            self._go_to("wearing")

    def _await_wear(self) -> None:
        self._changed_ns = self._worn.robot.orders.worn_at_ns.value
        if not self._changed_ns:
            return
        for course in self._courses:
            gauge = course.gauge
            self._before[gauge.robot] = median(gauge.scores)
            gauge.highest = None
        self._say(
            f"[bold]{self._worn.spec.robot}: dry and viscous friction of every joint rise by "
            f"{FRICTION_RISE - 1.0:.0%} in mid-motion[/]; nobody tells the product"
        )
        self._go_to("drifting")

    def _await_drift(self) -> None:
        gauge = self._worn.gauge
        if gauge.state != "drifted" or gauge.since is None:
            return
        self._score_at_drift, self._worst_joint = gauge.score, gauge.worst_joint
        elapsed_s = self._ended(gauge.since)
        self._say(
            f"[bold red]{gauge.robot}: drifted[/], {elapsed_s:.0f} s after the change; worst is {gauge.worst_joint}"
        )
        self._go_to("raising")

    def _await_calibration(self) -> None:
        job = self._worn.job
        if job is None or job["id"] == self._first_job:
            return
        elapsed_s = self._ended(datetime.fromisoformat(job["created_at"]))
        self._say(f"[bold]{self._worn.spec.robot}: the monitor raises a calibration[/], after {elapsed_s:.0f} s")
        self._go_to("fitting")

    def _await_version(self, api: ApiClient) -> None:
        robot, job = self._worn.spec.robot, self._worn.job
        if job is None or job["state"] != "succeeded":
            return
        # Of a rejected one the monitor will raise another.
        active = api.get(f"/robots/{robot}/twin")["version"]
        if active != job["version"]:
            return
        self._again = outcome_of(api, self._worn.spec, job, FRICTION_RISE)
        elapsed_s = self._ended(datetime.fromisoformat(job["finished_at"]))
        self._say(f"[bold]{robot}: version {active} is active[/], after {elapsed_s:.0f} s: {job['reason']}")
        self._go_to("settling")

    def _await_recovery(self) -> None:
        gauge = self._worn.gauge
        if gauge.state != "ok" or gauge.version == self._worn.first_version or len(gauge.scores) < STEADY_SCORES:
            return
        elapsed_s = self._ended(datetime.now(UTC))
        self._say(f"[bold green]{gauge.robot}: ok[/], after {elapsed_s:.0f} s")
        self._go_to("done")

    def _ended(self, instant: datetime) -> float:
        """Note when the present step ended; seconds since the change, which is in the robot's stamps."""
        self._seconds[self._step] = instant.timestamp() - self._changed_ns / NS_PER_S
        return self._seconds[self._step]

    def _go_to(self, step: Step) -> None:
        self._step, self._step_began_s = step, time.monotonic()

    def _drift(self, api: ApiClient, course: Course) -> RobotDrift:
        robot, gauge = course.spec.robot, course.gauge
        jobs = api.get(f"/robots/{robot}/calibrations")["items"]
        return RobotDrift(
            robot=robot,
            before=self._before.get(robot),
            highest=gauge.highest,
            after=median(gauge.scores) if gauge.scores else None,
            versions=(course.first_version, gauge.version),
            raised=len(jobs) - 1,
            drifted="drifted" in gauge.states,
        )
