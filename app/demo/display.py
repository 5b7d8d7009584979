"""What is seen while the demonstration runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

REFRESH_HZ: Final = 4.0
BAR_WIDTH: Final = 20
SAMPLES_WIDTH: Final = 16
CALIBRATION_WIDTH: Final = 30
"""Of columns whose text changes: so that the table doesn't jump."""


@dataclass(frozen=True, slots=True)
class RobotStatus:
    """Where one robot is on its way to a twin.

    Attributes:
        robot: its id.
        dialect: the payload it speaks.
        stored: samples in the store.
        expected: samples it sends in all.
        state: of its calibration; empty before there is one.
        stage: what the fit is doing.
        progress: 0 to 1.
        trials: of the search, so far.
        result: what came of it; empty before its end.
    """

    robot: str
    dialect: str
    stored: int
    expected: int
    state: str = ""
    stage: str = ""
    progress: float = 0.0
    trials: int = 0
    result: str = ""

    @property
    def calibration(self) -> str:
        """State and stage in a few words."""
        if self.result:
            return self.result
        return " · ".join(part for part in (self.state, self.stage) if part)


class Display:
    """Shows statuses as they change; `say` is for single lines, before, between and after."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live: Live | None = None
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=REFRESH_HZ)
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
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {line}", highlight=False)

    def show(self, statuses: Iterable[RobotStatus]) -> None:
        """The statuses of all robots, now."""
        statuses = tuple(statuses)
        if self._live is not None:
            self._live.update(_table(statuses, time.monotonic() - self._began))
            return
        for status in statuses:
            news = _news(status)
            if self._told.get(status.robot) != news:
                self._told[status.robot] = news
                self.say(f"{status.robot}: {news}")


def _news(status: RobotStatus) -> str:
    """What is worth a plain line: it changes a few times a calibration, not with every sample."""
    if status.state:
        return status.result or f"calibration {status.calibration}"
    if status.stored == 0:
        return f"speaks {status.dialect}"
    if status.stored < status.expected:
        return "its samples arrive"
    return f"{status.stored} samples stored"


def _table(statuses: Iterable[RobotStatus], elapsed_s: float) -> Table:
    table = Table(title=f"twincal demo, {elapsed_s:.0f} s", title_justify="left", box=box.ROUNDED)
    table.add_column("robot", no_wrap=True)
    table.add_column("speaks", no_wrap=True)
    table.add_column("samples stored", no_wrap=True, min_width=SAMPLES_WIDTH)
    table.add_column("calibration", no_wrap=True, min_width=CALIBRATION_WIDTH)
    table.add_column("progress", width=BAR_WIDTH)
    table.add_column("trials", justify="right", no_wrap=True)
    for status in statuses:
        table.add_row(
            status.robot,
            status.dialect,
            f"{status.stored:>6,} of {status.expected:>6,}",
            status.calibration,
            ProgressBar(total=1.0, completed=status.progress, width=BAR_WIDTH),
            str(status.trials or ""),
        )
    return table
