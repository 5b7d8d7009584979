"""Whose fault it is when a robot can't be looked at."""

from __future__ import annotations

from typing import Final

from asyncpg import exceptions as pg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError, StatementError

from app.errors import (
    DeclarationError,
    DescriptionError,
    FitImpossibleError,
    InvalidInputError,
    LogError,
    NotFoundError,
    SimulationError,
    TelemetryError,
)

_KINDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (DeclarationError, "declaration"),
    (DescriptionError, "description"),
    (SimulationError, "simulation"),
    ((FitImpossibleError, LogError, TelemetryError), "telemetry"),
    ((InvalidInputError, NotFoundError), "version"),
    ((OSError, SQLAlchemyError), "database"),
)


def kind_of(error: Exception) -> str:
    """The `kind` an error is counted under."""
    return next((kind for known, kind in _KINDS if isinstance(error, known)), "unexpected")


def is_database_away(error: Exception) -> bool:
    """Whether it is the database that can't be worked with, rather than one robot's rows."""
    if isinstance(error, OSError):
        return True
    if not isinstance(error, SQLAlchemyError) or isinstance(error, (DataError, IntegrityError, ProgrammingError)):
        return False
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):
        return False
    cause = getattr(getattr(error, "orig", None), "__cause__", None)
    return not isinstance(cause, (pg.DataError, pg.IntegrityConstraintViolationError, pg.ProgramLimitExceededError))
