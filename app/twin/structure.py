"""Which laws a twin has: what a calibration chooses between, before it chooses values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.errors import InvalidInputError

FrictionLaw = Literal[
    "coulomb+viscous", "coulomb+viscous+stribeck", "coulomb+viscous+load", "coulomb+viscous+stribeck+load"
]
LagLaw = Literal["delay", "delay+lag"]

_FRICTION_LAWS: Final[dict[str, FrictionLaw]] = {
    law: law
    for law in (
        "coulomb+viscous",
        "coulomb+viscous+stribeck",
        "coulomb+viscous+load",
        "coulomb+viscous+stribeck+load",
    )
}
_LAG_LAWS: Final[dict[str, LagLaw]] = {"delay": "delay", "delay+lag": "delay+lag"}


@dataclass(frozen=True, slots=True)
class Structure:
    """The laws of a twin; each adds parameters to those that every twin has.

    Attributes:
        friction: what dry friction depends on; `stribeck` adds breakaway friction and Stribeck velocity to each joint,
            `load` a share of the torque that the transmission carries.
        lag: a command comes late (`delay`), and is smoothed by a first-order lag besides (`delay+lag`).
        backlash: each joint has a gap between motor and link.
    """

    friction: FrictionLaw = "coulomb+viscous"
    lag: LagLaw = "delay"
    backlash: bool = False

    @property
    def stribeck(self) -> bool:
        """Whether friction falls from breakaway to Coulomb friction with speed."""
        return "stribeck" in self.friction

    @property
    def load(self) -> bool:
        """Whether friction grows with the torque that the transmission carries."""
        return "load" in self.friction

    def __or__(self, other: Structure) -> Structure:
        """The laws of both."""
        friction = (
            "coulomb+viscous" + "+stribeck" * (self.stribeck or other.stribeck) + "+load" * (self.load or other.load)
        )
        lag = "delay+lag" if "delay+lag" in (self.lag, other.lag) else "delay"
        return named_structure(friction, lag, backlash=self.backlash or other.backlash)

    @property
    def extras(self) -> int:
        """How many laws it has beyond those of a plain twin."""
        return sum((self.stribeck, self.load, self.lag == "delay+lag", self.backlash))


PLAIN: Final = Structure()
"""What every twin has: Coulomb and viscous friction, a pure delay, no gap."""

LAWS: Final = (
    Structure(friction="coulomb+viscous+stribeck"),
    Structure(friction="coulomb+viscous+load"),
    Structure(lag="delay+lag"),
    Structure(backlash=True),
)
"""Each law beyond the plain ones by itself."""


def named_structure(friction: str, lag: str, *, backlash: bool) -> Structure:
    """A structure as a twin document names it.

    Raises:
        InvalidInputError: naming a law there isn't.
    """
    if friction not in _FRICTION_LAWS:
        raise InvalidInputError("structure.friction", f"{friction!r} is no friction law", ", ".join(_FRICTION_LAWS))
    if lag not in _LAG_LAWS:
        raise InvalidInputError("structure.lag", f"{lag!r} is no lag law", ", ".join(_LAG_LAWS))
    return Structure(_FRICTION_LAWS[friction], _LAG_LAWS[lag], backlash)
