"""Scenarios: many robots like this one, for training that must not overfit to one."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from app.api.access import Reader
from app.api.context import ApiContext
from app.api.route import QuestionRoute
from app.api.scenario_twins import stored_origin
from app.scenario.formats import MEDIA_TYPES, write
from app.scenario.request import ScenarioRequest

router = APIRouter(prefix="/v1/scenarios", tags=["scenarios"], route_class=QuestionRoute)

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "the scenarios, as `format` asks; sent while they are drawn",
        "content": {media_type: {} for media_type in MEDIA_TYPES.values()},
    }
}


@router.post("", summary="Draw scenarios", response_class=StreamingResponse, responses=_ANSWERS)
async def draw_scenarios(body: ScenarioRequest, context: ApiContext, who: Reader) -> StreamingResponse:
    """Robots as the twin's posterior has them, with what lies on top.

    Scenario i of a robot's version and a seed is the same whenever and with whichever others it is asked for. 404
    `no-active-twin` if the robot, or every robot of the fleet, has none. Nothing is stored: an `Idempotency-Key` is
    neither needed nor heeded.
    """
    async with context.engine.connect() as connection:
        origin = await stored_origin(connection, body, who)
    headers = {
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'attachment; filename="scenarios.{body.format}"',
    }
    # Whatever a table can't hold is refused here, before the answer begins.
    return StreamingResponse(write(origin, body.format), media_type=MEDIA_TYPES[body.format], headers=headers)
