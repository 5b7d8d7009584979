"""One frozen tree of settings, read from the environment once, in the command line; units are in the names."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything a service can be told from outside (`TWINCAL_…`).

    Attributes:
        data_dir: where the embedded database and broker keep their files.
        database_url: `postgresql://user:password@host:port/database`; None starts the embedded Postgres.
        mqtt_url: `mqtt://user:password@host:port` or `mqtts://…`; None starts the embedded broker.
        postgres_bin: folder with another Postgres' `initdb` and `postgres`, for the embedded database.
    """

    model_config = SettingsConfigDict(env_prefix="TWINCAL_", extra="forbid", frozen=True)

    data_dir: Path = Path(".twincal")
    database_url: str | None = None
    mqtt_url: str | None = None
    postgres_bin: Path | None = None
