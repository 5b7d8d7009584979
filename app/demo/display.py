"""What is seen while the demonstration runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

REFRESH_HZ: Final = 4.0
BAR_WIDTH: Final = 10
SAMPLES_WIDTH: Final = 15
CALIBRATION_WIDTH: Final = 28
STATE_WIDTH: Final = 7
"""Of columns whose text changes: so that the table doesn't jump."""
WIDE: Final = 115
"""Columns of a terminal that holds the whole table; a narrower one is shown less."""
SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARK_WIDTH: Final = 16
SPARK_TOP: Final = 3.0
"""The drift score that fills a sparkline's height, unless it shows a higher one."""
STATE_STYLES: Final = {"ok": "green", "watch": "yellow", "drifted": "bold red"}


@dataclass(frozen=True, slots=True)
class RobotStatus:
    """Where one robot is, on its way to a twin and at work with it.

    Attributes:
        robot: its id.
        dialect: the payload it speaks.
        stored: samples in the store.
        expected: samples it sends in all; 0 where there is no end to them.
        state: of its calibration; empty before there is one.
        stage: what the fit is doing.
        progress: 0 to 1.
        result: what came of it; empty before its end.
        version: of the twin it is compared with; None before the monitor has looked.
        drift: state; empty before the monitor has looked.
        score: the latest; None before the first.
        trace: scores so far.
    """

    robot: str
    dialect: str
    stored: int
    expected: int
    state: str = ""
    stage: str = ""
    progress: float = 0.0
    result: str = ""
    version: int | None = None
    drift: str = ""
    score: float | None = None
    trace: tuple[float, ...] = ()

    @property
    def calibration(self) -> str:
        """State and stage in a few words."""
        if self.result:
            return self.result
        return " · ".join(part for part in (self.state, self.stage) if part)

    @property
    def samples(self) -> str:
        """How many are stored, of how many if that is known."""
        return f"{self.stored:,} of {self.expected:,}" if self.expected else f"{self.stored:,}"


class Display:
    """Shows statuses as they change; `say` is for single lines, before, between and after."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._live: Live | None = None
        self._told: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=REFRESH_HZ)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        """One line, with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {line}", highlight=False)

    def show(self, statuses: Iterable[RobotStatus]) -> None:
        """The statuses of all robots, now."""
        statuses = tuple(statuses)
        if self._live is not None:
            self._live.update(status_table(statuses, time.monotonic() - self._began, self.console.width))
            return
        for status in statuses:
            for topic, news in _news(status).items():
                if self._told.get((status.robot, topic)) != news:
                    self._told[status.robot, topic] = news
                    score = "" if topic == "calibration" or status.score is None else f", score {status.score:.2f}"
                    self.say(f"{status.robot}: {news}{score}")


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Values up to the latest as a line of blocks whose bottom is 0; where they are too many, every so many-th."""
    every = max(1, math.ceil(len(values) / width))
    shown = values[::-1][::every][::-1]
    top = max([SPARK_TOP, *shown])
    return "".join(SPARKS[min(int(value / top * len(SPARKS)), len(SPARKS) - 1)] for value in shown)


def status_table(statuses: Iterable[RobotStatus], elapsed_s: float, width: int = WIDE) -> Table:
    """The statuses of all robots as a table that fits a terminal this wide."""
    table = Table(
        title=f"twincal demo, {elapsed_s:.0f} s",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    wide = width >= WIDE
    table.add_column("robot", no_wrap=True)
    if wide:
        table.add_column("speaks", no_wrap=True)
        table.add_column("samples stored", no_wrap=True, min_width=SAMPLES_WIDTH)
    table.add_column("calibration", no_wrap=True, width=CALIBRATION_WIDTH)
    if wide:
        table.add_column("progress", width=BAR_WIDTH)
    table.add_column("twin", no_wrap=True, justify="right")
    table.add_column("drift", no_wrap=True, width=SPARK_WIDTH)
    table.add_column("score", no_wrap=True, min_width=5, justify="right")
    table.add_column("state", no_wrap=True, min_width=STATE_WIDTH)
    for status in statuses:
        style = STATE_STYLES.get(status.drift, "")
        table.add_row(
            status.robot,
            *((status.dialect, status.samples) if wide else ()),
            status.calibration,
            *((ProgressBar(total=1.0, completed=status.progress, width=BAR_WIDTH),) if wide else ()),
            "" if status.version is None else f"v{status.version}",
            Text(sparkline(status.trace), style=style),
            "" if status.score is None else f"{status.score:.2f}",
            Text(status.drift, style=style),
        )
    return table


def _news(status: RobotStatus) -> dict[str, str]:
    """What is worth a plain line, by what it is about: it changes a few times, not with every sample or score."""
    news = {"calibration": _calibration_news(status)}
    if status.drift:
        news["drift"] = f"drift of version {status.version}: {status.drift}"
    return news


def _calibration_news(status: RobotStatus) -> str:
    if status.state:
        return status.result or f"calibration {status.calibration}"
    if status.stored == 0:
        return f"speaks {status.dialect}"
    if status.stored < status.expected:
        return "its samples arrive"
    return f"{status.stored} samples stored"
