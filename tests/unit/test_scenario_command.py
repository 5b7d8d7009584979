"""`twincal scenarios` from a twin's file: no server, the same lines as by any other way, one line on what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.twin.document import to_json
from tests.scenarios import arm, choice_of, chunk_records, origin_of

COMMAND = (sys.executable, "-c", "from app.cli import main; main()", "scenarios")


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "twin.json"
    path.write_bytes(to_json(arm()))
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def test_a_twin_s_file_is_enough(twin: Path, tmp_path: Path) -> None:
    overlays = tmp_path / "overlays.yaml"
    overlays.write_text("- {kind: payload, link: elbow_link, mass_kg: {uniform: [0, 2]}}\n")
    done = run("--twin", twin, "-n", "20", "--seed", "7", "--format", "ndjson", "--overlays", overlays)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        del line["provenance"]
    payload = {"kind": "payload", "link": "elbow_link", "mass_kg": {"uniform": [0, 2]}}
    assert lines == chunk_records(origin_of(choice_of(n=20, overlays=[payload]), arm()))


def test_a_file_is_written_where_it_is_asked_for(twin: Path, tmp_path: Path) -> None:
    out = tmp_path / "scenarios.parquet"
    done = run("--twin", twin, "-n", "5", "--format", "parquet", "--out", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert out.read_bytes()[:4] == out.read_bytes()[-4:] == b"PAR1"


def test_a_reader_that_has_seen_enough_is_no_failure(twin: Path) -> None:
    line = f'{sys.executable} -c "from app.cli import main; main()" scenarios --twin {twin} -n 20000 | head -n 1'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert (json.loads(done.stdout)["index"], done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("-n", "0"), "-n"),
        (("-n", "2000000"), "-n"),
        (("-n", "5", "--robot", "arm-07"), "--twin, --robot, --fleet"),
        (("-n", "5", "--version", "3"), "--version"),
        (("-n", "5", "--overlays", "{overlays}"), "overlays.0.link"),
        (("-n", "5", "--out", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(
    twin: Path, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    overlays = tmp_path / "overlays.json"
    overlays.write_text('{"overlays": [{"kind": "payload", "link": "nose", "mass_kg": 1}], "sensors": []}')
    done = run("--twin", twin, *(argument.replace("{overlays}", str(overlays)) for argument in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("twincal: ")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
