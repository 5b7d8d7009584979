"""The ingester's `/livez`, `/readyz` and `/metrics`: a port for whoever runs it, served by threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import orjson
from prometheus_client import make_wsgi_app

from app.errors import ServiceError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Readiness = Callable[[], Coroutine[Any, Any, Mapping[str, str]]]
"""Part by part: `ok`, or what is wrong. Runs on the event loop, and answers within seconds."""

_PATIENCE_S: Final = 5.0

_metrics: Final = make_wsgi_app()


class HealthServer:
    """Answers until it is left. To be entered on the event loop that does the work.

    Args:
        host: address to listen on.
        port: to listen on; 0: any free one, see `port`.
        readiness: what `/readyz` says.
    """

    def __init__(self, host: str, port: int, readiness: Readiness) -> None:
        self._readiness = readiness
        self._loop = asyncio.get_running_loop()
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise ServiceError(f"metrics: can't listen on {host}:{port}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "/")
        if path in ("/", "/metrics"):
            answer: Iterable[bytes] = _metrics(environment, start)
            return answer
        if path == "/livez":
            return self._alive(start)
        if path == "/readyz":
            return self._ready(start)
        return _json(start, HTTPStatus.NOT_FOUND, {"detail": "here are /livez, /readyz and /metrics"})

    def _alive(self, start: StartResponse) -> Iterable[bytes]:
        """Whether the event loop goes round; never touches database or broker."""
        if self._ask(_nothing()) is None:
            return _json(start, HTTPStatus.SERVICE_UNAVAILABLE, {"status": "the event loop hangs"})
        return _json(start, HTTPStatus.OK, {"status": "alive"})

    def _ready(self, start: StartResponse) -> Iterable[bytes]:
        parts = self._ask(self._readiness()) or {"process": "the event loop hangs"}
        ready = all(state == "ok" for state in parts.values())
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(start, status, {"ready": ready, "parts": parts})

    def _ask(self, question: Coroutine[Any, Any, Mapping[str, str]]) -> Mapping[str, str] | None:
        """An answer from the event loop; None if it gives none."""
        answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            answer.cancel()
            return None


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # A client that never sends its request mustn't hold up the end.
    block_on_close = False


class _Quiet(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_: object) -> None:
        """Nothing: a probe every few seconds is no news."""


async def _nothing() -> Mapping[str, str]:
    return {"process": "ok"}


def _json(start: StartResponse, status: HTTPStatus, body: Mapping[str, object]) -> Iterable[bytes]:
    content = orjson.dumps(body)
    start(
        f"{status.value} {status.phrase}",
        [("Content-Type", "application/json"), ("Content-Length", str(len(content))), ("Cache-Control", "no-store")],
    )
    return [content]
