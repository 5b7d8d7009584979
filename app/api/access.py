"""What a request needs before it may do anything: a principal with the right scope."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from app.api.auth import Principal
from app.api.context import ApiContext

# For the OpenAPI document; the header itself is read below, since its absence may be allowed.
_bearer = HTTPBearer(auto_error=False, description="a key made by `twincal keys create`")


async def _principal(request: Request, context: ApiContext, _: Annotated[object, Security(_bearer)]) -> Principal:
    return await context.authenticator.authenticate(request.headers.get("Authorization"))


async def _reader(principal: Annotated[Principal, Depends(_principal)]) -> Principal:
    principal.require("read")
    return principal


async def _operator(principal: Annotated[Principal, Depends(_principal)]) -> Principal:
    principal.require("operate")
    return principal


async def _administrator(principal: Annotated[Principal, Depends(_principal)]) -> Principal:
    principal.require("admin")
    return principal


Reader = Annotated[Principal, Depends(_reader)]
Operator = Annotated[Principal, Depends(_operator)]
Administrator = Annotated[Principal, Depends(_administrator)]
