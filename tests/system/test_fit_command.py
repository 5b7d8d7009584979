"""`twincal fit` and `twincal evaluate` as typed: exit codes, what is written where, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import create_app
from app.errors import TwincalError
from app.twin.document import FILE_VERSION, read_document, seal, to_json
from app.twin.model import build_model
from tests.planted import declare, follow, hanging_joint, log, swings
from tests.system.commands import last_line, twincal, write_csv
from tests.twins import CREATED, draft

ROBOT = """schema: twincal.robot/1
robot: pendulum
fleet: bench
description: robot.urdf
controller: {kind: pd, kp: 40.0, kd: 1.0}
fit: {frozen: {"link/*/mass_kg": 2.0, "link/*/com_[xy]_m": 0.0, "link/*/com_z_m": -0.1}}
"""
T = np.arange(600) / 100.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A robot, two logs of it, one in which it stands still and one without commands."""
    path = tmp_path_factory.mktemp("robot")
    (path / "robot.urdf").write_bytes(hanging_joint().source)
    (path / "robot.yaml").write_text(ROBOT, encoding="utf-8")
    model = build_model(hanging_joint(), declare(), {"hinge"}, {"position", "command_position"})
    truth = model.values({"joint/hinge/coulomb_friction_nm": 0.4, "joint/hinge/viscous_damping_nm_s_per_rad": 0.3})
    for seed, name in enumerate(("monday", "tuesday")):
        recording = follow(model, truth, swings(T, 1, seed), noise_sd=3e-4, seed=seed)
        write_csv(recording, path / f"{name}.csv")
    still = 1e-4 * np.random.default_rng(0).standard_normal(600)
    write_csv(log("idle", T, position=still, command_position=0.0 * T), path / "idle.csv")
    write_csv(log("blind", T, position=np.sin(T)), path / "blind.csv")
    return path


@pytest.mark.slow
def test_a_fit_writes_a_twin_and_a_report_and_says_its_quality_last(folder: Path) -> None:
    done = twincal(
        "fit", "--robot", "robot.yaml", "--log", "monday.csv", "--holdout-log", "tuesday.csv", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    twin = read_document((folder / "twin.json").read_bytes())
    assert (twin.version, twin.provenance.parent, twin.robot) == (FILE_VERSION, None, "pendulum")
    assert twin.parameters["joint/hinge/coulomb_friction_nm"].value == pytest.approx(0.4, rel=0.03)
    quality = last_line(done)
    assert quality == twin.quality.model_dump(mode="json")
    assert quality["grade"] == "good"
    assert [row["log"] for row in quality["holdout"]["per_log"]] == ["tuesday"]
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "<html" in report
    assert "coulomb" in report
    # progress is for people and goes where it spoils no output
    assert "searching" in done.stderr
    assert "searching" not in done.stdout

    judged = twincal(
        "evaluate", "--robot", "robot.yaml", "--twin", "twin.json", "--log", "tuesday.csv", "--json", cwd=folder
    )
    assert judged.returncode == 0, judged.stderr
    # the parameters survive the document: the same figure to the last bit
    assert last_line(judged)["holdout"] == quality["holdout"]
    cut = twincal(
        "evaluate", "--robot", "robot.yaml", "--twin", "twin.json", "--log", "tuesday.csv",
        "--from-s", "2", "--to-s", "4", "--window-s", "1", cwd=folder,
    )  # fmt: skip
    assert cut.returncode == 0
    assert "mean over joints" in cut.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [("idle", "no joint moves in the training data"), ("blind", "command_position is missing")],
)
def test_data_that_allow_no_fit_end_with_3_a_report_and_no_twin(
    folder: Path, tmp_path: Path, name: str, words: str
) -> None:
    out, report = tmp_path / "twin.json", tmp_path / "report.html"
    done = twincal(
        "fit", "--robot", "robot.yaml", "--log", f"{name}.csv", "--out", out, "--report", report, "--json", cwd=folder
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if line.startswith("twincal: ")] == [done.stderr.splitlines()[-1]]
    assert words in done.stderr
    assert not out.exists()
    assert words in report.read_text(encoding="utf-8")


# --- bad input: exit code 2 and one line ------------------------------------------------------------------------------


def refused(folder: Path, *arguments: str) -> str:
    """The one line that `twincal` would print: what its outermost loop makes of this error."""
    with pytest.raises(TwincalError) as caught:
        CliRunner().invoke(create_app(), arguments, catch_exceptions=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the robot to spoil, as the working directory."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


FIT = ("fit", "--robot", "robot.yaml", "--log")


def test_bad_input_is_one_line_and_exit_code_2_as_typed(folder: Path) -> None:
    done = twincal(*FIT, "nowhere.csv", cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "twincal: nowhere.csv: there is no such file\n"


def test_a_missing_declaration_is_named(here: Path) -> None:
    assert "elsewhere.yaml" in refused(here, "fit", "--robot", "elsewhere.yaml", "--log", "monday.csv")


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("kind: pd", "kind: pid", "controller.kind"),
        ("kp: 40.0", "kp: -40.0", "controller.kp"),
        ("kp: 40.0", "kp: {hing: 40.0}", "controller.kp"),
        ("fleet: bench", "fleet: bench\ncolour: red", "colour"),
        ("link/*/mass_kg", "link/*/weight", "fit.frozen.link/*/weight"),
        ("schema: twincal.robot/1", "schema: twincal.robot/9", "schema"),
    ],
)
def test_a_bad_declaration_is_named_by_its_field(here: Path, good: str, bad: str, words: str) -> None:
    (here / "robot.yaml").write_text(ROBOT.replace(good, bad), encoding="utf-8")
    assert words in refused(here, *FIT, "monday.csv")


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (b'<mass value="2.0"/>', b'<mass value="-2.0"/>', "bar"),
        (b"</robot>", b"", "line"),
        (b'<axis xyz="0 1 0"/>', b'<axis xyz="0 0 0"/>', "hinge"),
        (b'<mass value="2.0"/>', b'<mass value="${mass}"/>', "xacro"),
    ],
)
def test_a_bad_description_is_named_by_its_place(here: Path, good: bytes, bad: bytes, words: str) -> None:
    (here / "robot.urdf").write_bytes(hanging_joint().source.replace(good, bad))
    assert words in refused(here, *FIT, "monday.csv")


def test_a_missing_description_is_named(here: Path) -> None:
    (here / "robot.urdf").unlink()
    assert "robot.urdf" in refused(here, *FIT, "monday.csv")


def test_a_log_of_another_robot_is_named_with_the_joints_there_are(here: Path) -> None:
    text = (here / "monday.csv").read_text(encoding="utf-8").replace("hinge.", "knee.")
    (here / "monday.csv").write_text(text, encoding="utf-8")
    words = refused(here, *FIT, "monday.csv")
    assert words.startswith("monday: none of its joints is the description's: knee")
    assert "hinge" in words


def test_a_bad_cell_is_named_by_line_and_column(here: Path) -> None:
    lines = (here / "monday.csv").read_text(encoding="utf-8").splitlines()
    lines[41] = lines[41].replace(lines[41].split(",")[1], "n/a")
    (here / "monday.csv").write_text("\n".join(lines), encoding="utf-8")
    words = refused(here, *FIT, "monday.csv")
    assert words.startswith("monday.csv:42: ")
    assert "hinge.position" in words
    assert "n/a" in words


def test_a_span_that_ends_before_it_begins_is_named(here: Path) -> None:
    assert "--to-s: 1.0 is not after --from-s 2.0" in refused(here, *FIT, "monday.csv", "--from-s", "2", "--to-s", "1")


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_a_place_that_can_t_be_written_is_refused_before_the_work(here: Path, option: str) -> None:
    assert "its folder does not exist" in refused(here, *FIT, "monday.csv", option, "nowhere/file")
    assert "is a folder" in refused(here, *FIT, "monday.csv", option, ".")


def test_a_twin_that_was_changed_or_is_another_robot_s_is_refused(here: Path) -> None:
    (here / "twin.json").write_text("{}", encoding="utf-8")
    command = ("evaluate", "--robot", "robot.yaml", "--twin", "twin.json", "--log", "monday.csv")
    assert "Field required" in refused(here, *command)
    (here / "twin.json").unlink()
    assert "twin.json: No such file" in refused(here, *command)
    other = seal(draft(), version=0, parent=None, created_at=CREATED)
    (here / "twin.json").write_bytes(to_json(other))
    assert "the twin belongs to description 000000000000…" in refused(here, *command)
    (here / "twin.json").write_bytes(to_json(other).replace(b'"seed":0', b'"seed":1'))
    assert refused(here, *command).startswith("digest: ")
