"""A first-order lag between the delayed command and what the controller follows: T·ẋ + x = command.

The command holds between its rows, so the lag's answer is known exactly: over a step of constant input its state decays
towards the input, and the controller follows the state's average over the step, as it does without a lag.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from app.telemetry import FloatArray

LAGGED_COLUMNS = 3
"""What a lag smooths are the first command columns: target, target velocity and feed-forward."""
MEMORY = 20.0
"""Time constants after which a lag has forgotten: 2e-9 of a command is left."""


@njit(cache=True, error_model="numpy", inline="always")
def lag_weights(lag_s: float, length_s: float) -> tuple[float, float]:
    """What is left of the distance between state and input: at the end of a step, and on average over it.

    Args:
        lag_s: the time constant; 0 is none.
        length_s: of the step.
    """
    if lag_s <= 0.0:
        return 0.0, 0.0
    decay = math.exp(-length_s / lag_s)
    return decay, (1.0 - decay) * lag_s / length_s


@njit(cache=True, error_model="numpy")
def lag_start(t: FloatArray, command: FloatArray, at: float, lag_s: float, out: FloatArray) -> None:
    """The lag's state when the commands before `at` have passed through it; before them the first one held.

    Args:
        t: row k holds on [t[k], t[k+1]) [s], shape (T,).
        command: shape (T, n, COMMAND_COLUMNS).
        at: [s], latency subtracted.
        lag_s: the time constant.
        out: shape (n, LAGGED_COLUMNS).
    """
    row = max(int(np.searchsorted(t, at - MEMORY * lag_s, side="right")) - 1, 0)
    out[:, :] = command[row, :, :LAGGED_COLUMNS]
    while row < len(t) and t[row] < at:
        end = at if row + 1 == len(t) else min(t[row + 1], at)
        decay = 0.0 if lag_s <= 0.0 else math.exp(-(end - t[row]) / lag_s)
        for i in range(len(out)):
            for c in range(LAGGED_COLUMNS):
                asked = command[row, i, c]
                out[i, c] = asked + (out[i, c] - asked) * decay
        row += 1


@njit(cache=True, error_model="numpy")
def smooth_command(command: FloatArray, state: FloatArray, lag_s: float, length_s: float) -> None:
    """One step of the lag, in place.

    Args:
        command: average over the step in, what the controller follows out, shape (n, COMMAND_COLUMNS).
        state: at the step's start in, at its end out, shape (n, LAGGED_COLUMNS).
        lag_s: the time constant.
        length_s: of the step.
    """
    decay, mean = lag_weights(lag_s, length_s)
    for i in range(len(state)):
        for c in range(LAGGED_COLUMNS):
            asked = command[i, c]
            distance = state[i, c] - asked
            command[i, c] = asked + distance * mean
            state[i, c] = asked + distance * decay
