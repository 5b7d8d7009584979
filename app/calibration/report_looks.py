"""What the report shows besides the twin: errors against the horizon, and where the fitted data took each joint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from app.calibration import judge
from app.calibration.dataset import Dataset, Stretch, stretches
from app.calibration.draft import Judgement
from app.calibration.findings import sensors_of, whiteness
from app.calibration.posterior import Posterior
from app.calibration.report_data import Excitation, Horizon, Looks
from app.calibration.solver import Solution
from app.calibration.types import StructureTried
from app.telemetry import FloatArray
from app.twin.description import Description
from app.twin.model import TwinModel

LONGEST_S: Final = 8.0
LEAST_S: Final = 1.0
RUNS: Final = 4
"""Runs that the longest stretch is cut into, where they are neither longer nor shorter than these."""
SHORTEST_S: Final = 0.5
SPANS: Final = 24
BINS: Final = 40
_SLOW: Final = 0.02
"""Share of the top speed below which a joint counts as turning around, not as going anywhere."""
_WHOLE_TURN_RAD: Final = 6.2


def gather_looks(
    dataset: Dataset,
    solution: Solution,
    judgement: Judgement,
    found: Posterior,
    structures: Sequence[StructureTried],
    description: Description,
) -> Looks:
    """Everything the report shows besides the twin and its overlays."""
    joints, parts, errors = dataset.model.joints, dataset.holdout, judgement.errors
    return Looks(
        horizon=horizon_of(dataset.model, parts, solution.values),
        excitation=excitation_of(dataset, description),
        whiteness=whiteness(joints, parts, errors, sensors_of(joints, parts, errors)),
        confounded=found.confounded,
        structures=tuple(structures),
    )


def horizon_of(model: TwinModel, parts: Sequence[Stretch], values: FloatArray) -> Horizon | None:
    """Errors of the twin and of the nominal one against the time since a run's start.

    Args:
        model: the robot.
        parts: stretches to judge by, cut into runs of equal length.
        values: the twin's, shape (K,).
    """
    longest = max((part.duration_s for part in parts), default=0.0)
    window = min(LONGEST_S, longest, max(LEAST_S, longest / RUNS))
    windows = [
        run
        for part in parts
        for run in stretches(model, part.commanded, part.motion.begin_s, float(part.motion.t_out_s[-1]), window)
        if window >= SHORTEST_S
    ]
    if not windows:
        return None
    since = np.concatenate([run.motion.t_out_s - run.motion.begin_s for run in windows])
    edges = window * np.linspace(0.0, 1.0, SPANS + 1) ** 1.5  # finer at the beginning, where errors grow
    span = np.clip(np.searchsorted(edges, since, side="right") - 1, 0, SPANS - 1)

    def by_span(which: FloatArray) -> FloatArray:
        error = np.concatenate(judge.errors(windows, judge.simulated(model, windows, which)))
        squares, counts = np.zeros((2, SPANS, error.shape[1]))
        np.add.at(squares, span, np.nan_to_num(error) ** 2)
        np.add.at(counts, span, ~np.isnan(error))
        return np.where(counts > 0.0, np.sqrt(squares / np.maximum(counts, 1.0)), np.nan)

    middles = 0.5 * (edges[1:] + edges[:-1])
    return Horizon(model.joints, window, middles, by_span(values), by_span(model.nominal()))


def excitation_of(dataset: Dataset, description: Description) -> tuple[Excitation, ...]:
    """Where the fitted data took each joint, and how fast it was there."""
    return tuple(
        _excitation(name, _limits(description, name), [_motion(part, j) for part in dataset.train])
        for j, name in enumerate(dataset.model.joints)
    )


_Moved = tuple[FloatArray, FloatArray, FloatArray]
"""Positions, speeds and how long each lasted, of one joint on one stretch."""


def _motion(part: Stretch, joint: int) -> _Moved:
    known = ~np.isnan(part.position[:, joint])
    t, q = part.motion.t_out_s[known], part.position[known, joint]
    if len(t) < 3:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    # over five samples: a rounded reading has no speed from one to the next
    reach = min(2, (len(t) - 1) // 2)
    speed = (q[2 * reach :] - q[: -2 * reach]) / (t[2 * reach :] - t[: -2 * reach])
    return q[reach:-reach], speed, np.diff(t)[reach - 1 : len(t) - reach - 1]


def _limits(description: Description, name: str) -> tuple[float, float] | None:
    joint = description.joints[name]
    if joint.type == "continuous" or joint.lower is None or joint.upper is None or joint.upper <= joint.lower:
        return None
    if joint.type == "revolute" and joint.upper - joint.lower > _WHOLE_TURN_RAD:
        return None
    return joint.lower, joint.upper


def _excitation(name: str, limits: tuple[float, float] | None, moved: Sequence[_Moved]) -> Excitation:
    position, speed, lasted = (np.concatenate([each[k] for each in moved]) for k in range(3))
    low, high = limits or ((float(position.min()), float(position.max())) if len(position) else (0.0, 1.0))
    low, high = min(low, *position.tolist(), low), max(high, *position.tolist(), high)
    edges = np.linspace(low, high if high > low else low + 1e-3, BINS + 1)
    place = np.clip(np.searchsorted(edges, position, side="right") - 1, 0, BINS - 1)
    seconds, squares = np.zeros((2, BINS))
    np.add.at(seconds, place, lasted)
    np.add.at(squares, place, lasted * speed**2)
    top = float(np.quantile(np.abs(speed), 0.99)) if len(speed) else 0.0
    turns = 0
    for _, each, _ in moved:
        going = np.sign(each[np.abs(each) > _SLOW * top])
        turns += int(np.count_nonzero(np.diff(going)))
    return Excitation(
        joint=name,
        limits=limits,
        edges=edges,
        seconds=seconds,
        speed=np.sqrt(squares / np.maximum(seconds, 1e-12)),
        top_speed=top,
        reversals=turns,
    )
