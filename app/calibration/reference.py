"""What a twin is compared with: the nominal description, and a version published before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.calibration import judge
from app.calibration.dataset import Stretch
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.document import TwinDocument
from app.twin.model import TwinModel

NOMINAL = "the nominal description"


def nominal_reference(model: TwinModel, parts: Sequence[Stretch]) -> tuple[judge.Positions, str]:
    """What a twin has to beat: the nominal description, or "the joint is where it was told to be" if that is nearer.

    Only where gains aren't declared: with declared gains the nominal description is what anyone would simulate.
    """
    positions = judge.simulated(model, parts, model.nominal())
    if any(spec.fitted and spec.slot.place == "joint" and spec.slot.row == friction.KP for spec in model.specs):
        told = judge.commanded(parts)
        nearer = _rmse(model, parts, told) < _rmse(model, parts, positions)
        if nearer:
            return told, "“the joint is where it was told to be”"
        return positions, "the nominal description with gains at their prior's median"
    return positions, NOMINAL


def _rmse(model: TwinModel, parts: Sequence[Stretch], positions: judge.Positions) -> float:
    return judge.joint_errors(model.joints, judge.errors(parts, positions)).rmse_mean


def values_of(model: TwinModel, document: TwinDocument) -> FloatArray:
    """A published twin's parameters in a model's order; what it doesn't hold is at its nominal, shape (K,)."""
    held = {name: parameter.value for name, parameter in document.parameters.items()}
    return np.array([held.get(s.name, n) for s, n in zip(model.specs, model.nominal(), strict=True)])
