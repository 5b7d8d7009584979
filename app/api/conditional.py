"""Entity tags: what a version is known by to caches, and the conditions a request may put on one (RFC 9110)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Header

from app.calibration.versions import Expected
from app.errors import InvalidInputError

_TAG: Final = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_LIST: Final = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")


def entity_tag(digest: str, representation: str) -> str:
    """The strong tag of a document in one format: its digest and the format."""
    return f'"{digest}.{representation}"'


def not_modified(if_none_match: str | None, tag: str) -> bool:
    """Whether the client has this very representation already."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return tag.strip('"') in _TAG.findall(if_none_match)


def _expected(
    if_match: Annotated[
        str | None, Header(description="tag of the version that must be active now; `*`: any must be")
    ] = None,
    if_none_match: Annotated[str | None, Header(description="only `*`: no version may be active yet")] = None,
) -> Expected | None:
    """What must be active for a move to go ahead; None: whatever is."""
    if if_match is not None and if_none_match is not None:
        raise InvalidInputError("If-None-Match", "contradicts If-Match", "give one of them")
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise InvalidInputError(
                "If-None-Match", f"{if_none_match!r} means nothing here", "*: no version is active yet"
            )
        return Expected(frozenset())
    if if_match is None:
        return None
    if if_match.strip() == "*":
        return Expected(None)
    if _LIST.fullmatch(if_match) is None:
        raise InvalidInputError(
            "If-Match", f"{if_match!r} is not a list of entity tags", 'as in If-Match: "sha256:….json"'
        )
    # Weak tags never match here; ours are strong, and one names a version whatever format it is of.
    strong = re.findall(r'(?<!W/)"([^"]*)"', if_match)
    return Expected(frozenset(tag.rpartition(".")[0] or tag for tag in strong) or frozenset({""}))


Expectation = Annotated[Expected | None, Depends(_expected)]
