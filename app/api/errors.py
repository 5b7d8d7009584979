"""Errors as RFC 9457 problems: one table from kinds to status codes and stable types, nowhere else.

A problem names the field or line at fault in `where` and says what would be right in `remedy`. Its `type` never
changes its meaning; its `title` and `detail` are for people and may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from app.calibration.versions import ActiveMovedError, NoActiveTwinError
from app.errors import (
    ConflictError,
    DeclarationError,
    DescriptionError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    TwincalError,
)

MEDIA_TYPE: Final = "application/problem+json"
_TYPE_PREFIX: Final = "urn:twincal:problem:"
_RETRY_AFTER_S: Final = "2"

_log = structlog.get_logger(__name__)


class UnauthenticatedError(TwincalError):
    """No key, or one that isn't valid (any more)."""


class ForbiddenError(TwincalError):
    """A valid key that may not do this."""


class NoDescriptionError(ConflictError):
    """A robot that has no description, nor has its fleet."""

    def __init__(self, robot: str) -> None:
        super().__init__(
            f"robot {robot!r} has no description and neither has its fleet (PUT /v1/robots/{robot}/description)"
        )


class IdempotencyError(ConflictError):
    """An Idempotency-Key used for another request, or for one that is still being answered."""


class TooLargeError(TwincalError):
    """A body longer than this address takes."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body is longer than the {limit_bytes} bytes this address takes")


class FieldProblem(BaseModel):
    """One field at fault."""

    where: str = Field(description="path of the field, e.g. body.window.from")
    problem: str = Field(description="what is wrong with it")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(description="stable; what a program decides by", examples=["urn:twincal:problem:no-active-twin"])
    title: str = Field(description="what kind of problem this is, for people")
    status: int = Field(description="the HTTP status code")
    detail: str = Field(description="this very problem, in a sentence")
    where: str | None = Field(default=None, description="the field, line, joint or link at fault")
    remedy: str | None = Field(default=None, description="what would be right")
    errors: list[FieldProblem] | None = Field(default=None, description="every field at fault, where there are several")


@dataclass(frozen=True, slots=True)
class _Kind:
    slug: str
    status: HTTPStatus
    title: str
    headers: Mapping[str, str] | None = None


# The first class that an error is an instance of decides.
_KINDS: Final[tuple[tuple[type[Exception], _Kind], ...]] = (
    (
        UnauthenticatedError,
        _Kind("unauthenticated", HTTPStatus.UNAUTHORIZED, "A valid key is needed", {"WWW-Authenticate": "Bearer"}),
    ),
    (ForbiddenError, _Kind("forbidden", HTTPStatus.FORBIDDEN, "This key may not do that")),
    (TooLargeError, _Kind("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too long")),
    (NoActiveTwinError, _Kind("no-active-twin", HTTPStatus.NOT_FOUND, "The robot has no active twin")),
    (NotFoundError, _Kind("not-found", HTTPStatus.NOT_FOUND, "There is no such thing")),
    (ActiveMovedError, _Kind("active-version-moved", HTTPStatus.PRECONDITION_FAILED, "Somebody else was first")),
    (NoDescriptionError, _Kind("no-description", HTTPStatus.CONFLICT, "The robot has no description")),
    (IdempotencyError, _Kind("idempotency-key-reused", HTTPStatus.CONFLICT, "The Idempotency-Key is taken")),
    (ConflictError, _Kind("conflict", HTTPStatus.CONFLICT, "The request contradicts the present state")),
    (DescriptionError, _Kind("invalid-description", HTTPStatus.UNPROCESSABLE_ENTITY, "The description can't be used")),
    (DeclarationError, _Kind("invalid-declaration", HTTPStatus.UNPROCESSABLE_ENTITY, "The declaration can't be used")),
    (InvalidInputError, _Kind("invalid-input", HTTPStatus.UNPROCESSABLE_ENTITY, "Something in the request is wrong")),
    (
        ServiceError,
        _Kind("unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "Try again shortly", {"Retry-After": _RETRY_AFTER_S}),
    ),
    (TwincalError, _Kind("refused", HTTPStatus.UNPROCESSABLE_ENTITY, "The request can't be carried out")),
)
_MALFORMED: Final = _Kind("malformed-json", HTTPStatus.BAD_REQUEST, "The body is not JSON")
_INVALID: Final = _Kind("invalid-request", HTTPStatus.UNPROCESSABLE_ENTITY, "Something in the request is wrong")
_INTERNAL: Final = _Kind("internal", HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong on our side")
_UNAVAILABLE: Final = next(kind for error, kind in _KINDS if error is ServiceError)
_BY_STATUS: Final = {
    HTTPStatus.NOT_FOUND: "no-such-path",
    HTTPStatus.METHOD_NOT_ALLOWED: "method-not-allowed",
}


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(TwincalError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for gone in (SQLAlchemyError, OSError):
        app.add_exception_handler(gone, _unavailable)
    app.add_exception_handler(Exception, _unexpected)


def problem_response(error: TwincalError) -> Response:
    """The answer an error of ours is given."""
    kind = next(kind for known, kind in _KINDS if isinstance(error, known))
    extra: dict[str, Any] = {}
    if isinstance(error, InvalidInputError):
        extra = {"where": error.where, "remedy": error.remedy or None}
    return _response(kind, str(error), **extra)


async def _known(_: Request, error: Exception) -> Response:
    assert isinstance(error, TwincalError)
    return problem_response(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        return _response(_MALFORMED, f"the body is not JSON: {found[0].get('ctx', {}).get('error', 'malformed')}")
    fields = [
        FieldProblem(where=".".join(str(part) for part in e["loc"]), problem=e["msg"].removeprefix("Value error, "))
        for e in found
    ]
    first = fields[0]
    return _response(_INVALID, f"{first.where}: {first.problem}", where=first.where, errors=fields)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    kind = _Kind(_BY_STATUS.get(status, f"http-{status.value}"), status, status.phrase, error.headers)
    return _response(kind, error.detail)


async def _unavailable(request: Request, error: Exception) -> Response:
    _log.error("dependency_failed", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return _response(_UNAVAILABLE, "the database can't be reached or refused; nothing was changed")


async def _unexpected(_: Request, error: Exception) -> Response:
    # The server's own log has the traceback: starlette raises it again after this answer.
    return _response(_INTERNAL, f"unexpected {type(error).__name__}; the service's log says more")


def _response(kind: _Kind, detail: str, **extra: Any) -> Response:
    problem = Problem(type=_TYPE_PREFIX + kind.slug, title=kind.title, status=kind.status, detail=detail, **extra)
    return Response(
        orjson.dumps(problem.model_dump(exclude_none=True)),
        status_code=kind.status,
        media_type=MEDIA_TYPE,
        headers=dict(kind.headers or {}),
    )
