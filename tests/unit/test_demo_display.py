"""What is seen while the demonstration runs."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from app.demo.display import WIDE, Display, RobotStatus, sparkline, status_table

STEPS = (
    RobotStatus("arm-01", "json", 0, 6000),
    RobotStatus("arm-01", "json", 50, 6000),
    RobotStatus("arm-01", "json", 5000, 6000),
    RobotStatus("arm-01", "json", 6000, 6000),
    RobotStatus("arm-01", "json", 6000, 6000, "running", "fitting", 0.4),
    RobotStatus("arm-01", "json", 6000, 6000, "running", "fitting", 0.5),
    RobotStatus("arm-01", "json", 6000, 6000, "succeeded", "done", 1.0, "error 50 times smaller"),
)


@pytest.fixture
def shown() -> StringIO:
    return StringIO()


def test_where_there_is_no_terminal_each_piece_of_news_is_one_line_once(shown: StringIO) -> None:
    with Display(Console(file=shown, width=140)) as display:
        for status in STEPS:
            display.show([status])
    assert [line.split(" s  ", 1)[1] for line in shown.getvalue().splitlines()] == [
        "arm-01: speaks json",
        "arm-01: its samples arrive",
        "arm-01: 6000 samples stored",
        "arm-01: calibration running · fitting",
        "arm-01: error 50 times smaller",
    ]


def test_drift_is_news_when_its_state_changes_not_with_every_score(shown: StringIO) -> None:
    served = replace(STEPS[-1], version=1)
    with Display(Console(file=shown, width=140)) as display:
        for state, score in (("idle", None), ("ok", 1.02), ("ok", 0.97), ("watch", 3.4), ("drifted", 9.125)):
            display.show([replace(served, drift=state, score=score)])
    assert [line.split(" s  ", 1)[1] for line in shown.getvalue().splitlines()] == [
        "arm-01: error 50 times smaller",
        "arm-01: drift of version 1: idle",
        "arm-01: drift of version 1: ok, score 1.02",
        "arm-01: drift of version 1: watch, score 3.40",
        "arm-01: drift of version 1: drifted, score 9.12",
    ]


def test_a_sparkline_rises_with_the_score_and_ends_with_the_latest_where_there_are_many() -> None:
    assert sparkline([0.0, 1.0, 2.9]) == "▁▃█"
    assert sparkline([1.0, 12.0]) == "▁█"
    assert sparkline([2.9] * 30 + [1.0]) == "█" * 15 + "▃"
    assert sparkline([]) == ""


@pytest.mark.parametrize(("width", "has_samples"), [(WIDE, True), (80, False)])
def test_the_table_fits_the_terminal_and_leaves_nothing_out_that_drift_is_about(
    shown: StringIO, width: int, has_samples: bool
) -> None:
    status = RobotStatus(
        "arm-02", "msgpack", 123_456, 0, "running", "judging", 0.9, "", 1, "drifted", 12.34, (1.0, 12.34) * 8
    )
    Console(file=shown, width=width).print(status_table([status], 61.0, width))
    title, *_, row = shown.getvalue().splitlines()
    assert title.strip() == "twincal demo, 61 s"
    assert row.split()[-4:] == ["v1", "▁█" * 8, "12.34", "drifted"]
    assert "running · judging" in row
    assert ("123,456" in row) == has_samples


def test_on_a_terminal_one_table_is_kept_up_to_date(shown: StringIO) -> None:
    with Display(Console(file=shown, width=140, force_terminal=True)) as display:
        for status in STEPS:
            display.show([status, replace(status, robot="arm-02", dialect="ros")])
    last = shown.getvalue().rpartition("twincal demo, ")[2]
    assert "6,000 of 6,000" in last
    assert last.count("error 50 times smaller") == 2
