"""What the sensors add to the truth, read off the measurements and what the twin leaves over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.calibration.dataset import Stretch
from app.telemetry import FloatArray
from app.twin.document import SensorNoise

FINEST = 1e-9
"""Steps below this are the rounding of floating-point numbers [rad or m]."""
OUTLIER = 6.0
"""Standard deviations beyond which a sample is an outlier."""


def quantum(values: FloatArray) -> float:
    """Step between the readings of a sensor, 0 where none shows.

    Args:
        values: readings of one channel, NaN where missing.
    """
    known = values[~np.isnan(values)]
    levels = np.unique(known)
    if len(levels) < 3 or len(levels) > 0.6 * len(known):
        return 0.0
    gaps = np.diff(levels)
    # printed numbers of a grid differ in their last digit: the step is the usual gap between neighbours, made exact
    step = float(np.median(gaps[gaps < 1.5 * np.quantile(gaps, 0.1)]))
    if step < FINEST:
        return 0.0
    step = float((levels[-1] - levels[0]) / np.round((levels[-1] - levels[0]) / step))
    off_grid = np.abs(gaps / step - np.round(gaps / step))
    return step if np.quantile(off_grid, 0.9) < 0.1 else 0.0


def sensor_noise(parts: Sequence[Stretch], errors: Sequence[FloatArray], joint: int) -> SensorNoise:
    """Noise of one joint's position readings.

    The standard deviation, unknown where the rounding hides it, is that of the twin's errors from sample to sample,
    rounding included: second differences, which cancel what moves slowly, over √6, by their median, which outliers
    don't move.

    Args:
        parts: stretches.
        errors: simulated − measured on each, shape (K, n) each.
        joint: the degree of freedom.
    """
    measured = np.concatenate([part.position[:, joint] for part in parts])
    second = np.concatenate([np.diff(error[:, joint], 2) for error in errors if len(error) > 2] or [np.zeros(0)])
    second = second[~np.isnan(second)]
    noise = float(np.median(np.abs(second)) / 0.6745 / np.sqrt(6.0)) if len(second) else None
    step = quantum(measured)
    if noise is not None and noise <= step / np.sqrt(12.0):
        noise = None  # rounding hides it
    outliers = None if not noise else float(np.mean(np.abs(second) > OUTLIER * np.sqrt(6.0) * noise))
    return SensorNoise(
        noise_sd=noise,
        quantum=step,
        outlier_rate=outliers,
        drop_rate=float(np.mean(np.isnan(measured))),
    )
