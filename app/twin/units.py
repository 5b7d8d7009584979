"""Units a declaration may give a joint's position in, and what they are in SI."""

from __future__ import annotations

import math
from typing import Final, Literal, assert_never, get_args

from app.twin.description import JointType

AngleUnit = Literal["rad", "mrad", "deg", "rev"]
LengthUnit = Literal["m", "mm", "cm", "um", "in"]
Unit = AngleUnit | LengthUnit

ANGLES_RAD: Final[dict[str, float]] = {"rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180, "rev": 2 * math.pi}
LENGTHS_M: Final[dict[str, float]] = {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "um": 1e-6, "in": 0.0254}
UNITS: Final[tuple[str, ...]] = (*get_args(AngleUnit), *get_args(LengthUnit))


def si_factor(unit: Unit | None) -> float:
    """SI units (rad or m) in one `unit`; None is SI already."""
    return 1.0 if unit is None else {**ANGLES_RAD, **LENGTHS_M}[unit]


def units_of(joint: JointType) -> tuple[str, ...]:
    """The units that a joint of this type can be measured in."""
    match joint:
        case "revolute" | "continuous":
            return tuple(ANGLES_RAD)
        case "prismatic":
            return tuple(LENGTHS_M)
        case "fixed":
            return ()
        case _:
            assert_never(joint)
