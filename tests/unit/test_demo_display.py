"""What is seen while the demonstration runs."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from app.demo.display import Display, RobotStatus

STEPS = (
    RobotStatus("arm-01", "json", 0, 6000),
    RobotStatus("arm-01", "json", 50, 6000),
    RobotStatus("arm-01", "json", 5000, 6000),
    RobotStatus("arm-01", "json", 6000, 6000),
    RobotStatus("arm-01", "json", 6000, 6000, "running", "fitting", 0.4, 66),
    RobotStatus("arm-01", "json", 6000, 6000, "running", "fitting", 0.5, 66),
    RobotStatus("arm-01", "json", 6000, 6000, "succeeded", "done", 1.0, 67, "served: error 50 times smaller"),
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
        "arm-01: served: error 50 times smaller",
    ]


def test_on_a_terminal_one_table_is_kept_up_to_date(shown: StringIO) -> None:
    with Display(Console(file=shown, width=140, force_terminal=True)) as display:
        for status in STEPS:
            display.show([status, replace(status, robot="arm-02", dialect="ros")])
    last = shown.getvalue().rpartition("twincal demo, ")[2]
    assert "6,000 of  6,000" in last
    assert last.count("served: error 50 times smaller") == 2
