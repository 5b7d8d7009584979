"""Search among suspicions for what explains much of what a twin leaves over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.leftover import SMOOTHED_S, Leftover, blocks_of
from app.calibration.suspicion import BLIND, Kind, Pattern, Suspicion, When, patterns, suspicions
from app.telemetry import FloatArray, IntArray

BLOCKS: Final = 48
"""Stretches of time at whose edges a step is looked for."""
GAIN: Final = 8.0
"""Log-likelihood a suspicion must gain: four standard deviations."""
WORTH_A_LOOK: Final = 3.0
"""Log-likelihood gained while the noise is taken to be what is left over without it, from which that is worked out."""
SHARE: Final = 0.3
"""Of the squared error that some joint leaves over, what a suspicion must explain."""
WHITE: Final = 1.5
"""Error over sensor noise up to which nothing is left over at a joint that could be explained."""
MOST_FOUND: Final = 3

SMALLEST: Final[dict[Kind, float]] = {
    "coulomb": 0.15,
    "damping": 0.3,
    "gain": 0.1,
    "mass": 0.1,
    "offset": 2e-3,
    "latency": 1e-3,
    "filter": 0.015,
    "lag": 1e-3,
    "hysteresis": 1e-3,
    "shift": 1e-3,
}
"""Size from which a suspicion counts: relative change, or rad (m), or s."""


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


def suspect(leftover: Leftover) -> tuple[Found, ...]:
    """Find what explains much of what is left over, the best first, each given those before it."""
    raised = tuple(suspicions(leftover))
    blocks = blocks_of(leftover, BLOCKS)
    search = _Search(leftover, raised, blocks, patterns(leftover, blocks))
    found: list[Found] = []
    while len(found) < MOST_FOUND:
        best = search.best()
        if best is None:
            break
        found.append(best)
    return tuple(found)


class _Search:
    """Tries all suspicions at all patterns by block sums of products, and keeps what was found among the free."""

    def __init__(
        self,
        leftover: Leftover,
        suspicions: Sequence[Suspicion],
        blocks: Sequence[IntArray],
        patterns: Sequence[Pattern],
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
        rms = np.sqrt((leftover.error**2).sum(axis=0) / np.maximum((self.scale > 0.0).sum(axis=0), 1))
        self.white = rms < WHITE * leftover.noise
        self._solve()

    def best(self) -> Found | None:
        """The suspicion that gains most of those that explain enough; from now on it is taken into account."""
        gains, sizes = self._gains()
        before = (self._left(None) ** 2).sum(axis=0)
        # a smaller gain explains too little of every joint's error; half, for one joint may gain what another loses
        least = max(WORTH_A_LOOK, 0.25 * SHARE * float(before.min()))
        looked_at: set[tuple[int, str]] = set()
        for flat in np.argsort(-gains, axis=None, kind="stable").tolist():
            s, p = divmod(flat, len(self.patterns))
            pattern = self.patterns[p]
            if gains[s, p] < least:
                return None
            # of each suspicion one look at each way to go over time: its best
            if (s, pattern.when) in looked_at or not self._material(self.suspicions[s], pattern, float(sizes[s, p])):
                continue
            looked_at.add((s, pattern.when))
            if self._found(s, pattern, before) is None:
                continue
            pattern = self._sharpened(s, pattern)
            found = self._found(s, pattern, before)
            if found is not None:
                self._take(s, pattern)
                return found
        return None

    def _gains(self) -> tuple[FloatArray, FloatArray]:
        """Log-likelihood gained and size of every suspicion at every pattern, shape (S, patterns) each."""
        cross = np.stack([self.columns[rows].T @ self.free[rows] for rows in self.rows])
        own = np.stack([(self.columns[rows] ** 2).sum(axis=0) for rows in self.rows])
        pull = np.stack([self.columns[rows].T @ self.error[rows] for rows in self.rows])
        whole = self.factors**2 @ own
        u = np.einsum("pb,bsf->spf", self.factors, cross)
        seen = whole.T - np.einsum("spf,fg,spg->sp", u, self.inverse, u, optimize=True)
        slope = (self.factors @ pull).T - u @ self.step
        blind = seen <= BLIND * np.maximum(whole.T, 1e-300)
        sizes = np.where(blind, 0.0, -slope / np.where(blind, 1.0, seen))
        return np.where(blind, 0.0, 0.5 * slope**2 / np.where(blind, 1.0, seen)), sizes

    def _solve(self) -> None:
        """Where the free parameters would go if nothing else changed."""
        hessian = self.free.T @ self.free + np.diag(self.prior)
        self.inverse: FloatArray = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
        self.step: FloatArray = self.inverse @ (self.free.T @ self.error + self.pull)

    def _material(self, suspicion: Suspicion, pattern: Pattern, size: float) -> bool:
        of_a_parameter = suspicion.kind in ("coulomb", "damping", "gain", "mass", "offset", "latency")
        if of_a_parameter == (pattern.when == "always"):
            return False
        if suspicion.kind == "hysteresis":
            return size >= SMALLEST["hysteresis"]
        return abs(_length(size) if suspicion.kind == "filter" else size) >= SMALLEST[suspicion.kind]

    def _sharpened(self, s: int, pattern: Pattern) -> Pattern:
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
                tried.append(Pattern("step", pattern.log, at, rows))
        return max(tried, key=lambda p: self._explains(self._column(s, p))[0])

    def _explains(self, column: FloatArray) -> tuple[float, float, FloatArray]:
        """Gain and size of a column, and the free parameters' step per unit of it, shape (F,)."""
        along = self.free.T @ column
        taken = self.inverse @ along
        seen = float(column @ column - along @ taken)
        slope = float(column @ self.error - along @ self.step)
        return (0.5 * slope**2 / seen, -slope / seen, taken) if seen > 0.0 else (0.0, 0.0, taken)

    def _left(self, column: FloatArray | None) -> FloatArray:
        """What is left over, weighed, once a column has its best size, shape (N, n)."""
        left = self.error - self.free @ self.step
        if column is not None:
            _, size, taken = self._explains(column)
            left += size * (column - self.free @ taken)
        return left.reshape(self.scale.shape)

    def _column(self, s: int, pattern: Pattern) -> FloatArray:
        n = self.scale.shape[1]
        column: FloatArray = self.columns[:, s] * np.repeat(pattern.rows, n)
        return column

    def _found(self, s: int, pattern: Pattern, before: FloatArray) -> Found | None:
        suspicion, column = self.suspicions[s], self._column(s, pattern)
        _, size, _ = self._explains(column)
        shares = 1.0 - (self._left(column) ** 2).sum(axis=0) / np.maximum(before, 1e-300)
        shares[self.white] = 0.0
        j = int(np.argmax(shares))
        # its weights say how many samples a joint's errors are worth: squared and summed, about one each
        worth = float((self.error.reshape(self.scale.shape)[:, j] ** 2).sum())
        gain = -0.5 * worth * float(np.log(max(1.0 - shares[j], BLIND)))
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

    def _take(self, s: int, pattern: Pattern) -> None:
        self.free = np.column_stack([self.free, self._column(s, pattern)])
        # found, hence free to have any size
        self.prior, self.pull = np.append(self.prior, BLIND), np.append(self.pull, 0.0)
        self._solve()


def _length(size: float) -> float:
    """Length of the moving average that has so many times the effect of the one tried [s]; 0 where it has none."""
    return SMOOTHED_S * float(np.sqrt(max(size, 0.0)))
