"""One turn for measurement and command: undoes what drivers do that report angles within ±π or 0 … 2π.

Only where the data show it: angles that stay within one turn and jump by more than half of one between neighbouring
samples. Angles that count turns already, joints that slide and values in another unit are left as they are.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from app.telemetry import Channel, FloatArray, Recording
from app.twin.description import Description, Joint

_TURN: Final = 2 * math.pi
_SLACK_RAD: Final = 0.01
# A measured joint can't move half a turn between samples; a commanded step can, but rarely three quarters.
_MEASURED_JUMP: Final = math.pi
_COMMANDED_JUMP: Final = 1.5 * math.pi
# Command and measurement that still differ by more than this after whole turns are not the same angle.
_FOLLOWING_RAD: Final = 1.0


def unwrap(description: Description, recording: Recording) -> Recording:
    """The recording with positions and position commands of turning joints continuous and in the same turn.

    A joint with limits is put into the turn in which its limits lie.

    Args:
        description: gives the joints' types and limits.
        recording: in SI, after the joint map.
    """
    channels: dict[Channel, FloatArray] = dict(recording.channels)
    missing = np.full((len(recording), len(recording.names)), np.nan)
    position = channels.get("position", missing).copy()
    command = channels.get("command_position", missing).copy()
    for column, name in enumerate(recording.names):
        joint = description.joints.get(name)
        if joint is not None and joint.type in ("revolute", "continuous"):
            raw = position[:, column].copy()
            position[:, column] = _into_limits(joint, _continuous(raw, _MEASURED_JUMP), raw)
            command[:, column] = _follow(
                command[:, column], position[:, column], was_wrapped=_wraps(raw, _MEASURED_JUMP)
            )
    for channel, values in (("position", position), ("command_position", command)):
        if channel in channels:
            channels[channel] = values
    return Recording(
        name=recording.name,
        origin_ns=recording.origin_ns,
        t_ns=recording.t_ns,
        names=recording.names,
        channels=channels,
        context=recording.context,
    )


def _continuous(angle: FloatArray, jump: float) -> FloatArray:
    """Angles without whole-turn jumps, shape (T,); NaN stays NaN."""
    if not _wraps(angle, jump):
        return angle
    present = np.isfinite(angle)
    result = angle.copy()
    result[present] = np.unwrap(angle[present])
    return result


def _wraps(angle: FloatArray, jump: float) -> bool:
    values = angle[np.isfinite(angle)]
    return _within_a_turn(values) and bool(np.any(np.abs(np.diff(values)) > jump))


def _within_a_turn(values: FloatArray) -> bool:
    if not len(values):
        return False
    low, high = float(values.min()), float(values.max())
    return any(start - _SLACK_RAD <= low and high <= start + _TURN + _SLACK_RAD for start in (-math.pi, 0.0))


def _into_limits(joint: Joint, angle: FloatArray, raw: FloatArray) -> FloatArray:
    """The angle plus the whole turns that bring most of it within the joint's limits."""
    if joint.type != "revolute" or joint.lower is None or joint.upper is None:
        return angle
    values = angle[np.isfinite(angle)]
    if not _within_a_turn(raw[np.isfinite(raw)]):
        return angle
    low, high = joint.lower, joint.upper
    inside = {
        turns: int(np.sum((values + turns * _TURN >= low) & (values + turns * _TURN <= high))) for turns in (0, -1, 1)
    }
    return angle + _TURN * max(inside, key=lambda turns: inside[turns])


def _follow(command: FloatArray, position: FloatArray, *, was_wrapped: bool) -> FloatArray:
    """The command in the measurement's turn: row by row where it wraps itself, else by one number of turns."""
    seen = np.flatnonzero(np.isfinite(position))
    given = np.isfinite(command)
    if not given.any():
        return command
    wraps = _wraps(command, _COMMANDED_JUMP)
    if not len(seen):
        return _continuous(command, _COMMANDED_JUMP)
    rows = np.arange(len(command))
    held = position[seen[np.clip(np.searchsorted(seen, rows, side="right") - 1, 0, None)]]
    if wraps or (was_wrapped and _within_a_turn(command[given])):
        return command + _TURN * np.round((held - command) / _TURN)
    behind = float(np.median((held - command)[given]))
    turns = round(behind / _TURN)
    return command + _TURN * turns if abs(behind - _TURN * turns) < _FOLLOWING_RAD else command
