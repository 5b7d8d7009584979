"""Where database and broker are: in the environment, or those of the `twincal up` that runs on the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.errors import ServiceError

if TYPE_CHECKING:
    from app.embedded.endpoints import Endpoints
    from app.settings import Settings


def database_url() -> str:
    """The database that a command works on.

    Raises:
        ServiceError: if there is none.
    """
    settings, running = _found()
    url = settings.database_url or (running and running.database_url)
    if not url:
        raise ServiceError(
            "no database: set TWINCAL_DATABASE_URL to postgresql://user:password@host:port/database, "
            f"or start `twincal up` on {settings.data_dir}"
        )
    return url


def mqtt_url() -> str:
    """The broker that a command works with.

    Raises:
        ServiceError: if there is none.
    """
    url = any_mqtt_url()
    if url is None:
        settings, _ = _found()
        raise ServiceError(
            "no broker: set TWINCAL_MQTT_URL to mqtt://user:password@host:port, "
            f"or start `twincal up` on {settings.data_dir}"
        )
    return url


def any_mqtt_url() -> str | None:
    """The broker that a command works with, for one that can do without."""
    settings, running = _found()
    return settings.mqtt_url or (running and running.mqtt_url) or None


def _found() -> tuple[Settings, Endpoints | None]:
    from app.embedded.endpoints import running
    from app.settings import Settings

    settings = Settings()
    return settings, running(settings.data_dir)
