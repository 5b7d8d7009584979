"""What the report shows: numbers only, gathered by the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.calibration.findings import Whiteness
from app.calibration.types import Acceptance, StructureTried
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
class Horizon:
    """How errors grow with the time since a run's start from a measured state, over all of the hold-out.

    Attributes:
        joints: names; columns of the arrays below.
        window_s: length of the runs [s].
        t_s: middles of the spans of time that errors are pooled in [s], shape (H,).
        calibrated: RMS error per joint, NaN where nothing was measured [rad or m], shape (H, n).
        nominal: likewise of the nominal twin.
    """

    joints: tuple[str, ...]
    window_s: float
    t_s: FloatArray
    calibrated: FloatArray
    nominal: FloatArray


@dataclass(frozen=True, slots=True)
class Excitation:
    """Where one joint was and how fast, in the fitted data.

    Attributes:
        joint: its name.
        limits: lowest and highest position of the description [rad or m]; None where it has none.
        edges: of the bins of position, shape (B + 1,).
        seconds: time spent in each bin [s], shape (B,).
        speed: RMS speed in each bin, 0 where it never was [rad/s or m/s], shape (B,).
        top_speed: exceeded a hundredth of the time [rad/s or m/s].
        reversals: how often it turned around.
    """

    joint: str
    limits: tuple[float, float] | None
    edges: FloatArray
    seconds: FloatArray
    speed: FloatArray
    top_speed: float
    reversals: int


@dataclass(frozen=True, slots=True)
class Looks:
    """What the report shows besides the twin and its overlays.

    Attributes:
        horizon: errors against time; None where the hold-out is too short.
        excitation: by joint.
        whiteness: errors beside motion and noise, by joint.
        confounded: groups of parameters that the data know only together.
        structures: laws that were tried, the plain ones first.
    """

    horizon: Horizon | None = None
    excitation: tuple[Excitation, ...] = ()
    whiteness: Mapping[str, Whiteness] = field(default_factory=dict)
    confounded: tuple[tuple[str, ...], ...] = ()
    structures: tuple[StructureTried, ...] = ()


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
        looks: what else there is to see.
    """

    draft: TwinDraft
    acceptance: Acceptance
    nominal_name: str
    overlays: tuple[Overlay, ...]
    train_logs: tuple[str, ...]
    trials: int
    seconds: float
    looks: Looks = field(default_factory=Looks)
