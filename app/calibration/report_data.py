"""What the report shows: numbers only, gathered by the fit."""

from __future__ import annotations

from dataclasses import dataclass

from app.calibration.types import Acceptance
from app.telemetry import FloatArray
from app.twin.document import TwinDraft


@dataclass(frozen=True, slots=True)
class Overlay:
    """One stretch of hold-out, measured and simulated.

    Attributes:
        log: the recording's name.
        t_s: time since the log's first row [s], shape (K,).
        joints: names; columns of the arrays below.
        measured: NaN where missing [rad or m], shape (K, n).
        calibrated: [rad or m], shape (K, n).
        nominal: [rad or m], shape (K, n).
        command: held position command [rad or m]; NaN where the controller takes none, shape (K, n).
    """

    log: str
    t_s: FloatArray
    joints: tuple[str, ...]
    measured: FloatArray
    calibrated: FloatArray
    nominal: FloatArray
    command: FloatArray


@dataclass(frozen=True, slots=True)
class ReportData:
    """A whole fit, ready to be shown.

    Attributes:
        draft: parameters, quality, gauges, warnings, structure, provenance.
        acceptance: the gate's answer.
        nominal_name: what the nominal figures are of, in words.
        overlays: hold-out stretches.
        train_logs: names of the fitted recordings.
        trials: number of trials of the search.
        seconds: wall time of the fit [s].
    """

    draft: TwinDraft
    acceptance: Acceptance
    nominal_name: str
    overlays: tuple[Overlay, ...]
    train_logs: tuple[str, ...]
    trials: int
    seconds: float
