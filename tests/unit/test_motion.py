"""When a robot last moved, which is where a calibration's default window ends."""

from __future__ import annotations

import numpy as np

from app.calibration.selection import MOTION, last_motion_ns
from app.telemetry import FloatArray, Recording

ORIGIN_NS = 1_770_000_000 * 10**9
STEP_NS = 10**7


def recording(position: FloatArray) -> Recording:
    t_ns = np.arange(len(position), dtype=np.int64) * STEP_NS
    names = tuple(f"joint{i}" for i in range(position.shape[1]))
    return Recording("r", ORIGIN_NS, t_ns, names, {"position": position}, {})


def test_motion_ends_with_the_last_row_away_from_the_final_place() -> None:
    position = np.zeros((100, 2))
    position[:40, 1] = 0.5
    assert last_motion_ns(recording(position)) == ORIGIN_NS + 39 * STEP_NS


def test_noise_is_no_motion() -> None:
    noise = np.random.default_rng(0).uniform(-MOTION / 2, MOTION / 2, size=(1000, 3))
    assert last_motion_ns(recording(noise)) is None


def test_missing_values_are_neither_motion_nor_a_final_place() -> None:
    position = np.zeros((100, 2))
    position[:10, 0] = 1.0
    position[50:, 0] = np.nan
    position[:, 1] = np.nan
    assert last_motion_ns(recording(position)) == ORIGIN_NS + 9 * STEP_NS


def test_a_recording_without_positions_shows_no_motion() -> None:
    without = Recording("r", ORIGIN_NS, np.arange(3, dtype=np.int64), ("a",), {"effort": np.ones((3, 1))}, {})
    assert last_motion_ns(without) is None
