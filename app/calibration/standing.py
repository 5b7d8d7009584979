"""Joints that stand still while others move: held as they stood, so that they drag nothing along.

How much friction would hold such a joint, the data say only from below; and a simulated joint that is not held drags
the masses and centres of mass of its neighbours to wherever they balance it. So it is held by brute force while the
others are fitted, and its own friction stays the prior's, or what holds it if that is more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from app.calibration.dataset import Dataset, Stretch
from app.calibration.residual import residuals
from app.errors import FitImpossibleError
from app.telemetry import FloatArray
from app.twin import friction
from app.twin.model import TwinModel

BRUTE_FORCE: Final = 1e6
"""Friction that holds any joint [N·m or N]."""
MOVED: Final = 2e-3
"""A joint whose readings stay within this has not moved [rad or m]."""
DOUBLINGS: Final = 8
"""How often the prior's friction is doubled to find what holds a joint."""
_HOLDING = (friction.COULOMB, friction.BREAKAWAY, friction.STRIBECK, friction.LOAD)


def still_joints(dataset: Dataset) -> tuple[str, ...]:
    """Joints that don't move in the training data, or aren't measured there.

    Raises:
        FitImpossibleError: when no joint moves.
    """
    measured = np.concatenate([part.position for part in dataset.train])
    missing = np.isnan(measured)
    spread = np.where(missing, -np.inf, measured).max(axis=0) - np.where(missing, np.inf, measured).min(axis=0)
    still = tuple(name for name, moved in zip(dataset.model.joints, spread.tolist(), strict=True) if moved < MOVED)
    if len(still) == len(dataset.model.joints):
        raise FitImpossibleError(
            "no joint moves in the training data: nothing can be identified; record a motion in which every joint "
            "turns slowly and quickly"
        )
    return still


def about_still(joints: Sequence[str]) -> tuple[str, ...]:
    """What joints that stand still leave unknown, as a warning."""
    if not joints:
        return ()
    names = ", ".join(joints)
    return (f"stands still in the training data, so that its friction, damping and armature stay unknown: {names}",)


def holding(model: TwinModel, still: Collection[str]) -> frozenset[int]:
    """Indices of the parameters by which joints that stand still are held: their dry friction."""
    columns = {index for index, joint in enumerate(model.joints) if joint in still}
    slots = {i: spec.slot for i, spec in enumerate(model.specs)}
    return frozenset(
        i for i, slot in slots.items() if slot.place == "joint" and slot.index in columns and slot.row in _HOLDING
    )


def free_of(model: TwinModel, still: Collection[str]) -> tuple[int, ...]:
    """Indices of what is fitted: everything that is to be but the friction of joints that stand still."""
    held = holding(model, still)
    return tuple(i for i, spec in enumerate(model.specs) if spec.fitted and i not in held)


def locked(model: TwinModel, values: FloatArray, still: Collection[str]) -> FloatArray:
    """A parameter set with which joints that stand still keep doing so, shape (K,)."""
    return _with_coulomb(model, values, dict.fromkeys(still, BRUTE_FORCE))


def released(model: TwinModel, values: FloatArray, still: Collection[str]) -> FloatArray:
    """A parameter set with the prior's friction at joints that stand still, shape (K,)."""
    back = values.copy()
    for i in holding(model, still):
        back[i] = model.specs[i].initial
    return back


def least_holding(model: TwinModel, parts: Sequence[Stretch], values: FloatArray, still: Collection[str]) -> FloatArray:
    """A parameter set with the prior's friction at joints that stand still, doubled until they do, shape (K,)."""
    start = released(model, values, still)
    if not still:
        return start
    rows = {model.joints[s.slot.index]: i for i, s in enumerate(model.specs) if _is_coulomb(model, i)}
    sets = np.repeat(start[None, :], DOUBLINGS + 1, axis=0)
    for joint in still:
        i = rows[joint]
        least = max(start[i], 1e-3 * model.specs[i].prior_moments()[1])
        sets[:, i] = np.minimum(least * 2.0 ** np.arange(DOUBLINGS + 1), model.specs[i].bounds[1])
        sets[0, i] = start[i]
    found = residuals(model, parts, sets)
    for joint in still:
        column = model.joints.index(joint)
        count = max(int(found.seen[:, column].sum()), 1)
        error = np.sqrt((found.error[:, :, column] ** 2).sum(axis=1) / count)
        holds = np.flatnonzero(error <= MOVED)
        start[rows[joint]] = sets[int(holds[0]) if len(holds) else int(np.argmin(error)), rows[joint]]
    return start


def _with_coulomb(model: TwinModel, values: FloatArray, by_joint: dict[str, float]) -> FloatArray:
    changed = values.copy()
    for i, spec in enumerate(model.specs):
        if _is_coulomb(model, i) and model.joints[spec.slot.index] in by_joint:
            changed[i] = by_joint[model.joints[spec.slot.index]]
    return changed


def _is_coulomb(model: TwinModel, index: int) -> bool:
    slot = model.specs[index].slot
    return slot.place == "joint" and slot.row == friction.COULOMB
