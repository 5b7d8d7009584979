"""What would explain what a twin leaves over: a change while the robot worked, a filter, a lag, hysteresis, a shift.

Each suspicion is a column: how the simulated positions would differ. The fit's own parameters may move along with it,
as far as their priors let them, so that only what no fit could have absorbed speaks for it. One that changes a
parameter is tried as a drift over the log, as a step at many instants, and as one log that differs from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from app.calibration.leftover import Leftover
from app.telemetry import FloatArray, IntArray
from app.twin import friction

BEGUN: Final = 0.08
"""Share of a log at its beginning and at its end in which no step is looked for."""
PLAY: Final = 3.0
"""Gap tried for hysteresis, over what is left over: what a larger one does, the fit's friction takes up in part."""
BLIND: Final = 1e-6

Kind = Literal["coulomb", "damping", "gain", "mass", "offset", "latency", "filter", "lag", "hysteresis", "shift"]
When = Literal["always", "drift", "step", "log"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something the twin may lack.

    Attributes:
        kind: what.
        owner: the joint or link; empty for all of them.
        column: change of the simulated positions per unit of its size, shape (N, n).
        reference: what a relative size multiplies, in its own unit; None where the size is absolute.
    """

    kind: Kind
    owner: str
    column: FloatArray
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """How a suspicion goes over time.

    Attributes:
        when: in a word.
        log: the recording; empty where it is in all of them.
        at_s: of a step, since the log's first row [s].
        rows: factor of the column at each sample, shape (N,).
    """

    when: When
    log: str
    at_s: float
    rows: FloatArray


def suspicions(leftover: Leftover) -> Iterator[Suspicion]:
    """Everything a twin is suspected to lack, joint by joint and for all joints together."""
    model, values = leftover.model, leftover.values
    kinds: dict[int, Kind] = {friction.COULOMB: "coulomb", friction.DAMPING: "damping", friction.KP: "gain"}
    together: dict[Kind, list[FloatArray]] = {}
    for i, slope in leftover.slopes.items():
        spec = model.specs[i]
        owner = spec.name.split("/")[1] if spec.slot.place != "latency" else ""
        if spec.slot.place == "latency":
            yield Suspicion("latency", owner, slope)
        elif spec.slot.place == "joint" and spec.slot.row == friction.OFFSET:
            yield Suspicion("offset", owner, slope)
        else:
            kind: Kind = "mass" if spec.slot.place == "mass" else kinds[spec.slot.row]
            reference = max(abs(float(values[i])), 0.1 * abs(spec.initial), BLIND)
            yield Suspicion(kind, owner, slope * reference, reference)
            if kind != "mass":
                together.setdefault(kind, []).append(slope * values[i])
    for kind, columns in together.items():
        if len(columns) > 1:
            yield Suspicion(kind, "", np.sum(columns, axis=0), 1.0)
    yield Suspicion("filter", "", leftover.smoothed)
    played = _played(leftover)
    for j, joint in enumerate(model.joints):
        own: dict[Kind, FloatArray] = {
            "filter": leftover.smoothed[:, j],
            "lag": leftover.velocity[:, j],
            "hysteresis": played[:, j],
            "shift": np.ones(len(played)),
        }
        for kind, values_j in own.items():
            column = np.zeros_like(leftover.error)
            column[:, j] = values_j
            yield Suspicion(kind, joint, column)


def _played(leftover: Leftover) -> FloatArray:
    """What a small play between the motor and the reading would do, per unit of its gap, shape (N, n)."""
    gap = np.maximum(PLAY * np.sqrt((leftover.error**2).mean(axis=0)), BLIND)
    behind = leftover.position[0]
    link = np.empty_like(leftover.position)
    for k, position in enumerate(leftover.position):
        behind = np.minimum(np.maximum(behind, position - 0.5 * gap), position + 0.5 * gap)
        link[k] = behind
    difference: FloatArray = (link - leftover.position) / gap
    return difference


def patterns(leftover: Leftover, blocks: Sequence[IntArray]) -> list[Pattern]:
    """How a change may go over time: constant within each block."""
    t, log = leftover.t_s, leftover.log
    found = [Pattern("always", "", 0.0, np.ones(len(t)))]
    drift = np.zeros(len(t))
    ends = {i: float(t[log == i].max()) for i in range(len(leftover.logs))}
    for rows in blocks:
        drift[rows] = float(t[rows].mean()) / max(ends[int(log[rows[0]])], BLIND)
    found.append(Pattern("drift", "", 0.0, drift))
    for index, name in enumerate(leftover.logs):
        own = log == index
        if len(leftover.logs) > 1:
            found.append(Pattern("log", name, 0.0, own.astype(np.float64)))
            found.append(Pattern("drift", name, 0.0, drift * own))
        begin, end = float(t[own].min()), ends[index]
        margin = BEGUN * (end - begin)
        for rows in [rows for rows in blocks if log[rows[0]] == index]:
            at = float(t[rows[0]])
            if not begin + margin <= at <= end - margin:
                continue
            found.append(Pattern("step", name, at, (own & (t >= at)).astype(np.float64)))
    return found
