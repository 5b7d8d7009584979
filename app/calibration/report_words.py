"""How the report says things: numbers with units a reader knows, verdicts in plain words, never a NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from app.calibration.posterior import IDENTIFIED
from app.twin.document import TwinDraft, Verdict

NOT_KNOWN = "not known"
_MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Outside these powers of ten a number is read more easily with its exponent.
_PLAIN_FROM, _PLAIN_TO = -4, 5
_FINEST = 1e-300

_UNITS = (
    ("_nm_s_per_rad", "N·m·s/rad"),
    ("_nm_per_rad", "N·m/rad"),
    ("_nm_per_unit", "N·m per unit"),
    ("_n_per_unit", "N per unit"),
    ("_n_s_per_m", "N·s/m"),
    ("_n_per_m", "N/m"),
    ("_per_rad", "1/rad"),
    ("_per_m", "1/m"),
    ("_kg_m2", "kg·m²"),
    ("_rad_s", "rad/s"),
    ("_m_s", "m/s"),
    ("_rad", "rad"),
    ("_nm", "N·m"),
    ("_kg", "kg"),
    ("_n", "N"),
    ("_m", "m"),
    ("_s", "s"),
)
_SPELLINGS = {
    "kp": "position gain kp",
    "kd": "velocity gain kd",
    "com": "centre of mass",
    "emf": "EMF",
    "coulomb": "Coulomb",
    "stribeck": "Stribeck",
}
_PRISMATIC_ENDS = ("armature_kg", "encoder_offset_m", "coulomb_friction_n", "viscous_damping_n_s_per_m")


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit a joint's errors are shown in.

    Attributes:
        name: of the shown figures, e.g. mrad.
        base: of the figures as they are, e.g. rad.
        channel: of a velocity in the base unit.
    """

    name: str
    base: str

    def show(self, error: float | None, digits: int = 3) -> str:
        """An error in words, without its unit."""
        return number(None if error is None else 1e3 * error, digits)


ANGLE = Unit("mrad", "rad")
LENGTH = Unit("mm", "m")
MIXED = Unit("mrad | mm", "rad | m")


def joint_units(draft: TwinDraft) -> dict[str, Unit]:
    """The unit of each joint's errors: a prismatic joint shows in the units of its parameters."""
    names = draft.parameters
    return {
        joint: LENGTH if any(f"joint/{joint}/{end}" in names for end in _PRISMATIC_ENDS) else ANGLE
        for joint in draft.quality.holdout.rmse
    }


def common_unit(units: dict[str, Unit]) -> Unit:
    """The unit of a mean over joints."""
    kinds = set(units.values())
    return kinds.pop() if len(kinds) == 1 else (MIXED if kinds else ANGLE)


def split_name(name: str) -> tuple[str, str, str]:
    """A parameter's place, owner and quantity: `joint/elbow/armature_kg_m2` is (joint, elbow, armature_kg_m2)."""
    place, _, rest = name.partition("/")
    owner, _, quantity = rest.rpartition("/")
    return place, owner, quantity


def label_and_unit(quantity: str) -> tuple[str, str]:
    """A quantity in words and its unit; the unit is empty for a pure number."""
    for end, unit in _UNITS:
        if quantity.endswith(end) and len(quantity) > len(end):
            return _spell(quantity.removesuffix(end)), unit
    return _spell(quantity), ""


def _spell(stem: str) -> str:
    return " ".join(_SPELLINGS.get(word, word) for word in stem.split("_"))


def short_name(name: str) -> str:
    """A parameter in a few words, e.g. `elbow · armature`."""
    place, owner, quantity = split_name(name)
    return f"{owner or place} · {label_and_unit(quantity)[0]}"


def join_words(words: Sequence[str]) -> str:
    """Words as a sentence lists them: `a, b and c`."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits; what isn't finite isn't known."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if value == 0.0 or abs(value) < _FINEST:
        return "0"
    # rounding first: 9.996 to three digits is 10.0, one digit more before the point
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    if _PLAIN_FROM <= exponent <= _PLAIN_TO:
        return _signed(f"{value:.{max(0, digits - 1 - exponent)}f}")
    return _signed(f"{value / 10.0**exponent:.{digits - 1}f}") + _power(exponent)


def with_sd(value: float, sd: float | None) -> str:
    """Value ± standard deviation, both to the deviation's second digit."""
    if sd is None:
        return number(value, 4)
    if sd < _FINEST or sd < 1e-6 * abs(value):
        return f"{number(value, 6)} ± {number(sd, 2)}"
    exponent, decimals = _common(max(abs(value), sd), sd)
    scale = 10.0**exponent
    texts = [_signed(f"{x / scale:.{decimals}f}") for x in (value, sd)]
    return " ± ".join(texts) if exponent == 0 else f"({' ± '.join(texts)}){_power(exponent)}"


def interval(ends: tuple[float, float]) -> str:
    """Both ends to the second digit of their distance."""
    low, high = ends
    width = (high - low) / 4.0
    largest = max(abs(low), abs(high))
    if width < _FINEST or width < 1e-6 * largest:
        return f"{number(low, 6)} … {number(high, 6)}"
    exponent, decimals = _common(largest, width)
    scale = 10.0**exponent
    texts = [_signed(f"{x / scale:.{decimals}f}") for x in ends]
    return " … ".join(texts) if exponent == 0 else f"({' … '.join(texts)}){_power(exponent)}"


def _common(largest: float, resolution: float) -> tuple[int, int]:
    """The power of ten to take out, and the decimals that show `resolution` to two digits."""
    exponent = math.floor(math.log10(largest))
    if _PLAIN_FROM <= exponent <= _PLAIN_TO:
        exponent = 0
    return exponent, max(0, 1 - math.floor(math.log10(resolution)) + exponent)


def _signed(text: str) -> str:
    if text.strip("-0.") == "":
        return text.lstrip("-")  # no negative zero
    return text.replace("-", _MINUS)


def _power(exponent: int) -> str:
    return " × 10" + str(exponent).translate(_SUPERSCRIPT)


def duration(seconds: float) -> str:
    """A wall time, e.g. `2 min 5 s`."""
    if not math.isfinite(seconds):
        return NOT_KNOWN
    if seconds < 60.0:
        return f"{number(seconds, 2)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def percent(share: float | None, digits: int = 2) -> str:
    """A share of one in per cent."""
    return NOT_KNOWN if share is None else f"{number(100.0 * share, digits)} %"


VERDICT_NAMES: dict[Verdict, str] = {
    "identified": "identified",
    "weak": "weak",
    "not_identified": "not identified",
    "no_effect": "no effect",
    "at_bound": "at bound",
}

VERDICT_MEANINGS: dict[Verdict, str] = {
    "identified": f"the data determine it: at most {100 * IDENTIFIED:.0f} % of the prior's uncertainty is left",
    "weak": "the data narrow it only in part, or only relative to other parameters",
    "not_identified": "the data say next to nothing about it: the value is about the prior's",
    "no_effect": "this motion would be the same with another value: the value is the prior's",
    "at_bound": "the best value lies at the end of what was allowed: the bound or the model is wrong",
}


def explain(verdict: Verdict, left: float | None, gauges: tuple[str, ...]) -> str:
    """What a verdict means for one parameter.

    Args:
        verdict: the data's.
        left: posterior over prior standard deviation; None where it can't be told.
        gauges: names of the gauges it hangs on.
    """
    rest = "part" if left is None else f"{number(100 * left, 2)} %"
    match verdict:
        case "identified":
            return f"the data determine it; {rest} of the prior's uncertainty is left"
        case "weak" if gauges:
            return (
                f"known relative to the others on the gauge “{'”, “'.join(gauges)}”; their common scale is the prior's"
            )
        case "weak":
            return f"the data narrow it; {rest} of the prior's uncertainty is left"
        case "not_identified":
            return "the data say next to nothing; the value is about the prior's"
        case "no_effect":
            return "this motion doesn't depend on it; the value is the prior's"
        case "at_bound":
            return "the best value lies at the end of what was allowed; the truth may be beyond, or the model amiss"
        case _:
            assert_never(verdict)
