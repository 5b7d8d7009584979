"""Fits of logs of real robots, judged on data they have not seen: `python -m benchmarks.real [robot …]`.

Reads the logs beside the checkout (`TWINCAL_SHARED` or `../shared`); prints a table and, as its last line, JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, FitResult, Progress
from app.ingest.files import read_log
from app.twin.declaration import load_declaration

BUDGET_S = 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """One robot: what is fitted, what is judged.

    Attributes:
        folder: below the data folder.
        train: file names of the fitted logs.
        holdout: file names of the judged logs; empty: the end of the training logs.
        holdout_fraction: of each training log where no log is held out.
        figure: the one to quote, `mae` or `rmse` [mrad, mean over joints].
    """

    folder: str
    train: tuple[str, ...]
    holdout: tuple[str, ...]
    figure: str
    holdout_fraction: float = 0.25


_SO101 = ("multisine", "friction_gravity", "chirp_sweep", "velocity_ramp")
_XL330 = ("lift_and_drop", "sin_sin", "sin_time_square", "up_and_down")

CASES = {
    "so101": Case(
        "so101",
        _SO101,
        (
            "backlash_detection",
            "figure_eight",
            "inertia_coupling",
            "pick_place",
            "prbs_excitation",
            "random_waypoints",
            "step_response",
            "trapezoidal_profile",
        ),
        "mae",
    ),
    "xl330": Case(
        "xl330",
        tuple(f"kp{gain}_{motion}" for gain in (100, 400) for motion in _XL330),
        tuple(f"kp200_{motion}" for motion in _XL330),
        "mae",
    ),
    # 23.5 s and 23.9 s: the first 16 s are fitted
    "z1": Case("z1", ("chirp",), (), "rmse", 7.5 / 23.5),
    "go2": Case("go2", ("chirp",), (), "rmse", 7.9 / 23.9),
    "double_pendulum": Case(
        "double_pendulum",
        tuple(f"trajectory_0{i}" for i in range(4)),
        tuple(f"trajectory_0{i}" for i in (4, 5)),
        "rmse",
    ),
}


def data_folder() -> Path:
    """Where the logs are.

    Raises:
        SystemExit: when they aren't there.
    """
    shared = Path(os.environ.get("TWINCAL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (shared / "data").is_dir():
        sys.exit(f"no logs of real robots at {shared / 'data'}: set TWINCAL_SHARED")
    return shared / "data"


def fit(case: Case) -> FitResult:
    """Fit one robot."""
    folder = data_folder() / case.folder
    declaration, description = load_declaration(folder / "robot.yaml")
    request = FitRequest(
        declaration=declaration,
        description=description,
        train=tuple(read_log(folder / f"{name}.csv") for name in case.train),
        holdout=tuple(read_log(folder / f"{name}.csv") for name in case.holdout),
        seed=0,
        budget_s=BUDGET_S,
        active=None,
        holdout_fraction=case.holdout_fraction,
    )
    return calibrate(request, _ignore)


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def main() -> None:
    """Fit the named robots, or all."""
    figures = {}
    print(f"{'robot':16} {'figure':6} {'twin':>9} {'nominal':>9} {'train':>9}   [mrad]  grade  seconds")
    for name in sys.argv[1:] or list(CASES):
        case = CASES[name]
        began = time.monotonic()
        quality = fit(case).draft.quality
        held = quality.holdout
        twin, nominal, train = (
            1e3 * getattr(block, f"{prefix}{case.figure}_mean")
            for block, prefix in ((held, ""), (held, "nominal_"), (quality.train, ""))
        )
        seconds = time.monotonic() - began
        numbers = f"{twin:9.2f} {nominal:9.2f} {train:9.2f}"
        print(f"{name:16} {case.figure:6} {numbers}           {quality.grade:6} {seconds:6.0f}")
        figures[name] = round(twin, 3)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
