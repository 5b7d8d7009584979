"""The words every package shares: ids, sample batches, recordings.

Values here are as the robot sent them, in its own units and signs; the joint map of the declaration turns them into SI
when a dataset is made. Missing values are NaN; a channel nobody measured is absent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidInputError

RobotId = NewType("RobotId", str)
FleetId = NewType("FleetId", str)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Channel = Literal[
    "position",
    "velocity",
    "effort",
    "command_position",
    "command_velocity",
    "command_effort",
    "command_kp",
    "command_kd",
    "command_enabled",
]
"""What can be logged of a joint. `command_*` is what was asked of it, held until the next row."""

ContextName = Literal["supply_v", "temperature_c", "payload_kg"]
"""What can be logged of the robot as a whole."""

CHANNELS: Final[tuple[Channel, ...]] = get_args(Channel)
CONTEXT_NAMES: Final[tuple[ContextName, ...]] = get_args(ContextName)

_Key = TypeVar("_Key", bound=str)
_Index = NDArray[np.intp] | tuple[NDArray[np.intp], ...]

# VDA 5050's character set; begins with a letter or digit; safe in a topic, a URL path and a metric label.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def parse_robot_id(text: str, where: str = "robot") -> RobotId:
    """Check `text` against the one id grammar.

    Raises:
        InvalidInputError: naming `where`.
    """
    return RobotId(_parse_id(text, where))


def parse_fleet_id(text: str, where: str = "fleet") -> FleetId:
    """Check `text` against the one id grammar.

    Raises:
        InvalidInputError: naming `where`.
    """
    return FleetId(_parse_id(text, where))


def _parse_id(text: str, where: str) -> str:
    if _ID.fullmatch(text) is None:
        raise InvalidInputError(
            where,
            f"{text!r} is not an id",
            "1 to 64 characters of A-Z a-z 0-9 _ . : - beginning with a letter or digit",
        )
    return text


def read_only(array: NDArray[np.generic]) -> None:
    """Freeze an array that several owners share."""
    array.flags.writeable = False


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Rows of samples of some of a robot's joints, as one message carries them.

    Attributes:
        stamp_ns: origin of the batch, nanoseconds since the Unix epoch.
        dt_ns: row i is the sample at `stamp_ns + dt_ns[i]`, shape (T,).
        names: joint names, verbatim; columns of every channel follow them.
        channels: measured and commanded values, each of shape (T, n); NaN is missing.
        context: values of the robot as a whole, each of shape (T,).
    """

    stamp_ns: int
    dt_ns: IntArray
    names: tuple[str, ...]
    channels: Mapping[Channel, FloatArray]
    context: Mapping[ContextName, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.dt_ns, *self.channels.values(), *self.context.values()):
            read_only(array)

    def __len__(self) -> int:
        return len(self.dt_ns)


@dataclass(frozen=True, slots=True)
class Recording:
    """One continuous stretch of a robot's telemetry, on one time axis.

    Attributes:
        name: file stem or recording id; for people, never part of a digest.
        origin_ns: stamp of the first row, nanoseconds since the epoch (or since the log's own origin).
        t_ns: time since the first row, strictly increasing, shape (T,), `t_ns[0] == 0`.
        names: joint names, sorted.
        channels: shape (T, n) each; NaN where a joint has no value in that row. Channels without any value are absent.
        context: shape (T,) each.
    """

    name: str
    origin_ns: int
    t_ns: IntArray
    names: tuple[str, ...]
    channels: Mapping[Channel, FloatArray]
    context: Mapping[ContextName, FloatArray]

    def __post_init__(self) -> None:
        for array in (self.t_ns, *self.channels.values(), *self.context.values()):
            read_only(array)

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last row, in seconds."""
        return float(self.t_ns[-1]) * 1e-9 if len(self) else 0.0

    def digest(self) -> bytes:
        """SHA-256 of times and values: equal for equal data, whatever file, transport or batching they came by."""
        sha = hashlib.sha256()
        sha.update("\0".join(self.names).encode())
        sha.update(self.t_ns.astype("<i8").tobytes())
        values: dict[str, FloatArray] = {str(k): v for group in (self.channels, self.context) for k, v in group.items()}
        for name in sorted(values):
            array = np.array(values[name], dtype="<f8")
            array[np.isnan(array)] = np.nan  # one bit pattern for "missing"
            sha.update(name.encode() + b"\0" + array.tobytes())
        return sha.digest()


def assemble_recording(name: str, batches: Iterable[SampleBatch]) -> Recording:
    """Merge batches of one or several streams into one recording.

    Rows are ordered by stamp; rows of the same stamp are one row (a JointState and its command, or two messages that
    each hold some joints); of two values for the same joint, channel and stamp the first one received stays, so that a
    message delivered twice changes nothing.

    Args:
        name: the recording's name.
        batches: in order of receipt.

    Raises:
        InvalidInputError: if there is no row at all.
    """
    received = [b for b in batches if len(b)]
    if not received:
        raise InvalidInputError(name, "holds no samples")
    stamps = np.concatenate([b.stamp_ns + b.dt_ns for b in received])
    times, row_of = np.unique(stamps, return_inverse=True)
    names = tuple(sorted({joint for b in received for joint in b.names}))
    column_of = {joint: i for i, joint in enumerate(names)}
    channels: dict[Channel, FloatArray] = {}
    context: dict[ContextName, FloatArray] = {}
    start = 0
    for batch in received:
        rows = row_of[start : start + len(batch)]
        start += len(batch)
        columns = np.array([column_of[j] for j in batch.names], dtype=np.intp)
        for channel, values in batch.channels.items():
            target = channels.setdefault(channel, np.full((len(times), len(names)), np.nan))
            _fill(target, (rows[:, None], columns[None, :]), values)
        for key, series in batch.context.items():
            _fill(context.setdefault(key, np.full(len(times), np.nan)), rows, series)
    return Recording(
        name=name,
        origin_ns=int(times[0]),
        t_ns=(times - times[0]).astype(np.int64),
        names=names,
        channels=_present(channels, CHANNELS),
        context=_present(context, CONTEXT_NAMES),
    )


def _fill(target: FloatArray, index: _Index, values: FloatArray) -> None:
    """Write `values` where `target` has none yet."""
    held = target[index]
    target[index] = np.where(np.isnan(held), values, held)


def _present(values: Mapping[_Key, FloatArray], order: Sequence[_Key]) -> dict[_Key, FloatArray]:
    return {key: values[key] for key in order if key in values and not np.isnan(values[key]).all()}
