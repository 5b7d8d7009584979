"""What the lanes of a batch are made of, and the work space they are stepped in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from app.telemetry import FloatArray, IntArray
from app.twin.actuator import COMMAND_COLUMNS
from app.twin.command_lag import LAGGED_COLUMNS
from app.twin.dynamics import LANES
from app.twin.friction import BACKLASH, BREAKAWAY, COULOMB, JOINT_ROWS


class Parameters(NamedTuple):
    """What differs between the lanes of a batch, of which there are `LANES` at most."""

    inertial: FloatArray  # (nb, 10, lanes)
    joint: FloatArray  # (JOINT_ROWS, n, lanes)
    latency: FloatArray  # command latency [s], (lanes,)
    lag: FloatArray  # time constant of the controller's lag [s], (lanes,)
    gravity: FloatArray  # [m/s²], (3, lanes)


class Scratch(NamedTuple):
    """Work space of the implicit step: arrays over lanes, then one lane's copies for the exact solver.

    Vector loops run over all `LANES`; those that no parameter set fills hold copies and are left out elsewhere.
    """

    L: FloatArray  # (n, n, LANES)
    diagonal: FloatArray  # (n, LANES)
    rhs: FloatArray
    bound: FloatArray
    slide: FloatArray  # -1, 0 or 1: the guess of who slides
    drive: FloatArray
    slope: FloatArray
    v_next: FloatArray
    v_before: FloatArray  # velocities before the last step
    v_now: FloatArray  # velocities at the instant of the positions
    held: FloatArray  # torque of a sampled controller over this step; NaN where it is continuous
    next_held: FloatArray  # and after it
    command: FloatArray  # each joint's in one block, as bodies have theirs (n, COMMAND_COLUMNS · LANES)
    joint: FloatArray  # each joint's parameters in one block (n, JOINT_ROWS · LANES)
    asked: FloatArray  # commands before the lag, of lanes that have one, laid out as `command`
    lagged: FloatArray  # the lag's state (n, LAGGED_COLUMNS, LANES)
    gap: FloatArray  # link − motor, (n, LANES)
    grip: FloatArray  # how much of the step motors carry their links along, (n, LANES)
    plays: IntArray  # 1 where some lane's joint has a gap, (n,)
    breaks_loose: IntArray  # 1 where some lane's breakaway friction is above its Coulomb friction, (n,)
    needed: FloatArray  # (LANES,)
    wrong: FloatArray  # (LANES,)
    row: IntArray  # command row each lane is at, (lanes,)
    settled: IntArray  # 1 where one row of commands filled the lane's last step, (lanes,)
    moving: IntArray  # 1 where the lane has outputs to come, (lanes,)
    k_q: IntArray  # the next position to report, (lanes,)
    k_v: IntArray  # the next velocity
    one: FloatArray  # (7, n)
    one_joint: FloatArray  # (JOINT_ROWS, n)
    one_command: FloatArray  # (n, COMMAND_COLUMNS)
    one_mass: FloatArray  # (n, n)
    state: IntArray  # (n,)
    one_lagged: FloatArray  # (n, LAGGED_COLUMNS)
    work: FloatArray  # (2n + 4, n)


def scratch_for(parameters: Parameters, lanes: int) -> Scratch:
    """Allocate the step's work space for `LANES` parameter sets, the first `lanes` of which count."""
    n = parameters.joint.shape[1]

    def per_joint(fill: float = 0.0) -> FloatArray:
        return np.full((n, LANES), fill)

    return Scratch(
        L=np.zeros((n, n, LANES)),
        diagonal=per_joint(),
        rhs=per_joint(),
        bound=per_joint(),
        slide=per_joint(),
        drive=per_joint(),
        slope=per_joint(),
        v_next=per_joint(),
        v_before=per_joint(),
        v_now=per_joint(),
        held=per_joint(np.nan),
        next_held=per_joint(np.nan),
        command=np.zeros((n, COMMAND_COLUMNS * LANES)),
        joint=np.moveaxis(parameters.joint, 1, 0).copy().reshape(n, JOINT_ROWS * LANES),  # offsets change
        asked=np.zeros((n, COMMAND_COLUMNS * LANES)),
        lagged=np.zeros((n, LAGGED_COLUMNS, LANES)),
        gap=per_joint(),
        grip=per_joint(1.0),
        plays=(parameters.joint[BACKLASH] > 0.0).any(axis=1).astype(np.int64),
        breaks_loose=(parameters.joint[BREAKAWAY] > parameters.joint[COULOMB]).any(axis=1).astype(np.int64),
        needed=np.zeros(LANES),
        wrong=np.zeros(LANES),
        row=np.zeros(lanes, dtype=np.int64),
        settled=np.zeros(lanes, dtype=np.int64),
        moving=np.zeros(lanes, dtype=np.int64),
        k_q=np.zeros(lanes, dtype=np.int64),
        k_v=np.zeros(lanes, dtype=np.int64),
        one=np.zeros((7, n)),
        one_joint=np.zeros((JOINT_ROWS, n)),
        one_command=np.zeros((n, COMMAND_COLUMNS)),
        one_mass=np.zeros((n, n)),
        state=np.zeros(n, dtype=np.int64),
        one_lagged=np.zeros((n, LAGGED_COLUMNS)),
        work=np.zeros((2 * n + 4, n)),
    )
