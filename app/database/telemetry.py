"""Telemetry's way in and out of the store: one row a message, its arrays packed into one blob."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NamedTuple, cast

import numpy as np

from app.errors import TelemetryError
from app.telemetry import (
    CHANNELS,
    CONTEXT_NAMES,
    Channel,
    ContextName,
    FloatArray,
    RobotId,
    SampleBatch,
)

MAX_BATCH_SPAN_NS: Final = 86_400 * 10**9
"""A batch's samples lie within a day of its stamp, either way: so a search by time can leave other partitions out."""

_CONTEXT = "context."


class BatchFlag(IntFlag):
    """What is odd about a stored message."""

    NONE = 0
    """Nothing."""
    STAMP_MISSING = 1
    """It had no stamp; `stamp_ns` is our receipt."""
    UNIDENTIFIED = 2
    """It can't be told from its repeat: stored at least once."""
    NON_FINITE = 4
    """It held NaN or ±Inf where a number belongs; they are missing values now."""


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """Where a batch came from, and what tells it from its repeat.

    Attributes:
        robot: of the topic.
        stream: last level of the topic.
        received_ns: our receipt, nanoseconds since the epoch; unique within the receiving process.
        boot_id: as sent; '' where there is none.
        seq: as sent; None where there is none.
        flags: oddities seen while decoding; `UNIDENTIFIED` is added by `pack`.
    """

    robot: RobotId
    stream: str
    received_ns: int
    boot_id: str = ""
    seq: int | None = None
    flags: BatchFlag = BatchFlag.NONE


class BatchRow(NamedTuple):
    """A row of `telemetry_batches`, in the order of its columns: `BatchRow._fields` are COPY's column names."""

    robot: str
    stamp_ns: int
    identity: bytes
    stream: str
    boot_id: str
    seq: int | None
    received_ns: int
    first_ns: int
    last_ns: int
    sample_count: int
    flags: int
    names: list[str]
    layout: list[str]
    data: bytes

    @property
    def needs_unstamped_entry(self) -> bool:
        """Whether only `unstamped_messages` can tell this message from its repeat."""
        return bool(self.flags & BatchFlag.STAMP_MISSING) and not self.flags & BatchFlag.UNIDENTIFIED


def pack(batch: SampleBatch, origin: BatchOrigin) -> BatchRow:
    """Turn a batch into its row; `unpack` gives back equal values.

    Args:
        batch: as decoded. Without a stamp of the robot's, `stamp_ns` is the receipt and `origin.flags` says so.
        origin: where it came from.

    Raises:
        TelemetryError: `empty` without samples, `batch_span` when samples are more than a day from the stamp.
    """
    if len(batch) == 0:
        raise TelemetryError("empty", "dt_ns", "holds no samples")
    first_offset_ns, last_offset_ns = int(batch.dt_ns.min()), int(batch.dt_ns.max())
    if first_offset_ns < -MAX_BATCH_SPAN_NS or last_offset_ns > MAX_BATCH_SPAN_NS:
        worst = first_offset_ns if first_offset_ns < -MAX_BATCH_SPAN_NS else last_offset_ns
        raise TelemetryError("batch_span", "dt_ns", f"{worst} ns is more than a day from the stamp", "nanoseconds")
    layout, parts = _pack_arrays(batch)
    identity, flags = _identity(batch, origin)
    return BatchRow(
        robot=origin.robot,
        stamp_ns=batch.stamp_ns,
        identity=identity,
        stream=origin.stream,
        boot_id=origin.boot_id,
        seq=origin.seq,
        received_ns=origin.received_ns,
        first_ns=batch.stamp_ns + first_offset_ns,
        last_ns=batch.stamp_ns + last_offset_ns,
        sample_count=len(batch),
        flags=int(flags),
        names=list(batch.names),
        layout=layout,
        data=b"".join(parts),
    )


def unpack(stamp_ns: int, sample_count: int, names: Sequence[str], layout: Sequence[str], data: bytes) -> SampleBatch:
    """Turn a row's columns back into the batch that `pack` was given.

    Args:
        stamp_ns: origin of the batch, nanoseconds since the epoch.
        sample_count: rows T.
        names: joint names.
        layout: what `data` holds after its T little-endian int64 offsets, e.g. `position:f4`.
        data: the packed arrays.
    """
    dt_ns = np.frombuffer(data, dtype="<i8", count=sample_count).astype(np.int64)
    channels: dict[Channel, FloatArray] = {}
    context: dict[ContextName, FloatArray] = {}
    offset = 8 * sample_count
    for item in layout:
        name, _, kind = item.rpartition(":")
        in_context = name.startswith(_CONTEXT)
        count = sample_count if in_context else sample_count * len(names)
        dtype = np.dtype("<" + kind)
        values = np.frombuffer(data, dtype=dtype, count=count, offset=offset).astype(np.float64)
        offset += count * dtype.itemsize
        if in_context:
            context[cast("ContextName", name.removeprefix(_CONTEXT))] = values
        else:
            channels[cast("Channel", name)] = values.reshape(sample_count, len(names))
    return SampleBatch(stamp_ns, dt_ns, tuple(names), channels, context)


def _pack_arrays(batch: SampleBatch) -> tuple[list[str], list[bytes]]:
    layout: list[str] = []
    parts: list[bytes] = [batch.dt_ns.astype("<i8").tobytes()]
    arrays: list[tuple[str, FloatArray]] = [(c, batch.channels[c]) for c in CHANNELS if c in batch.channels]
    arrays += [(_CONTEXT + c, batch.context[c]) for c in CONTEXT_NAMES if c in batch.context]
    for name, values in arrays:
        narrow = _as_float32(values)
        if narrow is None:
            layout.append(f"{name}:f8")
            parts.append(values.astype("<f8").tobytes())
        else:
            layout.append(f"{name}:f4")
            parts.append(narrow)
    return layout, parts


def _as_float32(values: FloatArray) -> bytes | None:
    """The values in half the space where that loses nothing: what came as float32 was widened only on the way."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = values.astype("<f4")
    return narrow.tobytes() if np.array_equal(narrow.astype(np.float64), values, equal_nan=True) else None


def _identity(batch: SampleBatch, origin: BatchOrigin) -> tuple[bytes, BatchFlag]:
    """16 bytes that, with robot and stamp, tell a message from its repeat.

    With a seq: stream, boot_id and seq; without: stream and names. A message without a stamp of its own needs both
    boot_id and seq (a bare seq starts anew with every boot); without them its receipt makes it unique.
    """
    key: Iterable[str]
    flags = origin.flags
    if origin.flags & BatchFlag.STAMP_MISSING and (origin.seq is None or not origin.boot_id):
        flags |= BatchFlag.UNIDENTIFIED
        key = ("receipt", str(origin.received_ns), origin.boot_id)
    elif origin.seq is not None:
        key = ("seq", origin.boot_id, str(origin.seq))
    else:
        key = ("names", *batch.names)
    sha = hashlib.blake2b(digest_size=16)
    for part in (origin.stream, *key):
        encoded = part.encode()
        # Lengths in front, so that no two lists of parts run together into the same bytes.
        sha.update(len(encoded).to_bytes(4, "little") + encoded)
    return sha.digest(), flags
