"""What holds for every file of the repository."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 400
# Compiled functions that are inlined into one another stay together.
LONGER = {"app/twin/kernel.py": 450}
MAX_LINES_OF_A_TEST = 650  # cases, one below the other: longer, and as easy to read
LOCK_FILES = ("requirements.lock", "requirements-service.lock")
BINARY = {".png", ".jpg", ".gif", ".ico", ".woff2", ".parquet", ".mcap", ".npz"}
# The classes of one letter keep these lines from matching themselves.
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:[w]ork/|[r]oot/|[h]ome/[a-z]|[U]sers/|opt/[w]heels|opt/[p]ypi)")
REGISTRY_HOSTS = re.compile(r"[p]ypi\.org|[p]ythonhosted\.org|[n]pmjs\.org|[d]eb\.debian\.org|(?<!emit-)[i]ndex-url")
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common", "misc"}


def _tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the repository's files can't be told from others")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def _texts() -> list[tuple[Path, str]]:
    return [(path, path.read_text(encoding="utf-8")) for path in _tracked_files() if path.suffix not in BINARY]


def _is_test(path: Path) -> bool:
    return path.is_relative_to(ROOT / "tests")


def _limit(path: Path) -> int:
    return MAX_LINES_OF_A_TEST if _is_test(path) else LONGER.get(str(path.relative_to(ROOT)), MAX_LINES)


def _lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in _texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert _lines_matching(MACHINE_PATHS) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert _lines_matching(REGISTRY_HOSTS) == []


def test_every_python_file_is_short_enough_to_read() -> None:
    too_long = {
        str(path.relative_to(ROOT)): length
        for path, text in _texts()
        if path.suffix == ".py" and (length := text.count("\n")) > _limit(path)
    }
    assert too_long == {}


def test_no_module_is_named_after_nothing() -> None:
    named = [path.relative_to(ROOT) for path in _tracked_files() if path.suffix == ".py"]
    assert [path for path in named if FORBIDDEN_NAMES & set(path.with_suffix("").parts)] == []


def test_no_test_replaces_our_own_code_by_a_mock() -> None:
    mocks = re.compile(r"unittest\.[m]ock|\b[M]agicMock\b|monkeypatch\.[s]etattr")
    assert [line for line in _lines_matching(mocks) if line.startswith("tests/")] == []


def test_every_test_says_in_its_name_what_holds() -> None:
    short = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, text in _texts()
        if path.suffix == ".py" and _is_test(path)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and node.name.count("_") < 3
    ]
    assert short == []


def test_lock_files_pin_every_package_by_hash() -> None:
    for name in LOCK_FILES:
        text = (ROOT / name).read_text()
        entries = re.split(r"\n(?=[A-Za-z0-9])", text)
        unpinned = [
            entry.split()[0] for entry in entries if not entry.startswith("#") and "--hash=sha256:" not in entry
        ]
        assert unpinned == [], name


def test_the_service_is_locked_to_the_versions_that_are_tested() -> None:
    tested, served = (_pins(name) for name in ("requirements.lock", "requirements-service.lock"))
    assert {name: version for name, version in served.items() if tested.get(name) != version} == {}


def test_every_dependency_is_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {re.split(r"[\[>=<! ]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert names - _pins("requirements.lock").keys() == set()


def _pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / name).read_text(), flags=re.MULTILINE))
