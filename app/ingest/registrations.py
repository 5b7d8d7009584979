"""Which robots are registered, and in which fleet: remembered for seconds, so that a message costs no query."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from app.ingest.intake import Accepted, Announced, Refused, refuse

# What a registration was is believed this long; what wasn't registered is asked for again soon: somebody is just at it.
_KNOWN_FOR_S: Final = 5.0
_UNKNOWN_FOR_S: Final = 1.0
# Unknown ids are anybody's invention and must not fill the memory.
_MAX_REMEMBERED: Final = 50_000

_QUERY: Final = "SELECT robot, fleet FROM robots WHERE robot = ANY($1::text[])"


@dataclass(frozen=True, slots=True)
class _Registration:
    fleet: str | None
    valid_until_s: float


class Registrations:
    """What the database said of robots, lately."""

    def __init__(self) -> None:
        self._by_robot: dict[str, _Registration] = {}

    async def refresh(self, connection: asyncpg.Connection[Any], robots: Iterable[str]) -> None:
        """Ask for those robots of which nothing fresh is known."""
        now_s = time.monotonic()
        asked = [
            robot for robot in set(robots)
            if (known := self._by_robot.get(robot)) is None or known.valid_until_s < now_s
        ]  # fmt: skip
        if not asked:
            return
        fleets = {row["robot"]: row["fleet"] for row in await connection.fetch(_QUERY, asked)}
        if len(self._by_robot) + len(asked) > _MAX_REMEMBERED:
            self._by_robot.clear()
        for robot in asked:
            valid_for_s = _KNOWN_FOR_S if robot in fleets else _UNKNOWN_FOR_S
            self._by_robot[robot] = _Registration(fleets.get(robot), now_s + valid_for_s)

    def check(self, accepted: Accepted | Announced) -> Accepted | Announced | Refused:
        """A message of a robot that was refreshed, refused if nobody registered it or its topic is another fleet's."""
        topic = accepted.topic
        known = self._by_robot.get(topic.robot)
        fleet = known.fleet if known else None
        if fleet is None:
            remedy = "register it, then: twincal dead-letters replay --robot " + topic.robot
            return refuse(accepted, "unregistered_robot", "topic", f"nobody registered robot {topic.robot!r}", remedy)
        if fleet != topic.fleet:
            problem = f"robot {topic.robot!r} belongs to fleet {fleet!r}, not {topic.fleet!r}"
            return refuse(accepted, "wrong_fleet", "topic", problem, "publish below its own fleet's topic")
        return accepted
