"""Where a service's files go when we are root and our own folders are closed to the user that it must run as."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from app.embedded.child import UNPRIVILEGED_USER
from app.errors import ServiceError

SHELTER: Final = Path("/var/lib/twincal")
"""Only ever used by root."""


def closed_folder_above(path: Path) -> Path | None:
    """The first folder above `path` that the unprivileged user can't enter; None if we aren't root or there is none."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    for folder in reversed(path.resolve().parents):
        info = folder.stat()
        needed = stat.S_IXOTH
        if info.st_uid == entry.pw_uid:
            needed = stat.S_IXUSR
        elif info.st_gid == entry.pw_gid:
            needed = stat.S_IXGRP
        if not info.st_mode & needed:
            return folder
    return None


def home_of(data_dir: Path) -> Path:
    """The folder for what the service itself reads and writes: `data_dir`, or one in the shelter if that is closed.

    Raises:
        ServiceError: if the shelter can't be made.
    """
    if closed_folder_above(data_dir / "anything") is None:
        return data_dir
    place = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    return _make(SHELTER / f"{data_dir.name}-{place}")


def within_reach(folder: Path) -> Path:
    """The folder, or a copy of it in the shelter that is made once, if it is closed.

    Raises:
        ServiceError: if the shelter can't be made.
    """
    if closed_folder_above(folder / "anything") is None:
        return folder
    # Path and time tell another installation's copy, or an older one, apart.
    version = f"{folder.resolve()} {folder.stat().st_mtime_ns}"
    place = _make(SHELTER) / f"{folder.name}-{hashlib.sha256(version.encode()).hexdigest()[:16]}"
    if not place.exists():
        staging = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=SHELTER))
        try:
            shutil.copytree(folder, staging / "copy", symlinks=True)
            _open_to_all(staging / "copy")
            if not place.exists():
                (staging / "copy").rename(place)
        finally:
            shutil.rmtree(staging)
    return place


def _open_to_all(folder: Path) -> None:
    """Let everybody read, and run what its owner may run: a tight umask may have made it."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))


def _make(folder: Path) -> Path:
    try:
        SHELTER.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        for made in {SHELTER, folder}:
            made.chmod(0o755)  # whatever the umask
    except OSError as error:
        raise ServiceError(
            f"{folder}: can't be made: {error.strerror} (it is needed because we are root and user "
            f"{UNPRIVILEGED_USER!r} can't enter the data folder; run twincal as an ordinary user instead)"
        ) from error
    return folder
