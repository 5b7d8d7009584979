"""Bytes of a message into plain objects: JSON or MessagePack, chosen by content type or first byte."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgpack
import orjson

from app.ingest.refusal import refusal, shown

Encoding = Literal["json", "msgpack"]

JSON_CONTENT_TYPE: Final = "application/json"
MSGPACK_CONTENT_TYPE: Final = "application/msgpack"

_ENCODINGS: Final[dict[str, Encoding]] = {
    JSON_CONTENT_TYPE: "json",
    MSGPACK_CONTENT_TYPE: "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
}
# A MessagePack map begins with 0x80–0x8f, 0xde or 0xdf: no text does.
_MSGPACK_MAP: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})

# A whole string (skipped), or one of the tokens that Python's and JavaScript's writers emit though JSON has none. The
# closing quote is optional so that broken text can't make the search begin again at every quote.
_STRING_OR_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|NaN|-?Infinity', flags=re.DOTALL)
_TOKENS: Final = {b"NaN": b"null", b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}


def decode_object(payload: bytes, content_type: str | None, max_bytes: int) -> dict[str, object]:
    """The object that a payload holds.

    Args:
        payload: as received.
        content_type: MQTT 5 content type, if the message had one that we know; otherwise the first byte decides.
        max_bytes: a longer payload is refused unread.

    Raises:
        TelemetryError: `empty`, `too_large`, `not_json`, `not_msgpack`, `too_deep`, `number_out_of_range` or
            `wrong_type`.
    """
    if not payload:
        raise refusal("empty", "payload", "is empty")
    if len(payload) > max_bytes:
        raise refusal("too_large", "payload", f"is {len(payload)} bytes long", f"at most {max_bytes}")
    known = _ENCODINGS.get((content_type or "").partition(";")[0].strip().lower())
    encoding = known or ("msgpack" if payload[0] in _MSGPACK_MAP else "json")
    value = _decode_json(payload) if encoding == "json" else _decode_msgpack(payload)
    if not isinstance(value, dict):
        raise refusal("wrong_type", "payload", f"{shown(value)} is not an object")
    return value


def _decode_json(payload: bytes) -> object:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in payload and b"Infinity" not in payload:
            raise _json_refusal(error) from error
    # ROS bridges written in Python print bare NaN. Outside of strings the tokens are replaced by what JSON does have,
    # and the same strict parser, with its limit on depth, reads the rest: the standard library's would recurse.
    try:
        return orjson.loads(_STRING_OR_TOKEN.sub(lambda m: _TOKENS.get(m[0], m[0]), payload))
    except orjson.JSONDecodeError as error:
        raise _json_refusal(error) from error


def _json_refusal(error: orjson.JSONDecodeError) -> Exception:
    text = str(error)
    if "depth limit" in text:
        return refusal("too_deep", "payload", "is nested too deep")
    if "infinity" in text:
        return refusal("number_out_of_range", "payload", f"holds a number beyond float64: {text}")
    return refusal("not_json", "payload", f"is not JSON: {text}")


def _decode_msgpack(payload: bytes) -> object:
    try:
        # Lengths inside are limited by the buffer's own: a header can't ask for memory that the message doesn't fill.
        return msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except msgpack.StackError as error:
        raise refusal("too_deep", "payload", "is nested too deep") from error
    except (ValueError, msgpack.UnpackException) as error:
        problem = f"{type(error).__name__} {error}".strip().replace("\n", " ")
        raise refusal("not_msgpack", "payload", f"is not MessagePack: {problem}") from error
