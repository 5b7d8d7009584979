"""CSV logs: a time column, `<joint>.<channel>` columns and columns of the robot as a whole."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import numpy as np

from app.errors import LogError
from app.telemetry import (
    CHANNELS,
    CONTEXT_NAMES,
    Channel,
    ContextName,
    FloatArray,
    Recording,
    SampleBatch,
    assemble_recording,
)

TIME_COLUMN: Final = "t_s"

_CHANNEL_BY_NAME: Final[Mapping[str, Channel]] = {str(c): c for c in CHANNELS}
_CONTEXT_BY_NAME: Final[Mapping[str, ContextName]] = {str(c): c for c in CONTEXT_NAMES}
_NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})
_NANOSECOND: Final = Decimal(1)
# A time beyond ± 292 years doesn't fit 64-bit nanoseconds.
_MAX_NS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Header:
    """What each column of a log holds."""

    time: int
    joints: Mapping[int, tuple[str, Channel]]
    context: Mapping[int, ContextName]
    columns: tuple[str, ...]


def read_csv(path: Path) -> Recording:
    """Read a CSV log.

    `t_s` is taken as a decimal into integer nanoseconds, never through a float. An empty cell is a missing value, and
    so are `nan` and `inf`.

    Args:
        path: UTF-8, comma separated, the first line names the columns.

    Raises:
        LogError: naming `file:line` and the column at fault.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = _numbered_rows(path, csv.reader(file, strict=True))
            line, names = next(rows, (1, []))
            header = _parse_header(path, line, names)
            times, values = _parse_rows(path, header, rows)
    except UnicodeDecodeError as error:
        raise LogError(str(path), f"byte {error.start} is not UTF-8", "save the log as UTF-8") from error
    if not times:
        raise LogError(str(path), "holds no rows", "one row a sample after the header")
    return assemble_recording(path.stem, [_batch(header, times, values)])


def _numbered_rows(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their first line; blank lines are skipped."""
    line = 0
    try:
        for row in reader:
            first, line = line + 1, reader.line_num  # type: ignore[attr-defined]  # csv.reader has it; Iterator hasn't
            if row:
                yield first, row
    except csv.Error as error:
        raise LogError(f"{path}:{line + 1}", f"is not CSV: {error}") from error


def _parse_header(path: Path, line: int, names: Sequence[str]) -> _Header:
    columns = tuple(name.strip() for name in names)
    where = f"{path}:{line}"
    if TIME_COLUMN not in columns:
        hint = "separate columns by commas" if any(c in ";\t" for c in "".join(columns)) else "seconds, from any origin"
        raise LogError(where, f"there is no column {TIME_COLUMN}", f"{TIME_COLUMN}: {hint}")
    joints: dict[int, tuple[str, Channel]] = {}
    context: dict[int, ContextName] = {}
    seen: set[str] = set()
    for index, column in enumerate(columns):
        if column in seen:
            raise LogError(where, f"column {column!r} is there twice", "each column once")
        seen.add(column)
        if column == TIME_COLUMN:
            continue
        if column in _CONTEXT_BY_NAME:
            context[index] = _CONTEXT_BY_NAME[column]
        else:
            joints[index] = _parse_joint_column(where, index, column)
    if not joints:
        raise LogError(where, "there is no joint column", "<joint>.position, <joint>.command_position …")
    return _Header(columns.index(TIME_COLUMN), joints, context, columns)


def _parse_joint_column(where: str, index: int, column: str) -> tuple[str, Channel]:
    joint, _, channel = column.rpartition(".")
    if not joint or channel not in _CHANNEL_BY_NAME:
        raise LogError(
            where,
            f"column {column!r} (number {index + 1}) is unknown",
            f"{TIME_COLUMN}, {', '.join(CONTEXT_NAMES)} or <joint>.<channel> with a channel of {', '.join(CHANNELS)}",
        )
    return joint, _CHANNEL_BY_NAME[channel]


def _parse_rows(
    path: Path, header: _Header, rows: Iterator[tuple[int, list[str]]]
) -> tuple[list[int], list[list[float]]]:
    """Times in nanoseconds, and one list of values a row (NaN in the time column's place)."""
    times: list[int] = []
    values: list[list[float]] = []
    for line, row in rows:
        if len(row) != len(header.columns):
            raise LogError(f"{path}:{line}", f"has {len(row)} cells", f"{len(header.columns)}, as the header has")
        t_ns = _parse_time(f"{path}:{line}", row[header.time])
        if times and t_ns <= times[-1]:
            raise LogError(
                f"{path}:{line}",
                f"column {TIME_COLUMN}: {row[header.time]} does not come after the row before it",
                "times increase from row to row",
            )
        times.append(t_ns)
        row[header.time] = ""
        try:
            values.append([float(cell) if cell else math.nan for cell in row])
        except ValueError:
            values.append([_parse_cell(path, line, c, cell) for c, cell in zip(header.columns, row, strict=True)])
        if not all(map(_is_plain, values[-1], row)):
            values[-1] = [_parse_cell(path, line, c, cell) for c, cell in zip(header.columns, row, strict=True)]
    return times, values


def _is_plain(value: float, cell: str) -> bool:
    """Whether a value needs no second look: finite, and not one of Python's own spellings such as `1_000`."""
    return math.isfinite(value) and "_" not in cell if cell else True


def _parse_cell(path: Path, line: int, column: str, cell: str) -> float:
    text = cell.strip()
    if not text or text.lower().lstrip("+-") in _NOT_FINITE:
        return math.nan
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise LogError(
            f"{path}:{line}", f"column {column}: {cell!r} is not a number", "a finite number, or nothing where missing"
        )
    return value


def _parse_time(where: str, cell: str) -> int:
    try:
        seconds = Decimal("nan" if "_" in cell else cell.strip())
        exact = seconds.scaleb(9).quantize(_NANOSECOND, rounding=ROUND_HALF_EVEN) if seconds.is_finite() else None
    except InvalidOperation:
        exact = None
    if exact is None or abs(exact) > _MAX_NS:
        raise LogError(where, f"column {TIME_COLUMN}: {cell!r} is not a time", "seconds as a decimal number")
    return int(exact)


def _batch(header: _Header, times: Sequence[int], values: Sequence[Sequence[float]]) -> SampleBatch:
    names = tuple(sorted({joint for joint, _ in header.joints.values()}))
    column_of = {joint: i for i, joint in enumerate(names)}
    table = np.array(values, dtype=np.float64)
    channels: dict[Channel, FloatArray] = {}
    for index, (joint, channel) in header.joints.items():
        target = channels.setdefault(channel, np.full((len(times), len(names)), np.nan))
        target[:, column_of[joint]] = table[:, index]
    return SampleBatch(
        stamp_ns=times[0],
        dt_ns=np.array(times, dtype=np.int64) - times[0],
        names=names,
        channels=channels,
        context={name: table[:, index].copy() for index, name in header.context.items()},
    )
