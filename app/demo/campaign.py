"""The fleet at work: robots are calibrated, go on working, one of them wears, and the product is left to notice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from app.demo.client import ApiClient
from app.demo.course import Course
from app.demo.display import Display
from app.demo.fleet import DemoOptions
from app.demo.services import Running
from app.demo.verdict import RobotOutcome
from app.demo.wear import WearOutcome
from app.demo.wear_story import WearStory
from app.errors import ServiceError

POLL_S: Final = 0.5
CALIBRATION_MARGIN_S: Final = 120.0


class Campaign:
    """All robots' courses, on the services that run.

    Args:
        api: with a key that may calibrate.
        running: the services.
        display: where it is shown.
        options: of the demonstration.
    """

    def __init__(self, api: ApiClient, running: Running, display: Display, options: DemoOptions) -> None:
        self._api, self._running, self._display, self._options = api, running, display, options

    def calibrate(self, courses: Sequence[Course]) -> tuple[RobotOutcome, ...]:
        """Let the registered robots move, calibrate each of them, and send each to work as soon as its twin is served.

        Returns:
            What came of it, in the robots' order.

        Raises:
            ServiceError: if a service or a robot ends, samples get lost, or a calibration doesn't end.
        """
        give_up_at = time.monotonic() + len(courses) * (self._options.budget_s + CALIBRATION_MARGIN_S)
        while True:
            self._look(courses)
            outcomes = tuple(course.outcome for course in courses if course.outcome is not None)
            if len(outcomes) == len(courses):
                return outcomes
            if time.monotonic() > give_up_at:
                raise ServiceError(f"the calibrations did not end; logs are in {self._running.logs}")
            time.sleep(POLL_S)

    def wear_one(self, courses: Sequence[Course]) -> WearOutcome:
        """Let one robot's friction rise while all work, and see what the product does about it by itself.

        Raises:
            ServiceError: if a service or a robot ends.
        """
        story = WearStory(courses, self._display.say)
        while not story.has_ended:
            self._look(courses)
            story.advance(self._api)
            time.sleep(POLL_S)
        return story.outcome(self._api)

    def watch(self, courses: Sequence[Course]) -> None:
        """Show the fleet at work until Ctrl-C.

        Raises:
            ServiceError: if a service or a robot ends.
        """
        try:
            while True:
                self._look(courses)
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            return

    def _look(self, courses: Sequence[Course]) -> None:
        self._running.check()
        for course in courses:
            course.advance(self._api, self._options)
        self._display.show(course.status for course in courses)
