"""Random numbers that depend on what they are for, and on nothing else.

Each quantity of each robot has a stream of its own: Philox, a counter-based generator, under a key that is the SHA-256
of seed, robot, version and the quantity's name. The counter is the scenario's index. So a number is the same whichever
scenarios are asked for with it, in which order, and whatever else is drawn, now or in a later release.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from app.telemetry import FloatArray, IntArray

SCHEMA: Final = "twincal.scenario/1"
WORDS: Final = 4
"""64-bit words Philox gives for one counter."""
MAX_INDEX: Final = 2**53 - 1
"""The largest index every JSON reader holds exactly."""

Words = NDArray[np.uint64]

_GAP: Final = 4096
# 53 bits, and never 0 or 1, of which an inverse distribution function makes infinities.
_UNIT: Final = 2.0**-53


@dataclass(frozen=True, slots=True)
class DrawKey:
    """What all draws of a robot's scenarios have in common.

    Attributes:
        seed: the request's.
        robot: whose scenarios.
        version: of its twin.
    """

    seed: int
    robot: str
    version: int

    def words(self, name: str, indices: IntArray, block: int = 0) -> Words:
        """The raw words of a quantity.

        Args:
            name: of the quantity, e.g. a parameter's.
            indices: of the scenarios, increasing, shape (n,).
            block: which words; each holds `WORDS` an index.

        Returns:
            Shape (WORDS, n).
        """
        digest = hashlib.sha256(orjson.dumps([SCHEMA, self.seed, self.robot, self.version, name])).digest()
        key = np.frombuffer(digest[:16], dtype="<u8")
        breaks = np.flatnonzero(np.diff(indices) > _GAP) + 1
        parts = [_stretch(key, part, block) for part in np.split(indices, breaks)]
        return np.ascontiguousarray(np.concatenate(parts).T)

    def uniform(self, name: str, indices: IntArray) -> FloatArray:
        """One number in (0, 1) a scenario, shape (n,)."""
        return uniform_of(self.words(name, indices)[0])


def uniform_of(words: Words) -> FloatArray:
    """Words as numbers in (0, 1)."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT


def _stretch(key: Words, indices: IntArray, block: int) -> Words:
    if len(indices) == 0:
        return np.empty((0, WORDS), dtype=np.uint64)
    first = int(indices[0])
    counter = np.array([first, block, 0, 0], dtype=np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(WORDS * (int(indices[-1]) - first + 1))
    taken: Words = raw.reshape(-1, WORDS)[indices - first]
    return taken
