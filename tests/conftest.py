"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded robots and reported faults beside the checkout; tests that need it are skipped without."""
    repository = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("TWINCAL_SHARED", repository.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"NOT RUN: no shared data at {folder}; set TWINCAL_SHARED")
    return folder
