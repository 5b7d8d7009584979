"""For whoever runs the service: is it alive, is it ready, how is it doing."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.access import Reader
from app.api.context import ApiContext
from app.api.route import ApiRoute
from app.database.migrate import current_revision, head_revision
from app.database.queue import queue_in

_PATIENCE_S: Final = 2.0

router = APIRouter(tags=["operations"], route_class=ApiRoute)


class Liveness(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(BaseModel):
    """Whether requests can be served, part by part."""

    ready: bool
    parts: dict[str, str] = Field(description="`ok`, or what is wrong, for database, schema and queue")


@router.get("/livez", summary="Is the process alive")
async def read_liveness() -> Liveness:
    """Never touches the database: a slow one is no reason to restart this process."""
    return Liveness()


@router.get("/readyz", summary="Can it serve requests", responses={503: {"model": Readiness}})
async def read_readiness(context: ApiContext, response: Response) -> Readiness:
    """200 when everything a request needs is there, else 503 naming the part that isn't."""
    parts = await _check(context.engine)
    ready = all(state == "ok" for state in parts.values())
    if not ready:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Readiness(ready=ready, parts=parts)


@router.get("/metrics", summary="Prometheus metrics of this process", response_class=Response)
async def read_metrics(_: Reader) -> Response:
    """In Prometheus' text format; needs a key with scope `read`."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def _check(engine: AsyncEngine) -> dict[str, str]:
    unknown = "not checked: the database can't be reached"
    try:
        async with asyncio.timeout(_PATIENCE_S), engine.connect() as connection:
            revision = await current_revision(connection)
            queue = await (await queue_in(connection)).schema_is_installed()
    except TimeoutError:
        return {"database": f"no answer within {_PATIENCE_S:.0f} s", "schema": unknown, "queue": unknown}
    except (OSError, SQLAlchemyError) as error:
        return {"database": f"can't be reached: {type(error).__name__}", "schema": unknown, "queue": unknown}
    head = head_revision()
    schema = "ok" if revision == head else f"at revision {revision}, this release needs {head} (twincal migrate)"
    return {"database": "ok", "schema": schema, "queue": "ok" if queue else "not installed (twincal migrate)"}
