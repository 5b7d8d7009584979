"""What every test may use."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# A shell makes what it starts in the background ignore Ctrl-C, and its children inherit that: here they must not, or
# the services that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
