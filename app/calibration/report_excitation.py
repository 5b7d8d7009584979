"""The report's excitation map: which joint was where for how long, and how fast it moved there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.report_data import Excitation
from app.calibration.report_words import LENGTH, Unit, number, percent

STRIP_WIDTH: Final = 400.0
_FAINTEST: Final = 0.08
_STILL_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Tile:
    """One bin of position: its place [px], and how strongly it is drawn."""

    x: str
    width: str
    strength: str
    words: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One joint on the map.

    Attributes:
        joint: its name.
        tiles: bins it was in.
        low: position at the left end.
        high: position at the right end.
        limits: whether the ends are the joint's limits.
        covered: share of the way between the ends that it was on.
        top_speed: in words.
        reversals: how often it turned around.
        words: all of it, for those who can't see it.
    """

    joint: str
    tiles: tuple[Tile, ...]
    low: str
    high: str
    limits: bool
    covered: str
    top_speed: str
    reversals: int
    words: str


def excitation_map(excitation: Sequence[Excitation], units: dict[str, Unit]) -> tuple[Strip, ...]:
    """One strip a joint, tinted by its speed relative to the joint's own fastest bin."""
    return tuple(_strip(each, units[each.joint]) for each in excitation if each.joint in units)


def _strip(each: Excitation, unit: Unit) -> Strip:
    base = "m" if unit == LENGTH else "rad"
    width = STRIP_WIDTH / len(each.seconds)
    fastest = max(float(each.speed.max()), 1e-12)
    bins = zip(
        each.seconds.tolist(), each.speed.tolist(), each.edges[:-1].tolist(), each.edges[1:].tolist(), strict=True
    )
    tiles = []
    for k, (seconds, speed, low, high) in enumerate(bins):
        if seconds <= _STILL_S:
            continue
        strength = _FAINTEST + (1.0 - _FAINTEST) * speed / fastest
        words = f"{number(low, 3)} … {number(high, 3)} {base}: {number(seconds, 2)} s, RMS {number(speed, 2)} {base}/s"
        tiles.append(Tile(f"{width * k:.1f}", f"{width + 0.3:.1f}", f"{strength:.2f}", words))
    covered = percent(float(np.count_nonzero(each.seconds > _STILL_S)) / len(each.seconds))
    top = f"{number(each.top_speed, 2)} {base}/s"
    return Strip(
        joint=each.joint,
        tiles=tuple(tiles),
        low=f"{number(float(each.edges[0]), 3)} {base}",
        high=f"{number(float(each.edges[-1]), 3)} {base}",
        limits=each.limits is not None,
        covered=covered,
        top_speed=top,
        reversals=each.reversals,
        words=f"{each.joint}: was on {covered} of its way, at up to {top}, and turned around {each.reversals} times",
    )
