"""What every handler can reach: the database, who is asking, and nothing global."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.auth import Authenticator


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How the API is run.

    Attributes:
        insecure_local: answer without a key; only for a service bound to loopback, which then checks Host and Origin.
    """

    insecure_local: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all requests of one process.

    Attributes:
        engine: the database.
        options: how the API is run.
        authenticator: turns a request's key into who is asking.
    """

    engine: AsyncEngine
    options: ApiOptions
    authenticator: Authenticator


def context_of(request: Request) -> Context:
    """The process' context."""
    return cast("Context", request.app.state.context)


ApiContext = Annotated[Context, Depends(context_of)]
