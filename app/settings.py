"""One frozen tree of settings, read from the environment once, in the command line; units are in the names."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.errors import InvalidInputError

PREFIX: Final = "TWINCAL_"


class Settings(BaseSettings):
    """Everything a service can be told from outside (`TWINCAL_…`).

    Attributes:
        data_dir: where the embedded database and broker keep their files.
        database_url: `postgresql://user:password@host:port/database`; None starts the embedded Postgres.
        mqtt_url: `mqtt://user:password@host:port` or `mqtts://…`; None starts the embedded broker.
        postgres_bin: folder with another Postgres' `initdb` and `postgres`, for the embedded database.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    data_dir: Path = Path(".twincal")
    database_url: str | None = None
    mqtt_url: str | None = None
    postgres_bin: Path | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_variable(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """A wrong value is one line that names its variable; so is a misspelt variable, which would be no setting."""
        known = [name.upper() for name in cls.model_fields]
        for variable in sorted(os.environ):
            name = variable.removeprefix(PREFIX)
            if variable.startswith(PREFIX) and name not in known:
                for meant in get_close_matches(name, known, n=1, cutoff=0.75):
                    raise InvalidInputError(variable, "is no setting", f"{PREFIX}{meant} is")
        try:
            return handler(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = "_".join(str(part) for part in first["loc"]).upper()
            raise InvalidInputError(f"{PREFIX}{where}", first["msg"]) from error
