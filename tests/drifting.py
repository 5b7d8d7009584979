"""An arm of two joints whose truth is known, the twin that is like it, and what it does as it ages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from app.monitor.baseline import Watched, prepare
from app.telemetry import Recording
from app.twin.declaration import RobotDeclaration
from app.twin.document import (
    Covariance,
    DescriptionRef,
    Parameter,
    SensorNoise,
    Structure,
    TwinDocument,
    WindowedErrors,
    seal,
)
from app.twin.model import TwinModel, build_model
from tests.physics import ALL_COMMANDS, two_link
from tests.planted import declare, follow, swings
from tests.twins import CREATED, draft

NOISE_RAD: Final = 2e-4
BASELINE_RAD: Final = 2.4e-4
RATE_HZ: Final = 100.0
CONTROLLER: Final = {"kind": "pd", "kp": 60.0, "kd": 3.0}
TRUTH: Final[Mapping[str, float]] = {
    "joint/shoulder/coulomb_friction_nm": 0.5,
    "joint/elbow/coulomb_friction_nm": 0.3,
    "joint/shoulder/viscous_damping_nm_s_per_rad": 0.2,
    "joint/elbow/viscous_damping_nm_s_per_rad": 0.2,
    "robot/command_latency_s": 0.013,
}


def declaration(**fields: Any) -> RobotDeclaration:
    return declare(CONTROLLER, **fields)


@cache
def model() -> TwinModel:
    return build_model(two_link(), declaration(), {"shoulder", "elbow"}, ALL_COMMANDS)


def twin(windowed: Mapping[str, float] | None = None, sensors: Mapping[str, SensorNoise] | None = None) -> TwinDocument:
    """The twin that knows the truth; both joints have the usual baseline unless told otherwise."""
    parameters = {
        name: Parameter(
            value=float(value),
            sd=None,
            interval90=None,
            verdict=None,
            source="fit",
            nominal=0.0,
            prior=None,
            bounds=None,
        )
        for name, value in zip(model().names, model().values(TRUTH), strict=True)
    }
    small = draft()
    baseline = {"shoulder": BASELINE_RAD, "elbow": BASELINE_RAD} if windowed is None else dict(windowed)
    known = small.model_copy(
        update={
            "description": DescriptionRef(sha256=two_link().sha256, href=None),
            "structure": Structure(friction="coulomb+viscous", controller="pd", lag="delay", backlash=False),
            "parameters": parameters,
            "covariance": Covariance(names=(), transform={}, matrix=()),
            "sensors": dict(sensors or {}),
            "quality": small.quality.model_copy(update={"windowed": WindowedErrors(window_s=2.0, rmse=baseline)}),
        }
    )
    return seal(known, 3, None, CREATED)


@cache
def watched() -> Watched:
    """The twin, ready to be compared."""
    return prepare(twin(), declaration(), two_link())


@cache
def work(
    seconds: float, *, speed: float = 1.0, amplitude: float = 0.6, shoulder: float = 1.0, elbow: float = 1.0
) -> Recording:
    """What the arm measures while it works.

    Args:
        seconds: how long.
        speed: how fast it goes through its motion.
        amplitude: of the motion [rad]; 0 stands still.
        shoulder: multiple of the joint's friction.
        elbow: multiple of the joint's friction.
    """
    factors = {
        "joint/shoulder/coulomb_friction_nm": shoulder,
        "joint/elbow/coulomb_friction_nm": elbow,
    }
    truth = {name: value * factors.get(name, 1.0) for name, value in TRUTH.items()}
    t_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    targets = swings(speed * t_s, 2, seed=1, amplitude=amplitude)
    return follow(model(), model().values(truth), targets, rate_hz=RATE_HZ, noise_sd=NOISE_RAD, seed=1)
