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

from app.calibration.leftover import SMOOTHED_S, Leftover, blocks_of
from app.telemetry import FloatArray, IntArray
from app.twin import friction

BLOCKS: Final = 48
"""Stretches of time at whose edges a step is looked for."""
GAIN: Final = 8.0
"""Log-likelihood a suspicion must gain: four standard deviations."""
WORTH_A_LOOK: Final = 3.0
"""Log-likelihood gained while the noise is taken to be what is left over without it, from which that is worked out."""
SHARE: Final = 0.25
"""Of the squared error that some joint leaves over, what a suspicion must explain."""
MOST_FOUND: Final = 3
_SLOW: Final = 0.1
"""Share of a joint's usual speed below which its direction is not counted in full."""
_BLIND: Final = 1e-6

Kind = Literal["coulomb", "damping", "gain", "mass", "offset", "latency", "filter", "lag", "hysteresis", "shift"]
When = Literal["always", "drift", "step", "log"]

SMALLEST: Final[dict[Kind, float]] = {
    "coulomb": 0.15,
    "damping": 0.3,
    "gain": 0.1,
    "mass": 0.1,
    "offset": 2e-3,
    "latency": 1e-3,
    "filter": 0.015,
    "lag": 1e-3,
    "hysteresis": 5e-4,
    "shift": 1e-3,
}
"""Size from which a suspicion counts: relative change, or rad (m), or s."""


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
class Found:
    """A suspicion that explains much of what is left over.

    Attributes:
        suspicion: which.
        when: how it goes over time.
        log: the recording; empty where it is in all of them.
        at_s: of a step, since the log's first row [s].
        size: relative change, or rad (m) or s, as the kind has it; of a filter its length [s].
        share: of the squared error left over at `joint`.
        joint: where it explains most.
        effect: RMS of what it explains there [rad or m].
    """

    suspicion: Suspicion
    when: When
    log: str
    at_s: float
    size: float
    share: float
    joint: str
    effect: float


@dataclass(frozen=True, slots=True)
class _Pattern:
    when: When
    log: str
    at_s: float
    rows: FloatArray
    """Factor of the column at each sample, shape (N,)."""


def suspect(leftover: Leftover) -> tuple[Found, ...]:
    """Find what explains much of what is left over, the best first, each given those before it."""
    suspicions = tuple(_suspicions(leftover))
    blocks = blocks_of(leftover, BLOCKS)
    search = _Search(leftover, suspicions, blocks, _patterns(leftover, blocks))
    found: list[Found] = []
    while len(found) < MOST_FOUND:
        best = search.best()
        if best is None:
            break
        found.append(best)
    return tuple(found)


def _suspicions(leftover: Leftover) -> Iterator[Suspicion]:
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
            reference = max(abs(float(values[i])), 0.1 * abs(spec.initial), _BLIND)
            yield Suspicion(kind, owner, slope * reference, reference)
            if kind != "mass":
                together.setdefault(kind, []).append(slope * values[i])
    for kind, columns in together.items():
        if len(columns) > 1:
            yield Suspicion(kind, "", np.sum(columns, axis=0), 1.0)
    yield Suspicion("filter", "", leftover.smoothed)
    for j, joint in enumerate(model.joints):
        speed = leftover.velocity[:, j]
        usual = max(float(np.sqrt(np.mean(speed**2))), _BLIND)
        for kind, values_j in (
            ("filter", leftover.smoothed[:, j]),
            ("lag", speed),
            ("hysteresis", speed / np.sqrt(speed**2 + (_SLOW * usual) ** 2)),
            ("shift", np.ones(len(speed))),
        ):
            column = np.zeros_like(leftover.error)
            column[:, j] = values_j
            yield Suspicion(kind, joint, column)


def _patterns(leftover: Leftover, blocks: Sequence[IntArray]) -> list[_Pattern]:
    """How a change may go over time: constant within each block."""
    t, log = leftover.t_s, leftover.log
    patterns = [_Pattern("always", "", 0.0, np.ones(len(t)))]
    drift = np.zeros(len(t))
    ends = {i: float(t[log == i].max()) for i in range(len(leftover.logs))}
    for rows in blocks:
        drift[rows] = float(t[rows].mean()) / max(ends[int(log[rows[0]])], _BLIND)
    patterns.append(_Pattern("drift", "", 0.0, drift))
    for index, name in enumerate(leftover.logs):
        own = log == index
        if len(leftover.logs) > 1:
            patterns.append(_Pattern("log", name, 0.0, own.astype(np.float64)))
            patterns.append(_Pattern("drift", name, 0.0, drift * own))
        for rows in [rows for rows in blocks if log[rows[0]] == index][1:]:
            at = float(t[rows[0]])
            patterns.append(_Pattern("step", name, at, (own & (t >= at)).astype(np.float64)))
    return patterns


class _Search:
    """Tries all suspicions at all patterns by block sums of products, and keeps what was found among the free."""

    def __init__(
        self,
        leftover: Leftover,
        suspicions: Sequence[Suspicion],
        blocks: Sequence[IntArray],
        patterns: Sequence[_Pattern],
    ) -> None:
        self.leftover, self.suspicions, self.patterns = leftover, suspicions, patterns
        self.scale = leftover.scale
        N, n, free = leftover.free.shape
        # the prior is worth one more error a parameter, which no pattern touches
        self.free = (leftover.free * self.scale[:, :, None]).reshape(N * n, free)
        self.prior = np.ones(free)
        self.pull = leftover.z.copy()
        self.error = (leftover.error * self.scale).ravel()
        self.columns = np.stack([(s.column * self.scale).ravel() for s in suspicions], axis=1)
        self.starts = blocks
        self.rows = [(rows[:, None] * n + np.arange(n)).ravel() for rows in blocks]
        self.factors = np.array([[p.rows[rows[0]] for rows in blocks] for p in patterns])
        self.tried: set[tuple[int, str]] = set()

    def best(self) -> Found | None:
        """The suspicion that gains most of those that explain enough; from now on it is taken into account."""
        gains, sizes = self._gains()
        for flat in np.argsort(-gains, axis=None, kind="stable").tolist():
            s, p = divmod(flat, len(self.patterns))
            if gains[s, p] < WORTH_A_LOOK:
                return None
            if not self._material(self.suspicions[s], self.patterns[p], float(sizes[s, p])):
                continue
            pattern = self._sharpened(s, self.patterns[p])
            found = self._found(s, pattern)
            if found is not None:
                self._take(s, pattern)
                return found
        return None

    def _gains(self) -> tuple[FloatArray, FloatArray]:
        """Log-likelihood gained and size of every suspicion at every pattern, shape (S, patterns) each."""
        H, jr = self._normal()
        inverse = np.linalg.inv(H)
        cross = np.stack([self.columns[rows].T @ self.free[rows] for rows in self.rows])
        own = np.stack([(self.columns[rows] ** 2).sum(axis=0) for rows in self.rows])
        pull = np.stack([self.columns[rows].T @ self.error[rows] for rows in self.rows])
        whole = self.factors**2 @ own
        u = np.einsum("pb,bsf->spf", self.factors, cross)
        seen = whole.T - np.einsum("spf,fg,spg->sp", u, inverse, u, optimize=True)
        slope = (self.factors @ pull).T - u @ (inverse @ jr)
        blind = seen <= _BLIND * np.maximum(whole.T, 1e-300)
        sizes = np.where(blind, 0.0, -slope / np.where(blind, 1.0, seen))
        return np.where(blind, 0.0, 0.5 * slope**2 / np.where(blind, 1.0, seen)), sizes

    def _normal(self) -> tuple[FloatArray, FloatArray]:
        return self.free.T @ self.free + np.diag(self.prior), self.free.T @ self.error + self.pull

    def _material(self, suspicion: Suspicion, pattern: _Pattern, size: float) -> bool:
        of_a_parameter = suspicion.kind in ("coulomb", "damping", "gain", "mass", "offset", "latency")
        if of_a_parameter == (pattern.when == "always"):
            return False
        return abs(_length(size) if suspicion.kind == "filter" else size) >= SMALLEST[suspicion.kind]

    def _sharpened(self, s: int, pattern: _Pattern) -> _Pattern:
        """A step at the sample within its neighbouring blocks at which it gains most."""
        if pattern.when != "step":
            return pattern
        t, log = self.leftover.t_s, self.leftover.log
        own = log == self.leftover.logs.index(pattern.log)
        span = float(np.ptp(t[own])) / max(len([r for r in self.starts if own[r[0]]]), 1)
        tried = [pattern]
        for at in np.linspace(pattern.at_s - span, pattern.at_s + span, 33)[1:-1].tolist():
            rows = (own & (t >= at)).astype(np.float64)
            if 0.0 < rows.sum() < own.sum():
                tried.append(_Pattern("step", pattern.log, at, rows))
        return max(tried, key=lambda p: self._explains(s, p)[0])

    def _explains(self, s: int, pattern: _Pattern) -> tuple[float, float, FloatArray]:
        """Gain, size, and what is left over then, shape (N·n,)."""
        H, jr = self._normal()
        g = self._column(s, pattern)
        solved = np.linalg.solve(H, np.stack([self.free.T @ g, jr], axis=1))
        seen = float(g @ g - (self.free.T @ g) @ solved[:, 0])
        slope = float(g @ self.error - (self.free.T @ g) @ solved[:, 1])
        if seen <= 0.0:
            return 0.0, 0.0, self.error
        size = -slope / seen
        left = self.error + size * g - self.free @ (solved[:, 1] + size * solved[:, 0])
        return 0.5 * slope**2 / seen, size, left

    def _column(self, s: int, pattern: _Pattern) -> FloatArray:
        n = self.scale.shape[1]
        column: FloatArray = self.columns[:, s] * np.repeat(pattern.rows, n)
        return column

    def _found(self, s: int, pattern: _Pattern) -> Found | None:
        suspicion, shape = self.suspicions[s], self.scale.shape
        _, size, left = self._explains(s, pattern)
        H, jr = self._normal()
        before = (self.error - self.free @ np.linalg.solve(H, jr)).reshape(shape)
        total = (before**2).sum(axis=0)
        shares = 1.0 - (left.reshape(shape) ** 2).sum(axis=0) / np.maximum(total, 1e-300)
        j = int(np.argmax(shares))
        # its weights say how many samples a joint's errors are worth: squared and summed, about one each
        worth = float((self.error.reshape(shape)[:, j] ** 2).sum())
        gain = -0.5 * worth * float(np.log(max(1.0 - shares[j], _BLIND)))
        if gain < GAIN or shares[j] < SHARE or not self._material(suspicion, pattern, size):
            return None
        squared = self.leftover.error[:, j] ** 2
        measured = self.scale[:, j] > 0.0
        return Found(
            suspicion,
            pattern.when,
            pattern.log,
            pattern.at_s,
            _length(size) if suspicion.kind == "filter" else size,
            float(shares[j]),
            self.leftover.model.joints[j],
            float(np.sqrt(shares[j] * squared[measured].mean())),
        )

    def _take(self, s: int, pattern: _Pattern) -> None:
        self.free = np.column_stack([self.free, self._column(s, pattern)])
        # found, hence free to have any size
        self.prior, self.pull = np.append(self.prior, _BLIND), np.append(self.pull, 0.0)


def _length(size: float) -> float:
    """Length of the moving average that has so many times the effect of the one tried [s]; 0 where it has none."""
    return SMOOTHED_S * float(np.sqrt(max(size, 0.0)))
