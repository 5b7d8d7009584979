"""The gate: a twin is served only if it is better than what it would replace, on data it hasn't seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from scipy.stats import t as student

from app.calibration.judge import Positions
from app.calibration.types import Acceptance
from app.telemetry import FloatArray

BLOCK_S: Final = 2.0
FEWEST_BLOCKS: Final = 4
MOST_BLOCKS: Final = 10
"""Blocks are few and long: errors that change slowly make the neighbours of short ones repeat each other."""
RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.95
"""Of the lower end of a 90 % interval."""
WIDEST: Final = 2.0
"""Student's t that the resamples may at most ask for: those of four blocks are hardly ever different ones."""
_SAME: Final = 1e-9
"""Spread of the gain over blocks below which it is the same in all of them."""


def gate(found: Positions, references: Mapping[str, Positions], sample_s: float, seed: int) -> Acceptance:
    """Accept if the gain over every reference is above 0 with 95 % confidence.

    The gain is 1 − rmse_mean ÷ the reference's rmse_mean. Its interval is a studentised block bootstrap (Künsch 1989;
    Hall 1988) over 4 to 10 stretches of the hold-out of 2 s or more, the same blocks for both: errors a few
    milliseconds apart are no independent evidence, and a plain percentile interval of so few blocks is too narrow.

    Args:
        found: the twin's errors on each stretch, NaN where nothing was measured, shape (K, n) each.
        references: the same of what it must beat, by what it is called.
        sample_s: usual time between samples [s].
        seed: of the resampling.
    """
    own = _blocks(found, sample_s)
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(own[0]), size=(RESAMPLES, len(own[0])))
    reasons, accepted = [], True
    for name, errors in references.items():
        other = _blocks(errors, sample_s)
        middle, low = _log_gain(own, other, draws)
        accepted &= low > 0.0
        verb = "beats" if low > 0.0 else "does not clearly beat"
        reasons.append(f"{verb} {name}: error {_change(middle)}, at least {_change(low)} with 95 % confidence")
    return Acceptance(accepted, "; ".join(reasons))


_Blocks = tuple[FloatArray, FloatArray]
"""Sum of squares and number of samples of each block and joint, shape (…, B, n) each."""

_Draws = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""Blocks of each resample, shape (R, B)."""


def _change(log_gain: float) -> str:
    """ln(the reference's error ÷ the twin's) in words."""
    gain = -math.expm1(-max(log_gain, -math.log(100.0)))
    return f"{abs(100.0 * gain):.1f} % {'lower' if gain >= 0.0 else 'higher'}"


def _blocks(found: Positions, sample_s: float) -> _Blocks:
    together = np.concatenate(found)
    count = int(np.clip(len(together) * sample_s / BLOCK_S, FEWEST_BLOCKS, MOST_BLOCKS))
    starts = np.unique(np.linspace(0, len(together), count + 1).astype(np.int64)[:-1])
    seen = ~np.isnan(together)
    squares = np.add.reduceat(np.where(seen, together, 0.0) ** 2, starts, axis=0)
    return squares, np.add.reduceat(seen.astype(np.float64), starts, axis=0)


def _log_gain(own: _Blocks, other: _Blocks, draws: _Draws) -> tuple[float, float]:
    """ln(reference ÷ twin), and the lower end of its interval: estimate − t × jackknife's standard error.

    t is the resamples' quantile or Student's, whichever is larger: each is too small for some kind of errors.
    """
    middle = float(_log_ratio(own, other))
    spread = float(_jackknife(own, other))
    if len(own[0]) < 2:
        return middle, -math.inf
    mine, theirs = (own[0][draws], own[1][draws]), (other[0][draws], other[1][draws])
    drawn, spreads = _log_ratio(mine, theirs), _jackknife(mine, theirs)
    usable = spreads > _SAME
    width = float(student.ppf(CONFIDENCE, len(own[0]) - 1))
    if usable.any():
        resampled = float(np.quantile((drawn[usable] - middle) / spreads[usable], CONFIDENCE))
        width = float(np.clip(resampled, width, WIDEST * width))
    return middle, middle - width * spread


def _log_ratio(own: _Blocks, other: _Blocks) -> FloatArray:
    def rmse_mean(blocks: _Blocks) -> FloatArray:
        squares, counts = (array.sum(axis=-2) for array in blocks)
        mean: FloatArray = np.sqrt(squares / np.maximum(counts, 1.0)).mean(axis=-1)
        return np.maximum(mean, 1e-300)

    ratio: FloatArray = np.log(rmse_mean(other) / rmse_mean(own))
    return ratio


def _jackknife(own: _Blocks, other: _Blocks) -> FloatArray:
    """Standard error of the ratio's logarithm from leaving out one block at a time."""

    def without_each(blocks: _Blocks) -> _Blocks:
        squares, counts = (array.sum(axis=-2, keepdims=True) - array for array in blocks)
        return squares[..., None, :], counts[..., None, :]

    ratios = _log_ratio(without_each(own), without_each(other))
    count = ratios.shape[-1]
    spread: FloatArray = np.sqrt((count - 1) * ratios.var(axis=-1))
    return spread
