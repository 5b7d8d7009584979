"""Values of a decoded payload, which anyone may have written, into checked text, integers and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.ingest.refusal import refusal, shown
from app.telemetry import FloatArray, IntArray

MAX_TEXT: Final = 256
INT64_MAX: Final = 2**63 - 1

_NUMBER_TYPES: Final = frozenset({float, int, NoneType})
# Some bridges spell what JSON can't hold as text; protobuf's JSON mapping is one.
_MISSING_TEXTS: Final = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_MAX_LENGTH: Final = 2**31
_DTYPES: Final = frozenset({"<f4", "<f8", "<i8"})


def read_text(value: object, where: str) -> str:
    """A short text that Postgres can hold.

    Raises:
        TelemetryError: `wrong_type` or `bad_name`.
    """
    if not isinstance(value, str):
        raise refusal("wrong_type", where, f"{shown(value)} is not a text")
    if not 0 < len(value) <= MAX_TEXT or "\0" in value:
        raise refusal("bad_name", where, f"{shown(value)} can't be a name", f"1 to {MAX_TEXT} characters without NUL")
    return value


def read_integer(value: object, where: str) -> int:
    """An integer from 0 to 2⁶³ − 1.

    Raises:
        TelemetryError: `wrong_type` or `number_out_of_range`.
    """
    if type(value) is not int:
        raise refusal("wrong_type", where, f"{shown(value)} is not an integer")
    if not 0 <= value <= INT64_MAX:
        raise refusal("number_out_of_range", where, f"{shown(value)} is out of range", f"0 to {INT64_MAX}")
    return value


def read_mapping(value: object, where: str, allowed: Mapping[str, object]) -> Mapping[str, object]:
    """An object whose members are all known; absent and null are empty.

    Raises:
        TelemetryError: `wrong_type` or `unknown_field`.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refusal("wrong_type", where or "payload", f"{shown(value)} is not an object")
    for key in value:
        if key not in allowed:
            prefix = f"{where}." if where else ""
            raise refusal("unknown_field", f"{prefix}{shown(key)}", "is unknown", f"one of {', '.join(allowed)}")
    return value


def read_names(value: object, limit: int, where: str = "name") -> tuple[str, ...]:
    """Joint names, verbatim, each once.

    Raises:
        TelemetryError: `wrong_type`, `bad_name`, `duplicate_name` or `too_many_joints`.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise refusal("wrong_type", where, f"{shown(value)} is not a list of joint names")
    if len(value) > limit:
        raise refusal("too_many_joints", where, f"holds {len(value)} joints", f"at most {limit}")
    names = tuple(read_text(item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refusal("duplicate_name", where, f"{shown(twice)} is there twice", "each joint once")
    return names


def read_rows(value: object, where: str, columns: int, *, booleans: bool = False) -> FloatArray | None:
    """A table of numbers, one row a sample; null, NaN and infinities as they are. None where nothing was measured.

    Args:
        value: a list of rows, or a typed array `{"dtype", "shape", "data"}`.
        where: the field's name.
        columns: how many numbers a row must hold.
        booleans: whether true and false may stand for 1 and 0.

    Returns:
        Shape (rows, columns).

    Raises:
        TelemetryError: `wrong_type` or `length_mismatch`.
    """
    if value is None or value == []:
        return None
    if isinstance(value, dict):
        array = _read_typed(value, where, dimensions=2)
        if not array.shape[0] or array.shape == (array.shape[0], 0):
            return None
        _check_columns(array.shape[1], columns, where)
        return array.astype(np.float64)
    if not isinstance(value, list):
        raise refusal("wrong_type", where, f"{shown(value)} is not a list of rows")
    rows = [_read_row(row, f"{where}[{i}]", columns, booleans=booleans) for i, row in enumerate(value)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), columns)


def read_row(value: object, where: str, columns: int) -> FloatArray | None:
    """One row, shape (1, columns); None where nothing was measured.

    Raises:
        TelemetryError: `wrong_type` or `length_mismatch`.
    """
    if value is None or value == []:
        return None
    return np.array([_read_row(value, where, columns, booleans=False)], dtype=np.float64)


def read_series(value: object, where: str, rows: int) -> FloatArray | None:
    """One value a row, or one value for all; None where nothing was measured.

    Returns:
        Shape (rows,).

    Raises:
        TelemetryError: `wrong_type` or `length_mismatch`.
    """
    if value is None or value == []:
        return None
    if isinstance(value, dict):
        series = _read_typed(value, where, dimensions=1).astype(np.float64)
        if not len(series):
            return None
    else:
        items = value if isinstance(value, list) else [value]
        series = np.array(_read_row(items, where, len(items), booleans=False), dtype=np.float64)
    if len(series) == 1:
        return np.repeat(series, rows)
    if len(series) != rows:
        raise refusal("length_mismatch", where, f"holds {len(series)} values", f"{rows}, one a row, or one for all")
    return series


def read_offsets(value: object, where: str, limit: int) -> IntArray | None:
    """Times of rows after the stamp, in nanoseconds; None where there are none.

    Raises:
        TelemetryError: `wrong_type`, `number_out_of_range`, `too_many_samples` or `rows_out_of_order`.
    """
    if value is None or value == []:
        return None
    if isinstance(value, dict):
        typed = _read_typed(value, where, dimensions=1)
        if typed.dtype != np.dtype("<i8"):
            raise refusal("wrong_type", f"{where}.dtype", "is not an integer type", "<i8")
        offsets = typed.astype(np.int64)
    elif isinstance(value, list) and set(map(type, value)) <= {int}:
        if any(abs(item) > INT64_MAX for item in value):
            raise refusal("number_out_of_range", where, "holds a number beyond 64 bits")
        offsets = np.array(value, dtype=np.int64)
    else:
        raise refusal("wrong_type", where, "is not a list of integers", "whole nanoseconds after the stamp")
    if len(offsets) > limit:
        raise refusal("too_many_samples", where, f"holds {len(offsets)} samples", f"at most {limit} a message")
    # Compared, not subtracted: a difference of two 64-bit numbers can overflow.
    backwards = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(backwards):
        row = int(backwards[0]) + 1
        raise refusal("rows_out_of_order", f"{where}[{row}]", "doesn't come after the row before", "times increase")
    return offsets


def _read_row(row: object, where: str, columns: int, *, booleans: bool) -> list[float]:
    if not isinstance(row, list):
        raise refusal("wrong_type", where, f"{shown(row)} is not a list of numbers")
    _check_columns(len(row), columns, where)
    if set(map(type, row)) <= _NUMBER_TYPES:
        return row  # numpy reads None as NaN
    return [_read_number(item, f"{where}[{i}]", booleans=booleans) for i, item in enumerate(row)]


def _read_number(item: object, where: str, *, booleans: bool) -> float:
    if item is None:
        return math.nan
    if isinstance(item, bool):
        if booleans:
            return float(item)
    elif isinstance(item, int | float):
        return float(item)
    elif isinstance(item, str) and item.lower().lstrip("+-") in _MISSING_TEXTS:
        return _MISSING_TEXTS[item.lower().lstrip("+-")]
    raise refusal("wrong_type", where, f"{shown(item)} is not a number", "a number, or null where missing")


def _check_columns(found: int, columns: int, where: str) -> None:
    if found != columns:
        raise refusal("length_mismatch", where, f"holds {found} values", f"{columns}, one for each name, or none")


def _read_typed(value: Mapping[str, object], where: str, dimensions: int) -> NDArray[np.generic]:
    """A view of `{"dtype", "shape", "data"}`; everything is checked before anything is allocated."""
    dtype, shape, data = value.get("dtype"), value.get("shape"), value.get("data")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise refusal("wrong_type", f"{where}.dtype", f"{shown(dtype)} is not a type", f"one of {sorted(_DTYPES)}")
    if not isinstance(data, bytes):
        raise refusal("wrong_type", f"{where}.data", f"{shown(data)} is not bytes")
    if (
        not isinstance(shape, list)
        or len(shape) != dimensions
        or not all(type(length) is int and 0 <= length <= _MAX_LENGTH for length in shape)
    ):
        raise refusal("wrong_type", f"{where}.shape", f"{shown(shape)} is not a shape", f"{dimensions} lengths")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size != len(data):
        raise refusal("length_mismatch", where, f"shape {shape} of {dtype} takes {size} bytes, data has {len(data)}")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
