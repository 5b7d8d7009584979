"""The report's errors against the horizon: how far ahead a run stays near the robot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.report_data import Horizon
from app.calibration.report_words import NOT_KNOWN, Unit, number
from app.telemetry import FloatArray

_COLUMNS: Final = 5


@dataclass(frozen=True, slots=True)
class HorizonRow:
    """One joint's errors at the columns' times; `nominal` likewise of the nominal twin."""

    name: str
    unit: str
    calibrated: tuple[str, ...]
    nominal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HorizonTable:
    """Errors at some times after a run's start.

    Attributes:
        times: of the columns [s], in words.
        rows: by joint.
    """

    times: tuple[str, ...]
    rows: tuple[HorizonRow, ...]


def horizon_table(horizon: Horizon, units: dict[str, Unit]) -> HorizonTable:
    """A few columns of the curves, in figures."""
    last = len(horizon.t_s) - 1
    wanted = horizon.t_s[-1] * np.array([0.02, 0.08, 0.25, 0.5, 1.0])
    columns = sorted({int(np.argmin(np.abs(horizon.t_s - t))) for t in wanted} | {last})[-_COLUMNS:]
    rows = []
    for name, unit in units.items():
        j = horizon.joints.index(name)
        rows.append(
            HorizonRow(
                name,
                unit.name,
                tuple(_shown(horizon.calibrated[k, j], unit) for k in columns),
                tuple(_shown(horizon.nominal[k, j], unit) for k in columns),
            )
        )
    return HorizonTable(tuple(number(float(horizon.t_s[k]), 2) for k in columns), tuple(rows))


def _shown(error: float, unit: Unit) -> str:
    return NOT_KNOWN if np.isnan(error) else unit.show(float(error))


def mean_over_joints(errors: FloatArray) -> FloatArray:
    """Mean of the joints that were measured in each span, NaN where none was, shape (H,)."""
    seen = ~np.isnan(errors)
    count = seen.sum(axis=1)
    mean: FloatArray = np.where(seen, errors, 0.0).sum(axis=1) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan)
