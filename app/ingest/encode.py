"""Sample batches into messages: what replay and simulated robots publish. Float64 and nanoseconds survive exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgpack
import numpy as np
import orjson
from numpy.typing import NDArray

from app.ingest.packet import SCHEMA
from app.ingest.stamp import NS_PER_S
from app.telemetry import SampleBatch

Precision = Literal["<f8", "<f4"]

_COMMAND_PREFIX: Final = "command_"


def encode_json(batch: SampleBatch, boot_id: str, seq: int | None) -> bytes:
    """A batch as `application/json`; floats by the shortest text that gives them back, NaN as null."""
    document = _document(batch, boot_id, seq, np.ascontiguousarray)
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_msgpack(batch: SampleBatch, boot_id: str, seq: int | None, precision: Precision = "<f8") -> bytes:
    """A batch as `application/msgpack`.

    Args:
        batch: the samples.
        boot_id: names this run of the publisher.
        seq: number of the message within the run.
        precision: of the values; times are always exact.
    """

    def typed(array: NDArray[np.generic]) -> dict[str, object]:
        dtype = "<i8" if array.dtype == np.int64 else precision
        return {"dtype": dtype, "shape": list(array.shape), "data": array.astype(dtype).tobytes()}

    packed: bytes = msgpack.packb(_document(batch, boot_id, seq, typed))
    return packed


def _document(
    batch: SampleBatch, boot_id: str, seq: int | None, array: Callable[[NDArray[np.generic]], object]
) -> dict[str, object]:
    seconds, nanoseconds = divmod(batch.stamp_ns, NS_PER_S)
    document: dict[str, object] = {
        "schema": SCHEMA,
        "boot_id": boot_id,
        "seq": seq,
        "stamp": {"sec": seconds, "nanosec": nanoseconds},
        "name": list(batch.names),
        "dt_ns": array(batch.dt_ns),
    }
    command: dict[str, object] = {}
    for channel, values in batch.channels.items():
        if channel.startswith(_COMMAND_PREFIX):
            command[channel.removeprefix(_COMMAND_PREFIX)] = array(values)
        else:
            document[channel] = array(values)
    document["command"] = command
    document["context"] = {str(name): array(values) for name, values in batch.context.items()}
    return document
