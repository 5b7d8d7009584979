"""What every command has in common: exit codes, one line for what is wrong, a quick start."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

HEAVY = ("numba", "pybullet", "scipy", "optuna", "matplotlib", "fastapi", "sqlalchemy", "asyncpg", "mujoco", "paho")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"twincal {version('twincal')}\n", "")


def test_an_unknown_command_is_one_line_on_standard_error_and_exit_code_2() -> None:
    result = run("calibrat")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("twincal: ")
    assert "calibrat" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unknown_option_is_one_line_on_standard_error_and_exit_code_2() -> None:
    result = run("--loud")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "twincal: No such option: --loud\n")


def test_without_a_command_the_help_is_printed() -> None:
    result = run()
    assert result.returncode == 2
    assert "Usage" in result.stdout
    assert result.stderr == ""


def test_the_help_imports_nothing_heavy() -> None:
    program = (
        f"import sys; from app.cli import create_app; create_app(); print([m for m in {HEAVY} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
