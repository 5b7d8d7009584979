"""What every request and answer passes: the locality check of a service without keys, and each answer's headers."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import ForbiddenError, problem_response
from app.metrics import api_request_seconds

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class LoopbackOnly:
    """Refuses what a web page could make a browser send to a service that needs no key.

    A page can't choose the Host a browser sends, unless its own name points here (DNS rebinding): then Host is that
    name. And what a page of another origin sends carries its Origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes from this machine's own programs and pages."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            wrong = _foreign(headers)
            if wrong is not None:
                await problem_response(ForbiddenError(wrong))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Envelope:
    """Gives each request an id, each answer its headers, and the metrics their numbers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        request_id = uuid4().hex
        structlog.contextvars.bind_contextvars(request_id=request_id)

        async def send_wrapped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_wrapped)
        finally:
            structlog.contextvars.unbind_contextvars("request_id")
            # By the route's template, never by its path: that would be a series a robot.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            api_request_seconds.labels(route, method, f"{status // 100}xx").observe(time.perf_counter() - started)


def _foreign(headers: Headers) -> str | None:
    if _name_in(f"//{headers.get('host', '')}") not in LOOPBACK_NAMES:
        return f"Host {headers.get('host', '')!r} is not this machine; a service without keys answers to it alone"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        return f"Origin {origin!r} is another site; a service without keys answers its own pages alone"
    return None


def _name_in(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # brackets that don't close
        return None
