"""The API as one application: resources, errors, limits. Built once a process, by the command line or a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api import (
    calibrations,
    descriptions,
    drift,
    fleets,
    keys,
    operations,
    recordings,
    robots,
    scenarios,
    trail,
    twins,
)
from app.api.auth import LOCAL, Authenticator
from app.api.context import ApiOptions, Context
from app.api.errors import MEDIA_TYPE, Problem, install_error_handlers
from app.api.guard import Envelope, LoopbackOnly
from app.twin.declaration import RobotDeclaration

_DESCRIPTION: Final = """
Telemetry in, calibrated twins out. Everything is SI; a field's unit is in its name or its description. Errors are
[RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problems whose `type` never changes its meaning. Lists page by
cursor. A POST with an `Idempotency-Key` may be sent again: it is done once. Numbers are always finite; null is unknown.
"""

_RESOURCES: Final = (
    operations,
    fleets,
    robots,
    descriptions,
    twins,
    drift,
    scenarios,
    calibrations,
    recordings,
    trail,
    keys,
)
_PROBLEM: Final[dict[str, Any]] = {
    "description": "what is wrong, and what would be right",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {"4XX": {"model": Problem, **_PROBLEM}, "5XX": _PROBLEM}


def create_app(engine: AsyncEngine, options: ApiOptions | None = None) -> FastAPI:
    """The application on a database that is migrated.

    Args:
        engine: its pool is the application's own and is closed with it.
        options: how it is run.
    """
    options = options or ApiOptions()
    app = FastAPI(
        title="twincal",
        version=version("twincal"),
        description=_DESCRIPTION,
        lifespan=_lifespan,
        responses=_PROBLEMS,
        redoc_url=None,
    )
    authenticator = Authenticator(engine, LOCAL if options.insecure_local else None)
    app.state.context = Context(engine, options, authenticator)
    app.openapi = partial(_document, app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    install_error_handlers(app)
    for resource in _RESOURCES:
        app.include_router(resource.router)
    if options.insecure_local:
        app.add_middleware(LoopbackOnly)
    app.add_middleware(Envelope)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await app.state.context.engine.dispose()


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas of bodies that are read as plain JSON or bytes."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        _, extra = models_json_schema([(RobotDeclaration, "validation")], ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= extra["$defs"]
        app.openapi_schema = document
    return app.openapi_schema
