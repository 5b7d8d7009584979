"""Scenarios as files, written piece by piece: whatever their number, some thousands are in memory at a time."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from app.scenario.generate import chunks
from app.scenario.records import Origin, check_holds, column_names, records, robots_of, table, twin_provenance
from app.scenario.request import Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEDIA_TYPES: Final[dict[Format, str]] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "npz": "application/zip",
    "parquet": "application/vnd.apache.parquet",
}
METADATA_KEY: Final = b"twincal.scenario"
"""Of the provenance in a Parquet file's metadata."""
_SEED: Final = "episode/seed"


def write(origin: Origin, file_format: Format) -> Iterator[bytes]:
    """The file, piece by piece; what it can't hold is refused before the first.

    Raises:
        InvalidInputError: naming `format`, if a table can't hold it.
    """
    check_holds(origin, file_format)
    writers: dict[Format, Callable[[Origin], Iterator[bytes]]] = {
        "json": _json,
        "ndjson": _ndjson,
        "npz": _npz,
        "parquet": _parquet,
    }
    return writers[file_format](origin)


def _json(origin: Origin) -> Iterator[bytes]:
    """One document: the provenance, and `scenarios`."""
    head = orjson.dumps(origin.provenance())
    yield head[:-1] + b',"scenarios":['
    separator = b""
    for chunk in chunks(origin.choice, origin.sources, origin.fleet):
        yield separator + b",".join(orjson.dumps(record) for record in records(chunk, origin.choice.seed))
        separator = b","
    yield b"]}\n"


def _ndjson(origin: Origin) -> Iterator[bytes]:
    """One scenario a line, each with its provenance, so that a line means the same alone."""
    common = {
        source.twin.robot: orjson.dumps({"provenance": twin_provenance(source.twin)})[1:] for source in origin.sources
    }
    for chunk in chunks(origin.choice, origin.sources, origin.fleet):
        lines = (
            orjson.dumps(record)[:-1] + b"," + common[record["keys"]["robot"]]
            for record in records(chunk, origin.choice.seed)
        )
        yield b"\n".join(lines) + b"\n"


class _Pipe(io.RawIOBase):
    """What a writer of files writes to; whoever reads takes what has come so far."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._length += len(part)
        return len(part)

    def tell(self) -> int:
        return self._length

    def take(self) -> bytes:
        """What was written since the last time."""
        taken, self._parts = b"".join(self._parts), []
        return taken


def _npz(origin: Origin) -> Iterator[bytes]:
    """`values` (n, columns) with `columns`, `index`, `robot` and `robots`, and `provenance` as JSON text."""
    names, pipe = column_names(origin), _Pipe()
    count, first = origin.choice.n, origin.choice.first
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {
            "provenance": np.array(orjson.dumps(origin.provenance()).decode()),
            "columns": np.array(names),
            "index": np.arange(first, first + count, dtype=np.int64),
            "robots": np.array(robots_of(origin.sources)),
        }.items():
            with archive.open(_entry(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, content, allow_pickle=False)
            yield pipe.take()
        owner, seeds = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int64)
        with archive.open(_entry("values"), "w", force_zip64=True) as member:
            header = {"descr": "<f8", "fortran_order": False, "shape": (count, len(names))}
            np.lib.format.write_array_header_1_0(member, header)
            for chunk in chunks(origin.choice, origin.sources, origin.fleet):
                columns, episode_seeds = table(chunk)
                member.write(np.stack(columns, axis=1).astype("<f8").tobytes())
                rows = slice(int(chunk.indices[0]) - first, int(chunk.indices[-1]) - first + 1)
                owner[rows], seeds[rows] = chunk.owner, episode_seeds
                yield pipe.take()
        for name, numbers in (("robot", owner), ("episode_seed", seeds)):
            with archive.open(_entry(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, numbers, allow_pickle=False)
    yield pipe.take()


def _entry(name: str) -> zipfile.ZipInfo:
    # Without the time of writing: the same request is the same file.
    return zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))


def _parquet(origin: Origin) -> Iterator[bytes]:
    """One row a scenario, one column a number; the provenance is in the file's metadata."""
    import pyarrow as pa  # noqa: PLC0415 - 50 MB of library, only where a table is asked for
    from pyarrow import parquet  # noqa: PLC0415 - as above

    names, pipe = column_names(origin), _Pipe()
    schema = pa.schema(
        [
            pa.field("index", pa.int64(), nullable=False),
            pa.field("robot", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("version", pa.int32(), nullable=False),
            *(pa.field(name, pa.float64(), nullable=False) for name in names),
            pa.field(_SEED, pa.int64(), nullable=False),
        ],
        metadata={METADATA_KEY: orjson.dumps(origin.provenance())},
    )
    robots = pa.array(robots_of(origin.sources))
    versions = np.array([source.twin.version for source in origin.sources], dtype=np.int32)
    # Drawn doubles don't repeat: neither dictionaries nor compression gain anything.
    with parquet.ParquetWriter(
        pa.PythonFile(pipe, mode="w"), schema, compression="NONE", use_dictionary=["robot"], write_statistics=False
    ) as writer:
        for chunk in chunks(origin.choice, origin.sources, origin.fleet):
            columns, seeds = table(chunk)
            owner = pa.DictionaryArray.from_arrays(chunk.owner.astype(np.int32), robots)
            arrays = [pa.array(chunk.indices), owner, pa.array(versions[chunk.owner]), *map(_column(pa), columns)]
            writer.write_batch(pa.record_batch([*arrays, pa.array(seeds)], schema=schema))
            yield pipe.take()
    yield pipe.take()


def _column(pa: Any) -> Callable[[NDArray[np.float64]], Any]:
    return lambda values: pa.array(values, type=pa.float64())
