"""From a recording to segments: stretches without a gap, with the commands that led there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.errors import FitImpossibleError
from app.telemetry import Channel, ContextName, FloatArray, IntArray, Recording, read_only
from app.twin import actuator
from app.twin.declaration import ControllerKind
from app.twin.model import TwinModel

# A pause this many times longer than usual, and this long, ends a segment.
GAP_FACTOR = 5.0
GAP_S = 0.1
STATE_WINDOW_S = 0.05
STATE_SAMPLES = 5
STOP = 2e-3
"""A joint this near a limit, and at rest there, is at a stop [rad or m]."""

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Commanded:
    """One recording's commands and measurements on the twin's joints, in SI.

    Attributes:
        name: of the recording.
        t_s: time since the first row, shape (T,).
        command: see `actuator.COMMAND_COLUMNS`, shape (T, n, 7).
        position: measured, NaN where missing [rad or m], shape (T, n).
        velocity: measured, NaN where missing [rad/s or m/s], shape (T, n).
        effort: measured, NaN where missing or of unknown unit [N·m or N], shape (T, n).
        at_stop: where a joint rests against its limit, which the twin doesn't have, shape (T, n).
        segments: first and last row (inclusive) of each stretch without a gap, shape (S, 2).
    """

    name: str
    t_s: FloatArray
    command: FloatArray
    position: FloatArray
    velocity: FloatArray
    effort: FloatArray
    at_stop: BoolArray
    segments: IntArray

    def __post_init__(self) -> None:
        arrays = (self.t_s, self.command, self.position, self.velocity, self.effort, self.at_stop, self.segments)
        for array in arrays:
            read_only(array)

    def state_at(self, t_s: float) -> tuple[FloatArray, FloatArray]:
        """Smoothed measured positions and velocities at an instant, shape (n,) each.

        A parabola through the samples around it, per joint, centred so that it has no phase; at a segment's end it goes
        through what there is on one side.
        """
        n = self.position.shape[1]
        q, v = np.zeros(n), np.zeros(n)
        for joint in range(n):
            seen = np.flatnonzero(~np.isnan(self.position[:, joint]))
            near = seen[np.abs(self.t_s[seen] - t_s) <= STATE_WINDOW_S]
            if len(near) < STATE_SAMPLES:
                near = seen[np.argsort(np.abs(self.t_s[seen] - t_s), kind="stable")[:STATE_SAMPLES]]
            since = self.t_s[near] - t_s
            values = self.position[near, joint]
            if len(near) < STATE_SAMPLES:
                q[joint] = values[np.argmin(np.abs(since))]
                continue
            _, v[joint], q[joint] = np.polyfit(since, values, 2)
        return q, v


def read_commands(model: TwinModel, recording: Recording) -> Commanded:
    """Bring a recording into the twin's order of joints and its commands into the actuator's form.

    Args:
        model: of the robot.
        recording: in SI, after the joint map.

    Raises:
        FitImpossibleError: when the commands that the declared controller follows are missing.
    """
    order = [recording.names.index(name) if name in recording.names else -1 for name in model.joints]
    rows, n = len(recording), len(order)

    def column(channel: Channel) -> FloatArray:
        result = np.full((rows, n), np.nan)
        if channel in recording.channels:
            for target, source in enumerate(order):
                if source >= 0:
                    result[:, target] = recording.channels[channel][:, source]
        return result

    _check_commands(model.controller, recording)
    command = np.zeros((rows, n, actuator.COMMAND_COLUMNS))
    followed = model.controller in ("pd", "servo_duty")
    targets = _held(column("command_position")) if followed else np.zeros((rows, n))
    position = column("position")
    # A joint that was never given a target is asked to stay where it was first seen.
    command[:, :, actuator.TARGET] = np.where(np.isnan(targets), _first(position), targets)
    command[:, :, actuator.TARGET_VELOCITY] = np.nan_to_num(_held(column("command_velocity")))
    command[:, :, actuator.FEED_FORWARD] = np.nan_to_num(_held(column("command_effort")))
    kp = np.nan_to_num(_held(column("command_kp")), nan=1.0)
    kd = np.nan_to_num(_held(column("command_kd")), nan=1.0)
    supply = _supply_ratio(model, recording.context, rows)
    command[:, :, actuator.KP_SCALE] = kp * supply[:, None]
    command[:, :, actuator.KD_SCALE] = kd
    command[:, :, actuator.ENABLED] = np.nan_to_num(_held(column("command_enabled")), nan=1.0)
    command[:, :, actuator.LIMIT_SCALE] = supply[:, None]
    t_s = np.asarray(recording.t_ns, dtype=np.float64) * 1e-9
    return Commanded(
        name=recording.name,
        t_s=t_s,
        command=command,
        position=position,
        velocity=column("velocity"),
        effort=column("effort"),
        at_stop=_at_stop(position, model.mechanism.limits()),
        segments=_segments(t_s, position),
    )


_FOLLOWS: Mapping[ControllerKind, tuple[Channel, ...]] = {
    "pd": ("command_position",),
    "servo_duty": ("command_position",),
    "torque": ("command_effort",),
    "velocity": ("command_velocity",),
    "none": (),
}


def _check_commands(kind: ControllerKind, recording: Recording) -> None:
    if "position" not in recording.channels:
        raise FitImpossibleError(f"{recording.name}: no position is measured, and a twin is fitted to positions")
    for channel in _FOLLOWS[kind]:
        if channel not in recording.channels:
            raise FitImpossibleError(
                f"{recording.name}: {channel} is missing, which a {kind} controller follows: without it gains, "
                "latency, friction and inertia can't be identified; log what the joints were asked to do"
            )


def _held(values: FloatArray) -> FloatArray:
    """Each value held until the next; before the first one, the first one."""
    rows = np.arange(len(values))[:, None]
    known = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(known, rows, -1), axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    taken = np.where(last < 0, first, last)
    held: FloatArray = np.take_along_axis(values, taken, axis=0)
    return held


def _first(values: FloatArray) -> FloatArray:
    """The first known value of each column, 0 where there is none."""
    known = ~np.isnan(values)
    first = np.where(known.any(axis=0), values[known.argmax(axis=0), np.arange(values.shape[1])], 0.0)
    return np.asarray(first)


def _supply_ratio(model: TwinModel, context: Mapping[ContextName, FloatArray], rows: int) -> FloatArray:
    """Supply over nominal supply where the controller's torque depends on it, else 1, shape (rows,)."""
    if model.controller != "servo_duty" or model.nominal_supply_v is None or "supply_v" not in context:
        return np.ones(rows)
    return _held(context["supply_v"][:, None])[:, 0] / model.nominal_supply_v


def _at_stop(position: FloatArray, limits: FloatArray) -> BoolArray:
    """Where a joint is at a limit and doesn't move, shape (T, n).

    A joint that passes a limit, or moves beyond it, has a wrong limit rather than a stop.
    """
    near = np.abs(position[:, :, None] - limits[None, :, :]).min(axis=2) < STOP
    moved = np.zeros(position.shape)
    moved[1:] = np.abs(np.diff(position, axis=0))
    resting = (np.nan_to_num(moved) < STOP / 10.0) & (np.nan_to_num(np.roll(moved, -1, axis=0)) < STOP / 10.0)
    return np.asarray(near & resting, dtype=np.bool_)


def _segments(t_s: FloatArray, position: FloatArray) -> IntArray:
    rows = np.flatnonzero(~np.all(np.isnan(position), axis=1))
    if not len(rows):
        return np.empty((0, 2), dtype=np.int64)
    steps = np.diff(t_s[rows])
    usual = float(np.median(steps)) if len(steps) else 0.0
    breaks = np.flatnonzero(steps > max(GAP_FACTOR * usual, GAP_S))
    first = np.concatenate([[0], breaks + 1])
    last = np.concatenate([breaks, [len(rows) - 1]])
    return np.column_stack([rows[first], rows[last]]).astype(np.int64)
