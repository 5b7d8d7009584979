"""The simulated fleet as its owner knows it: ids, payloads, the declaration. The truth is another module's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.demo.arm import GAINS
from app.demo.dialects import DIALECTS
from app.demo.motion import RATE_HZ
from app.demo.robots import RobotSpec
from app.telemetry import FleetId, RobotId

FLEET: Final = FleetId("demo-arms")

RECALIBRATION: Final = {
    "mode": "automatic",
    "cooldown_s": 15.0,
    "min_moving_s": 45.0,
    "window_s": 120.0,
    "budget_s": 300.0,
}
"""The fleet's policy: shorter times than one would have in a plant, so that the demonstration doesn't take a night.

A quarter of the moving data is held out; with less than 10 s of that the gate sometimes can't tell a better twin.
"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a demonstration is asked for.

    Attributes:
        robots: how many.
        seed: of truths, motions and fits.
        duration_s: of each robot's first motion.
        speed: how many times faster than real time it is told.
        port: the API's on the loopback interface; 0 for any free one.
        once: whether to end after the report instead of staying up.
        budget_s: safety limit of each fit.
    """

    robots: int
    seed: int
    duration_s: float
    speed: float
    port: int
    once: bool
    budget_s: float = 300.0


def fleet(options: DemoOptions) -> tuple[RobotSpec, ...]:
    """The robots: payloads take turns."""
    return tuple(
        RobotSpec(
            fleet=FLEET,
            robot=RobotId(f"arm-{index + 1:02d}"),
            dialect=DIALECTS[index % len(DIALECTS)],
            seed=options.seed,
            index=index,
            duration_s=options.duration_s,
            speed=options.speed,
        )
        for index in range(options.robots)
    )


def declaration(spec: RobotSpec) -> dict[str, Any]:
    """The robot's `twincal.robot/1`: fixed base, a continuous PD controller with these gains, nothing else known."""
    return {
        "schema": "twincal.robot/1",
        "robot": spec.robot,
        "fleet": spec.fleet,
        "base": "fixed",
        "controller": {
            "kind": "pd",
            "kp": {joint: gains.kp_nm_per_rad for joint, gains in GAINS.items()},
            "kd": {joint: gains.kd_nm_s_per_rad for joint, gains in GAINS.items()},
        },
    }


def expected_samples(spec: RobotSpec) -> int:
    """Samples the store counts once everything has arrived: measurements and commands of a ROS robot come apart."""
    rows = round(spec.duration_s * RATE_HZ)
    return 2 * rows if spec.dialect == "ros" else rows
