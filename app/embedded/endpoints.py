"""Where the services of a data folder are, for other commands on this machine while they run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

from app.errors import ServiceError

FILE: Final = "endpoints.json"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Services that run on a data folder.

    Attributes:
        database_url: with its password.
        mqtt_url: of the broker.
        api_url: of the REST interface, without `/v1`.
        metrics_urls: where each service's Prometheus metrics are, by its name; those of robots are the monitor's.
    """

    database_url: str
    mqtt_url: str
    api_url: str
    metrics_urls: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def published(data_dir: Path, endpoints: Endpoints) -> Iterator[None]:
    """Let other commands of this user find the services, until the context ends or this process does.

    Raises:
        ServiceError: if the folder's services run already, or the file can't be written.
    """
    path = data_dir / FILE
    try:
        # Readable by its owner alone: it holds the database's password.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    except OSError as error:
        raise ServiceError(f"{path}: can't be written: {error.strerror}") from error
    with file:
        if not _lock(file, fcntl.LOCK_EX):
            raise ServiceError(f"{data_dir}: in use by another twincal (stop that one, or set TWINCAL_DATA_DIR)")
        file.truncate(0)
        file.write(json.dumps(asdict(endpoints)))
        file.flush()
        try:
            yield
        finally:
            # Emptied and not removed: the next one may have it open already, and would lock a file that nobody finds.
            file.truncate(0)


def running(data_dir: Path) -> Endpoints | None:
    """The services that run on a data folder; None if there are none.

    Raises:
        ServiceError: if they are another user's.
    """
    path = data_dir / FILE
    try:
        with path.open() as file:
            # Nobody holds the lock: what stands there is of a process that was killed.
            if _lock(file, fcntl.LOCK_SH):
                return None
            text = file.read()
            return Endpoints(**json.loads(text)) if text else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ServiceError(
            f"{path}: can't be read: {error.strerror} (run twincal as the user of its services)"
        ) from error


def _lock(file: IO[str], kind: int) -> bool:
    # Of the open file, so that it ends with the process and a second look in the same process doesn't end it.
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
