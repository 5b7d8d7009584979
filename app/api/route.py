"""The route every resource uses: strict JSON, bounded bodies, and POSTs that may be sent again under a key."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ClassVar, Final

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from app.api import idempotency
from app.api.context import context_of
from app.api.errors import TooLargeError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_WITH_BODY: Final = frozenset({"POST", "PUT"})


class StrictRequest(Request):
    """A request whose body ends where it should and whose JSON is JSON.

    No NaN, no 1e400, no endless nesting, all of which the standard library takes.
    """

    max_body_bytes: int = 0

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes.

        Raises:
            TooLargeError: as soon as it is longer than it may be.
        """
        total = 0
        async for chunk in super().stream():
            total += len(chunk)
            if total > self.max_body_bytes:
                raise TooLargeError(self.max_body_bytes)
            yield chunk

    async def json(self) -> Any:
        """The body's JSON.

        Raises:
            orjson.JSONDecodeError: if it isn't (a kind of `json.JSONDecodeError`).
        """
        return orjson.loads(await self.body())


class ApiRoute(APIRoute):
    """A route of the API."""

    max_body_bytes: ClassVar[int] = 256 * 1024
    """Far more than any document of ours but a robot's description."""

    changes_something: ClassVar[bool] = True
    """Whether a POST sent again must not be done again. One that changes nothing may, and its answer isn't kept."""

    def get_route_handler(self) -> Handler:
        """Wrap FastAPI's own handler."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            request = StrictRequest(request.scope, request.receive)
            request.max_body_bytes = self.max_body_bytes
            if request.method not in _WITH_BODY:
                return await handle(request)
            # Who asks must be known before a body is read, however long; the handler asks again, from memory.
            authorization = request.headers.get("Authorization")
            principal = await context_of(request).authenticator.authenticate(authorization)
            await request.body()  # here, since FastAPI would take our refusal for a malformed body
            if not self.changes_something:
                return await handle(request)
            return await _once(request, principal.name, handle)

        return strict


class QuestionRoute(ApiRoute):
    """A route whose POST is a question too long for an address."""

    changes_something: ClassVar[bool] = False


class DescriptionRoute(ApiRoute):
    """A route that takes a robot's description."""

    max_body_bytes: ClassVar[int] = 16 * 1024 * 1024
    """URDFs of real robots are below 1 MB; meshes are never part of one."""


async def _once(request: Request, owner: str, handle: Handler) -> Response:
    claim = await idempotency.claim_of(request, owner) if request.method == "POST" else None
    if claim is None:
        return await handle(request)
    engine = context_of(request).engine
    kept = await idempotency.begin(engine, claim)
    if kept is not None:
        return kept
    try:
        answer = await handle(request)
    except BaseException:
        await idempotency.forget(engine, claim)
        raise
    await idempotency.keep(engine, claim, answer)
    return answer
