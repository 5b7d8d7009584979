"""The gate: a twin is served only if it is better than what it would replace, on data it hasn't seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.calibration.judge import Positions
from app.calibration.types import Acceptance
from app.telemetry import FloatArray

BLOCK_S = 2.0
FEWEST_BLOCKS = 8
"""A short hold-out is cut finer: one block resampled has no spread, and every second twin as good would pass."""
RESAMPLES = 2000
LOWER = 0.05
"""The lower end of a 90 % interval."""


def gate(found: Positions, references: Mapping[str, Positions], sample_s: float, seed: int) -> Acceptance:
    """Accept if the gain over every reference is above 0 with 95 % confidence.

    The gain is 1 − rmse_mean ÷ the reference's rmse_mean. Its interval is a block bootstrap over stretches of 2 s of
    the hold-out (Künsch 1989), less where it is short, the same blocks for both: errors a few milliseconds apart are no
    independent evidence.

    Args:
        found: the twin's errors on each stretch, NaN where nothing was measured, shape (K, n) each.
        references: the same of what it must beat, by what it is called.
        sample_s: usual time between samples [s].
        seed: of the resampling.
    """
    samples = sum(len(error) for error in found)
    block = max(1, min(round(BLOCK_S / sample_s), samples // FEWEST_BLOCKS))
    own, count = _blocks(found, block)
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(own), size=(RESAMPLES, len(own)))
    reasons, accepted = [], True
    for name, errors in references.items():
        other, _ = _blocks(errors, block)
        gain = 1.0 - _rmse_mean(own[draws], count[draws]) / _rmse_mean(other[draws], count[draws])
        low, middle = float(np.quantile(gain, LOWER)), float(np.median(gain))
        accepted &= low > 0.0
        verb = "beats" if low > 0.0 else "does not clearly beat"
        reasons.append(f"{verb} {name}: error {_change(middle)}, at least {_change(low)} with 95 % confidence")
    return Acceptance(accepted, "; ".join(reasons))


def _change(gain: float) -> str:
    return f"{abs(100.0 * gain):.1f} % {'lower' if gain >= 0.0 else 'higher'}"


def _blocks(found: Positions, block: int) -> tuple[FloatArray, FloatArray]:
    """Sum of squares and number of samples of each block and joint, shape (B, n) each."""
    squares, counts = [], []
    for error in found:
        starts = np.arange(0, len(error), block)
        seen = ~np.isnan(error)
        squares.append(np.add.reduceat(np.where(seen, error, 0.0) ** 2, starts, axis=0))
        counts.append(np.add.reduceat(seen.astype(np.float64), starts, axis=0))
    return np.concatenate(squares), np.concatenate(counts)


def _rmse_mean(squares: FloatArray, counts: FloatArray) -> FloatArray:
    """Mean over joints of the RMSE of each resample, shape (R,)."""
    mean: FloatArray = np.sqrt(squares.sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0)).mean(axis=1)
    return np.maximum(mean, 1e-300)
