"""The report's correlation map: which fitted parameters the data confuse, as a picture and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.calibration.report_words import short_name, split_name
from app.telemetry import FloatArray
from app.twin.document import Covariance

TOLD_FROM: Final = 0.7
"""Correlation from which a pair is put in words."""
_TOLD_AT_MOST = 12
_DRAWN_FROM = 0.05
_DRAWN_AT_MOST = 64
_ALIKE = 1.5
_LABEL = 42
"""Characters a label may have."""
CELL: Final = 13
"""Side of a cell [px]."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair on the map: row and column from 0, the correlation's size and sign."""

    row: int
    column: int
    strength: str
    positive: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Two parameters the data confuse, in words."""

    first: str
    second: str
    rho: str
    meaning: str


@dataclass(frozen=True, slots=True)
class CorrelationMap:
    """Everything the page says of the covariance.

    Attributes:
        labels: of the drawn parameters, in the order of rows and columns.
        breaks: rows at which another joint, link or the robot begins.
        cells: below the diagonal.
        pairs: strongest first.
        more: how many pairs as strong as those told are left out.
        left_out: how many parameters the map leaves out.
    """

    labels: tuple[str, ...]
    breaks: tuple[int, ...]
    cells: tuple[Cell, ...]
    pairs: tuple[Pair, ...]
    more: int
    left_out: int


def correlation_map(covariance: Covariance, values: Mapping[str, float]) -> CorrelationMap | None:
    """Draw and tell the correlations.

    Args:
        covariance: of the fitted parameters.
        values: of the same, by name, in their own units.

    Returns:
        None where fewer than two parameters were fitted.
    """
    names = covariance.names
    if len(names) < 2:
        return None
    rho = correlations(np.array(covariance.matrix))
    drawn = _drawn(rho)
    labels = tuple(_shortened(short_name(names[i])) for i in drawn)
    owners = [split_name(names[i])[:2] for i in drawn]
    pairs, more = _pairs(covariance, values, rho)
    return CorrelationMap(
        labels=labels,
        breaks=tuple(row for row in range(1, len(drawn)) if owners[row] != owners[row - 1]),
        cells=_cells(rho[np.ix_(drawn, drawn)]),
        pairs=pairs,
        more=more,
        left_out=len(names) - len(drawn),
    )


def correlations(matrix: FloatArray) -> FloatArray:
    """Correlation matrix of a covariance; 0 beside a parameter without variance."""
    sd = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.outer(sd, sd)
    rho: FloatArray = np.divide(matrix, scale, out=np.zeros_like(matrix), where=scale > 0.0)
    return np.clip(rho, -1.0, 1.0)


def _drawn(rho: FloatArray) -> list[int]:
    """The parameters a map has room for: those most entangled, in the document's order."""
    if len(rho) <= _DRAWN_AT_MOST:
        return list(range(len(rho)))
    strongest = np.abs(rho - np.eye(len(rho))).max(axis=1)
    chosen = np.argsort(-strongest, kind="stable")[:_DRAWN_AT_MOST]
    return sorted(chosen.tolist())


def _shortened(label: str) -> str:
    """A label that fits beside the map, its middle left out if need be."""
    return label if len(label) <= _LABEL else f"{label[: _LABEL // 3]}…{label[-_LABEL // 2 :]}"


def _cells(rho: FloatArray) -> tuple[Cell, ...]:
    return tuple(
        Cell(row, column, f"{abs(value):.2f}", positive=value > 0.0)
        for row, values in enumerate(rho.tolist())
        for column, value in enumerate(values[:row])
        if abs(value) >= _DRAWN_FROM
    )


def _pairs(covariance: Covariance, values: Mapping[str, float], rho: FloatArray) -> tuple[tuple[Pair, ...], int]:
    names = covariance.names
    relative = [_relative_sd(covariance, index, values) for index in range(len(names))]
    rows, columns = np.tril_indices(len(rho), -1)
    strength = np.abs(rho[rows, columns])
    order = np.argsort(-strength, kind="stable")
    strong = [(int(columns[k]), int(rows[k])) for k in order if strength[k] >= TOLD_FROM]
    told = tuple(
        Pair(
            short_name(names[i]),
            short_name(names[j]),
            f"{rho[i, j]:+.2f}".replace("-", "\N{MINUS SIGN}"),
            _meaning(relative[i], relative[j], positive=rho[i, j] > 0.0),
        )
        for i, j in strong[:_TOLD_AT_MOST]
    )
    return told, len(strong) - len(told)


def _relative_sd(covariance: Covariance, index: int, values: Mapping[str, float]) -> float | None:
    """Standard deviation of the value's logarithm; None where the value isn't surely positive."""
    name = covariance.names[index]
    sd = math.sqrt(max(covariance.matrix[index][index], 0.0))
    if covariance.transform[name] == "log":
        return sd
    return sd / values[name] if values[name] > sd else None


def _meaning(first: float | None, second: float | None, *, positive: bool) -> str:
    """What a correlation means, by how far either of the two can go."""
    how = "they rise and fall together" if positive else "one rises where the other falls"
    # A ratio stays put only if both are as uncertain in per cent.
    if first and second and 1 / _ALIKE < first / second < _ALIKE:
        return f"{how}: the data know their {'ratio' if positive else 'product'} better than either"
    return f"{how}: the data know a weighted {'difference' if positive else 'sum'} better than either"
