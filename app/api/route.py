"""The route every resource uses: strict JSON, and POSTs that may be sent again under their Idempotency-Key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from app.api import idempotency
from app.api.context import context_of

SMALL_BODY_BYTES: Final = 256 * 1024
"""Far more than any document of ours but a robot's description."""

DESCRIPTION_BYTES: Final = 16 * 1024 * 1024
"""URDFs of real robots are below 1 MB; meshes are never part of one."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose JSON is JSON: no NaN, no 1e400, no endless nesting, all of which the standard library takes."""

    async def json(self) -> Any:
        """The body's JSON.

        Raises:
            orjson.JSONDecodeError: if it isn't (a kind of `json.JSONDecodeError`).
        """
        return orjson.loads(await self.body())


class ApiRoute(APIRoute):
    """A route of the API."""

    def get_route_handler(self) -> Handler:
        """Wrap FastAPI's own handler."""
        handle = super().get_route_handler()
        repeatable = "POST" in (self.methods or ())

        async def strict(request: Request) -> Response:
            request = StrictRequest(request.scope, request.receive)
            return await (_once(request, handle) if repeatable else handle(request))

        return strict


async def _once(request: Request, handle: Handler) -> Response:
    if idempotency.HEADER not in request.headers:
        return await handle(request)
    context = context_of(request)
    # The key's owner must be known before the key; the handler asks again, and is answered from memory.
    principal = await context.authenticator.authenticate(request.headers.get("Authorization"))
    claim = await idempotency.claim_of(request, principal.name)
    assert claim is not None
    kept = await idempotency.begin(context.engine, claim)
    if kept is not None:
        return kept
    try:
        answer = await handle(request)
    except BaseException:
        await idempotency.forget(context.engine, claim)
        raise
    await idempotency.keep(context.engine, claim, answer)
    return answer
