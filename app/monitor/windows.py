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
NEARLY: Final = 0.1
"""A joint of which we don't know what it was told is left where it is if that is no farther from what we take for its
target [rad or m]."""
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
_POSITION: Final = ("pd", "servo_duty")


@dataclass(frozen=True, slots=True)
class Window:
    """A window to simulate.

    Attributes:
        stretch: of the recording.
        told: joints of which it is known what they were asked to do, shape (n,).
    """

    stretch: Stretch
    told: BoolArray


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A recording in the twin's terms.

    Attributes:
        commanded: on the twin's joints, in SI.
        t_ns: time of each row since the first, shape (T,): windows are cut by whole nanoseconds, so that the same ones
            come out whichever part of the telemetry is read.
        told: where it is known what a joint was last asked to do: after a gap from the first command on, shape (T, n).
        silent: where a joint's last command is longer ago than its commands usually are apart, shape (T, n).
        step_s: usual time between rows of a joint's measurements [s].
    """

    commanded: Commanded
    t_ns: IntArray
    told: BoolArray
    silent: BoolArray
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
    return Telemetry(
        commanded, recording.t_ns, _told(commanded, asked, model.controller), _silent(commanded.t_s, asked), step_s
    )


def _told(commanded: Commanded, asked: BoolArray, controller: ControllerKind) -> BoolArray:
    """Where it is known what each joint was last asked to do, shape (T, n).

    A joint that is never given a position is held at one that we don't know; one without any torque or speed in the
    whole recording is a joint without a motor.
    """
    told = np.zeros(asked.shape, dtype=np.bool_)
    for first, last in commanded.segments.tolist():
        told[first : last + 1] = np.logical_or.accumulate(asked[first : last + 1], axis=0)
    if controller not in _POSITION:
        told |= ~asked.any(axis=0)
    return told


def _silent(t_s: FloatArray, asked: BoolArray) -> BoolArray:
    """Where a joint's last command is longer ago than usual, and than `SILENT_S`, shape (T, n)."""
    last = np.maximum.accumulate(np.where(asked, np.arange(len(t_s))[:, None], -1), axis=0)
    age_s = np.where(last >= 0, t_s[:, None] - t_s[np.maximum(last, 0)], 0.0)
    usual_s = [np.median(np.diff(t_s[column])) if column.sum() > 1 else math.inf for column in asked.T]
    return np.asarray(age_s > np.maximum(SILENT_S, GAP_FACTOR * np.array(usual_s)), dtype=np.bool_)


def moving_windows(watched: Watched, telemetry: Telemetry, after_ns: int) -> tuple[list[Window], int]:
    """The windows to simulate, and the end of the last whole window, judged or not.

    Args:
        watched: the version.
        telemetry: of its robot.
        after_ns: windows begin no sooner [ns of the recording].

    Returns:
        Windows in order of time, and the end of the last one looked at [ns]; `after_ns` where there was none.
    """
    spans = _spans(watched, telemetry, after_ns)
    chosen = [span for span in spans if _worth_simulating(watched, telemetry, span)]
    windows = [Window(_stretch(telemetry, span), telemetry.told[span.rows.start]) for span in chosen[-MAX_WINDOWS:]]
    return windows, spans[-1].end_ns if spans else after_ns


@dataclass(frozen=True, slots=True)
class _Span:
    """A window's begin and end [ns], and its rows."""

    begin_ns: int
    end_ns: int
    rows: slice

    @property
    def begin_s(self) -> float:
        return self.begin_ns * 1e-9


def _spans(watched: Watched, telemetry: Telemetry, after_ns: int) -> list[_Span]:
    t_ns = telemetry.t_ns
    window_ns = round(watched.window_s * 1e9)
    spans: list[_Span] = []
    for first, last in telemetry.commanded.segments.tolist():
        start = max(int(t_ns[first]) + round(LEAD_S * 1e9), after_ns)
        stop = int(t_ns[last]) + round(telemetry.step_s * 1e9)
        for begin in range(start, stop - window_ns + 1, window_ns):
            rows = np.searchsorted(t_ns, [begin, begin + window_ns]).tolist()
            spans.append(_Span(begin, begin + window_ns, slice(*rows)))
    return spans


def _worth_simulating(watched: Watched, telemetry: Telemetry, span: _Span) -> bool:
    commanded = telemetry.commanded
    command = commanded.command[span.rows]
    if not _starts_measured(telemetry, span.begin_ns) or (command[:, :, actuator.ENABLED] == 0.0).any():
        return False
    threshold = moved_threshold(watched)
    moved = travel(commanded.position[span.rows]) > threshold
    told = telemetry.told[span.rows.start]
    if watched.model.controller in _POSITION:
        moved |= travel(command[:, :, actuator.TARGET]) > threshold
        # held where it is, or nearly: what we don't know of it moves the others little
        q0, _ = _state_at(telemetry, span.begin_ns)
        told = told | (np.abs(command[0, :, actuator.TARGET] - q0) < NEARLY)
    return bool(told.all()) and bool(moved.any()) and not _commands_lost(telemetry, span.rows, threshold)


def _starts_measured(telemetry: Telemetry, begin_ns: int) -> bool:
    """Whether every joint was measured around an instant, so that its state there is known."""
    known = ~np.isnan(telemetry.commanded.position[_around(telemetry, begin_ns)])
    return bool((known.sum(axis=0) >= START_SAMPLES).all())


def _around(telemetry: Telemetry, at_ns: int) -> slice:
    """The rows from which a state at an instant may be read."""
    reach_ns = round(1e9 * max(GAP_S, GAP_FACTOR * telemetry.step_s))
    first, last = np.searchsorted(telemetry.t_ns, [at_ns - reach_ns, at_ns + reach_ns + 1]).tolist()
    return slice(first, last)


def _stretch(telemetry: Telemetry, span: _Span) -> Stretch:
    """A window's part of a recording, with as much of the commands before it as still act."""
    commanded, rows = telemetry.commanded, span.rows
    past = int(np.searchsorted(telemetry.t_ns, span.begin_ns - round(PAST_S * 1e9), side="right")) - 1
    acting = slice(max(past, 0), rows.stop)
    q0, v0 = _state_at(telemetry, span.begin_ns)
    motion = Motion(commanded.t_s[acting], commanded.command[acting], commanded.t_s[rows], span.begin_s, q0, v0)
    position = np.where(commanded.at_stop[rows], np.nan, commanded.position[rows])
    return Stretch(commanded.name, motion, position, commanded.velocity[rows], commanded)


def _state_at(telemetry: Telemetry, at_ns: int) -> tuple[FloatArray, FloatArray]:
    """Smoothed measured positions and velocities at an instant, shape (n,) each."""
    around = _around(telemetry, at_ns)
    position, away = telemetry.commanded.position[around], telemetry.t_ns[around] - at_ns
    n = position.shape[1]
    q, v = np.zeros(n), np.zeros(n)
    known = ~np.isnan(position)
    together = np.asarray(known.all(axis=1), dtype=np.bool_)
    whole = int((together & (np.abs(away) <= STATE_WINDOW_S * 1e9)).sum()) >= START_SAMPLES
    groups = [(list(range(n)), together)] if whole else [([joint], known[:, joint]) for joint in range(n)]
    for joints, rows in groups:
        near = _nearest(away, np.flatnonzero(rows))
        *_, v[joints], q[joints] = np.polyfit(away[near] * 1e-9, position[near][:, joints], START_DEGREE)
    return q, v


def _nearest(away_ns: IntArray, rows: IntArray) -> IntArray:
    """The rows around an instant, or the nearest where too few are around it."""
    away = np.abs(away_ns[rows])
    near: IntArray = rows[away <= STATE_WINDOW_S * 1e9]
    return near if len(near) >= START_SAMPLES else rows[np.argsort(away, kind="stable")[:START_SAMPLES]]


def _commands_lost(telemetry: Telemetry, rows: slice, threshold: FloatArray) -> bool:
    """Whether a joint goes on moving long after its last command.

    A robot may send a command only when it changes; what moves on without one follows commands that we didn't get.
    """
    on_its_own = np.where(telemetry.silent[rows], telemetry.commanded.position[rows], np.nan)
    return bool((travel(on_its_own) > threshold).any())


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
