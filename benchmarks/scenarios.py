"""What scenarios cost: draws a second of a 7-joint robot on one core, by format.

    make bench-scenarios

The twin has 57 parameters; the 50 fitted ones are all correlated, and 35 of them are known so badly that their
bounds may bind, which is the slow way of drawing. CPU seconds of the one process, with one thread.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from threadpoolctl import threadpool_limits

from app.scenario import formats
from app.scenario.draws import spread_of
from app.scenario.generate import source_of
from app.scenario.records import Origin
from app.scenario.request import ScenarioChoice
from tests.scenarios import arm

COUNT: Final = 100_000
JOINTS: Final = tuple(f"joint{i + 1}" for i in range(7))


def main() -> None:
    """Print one line a format."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    choice, twin = ScenarioChoice(n=COUNT, seed=7), arm(JOINTS)
    spread = spread_of(twin)
    print(f"{COUNT} scenarios of {len(JOINTS)} joints: {len(twin.parameters)} parameters, {len(spread.names)} drawn,")
    print(f"{spread.bound} of these with bounds that may bind; one core")
    print(f"{'format':10} {'MB':>8} {'CPU s':>8} {'wall s':>8} {'scenarios/s':>12}")
    with threadpool_limits(1), TemporaryDirectory() as folder:
        origin = Origin(choice, (source_of(twin, choice),))
        for name in formats.MEDIA_TYPES:
            path, began, cpu = Path(folder) / name, time.perf_counter(), time.process_time()
            with path.open("wb") as file:
                file.writelines(formats.write(origin, name))
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(f"{name:10} {path.stat().st_size / 1e6:8.1f} {cpu:8.2f} {wall:8.2f} {COUNT / cpu:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
