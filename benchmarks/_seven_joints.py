"""A seven-joint arm for measuring what a look at it costs."""

from __future__ import annotations

from typing import Final

import numpy as np

from app.monitor.baseline import DRAWS, Watched
from app.telemetry import Recording
from tests.physics import from_pybullet, model_of
from tests.planted import declare, follow, swings

RATE_HZ: Final = 200.0
NOISE_RAD: Final = 1e-4
LEAD_S: Final = 2.0
CONTROLLER: Final = {"kind": "pd", "kp": 400.0, "kd": 20.0}


def seven_joints(seconds: float, wear: float) -> tuple[Watched, Recording, int]:
    """The KUKA iiwa that comes with PyBullet, its telemetry, and where the new part of it begins [ns].

    Args:
        seconds: of new telemetry; as the monitor does, 2 s before it are read as well.
        wear: its friction over its twin's.
    """
    description = from_pybullet("kuka_iiwa/model.urdf")
    model = model_of(description, CONTROLLER)
    values = model.initial()
    targets = swings(np.arange(round((LEAD_S + seconds + 0.3) * RATE_HZ)) / RATE_HZ, len(model.joints))
    friction = np.array([name.endswith("coulomb_friction_nm") for name in model.names])
    recording = follow(model, np.where(friction, wear * values, values), targets, rate_hz=RATE_HZ, noise_sd=NOISE_RAD)
    declaration = declare(CONTROLLER)
    baseline = np.full(len(model.joints), 1.2 * NOISE_RAD)
    draws = np.repeat(values[None, :], DRAWS, axis=0)
    watched = Watched("r", 1, description, declaration, model, values, 2.0, baseline, draws)
    return watched, recording, round(LEAD_S * 1e9)
