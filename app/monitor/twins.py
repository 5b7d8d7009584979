"""Twins ready to be compared with telemetry, kept as long as they are asked for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.calibration.versions import read_version
from app.database.tables import robots
from app.errors import InvalidInputError, TwincalError
from app.monitor.baseline import Watched, prepare
from app.monitor.store import Due
from app.registry.descriptions import get_description
from app.twin.declaration import RobotDeclaration
from app.twin.description import parse_urdf
from app.twin.document import read_document

MOST: Final = 4096
"""Twins kept ready: four times the robots that one monitor is made for."""

_Key = tuple[object, ...]


class PreparedTwins:
    """The twins asked for last, and why some of them can't be prepared: neither is done twice.

    Args:
        most: so many are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[_Key, Watched | TwincalError] = OrderedDict()

    async def get(self, connection: AsyncConnection, due: Due) -> Watched:
        """The robot's active version, with the declaration and description it has now.

        Raises:
            TwincalError: naming what is wrong with them.
        """
        key = (due.robot, due.version, due.declared_at, due.description_sha256)
        kept = self._kept.get(key)
        if kept is None:
            try:
                kept = await _prepared(connection, due)
            except TwincalError as error:
                kept = error
            self._kept[key] = kept
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        if isinstance(kept, TwincalError):
            # Anew each time: an exception that is raised again and again grows by its traceback.
            raise kept.with_traceback(None)
        return kept


async def _prepared(connection: AsyncConnection, due: Due) -> Watched:
    if due.description_sha256 is None:
        raise InvalidInputError("description", "neither the robot nor its fleet has one", "upload it")
    stored = await read_version(connection, due.robot, due.version)
    description = await get_description(connection, due.description_sha256)
    declared = await connection.scalar(select(robots.c.declaration).where(robots.c.robot == due.robot))
    return await asyncio.to_thread(_prepare, stored.document, declared, description.content)


def _prepare(document: bytes, declared: object, description: bytes) -> Watched:
    declaration = RobotDeclaration.model_validate(declared)
    return prepare(read_document(document), declaration, parse_urdf(description))
