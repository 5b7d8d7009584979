"""What every test may use."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of example cases and real logs that lies beside the checkout."""
    folder = Path(os.environ.get("TWINCAL_SHARED", _REPOSITORY.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"NO REAL LOGS HERE: {folder} is missing (set TWINCAL_SHARED)")
    return folder


@pytest.fixture(scope="session")
def service_dir() -> Iterator[Path]:
    """A folder for services' data that `nobody` can enter, which pytest's own folders don't allow when we are root."""
    folder = Path(tempfile.mkdtemp(prefix="twincal-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
