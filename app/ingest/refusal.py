"""Why a message is refused: the stable reasons that dead letters, metrics and documentation share."""

from __future__ import annotations

from typing import Final, Literal, get_args

from app.errors import TelemetryError

Reason = Literal[
    "bad_topic",
    "unregistered_robot",
    "wrong_fleet",
    "robot_mismatch",
    "too_large",
    "too_many_joints",
    "too_many_samples",
    "not_json",
    "not_msgpack",
    "too_deep",
    "unknown_payload",
    "unknown_field",
    "missing_field",
    "wrong_type",
    "number_out_of_range",
    "length_mismatch",
    "bad_name",
    "bad_state",
    "duplicate_name",
    "bad_stamp",
    "naive_stamp",
    "stamp_out_of_range",
    "rows_out_of_order",
    "empty",
    "not_storable",
    "internal_error",
]
"""`not_storable`: the database refused the row; `internal_error`: our own fault, kept so that nothing is lost."""

REASONS: Final[tuple[Reason, ...]] = get_args(Reason)


def refusal(reason: Reason, where: str, problem: str, remedy: str = "") -> TelemetryError:
    """The error that refuses a message whole; a typed way to build it."""
    return TelemetryError(reason, where, problem, remedy)


def shown(value: object, limit: int = 60) -> str:
    """A value from the wire as it may stand in a message: one line, escaped, cut."""
    if isinstance(value, list | tuple | dict | bytes):
        return f"{type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
