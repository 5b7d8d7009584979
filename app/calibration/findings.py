"""What a bad fit looks like, in plain words: each finding names joint and time, and lowers the grade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration import judge
from app.calibration.dataset import Dataset, Stretch
from app.calibration.explanation import Found, suspect
from app.calibration.leftover import Leftover, take_leftover
from app.calibration.report_words import number
from app.calibration.sensors import sensor_noise
from app.calibration.solver import Solution
from app.calibration.suspicion import Kind
from app.twin.document import SensorNoise

COARSE_SHARE: Final = 0.1
"""Error over motion from which a joint's leftover is told."""
COARSE_NOISE: Final = 10.0
"""Error over sensor noise from which it is."""
_STILL: Final = 2e-3
"""A joint whose readings spread by less does not move [rad or m]."""
_PER_LAG: Final = 12.0**0.5
"""A moving average's length over the time constant of the lag that smooths as much."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the model or the data that makes the twin worse than its error says.

    Attributes:
        text: for `quality.warnings`.
        effect: RMS of what it explains over the motion of the joint it shows in.
    """

    text: str
    effect: float


@dataclass(frozen=True, slots=True)
class Whiteness:
    """One joint's hold-out error beside its motion and its sensor.

    Attributes:
        of_motion: RMS error over the standard deviation of the measured positions; None where it stood still.
        of_noise: RMS error over the sensor's noise, rounding included; None where that isn't known.
    """

    of_motion: float | None
    of_noise: float | None


def whiteness(
    joints: Sequence[str], parts: Sequence[Stretch], errors: judge.Positions, sensors: Sequence[SensorNoise]
) -> dict[str, Whiteness]:
    """Compare what is left over with the motion and with the sensor's noise, for joints measured on the hold-out."""
    measured = np.concatenate([part.position for part in parts])
    together = np.concatenate(errors)
    result = {}
    for j, joint in enumerate(joints):
        error = together[:, j][~np.isnan(together[:, j])]
        if not len(error):
            continue
        rmse = float(np.sqrt(np.mean(error**2)))
        moved = float(np.nanstd(measured[:, j]))
        floor = max(sensors[j].noise_sd or 0.0, (sensors[j].quantum or 0.0) / 12.0**0.5)
        result[joint] = Whiteness(
            rmse / moved if moved > _STILL else None, rmse / floor if floor > 1e-6 * max(moved, _STILL) else None
        )
    return result


def sensors_of(joints: Sequence[str], parts: Sequence[Stretch], errors: judge.Positions) -> tuple[SensorNoise, ...]:
    """The position sensor of each joint, read off what the twin leaves over."""
    return tuple(sensor_noise(parts, errors, joint) for joint in range(len(joints)))


def motion_share(parts: Sequence[Stretch], errors: judge.Positions) -> float:
    """Mean RMS error of the joints over the mean standard deviation of their motion."""
    measured, together = np.concatenate([part.position for part in parts]), np.concatenate(errors)
    seen = ~np.isnan(measured).all(axis=0)
    rmse = np.sqrt(np.nanmean(together[:, seen] ** 2, axis=0))
    moved = np.nanstd(measured[:, seen], axis=0)
    return float(rmse.mean() / max(float(moved.mean()), _STILL))


def coarse_joints(found: dict[str, Whiteness]) -> list[str]:
    """Joints whose leftover is neither small beside their motion nor near their sensor's noise, in words."""
    told = []
    for joint, white in found.items():
        if white.of_motion is None or white.of_motion < COARSE_SHARE:
            continue
        if white.of_noise is not None and white.of_noise < COARSE_NOISE:
            continue
        noise = "" if white.of_noise is None else f", {number(white.of_noise, 2)} times its sensor's noise"
        told.append(f"{joint}: an error of {_percent(white.of_motion)} of its motion is left over{noise}")
    return told


def look(dataset: Dataset, solution: Solution) -> tuple[Finding, ...]:
    """What a twin lacks, by the look of what it leaves over on all data."""
    leftover = take_leftover(dataset, solution)
    return told(leftover, suspect(leftover))


def told(leftover: Leftover, found: Sequence[Found]) -> tuple[Finding, ...]:
    """Findings in words, with what they amount to.

    Args:
        leftover: what the twin leaves over.
        found: what explains it.
    """
    findings = []
    for each in found:
        j = leftover.model.joints.index(each.joint)
        seen = leftover.scale[:, j] > 0.0
        moved = float(np.std(leftover.measured[seen, j]))
        text = f"{_what(leftover, each)} (explains {_percent(each.share)} of what is left over at {each.joint})"
        findings.append(Finding(text, each.effect / max(moved, _STILL)))
    return tuple(findings)


_QUANTITIES: Final[dict[Kind, str]] = {
    "coulomb": "Coulomb friction",
    "damping": "viscous damping",
    "gain": "position gain",
    "mass": "mass",
    "offset": "encoder offset",
    "latency": "command latency",
}
# (falling, rising), by how it goes; what a change most often means
_CAUSES: Final[dict[tuple[Kind, str], tuple[str, str]]] = {
    ("coulomb", "drift"): ("as when it warms up", "as when it cools down or jams"),
    ("damping", "drift"): ("as when it warms up", "as when it cools down"),
    ("mass", "step"): ("as if a payload was put down", "as if a payload was picked up"),
    ("mass", "log"): ("as with another payload", "as with another payload"),
    ("gain", "drift"): ("as when the supply sags", "as when the supply rises"),
    ("gain", "step"): ("as if a gain or the supply was changed",) * 2,
    ("gain", "log"): ("as with another gain or supply",) * 2,
    ("offset", "step"): ("as if an encoder or a coupling slipped",) * 2,
    ("offset", "drift"): ("as if an encoder or a coupling crept",) * 2,
    ("latency", "drift"): ("as when clocks drift apart",) * 2,
}


def _what(leftover: Leftover, found: Found) -> str:
    owner, size = found.suspicion.owner, found.size
    unit = _unit(leftover, owner)
    thousandths = number(1e3 * abs(size), 2)
    match found.suspicion.kind:
        case "filter":
            whose = f"{owner} follows its commands" if owner else "commands are followed"
            lag = number(1e3 * size / _PER_LAG, 2)
            return (
                f"{whose} as if averaged over about {thousandths} ms (or through a lag of {lag} ms): "
                "a filter between command and controller, which no delay explains"
            )
        case "lag":
            verb = "lags" if size < 0.0 else "leads"
            return (
                f"{owner} {verb} its twin by {thousandths} ms at any speed, "
                "which a delay common to all joints doesn't explain"
            )
        case "hysteresis":
            return (
                f"{owner} is read behind its direction as by a play of about {thousandths} {unit}: "
                "hysteresis is left over, of backlash or of another law of friction"
            )
        case "shift":
            verb = "more" if size > 0.0 else "less"
            return (
                f"{owner} reads {thousandths} {unit} {verb} than its twin throughout, and its controller doesn't act "
                "on it: readings and commands have different zeros"
            )
        case _:
            return _change(leftover, found)


def _change(leftover: Leftover, found: Found) -> str:
    suspicion, rises = found.suspicion, found.size > 0.0
    verb = "rises" if rises else "falls"
    match found.when:
        case "step":
            when = f"{verb} by {_amount(leftover, found)} at {number(found.at_s, 3)} s"
        case "log":
            when = f"is {_amount(leftover, found)} {'higher' if rises else 'lower'} than in the other logs"
        case _:
            when = f"{verb} by {_amount(leftover, found)} from beginning to end"
    where = f" of {found.log}" if found.log and found.when != "log" else f" in {found.log}" if found.log else ""
    place = f"link {suspicion.owner}" if suspicion.kind == "mass" else suspicion.owner or "all joints"
    cause = _CAUSES.get((suspicion.kind, found.when))
    because = f", {cause[int(rises)]}" if cause else ""
    whose = "" if suspicion.kind == "latency" else f" of {place}"
    text = f"the {_QUANTITIES[suspicion.kind]}{whose} {when}{where}{because}"
    return text if found.when == "drift" else f"{text}; no one set of parameters is right for both: fit them apart"


def _amount(leftover: Leftover, found: Found) -> str:
    suspicion, size = found.suspicion, abs(found.size)
    if suspicion.kind == "latency":
        return f"about {number(1e3 * size, 2)} ms"
    if suspicion.kind == "offset":
        return f"about {number(1e3 * size, 2)} {_unit(leftover, suspicion.owner)}"
    if not suspicion.owner or suspicion.kind in ("gain", "damping"):
        return f"about {_percent(size)}"
    amount = size * (suspicion.reference or 1.0)
    if suspicion.kind == "mass":
        return f"about {number(amount, 2)} kg"
    force = "N" if _unit(leftover, suspicion.owner) == "mm" else "N·m"
    return f"about {number(amount, 2)} {force} ({_percent(size)})"


def _unit(leftover: Leftover, joint: str) -> str:
    prismatic = any(name == f"joint/{joint}/encoder_offset_m" for name in leftover.model.names)
    return "mm" if prismatic else "mrad"


def _percent(share: float) -> str:
    return f"{number(100.0 * share, 2)} %"
