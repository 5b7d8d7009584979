"""Time stamps as robots send them, into integer nanoseconds since the Unix epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from app.ingest.refusal import refusal, shown

NS_PER_S: Final = 1_000_000_000

# A stamp outside these years is a clock that was never set or a unit nobody meant.
EARLIEST_NS: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * NS_PER_S
LATEST_NS: Final = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * NS_PER_S

# In the hundred years that are accepted, a number of seconds is never a possible number of milliseconds, and so on:
# the magnitude says the unit.
_UNITS_NS: Final = {"s": NS_PER_S, "ms": 1_000_000, "µs": 1_000, "ns": 1}

# ROS 2 and ROS 1 spell the members of a time differently.
_TIME_MEMBERS: Final = (("sec", "nanosec"), ("secs", "nsecs"))

_ISO: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2})(?:[.,](\d{1,30}))?\s?([Zz]|[+-]\d{2}:?\d{2})?", flags=re.ASCII
)


def parse_stamp(value: object, where: str = "stamp") -> int | None:
    """Nanoseconds since the epoch, or None where there is no stamp: absent, null or zero.

    Accepted are `{"sec", "nanosec"}`, a number of seconds, milliseconds, microseconds or nanoseconds (told apart by
    magnitude; integers never pass through a float), and ISO 8601 text with a time zone.

    Args:
        value: as decoded from the payload.
        where: the field's name, for the refusal.

    Raises:
        TelemetryError: `bad_stamp`, `naive_stamp` or `stamp_out_of_range`.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        stamp_ns = _from_members(value, where)
    elif isinstance(value, str):
        stamp_ns = _from_text(value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        stamp_ns = _from_number(value, where)
    else:
        raise refusal("bad_stamp", where, f"{shown(value)} is not a time", '{"sec", "nanosec"}, a number or ISO 8601')
    if stamp_ns == 0:
        return None
    check_in_range(stamp_ns, where, shown(value if not isinstance(value, Mapping) else dict(value)))
    return stamp_ns


def check_in_range(stamp_ns: int, where: str, text: str) -> None:
    """Refuse times that no running robot can have.

    Raises:
        TelemetryError: `stamp_out_of_range`.
    """
    if not EARLIEST_NS <= stamp_ns < LATEST_NS:
        year = 1970 + stamp_ns / (NS_PER_S * 31_556_952)
        raise refusal(
            "stamp_out_of_range",
            where,
            f"{text} lies in the year {year:.0f}",
            "the years 2000 to 2099: is the robot's clock set, and its unit s, ms, µs or ns?",
        )


def _from_members(value: Mapping[object, object], where: str) -> int:
    for seconds_name, nanoseconds_name in _TIME_MEMBERS:
        if seconds_name not in value and nanoseconds_name not in value:
            continue
        seconds, nanoseconds = value.get(seconds_name), value.get(nanoseconds_name)
        if (
            type(seconds) is int
            and type(nanoseconds) is int
            and abs(seconds) < LATEST_NS  # a bound for the product below
            and 0 <= nanoseconds < NS_PER_S
        ):
            return seconds * NS_PER_S + nanoseconds
    raise refusal(
        "bad_stamp",
        where,
        "is not a time",
        '{"sec": integer, "nanosec": integer from 0 to 999999999}',
    )


def _from_number(value: float, where: str) -> int:
    if value == 0:
        return 0
    # Decimal of the shortest text that gives this float: 1767225600.01 is meant to be …600.010000000 s.
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    for unit_ns in _UNITS_NS.values():
        if EARLIEST_NS <= exact * unit_ns < LATEST_NS:
            return int((exact * unit_ns).to_integral_value(rounding=ROUND_HALF_EVEN))
    raise refusal(
        "stamp_out_of_range",
        where,
        f"{shown(value)} is in the years 2000 to 2099 neither as s nor as ms, µs or ns",
        "is the robot's clock set?",
    )


def _from_text(value: str, where: str) -> int:
    match = _ISO.fullmatch(value.strip())
    if match is None:
        raise refusal("bad_stamp", where, f"{shown(value)} is not a time", "ISO 8601 such as 2026-01-01T00:00:00.5Z")
    day_and_time, fraction, zone = match.groups()
    if zone is None:
        raise refusal("naive_stamp", where, f"{shown(value)} has no time zone", f"{day_and_time}Z if it is UTC")
    try:
        moment = datetime.fromisoformat(day_and_time.upper() + zone.upper())
        seconds = math.floor(moment.timestamp())
    except (ValueError, OverflowError) as error:
        raise refusal("bad_stamp", where, f"{shown(value)} is not a time: {error}") from error
    digits = (fraction or "0")[:9].ljust(9, "0")
    return seconds * NS_PER_S + int(digits)
