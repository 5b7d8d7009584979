"""Other commands find the services of a data folder while they run, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.embedded.endpoints import FILE, Endpoints, published, running
from app.errors import ServiceError

ENDPOINTS = Endpoints("postgresql://u:secret@127.0.0.1:1/d", "mqtt://127.0.0.1:2", "http://127.0.0.1:3")


def test_services_are_found_while_they_run_and_not_after(tmp_path: Path) -> None:
    assert running(tmp_path / "nowhere") is None
    with published(tmp_path, ENDPOINTS):
        assert running(tmp_path) == ENDPOINTS
        assert running(tmp_path) == ENDPOINTS, "a look must not end the lock"
    assert running(tmp_path) is None
    assert (tmp_path / FILE).read_text() == ""


def test_the_file_with_the_password_is_its_owners_alone(tmp_path: Path) -> None:
    with published(tmp_path, ENDPOINTS):
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_killed_process_leaves_nothing_that_is_taken_for_running_services(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from app.embedded.endpoints import Endpoints, published
with published(Path({str(tmp_path)!r}), Endpoints("a much longer address than the one that comes next " * 9, "b", "c")):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / FILE).exists()
    assert running(tmp_path) is None
    with published(tmp_path, ENDPOINTS):
        assert running(tmp_path) == ENDPOINTS


def test_a_folder_has_one_set_of_services(tmp_path: Path) -> None:
    with published(tmp_path, ENDPOINTS):
        with pytest.raises(ServiceError, match=r"in use by another twincal \(stop that one, or set TWINCAL_DATA_DIR\)"):
            published(tmp_path, ENDPOINTS).__enter__()
        assert running(tmp_path) == ENDPOINTS
