"""The demonstration's view of the product: its REST interface and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx

from app.errors import ServiceError

TIMEOUT_S: Final = 30.0


class ApiClient:
    """A session with the API under one key."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=httpx.Timeout(TIMEOUT_S)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        """The JSON at `path` below `/v1`."""
        return self._request("GET", path).json()

    def find(self, path: str) -> Any | None:
        """The JSON at `path`, or None where there is nothing (404)."""
        answer = self._request("GET", path, missing_allowed=True)
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.json()

    def etag(self, path: str) -> str | None:
        """The entity tag of what is at `path`, or None where there is nothing (404)."""
        answer = self._request("GET", path, missing_allowed=True)
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.headers["ETag"]

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Put a JSON document."""
        self._request("PUT", path, json=dict(body))

    def put_bytes(self, path: str, content: bytes, media_type: str) -> None:
        """Put a file."""
        self._request("PUT", path, content=content, headers={"Content-Type": media_type})

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post a JSON document; the JSON that answers."""
        return self._request("POST", path, json=dict(body)).json()

    def _request(self, method: str, path: str, *, missing_allowed: bool = False, **content: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise ServiceError(f"API {method} {path}: {type(error).__name__} {error}".rstrip()) from error
        if answer.is_error and not (missing_allowed and answer.status_code == httpx.codes.NOT_FOUND):
            raise ServiceError(f"API {method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer
