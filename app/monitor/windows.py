"""Which windows of a recording can be judged: whole, measured, commanded, and in motion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.dataset import Stretch
from app.calibration.plausibility import keep_known_joints
from app.calibration.recording import GAP_FACTOR, GAP_S, STATE_WINDOW_S, BoolArray, Commanded, read_commands
from app.calibration.turns import unwrap
from app.errors import FitImpossibleError
from app.monitor.baseline import Watched
from app.telemetry import Channel, FloatArray, IntArray, Recording
from app.twin import actuator
from app.twin.declaration import ControllerKind
from app.twin.joint_map import apply_joint_map
from app.twin.rollout import Motion

LEAD_S: Final = 0.1
"""A window begins no sooner after a gap: its start is a smoothed state, and a late command may still act."""
MOVED: Final = 0.01
"""A joint whose readings stay within this in a window says nothing about its friction [rad or m]."""
MOVED_BASELINES: Final = 2.0
"""Nor does one that moves by less than so many times its baseline: held fast, it would be off by no more."""
SILENT_S: Final = 0.5
"""A joint that still moves so long after its last command is following commands we didn't get."""
MAX_WINDOWS: Final = 60
"""The most windows of one recording that are judged: the latest."""
START_SAMPLES: Final = 7
"""A window's start is read off at least so many samples of each joint, with a cubic: a fast motion's speed changes so
much within them that a parabola's would be off by enough to look like drift."""
START_DEGREE: Final = 3
PAST_S: Final = 0.5
"""Commands are simulated from so long before a window: longer than any latency [s]."""

_FOLLOWED: Final[Mapping[ControllerKind, Channel | None]] = {
    "pd": "command_position",
    "servo_duty": "command_position",
    "torque": "command_effort",
    "velocity": "command_velocity",
    "none": None,
}


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A recording in the twin's terms.

    Attributes:
        commanded: on the twin's joints, in SI.
        asked: where a row holds a command of the kind the controller follows, shape (T, n).
        step_s: usual time between rows of a joint's measurements [s].
    """

    commanded: Commanded
    asked: BoolArray
    step_s: float


def read_telemetry(watched: Watched, raw: Recording) -> Telemetry:
    """Bring raw telemetry into the twin's terms.

    Raises:
        LogError: when no joint of it is the description's.
        FitImpossibleError: when a joint of the twin isn't measured, or the commands its controller follows are missing.
    """
    model = watched.model
    recording, _ = keep_known_joints(watched.description, apply_joint_map(watched.declaration, raw))
    recording = unwrap(watched.description, recording)
    commanded = read_commands(model, recording)
    seen = ~np.isnan(commanded.position)
    unmeasured = [model.joints[joint] for joint in np.flatnonzero(~seen.any(axis=0)).tolist()]
    if unmeasured:
        raise FitImpossibleError(
            f"{raw.name}: no position of {', '.join(unmeasured)} is measured, which version {watched.version} moves: "
            "without it no window has a starting state"
        )
    asked = np.zeros(seen.shape, dtype=np.bool_)
    channel = _FOLLOWED[model.controller]
    if channel is not None:
        for joint, name in enumerate(model.joints):
            asked[:, joint] = ~np.isnan(recording.channels[channel][:, recording.names.index(name)])
    times = commanded.t_s[seen[:, 0]]
    step_s = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return Telemetry(commanded, asked, step_s)


def moving_windows(watched: Watched, telemetry: Telemetry, after_s: float) -> tuple[list[Stretch], float]:
    """The windows to simulate, and the end of the last whole window, judged or not.

    Args:
        watched: the version.
        telemetry: of its robot.
        after_s: windows begin no sooner [s of the recording].

    Returns:
        Windows in order of time, and the end of the last one looked at; `after_s` where there was none.
    """
    spans = _spans(watched, telemetry, after_s)
    chosen = [_stretch(telemetry.commanded, *span) for span in spans if _worth_simulating(watched, telemetry, *span)]
    return chosen[-MAX_WINDOWS:], spans[-1][1] if spans else after_s


def _spans(watched: Watched, telemetry: Telemetry, after_s: float) -> list[tuple[float, float]]:
    commanded = telemetry.commanded
    spans: list[tuple[float, float]] = []
    for first, last in commanded.segments.tolist():
        start = float(commanded.t_s[_first_commanded(telemetry.asked, first, last)]) + LEAD_S
        start = max(start, after_s)
        stop = float(commanded.t_s[last]) + telemetry.step_s
        count = max(0, math.floor((stop - start) / watched.window_s + 1e-9))
        spans += [(start + i * watched.window_s, start + (i + 1) * watched.window_s) for i in range(count)]
    return spans


def _first_commanded(asked: BoolArray, first: int, last: int) -> int:
    """The first row of a segment by which every joint that is commanded in it has been.

    What was asked before it may have been lost with the gap. A joint without any command in the segment still follows
    the one it got before.
    """
    part = asked[first : last + 1]
    commanded = part.any(axis=0)
    return first + int(part.argmax(axis=0)[commanded].max(initial=0))


def _worth_simulating(watched: Watched, telemetry: Telemetry, begin_s: float, end_s: float) -> bool:
    commanded = telemetry.commanded
    rows = np.flatnonzero((commanded.t_s >= begin_s) & (commanded.t_s < end_s))
    if not _starts_measured(telemetry, begin_s) or (commanded.command[rows, :, actuator.ENABLED] == 0.0).any():
        return False
    threshold = moved_threshold(watched)
    moved = travel(commanded.position[rows]) > threshold
    if watched.model.controller in ("pd", "servo_duty"):
        moved |= travel(commanded.command[rows, :, actuator.TARGET]) > threshold
    return bool(moved.any()) and not _commands_lost(telemetry, rows, threshold)


def _starts_measured(telemetry: Telemetry, begin_s: float) -> bool:
    """Whether every joint was measured around an instant, so that its state there is known."""
    t_s = telemetry.commanded.t_s
    near = np.abs(t_s - begin_s) <= max(GAP_S, GAP_FACTOR * telemetry.step_s)
    count = (~np.isnan(telemetry.commanded.position[near])).sum(axis=0)
    return bool((count >= START_SAMPLES).all())


def _stretch(commanded: Commanded, begin_s: float, end_s: float) -> Stretch:
    """A window's part of a recording, with as much of the commands before it as still act."""
    t_s = commanded.t_s
    first, last = np.searchsorted(t_s, [begin_s, end_s]).tolist()
    past = max(int(np.searchsorted(t_s, begin_s - PAST_S, side="right")) - 1, 0)
    q0, v0 = _state_at(commanded, begin_s)
    motion = Motion(t_s[past:last], commanded.command[past:last], t_s[first:last], begin_s, q0, v0)
    position = np.where(commanded.at_stop[first:last], np.nan, commanded.position[first:last])
    return Stretch(commanded.name, motion, position, commanded.velocity[first:last], commanded)


def _state_at(commanded: Commanded, t_s: float) -> tuple[FloatArray, FloatArray]:
    """Smoothed measured positions and velocities at an instant, shape (n,) each."""
    n = commanded.position.shape[1]
    q, v = np.zeros(n), np.zeros(n)
    known = ~np.isnan(commanded.position)
    together = np.asarray(known.all(axis=1), dtype=np.bool_)
    groups = (
        [(list(range(n)), together)] if _enough(commanded, together, t_s) else [([j], known[:, j]) for j in range(n)]
    )
    for joints, rows in groups:
        near = _nearest(commanded.t_s, np.flatnonzero(rows), t_s)
        *_, v[joints], q[joints] = np.polyfit(
            commanded.t_s[near] - t_s, commanded.position[near][:, joints], START_DEGREE
        )
    return q, v


def _enough(commanded: Commanded, rows: BoolArray, t_s: float) -> bool:
    return int((rows & (np.abs(commanded.t_s - t_s) <= STATE_WINDOW_S)).sum()) >= START_SAMPLES


def _nearest(t_s: FloatArray, rows: IntArray, instant_s: float) -> IntArray:
    """The rows around an instant, or the nearest where too few are around it."""
    away = np.abs(t_s[rows] - instant_s)
    near: IntArray = rows[away <= STATE_WINDOW_S]
    return near if len(near) >= START_SAMPLES else rows[np.argsort(away, kind="stable")[:START_SAMPLES]]


def _commands_lost(telemetry: Telemetry, rows: IntArray, threshold: FloatArray) -> bool:
    """Whether a joint goes on moving long after its last command.

    A robot may send a command only when it changes; what moves on without one follows commands that we didn't get.
    """
    t_s = telemetry.commanded.t_s
    for joint in np.flatnonzero(telemetry.asked.any(axis=0)).tolist():
        known = t_s[telemetry.asked[:, joint]]
        usual = float(np.median(np.diff(known))) if len(known) > 1 else math.inf
        last = np.searchsorted(known, t_s[rows], side="right") - 1
        age = t_s[rows] - known[np.maximum(last, 0)]
        silent = rows[age > max(SILENT_S, GAP_FACTOR * usual)]
        if len(silent) and travel(telemetry.commanded.position[silent][:, [joint]])[0] > threshold[joint]:
            return True
    return False


def moved_threshold(watched: Watched) -> FloatArray:
    """How far each joint must move in a window to count, shape (n,) [rad or m]."""
    return np.maximum(MOVED, MOVED_BASELINES * np.nan_to_num(watched.baseline))


def travel(values: FloatArray) -> FloatArray:
    """Highest minus lowest known value of each column, 0 where none is known, shape (n,)."""
    known = ~np.isnan(values)
    highest = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
    lowest = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
    spread: FloatArray = np.maximum(highest - lowest, 0.0)
    return spread
