"""What goes into a calibration, what it says on its way and what comes out; all of it picklable.

A fit runs in a child process of its worker, so these cross a pipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from app.telemetry import Recording
from app.twin.description import Description
from app.twin.document import TwinDocument, TwinDraft

if TYPE_CHECKING:
    from app.twin.declaration import RobotDeclaration

TrialState = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True)
class FitRequest:
    """One calibration to be done.

    Attributes:
        declaration: the robot's.
        description: the one the declaration's robot has, parsed.
        train: recordings to fit.
        holdout: recordings that only judge and influence nothing; empty holds out the end of each training recording.
        seed: of every draw the fit makes.
        budget_s: safety limit on the fit's wall time [s]; the search's size is counted in trials, not in time.
        active: the version to be beaten; None if the robot has none.
        from_s: cut every training recording before this time since its first row [s].
        to_s: cut every training recording after this time since its first row [s].
        holdout_fraction: share of each training recording held out when `holdout` is empty.
    """

    declaration: RobotDeclaration
    description: Description
    train: tuple[Recording, ...]
    holdout: tuple[Recording, ...]
    seed: int
    budget_s: float
    active: TwinDocument | None
    from_s: float | None = None
    to_s: float | None = None
    holdout_fraction: float = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fit is.

    Attributes:
        stage: what it is doing, in a word or two.
        fraction: of the whole fit, 0 to 1.
        trials: done so far.
        best: lowest objective so far; None before the first.
    """

    stage: str
    fraction: float
    trials: int
    best: float | None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether the twin beats the nominal description and the active version on the hold-out, and why."""

    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial of the search.

    Attributes:
        number: from 0, in the order asked.
        structure: the structure tried, e.g. {"friction": "coulomb+viscous"}.
        parameters: values tried or found, by parameter name, in the unit the name ends with.
        value: its objective; None where it failed or was pruned without one.
        state: how it ended.
    """

    number: int
    structure: Mapping[str, str | bool]
    parameters: Mapping[str, float]
    value: float | None
    state: TrialState


@dataclass(frozen=True, slots=True)
class StructureTried:
    """A structure that was fitted on part of the training data, and what came of it.

    Attributes:
        structure: its laws, as a trial records them.
        log_rms: mean over joints of the logarithm of its error on data it was not fitted to [ln rad].
        gain: share of the plain structure's loss on such data that it saves.
        gain_error: standard error of the gain.
        chosen: whether the twin has it.
        reason: why it was chosen or lost, in words.
    """

    structure: Mapping[str, str | bool]
    log_rms: float
    gain: float
    gain_error: float
    chosen: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a fit found: a twin without a version, the gate's answer, every trial and the report for people.

    `structures` tells which laws were fitted and why each was chosen or lost, the plain ones first.
    """

    draft: TwinDraft
    acceptance: Acceptance
    trials: tuple[TrialRecord, ...]
    report_html: str
    structures: tuple[StructureTried, ...] = ()
