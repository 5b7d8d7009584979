"""From a request and the twins it is about to scenarios, some thousands at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.scenario.draws import Spread, draw, spread_of
from app.scenario.keys import DrawKey
from app.scenario.overlays import Latency, LongTail, Overlay, check_overlays
from app.scenario.quantities import Path, Quantities, Subject
from app.scenario.request import ScenarioChoice, check_sensors
from app.telemetry import FloatArray, IntArray
from app.twin.document import TwinDocument

CHUNK: Final = 8192
LATENCY: Final = "robot/command_latency_s"
_SENSOR_FIELDS: Final = ("noise_sd", "bias", "quantum", "outlier_rate", "drop_rate")


@dataclass(frozen=True, slots=True)
class Source:
    """A twin that scenarios are drawn from.

    Attributes:
        twin: its document.
        spread: its posterior.
        subject: what the robot has.
    """

    twin: TwinDocument
    spread: Spread
    subject: Subject


@dataclass(frozen=True, slots=True)
class DrawnOverlay:
    """An overlay's numbers.

    Attributes:
        overlay: as asked for.
        columns: by place in the scenario, shape (n,) each.
    """

    overlay: Overlay
    columns: Mapping[Path, FloatArray]


@dataclass(frozen=True, slots=True)
class Part:
    """Scenarios of one robot.

    Attributes:
        source: its twin.
        indices: shape (n,).
        parameters: all of the twin's, drawn or not, by name, shape (n,) each.
        overlays: in the request's order.
        sensors: by channel and field, only what the request changes, shape (n,) each.
        episode: latency, jitter and drops as they come out, shape (n,) each.
        episode_seed: for what an environment draws itself, shape (n,).
    """

    source: Source
    indices: IntArray
    parameters: Mapping[str, FloatArray]
    overlays: tuple[DrawnOverlay, ...]
    sensors: Mapping[Path, FloatArray]
    episode: Mapping[str, FloatArray]
    episode_seed: IntArray


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive scenarios.

    Attributes:
        indices: shape (n,).
        owner: which source each is of, shape (n,).
        parts: by source; None for those that have none here.
    """

    indices: IntArray
    owner: IntArray
    parts: tuple[Part | None, ...]


def source_of(twin: TwinDocument, choice: ScenarioChoice, links: Sequence[str] | None = None) -> Source:
    """Make a twin ready, and hold the request against it.

    Args:
        twin: the document.
        choice: what is asked for.
        links: of its description; None where that isn't at hand.

    Raises:
        InvalidInputError: naming the field that asks for what the robot doesn't have.
    """
    subject = Subject.of(twin, links)
    check_overlays(choice.overlays, subject)
    check_sensors(choice, subject.joints)
    return Source(twin, spread_of(twin), subject)


def chunks(choice: ScenarioChoice, sources: Sequence[Source], fleet: str | None = None) -> Iterator[Chunk]:
    """All scenarios, in order of their indices.

    Args:
        choice: which.
        sources: one, or those of a fleet.
        fleet: its id.
    """
    end = choice.first + choice.n
    for start in range(choice.first, end, CHUNK):
        yield chunk_of(choice, sources, np.arange(start, min(start + CHUNK, end), dtype=np.int64), fleet)


def chunk_of(choice: ScenarioChoice, sources: Sequence[Source], indices: IntArray, fleet: str | None = None) -> Chunk:
    """The scenarios of these indices, increasing."""
    owner = owners(choice.seed, fleet, sources, indices)
    held = [indices[owner == i] for i in range(len(sources))]
    parts = [_part(choice, s, own) if len(own) else None for s, own in zip(sources, held, strict=True)]
    return Chunk(indices, owner, tuple(parts))


def owners(seed: int, fleet: str | None, sources: Sequence[Source], indices: IntArray) -> IntArray:
    """Whose scenario each index is, of the robots of a fleet.

    Each robot draws a number for each index and the highest takes it, so that a robot which joins or leaves the fleet
    changes only the scenarios that become or were its own.
    """
    best, owner = np.full(len(indices), -1.0), np.zeros(len(indices), dtype=np.int64)
    for i, source in enumerate(sources if len(sources) > 1 else ()):
        number = DrawKey(seed, source.twin.robot, 0).uniform(f"fleet/{fleet}", indices)
        owner[number > best] = i
        best = np.maximum(best, number)
    return owner


def _part(choice: ScenarioChoice, source: Source, indices: IntArray) -> Part:
    twin = source.twin
    key = DrawKey(choice.seed, twin.robot, twin.version)
    drawn = draw(source.spread, key, indices, choice.difficulty)
    parameters = {
        name: drawn[name] if name in drawn else np.full(len(indices), parameter.value)
        for name, parameter in twin.parameters.items()
    }
    overlays = tuple(_overlays(choice.overlays, source.subject, key, indices))
    seeds = (key.words("episode/seed", indices)[0] >> np.uint64(11)).astype(np.int64)
    return Part(
        source=source,
        indices=indices,
        parameters=parameters,
        overlays=overlays,
        sensors=_sensors(choice, key, indices),
        episode=_episode(parameters, overlays, len(indices)),
        episode_seed=seeds,
    )


def _overlays(overlays: Sequence[Overlay], subject: Subject, key: DrawKey, indices: IntArray) -> Iterator[DrawnOverlay]:
    seen: dict[str, int] = {}
    for overlay in overlays:
        name = f"overlay/{overlay.kind}/{overlay.target}"
        seen[name] = seen.get(name, -1) + 1
        quantities = Quantities(key, f"{name}/{seen[name]}", indices)
        yield DrawnOverlay(overlay, dict(overlay.columns(quantities, subject)))


def _sensors(choice: ScenarioChoice, key: DrawKey, indices: IntArray) -> Mapping[Path, FloatArray]:
    columns: dict[Path, FloatArray] = {}
    for change in choice.sensors:
        draws = Quantities(key, f"sensor/{change.channel}", indices)
        for name in _SENSOR_FIELDS:
            wanted: Any = getattr(change, name)
            if wanted is not None:
                columns[change.channel, name] = draws(name, wanted)
    return columns


def _episode(
    parameters: Mapping[str, FloatArray], overlays: Sequence[DrawnOverlay], count: int
) -> Mapping[str, FloatArray]:
    """What all overlays together make of the way of a command."""
    latency = parameters.get(LATENCY, np.zeros(count))
    for drawn in overlays:
        if isinstance(drawn.overlay, LongTail):
            latency = latency * drawn.columns.get(("factors", LATENCY), np.ones(count))
    jitter2, arrives = np.zeros(count), np.ones(count)
    for drawn in overlays:
        if isinstance(drawn.overlay, Latency):
            latency = latency + drawn.columns["added_s",]
            jitter2 = jitter2 + drawn.columns["jitter_s",] ** 2
            arrives = arrives * (1.0 - drawn.columns["drop",])
    return {"latency_s": latency, "jitter_s": np.sqrt(jitter2), "drop": 1.0 - arrives}


def as_rows(columns: Sequence[FloatArray | NDArray[np.int64]]) -> list[list[float]]:
    """Columns as rows of plain numbers."""
    rows: list[list[float]] = np.stack(columns, axis=1).tolist()
    return rows
