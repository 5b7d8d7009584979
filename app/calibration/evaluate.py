"""A published twin judged on logs, in PyBullet."""

from __future__ import annotations

from collections.abc import Sequence

from app.calibration import judge
from app.calibration.dataset import judged_stretches
from app.calibration.reference import nominal_reference, values_of
from app.errors import InvalidInputError
from app.telemetry import Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from app.twin.document import HoldoutErrors, TwinDocument
from app.twin.model import named_structure


def evaluate_twin(
    twin: TwinDocument,
    declaration: RobotDeclaration,
    description: Description,
    logs: Sequence[Recording],
    span: tuple[float | None, float | None],
    window_s: float | None,
) -> HoldoutErrors:
    """Errors of a twin on logs.

    Args:
        twin: the document.
        declaration: of the robot that wrote the logs.
        description: the one the twin was fitted on.
        logs: raw recordings.
        span: judge from and to [s since each log's first row].
        window_s: length of the runs; None: free runs (windows of 1 s for torque-driven robots).

    Raises:
        InvalidInputError: when the twin belongs to another description or lacks a parameter.
        SimulationError: when PyBullet refuses the twin.
    """
    if twin.description.sha256 != description.sha256:
        raise InvalidInputError(
            "description",
            f"the twin belongs to description {twin.description.sha256[:12]}…, not to {description.sha256[:12]}…",
            "the description it was fitted on",
        )
    laws = twin.structure
    structure = named_structure(laws.friction, laws.lag, backlash=laws.backlash)
    model, parts = judged_stretches(description, declaration, logs, span, window_s, structure)
    positions = judge.simulated_in_world(model, parts, values_of(model, twin))
    found = judge.errors(parts, positions)
    nominal_positions, _ = nominal_reference(model, parts)
    nominal = judge.joint_errors(model.joints, judge.errors(parts, nominal_positions))
    return HoldoutErrors(
        **judge.joint_errors(model.joints, found).model_dump(),
        nominal_mae_mean=nominal.mae_mean,
        nominal_rmse_mean=nominal.rmse_mean,
        per_log=judge.log_errors(parts, found),
    )
