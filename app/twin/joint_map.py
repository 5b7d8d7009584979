"""From a log's names, units and signs to the description's joints in SI.

Positions and position commands: SI = sign · (scale · raw, in `unit`, converted to SI, + offset). Velocities are in
`unit` per second and without the offset. Efforts are in N·m (N) and take sign and scale alone. Gains and `enabled` are
left as they are: they have neither sign nor zero, and their unit is the controller's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.telemetry import CHANNELS, Channel, FloatArray, Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import Joint
from app.twin.units import si_factor


@dataclass(frozen=True, slots=True)
class JointMap:
    """What turns one joint's raw values into SI.

    Attributes:
        sign: 1 or -1.
        scale: units per raw value.
        unit_si: rad or m per unit.
        offset: added to positions before the sign [rad or m].
    """

    sign: int
    scale: float
    unit_si: float
    offset: float

    @classmethod
    def of(cls, declaration: RobotDeclaration, joint: str) -> JointMap:
        """The map that the declaration gives for a joint of the description."""
        declared = declaration.joint(joint)
        return cls(declared.sign, declared.scale, si_factor(declared.unit), declared.offset)

    def to_si(self, channel: Channel, raw: FloatArray) -> FloatArray:
        """Raw values of a channel in SI [rad, m and per second; N·m, N], same shape; NaN stays NaN."""
        match channel:
            case "position" | "command_position":
                return self.sign * (self.scale * self.unit_si * raw + self.offset)
            case "velocity" | "command_velocity":
                return self.sign * self.scale * self.unit_si * raw
            case "effort" | "command_effort":
                return self.sign * self.scale * raw
            case "command_kp" | "command_kd" | "command_enabled":
                return raw.copy()

    def to_raw(self, channel: Channel, si: FloatArray) -> FloatArray:
        """The inverse of `to_si`: what to ask of the robot in its own units."""
        match channel:
            case "position" | "command_position":
                return (self.sign * si - self.offset) / (self.scale * self.unit_si)
            case "velocity" | "command_velocity":
                return self.sign * si / (self.scale * self.unit_si)
            case "effort" | "command_effort":
                return self.sign * si / self.scale
            case "command_kp" | "command_kd" | "command_enabled":
                return si.copy()


def apply_joint_map(declaration: RobotDeclaration, recording: Recording) -> Recording:
    """The recording under the description's joint names and in SI.

    Ignored joints are left out, and so is a column whose name belongs to a joint that reads another column. Names the
    declaration doesn't speak of stay as they are. Measured effort is left out unless its unit is N·m: a current or an
    unknown number is no torque. Commanded effort is torque by contract and stays.

    Args:
        declaration: the robot's.
        recording: as the robot sent it.
    """
    joint_of = {declared.source or name: name for name, declared in declaration.joints.items() if not declared.ignore}
    hidden = set(declaration.joints) | {d.source for d in declaration.joints.values() if d.source is not None}
    columns = [
        (joint_of.get(source, source), column)
        for column, source in enumerate(recording.names)
        if source in joint_of or source not in hidden
    ]
    columns.sort()
    channels: dict[Channel, FloatArray] = {}
    for channel in CHANNELS:
        if channel not in recording.channels or (channel == "effort" and declaration.effort_unit != "N·m"):
            continue
        raw = recording.channels[channel]
        values = np.full((len(recording), len(columns)), np.nan)
        for target, (joint, column) in enumerate(columns):
            values[:, target] = JointMap.of(declaration, joint).to_si(channel, raw[:, column])
        if not np.isnan(values).all():
            channels[channel] = values
    return Recording(
        name=recording.name,
        origin_ns=recording.origin_ns,
        t_ns=recording.t_ns,
        names=tuple(joint for joint, _ in columns),
        channels=channels,
        context=recording.context,
    )


def hold_position(declaration: RobotDeclaration, joint: Joint) -> float:
    """Where the twin locks a joint that is ignored or not logged [rad or m]: as declared, else 0, within its limits."""
    declared = declaration.joint(joint.name).hold_at
    if declared is not None:
        return declared
    lower = -np.inf if joint.lower is None else joint.lower
    upper = np.inf if joint.upper is None else joint.upper
    return float(np.clip(0.0, lower, upper))
