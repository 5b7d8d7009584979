"""Whether a recording's numbers can be those of the described robot: names, units.

For recordings in SI, after the joint map. Suspicions are said, never acted upon in silence: a joint whose values can't
be right is to be left out of the fit, not converted by a guess.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from app.errors import LogError
from app.telemetry import FloatArray, IntArray, Recording
from app.twin.description import Description, Joint
from app.twin.units import si_factor

# A few wild samples are outliers for a robust loss; beyond this share it is the unit.
_STRAY_SHARE: Final = 0.02
# Limits are rarely exact, and encoder offsets of 0.2 rad are everyday.
_MARGIN: Final = 0.25
_MARGIN_RAD: Final = 0.3
_UNLIMITED_RAD: Final = 4 * math.pi
# Limits of a whole turn are how files write "none": such a joint may swing over and count on.
_WHOLE_TURN_RAD: Final = 2 * math.pi - 0.1
_OVERSPEED: Final = 2.0
_SPEEDING: Final = 10.0
_SMALLEST_TICKS: Final = 360.0
# A pause is a gap as segments are cut; shorter ones of several usual pauses are rows that were lost.
_GAP: Final = 5.0
_GAP_S: Final = 0.1
_LOST_SHARE: Final = 0.03
# A loop that is late by half a period has lost nothing.
_WHOLE: Final = 0.3


def keep_known_joints(description: Description, recording: Recording) -> tuple[Recording, tuple[str, ...]]:
    """The recording without names that the description doesn't have as movable joints, and a warning that lists them.

    Raises:
        LogError: if no name is known; with a hint where only a prefix differs.
    """
    movable = {name for name, joint in description.joints.items() if joint.type != "fixed"}
    unknown = [name for name in recording.names if name not in movable]
    if not unknown:
        return recording, ()
    if len(unknown) == len(recording.names):
        remedy = _prefix_hint(unknown, movable) or f"the description's joints are {', '.join(sorted(movable))}"
        raise LogError(recording.name, f"none of its joints is the description's: {', '.join(unknown)}", remedy)
    columns = [i for i, name in enumerate(recording.names) if name in movable]
    channels = {channel: values[:, columns] for channel, values in recording.channels.items()}
    known = Recording(
        name=recording.name,
        origin_ns=recording.origin_ns,
        t_ns=recording.t_ns,
        names=tuple(recording.names[i] for i in columns),
        channels={channel: values for channel, values in channels.items() if not np.isnan(values).all()},
        context=recording.context,
    )
    return known, (f"{recording.name}: not in the description and ignored: {', '.join(unknown)}",)


def _prefix_hint(unknown: Collection[str], movable: Collection[str]) -> str:
    for name in unknown:
        for joint in movable:
            prefix = name.removesuffix(joint)
            if prefix != name and any(other.removeprefix(prefix) in movable for other in unknown if other != name):
                return f"they begin with {prefix!r}; declare joints.{joint}.source: {name}, and so on"
    return ""


def implausible_joints(description: Description, recording: Recording) -> dict[str, str]:
    """Joints whose positions can't be in rad (m), each with why and a guess at what they are.

    Unwrap first: a driver that counts 0 … 2π is not in the wrong unit.
    """
    found: dict[str, str] = {}
    for joint, values in _positions(description, recording):
        low, high = _believable(joint)
        stray = float(np.mean((values < low) | (values > high)))
        if stray > _STRAY_SHARE and not _may_have_swung_over(joint, recording):
            guesses = _guesses(joint, values, low, high)
            found[joint.name] = (
                f"joint {joint.name!r}: {100 * stray:.0f} % of its positions are far outside {_limits(joint)}: "
                f"they span {values.min():.4g} … {values.max():.4g}" + (f"; {' or '.join(guesses)}?" if guesses else "")
            )
    return found


def plausibility_warnings(description: Description, recording: Recording) -> tuple[str, ...]:
    """Everything about the recording's values that looks like a wrong unit, each naming its joint."""
    warnings = [*implausible_joints(description, recording).values(), *rhythm_warnings(recording)]
    measured = recording.channels.get("velocity")
    for column, name in enumerate(recording.names):
        joint = description.joints.get(name)
        if measured is None or joint is None or joint.type != "continuous" or joint.velocity_limit is None:
            continue
        fastest = _quantile(np.abs(measured[:, column]), 0.98)
        if fastest > _SPEEDING * joint.velocity_limit:
            warnings.append(
                f"joint {name!r}: moves at {fastest:.4g} rad/s, its limit is {joint.velocity_limit:g} rad/s; degrees?"
            )
    return tuple(warnings)


def rhythm_warnings(recording: Recording) -> tuple[str, ...]:
    """What is missing in the times of a recording: rows that were lost, and gaps."""
    t_ns = _usual_rows(recording)
    pauses = np.diff(t_ns) * 1e-9
    if len(pauses) < 2:
        return ()
    usual = float(np.median(pauses))
    gaps = np.flatnonzero(pauses > max(_GAP * usual, _GAP_S))
    within = np.delete(pauses, gaps)
    lost = int(np.maximum(np.floor(within / usual + _WHOLE) - 1.0, 0.0).sum())
    share = lost / (lost + len(t_ns))
    said = []
    if share > _LOST_SHARE:
        said.append(
            f"{recording.name}: about {100 * share:.0f} % of its rows are missing (they usually come every "
            f"{1e3 * usual:.3g} ms): what was commanded meanwhile isn't known, and looks like friction or lag"
        )
    if len(gaps):
        longest = int(gaps[np.argmax(pauses[gaps])])
        several = f"{len(gaps)} gaps, the longest" if len(gaps) > 1 else "a gap"
        at = float(t_ns[longest]) * 1e-9
        said.append(
            f"{recording.name}: {several} of {pauses[longest]:.3g} s at {at:.3g} s; nothing is fitted across it"
        )
    return tuple(said)


def _usual_rows(recording: Recording) -> IntArray:
    """Times of the rows that hold the joint seen most often: joints may come in messages of their own [ns]."""
    position = recording.channels.get("position")
    if position is None:
        return recording.t_ns
    known = ~np.isnan(position)
    return recording.t_ns[known[:, int(known.sum(axis=0).argmax())]]


def _positions(description: Description, recording: Recording) -> Iterator[tuple[Joint, FloatArray]]:
    """Finite positions of each joint that has limits; what was commanded where nothing was measured."""
    for column, name in enumerate(recording.names):
        joint = description.joints.get(name)
        if joint is None or joint.type in ("fixed", "continuous"):
            continue
        for channel in ("position", "command_position"):
            values = recording.channels.get(channel)
            finite = np.array([]) if values is None else values[:, column][np.isfinite(values[:, column])]
            if len(finite):
                yield joint, finite
                break


def _believable(joint: Joint) -> tuple[float, float]:
    """Limits, and some more on both sides; a joint without any is believed within two turns (any length)."""
    if joint.lower is None or joint.upper is None:
        widest = math.inf if joint.type == "prismatic" else _UNLIMITED_RAD
        return -widest, widest
    if _turns_freely(joint):
        return -_UNLIMITED_RAD, _UNLIMITED_RAD
    margin = _MARGIN * (joint.upper - joint.lower)
    if joint.type == "revolute":
        margin = max(margin, _MARGIN_RAD)
    return joint.lower - margin, joint.upper + margin


def _turns_freely(joint: Joint) -> bool:
    if joint.type == "prismatic":
        return False
    return joint.lower is None or joint.upper is None or joint.upper - joint.lower >= _WHOLE_TURN_RAD


def _may_have_swung_over(joint: Joint, recording: Recording) -> bool:
    """Many turns are real where nothing stops the joint and it never outran its motor's speed to get there."""
    position = recording.channels.get("position")
    if not _turns_freely(joint) or joint.velocity_limit is None or position is None or len(recording) < 2:
        return False
    speed = np.abs(np.diff(position[:, recording.names.index(joint.name)])) / (np.diff(recording.t_ns) * 1e-9)
    return _quantile(speed, 0.98) <= _OVERSPEED * joint.velocity_limit


def _limits(joint: Joint) -> str:
    if joint.lower is None or joint.upper is None or _turns_freely(joint):
        return "two turns"
    return f"{joint.lower:g} … {joint.upper:g} {'m' if joint.type == 'prismatic' else 'rad'}"


def _guesses(joint: Joint, values: FloatArray, low: float, high: float) -> list[str]:
    def fits(scaled: FloatArray) -> bool:
        return bool(np.mean((scaled >= low) & (scaled <= high)) > 1 - _STRAY_SHARE)

    if bool(np.all(values == np.round(values))) and float(np.abs(values).max()) >= _SMALLEST_TICKS:
        return ["encoder ticks"]
    if joint.type == "prismatic":
        guesses = ["millimetres"] if fits(values * si_factor("mm")) else []
    else:
        guesses = ["degrees"] if fits(values * si_factor("deg")) else []
    if values.min() >= -1 and values.max() <= 101:
        guesses.append("percent")
    return guesses


def _quantile(values: FloatArray, q: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, q)) if len(finite) else 0.0
