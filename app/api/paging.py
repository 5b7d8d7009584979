"""Lists page by cursor: an opaque text that says where the last page ended, stable while rows come and go."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Generic, TypeVar

import orjson
from fastapi import Query
from pydantic import BaseModel, Field

from app.errors import InvalidInputError

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="items on a page")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before; omitted: the first page")]

_Item = TypeVar("_Item")


class Page(BaseModel, Generic[_Item]):
    """One page of a list."""

    items: list[_Item]
    next: str | None = Field(description="cursor of the next page; null on the last one")


def encode_cursor(*key: str | int) -> str:
    """The cursor after the item with this key."""
    return base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type[str | int]) -> tuple[str | int, ...] | None:
    """The key in a cursor, whose parts are of these kinds; None on the first page.

    Raises:
        InvalidInputError: if it isn't one of ours.
    """
    if cursor is None:
        return None
    try:
        key = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _unknown(cursor) from error
    if not isinstance(key, list) or [type(part) for part in key] != list(kinds):
        raise _unknown(cursor)
    return tuple(key)


def _unknown(cursor: str) -> InvalidInputError:
    return InvalidInputError("cursor", f"{cursor[:40]!r} is not a cursor of this list", "`next` of the page before")
