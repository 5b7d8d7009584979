"""Scenarios as JSON objects and as rows of a table, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from app.errors import InvalidInputError
from app.scenario.generate import Chunk, Part, Source, as_rows, chunk_of
from app.scenario.keys import SCHEMA
from app.scenario.overlays import LongTail, Payload, Pushes
from app.scenario.quantities import nested
from app.scenario.request import ScenarioChoice
from app.telemetry import FloatArray
from app.twin.document import TwinDocument

UNKNOWN: Final = frozenset({"not_identified", "no_effect"})
"""Verdicts of parameters whose draws are their prior's."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the scenarios of one answer have in common.

    Attributes:
        choice: what was asked for.
        sources: the twins they are of.
        fleet: the fleet they were asked of; None: a robot.
        without_twin: robots of the fleet that have no active twin, and no scenarios.
    """

    choice: ScenarioChoice
    sources: tuple[Source, ...]
    fleet: str | None = None
    without_twin: tuple[str, ...] = ()

    def provenance(self) -> dict[str, Any]:
        """Where the scenarios come from, as JSON has it."""
        return {
            "schema": SCHEMA,
            "software": f"twincal {version('twincal')}",
            "n": self.choice.n,
            "first": self.choice.first,
            "seed": self.choice.seed,
            "difficulty": self.choice.difficulty,
            "fleet": self.fleet,
            "without_twin": list(self.without_twin),
            "twins": [twin_provenance(source.twin) for source in self.sources],
        }


def twin_provenance(twin: TwinDocument) -> dict[str, Any]:
    """What a training job should know of the twin behind its scenarios."""
    return {
        "robot": twin.robot,
        "fleet": twin.fleet,
        "version": twin.version,
        "digest": twin.digest,
        "description_sha256": twin.description.sha256,
        "timestep_s": twin.engine.timestep_s,
        "not_identified": [name for name, p in twin.parameters.items() if p.verdict in UNKNOWN],
        "holdout": {"mae_mean": twin.quality.holdout.mae_mean, "rmse_mean": twin.quality.holdout.rmse_mean},
        "grade": twin.quality.grade,
    }


def records(chunk: Chunk, seed: int) -> Iterator[dict[str, Any]]:
    """The chunk's scenarios as JSON objects, in order of their indices."""
    streams = [iter(()) if part is None else _records(part, seed) for part in chunk.parts]
    for owner in chunk.owner.tolist():
        yield next(streams[owner])


def _records(part: Part, seed: int) -> Iterator[dict[str, Any]]:
    twin = part.source.twin
    names = tuple(part.parameters)
    episode = as_rows([*part.episode.values()])
    for row, values in enumerate(as_rows([*part.parameters.values()])):
        yield {
            "schema": SCHEMA,
            "index": int(part.indices[row]),
            "keys": {"seed": seed, "robot": twin.robot, "version": twin.version},
            "parameters": dict(zip(names, values, strict=True)),
            "overlays": _overlays(part, row),
            "sensors": _sensors(part, row),
            "episode": {
                **dict(zip(part.episode, episode[row], strict=True)),
                "seed": int(part.episode_seed[row]),
            },
        }


def _overlays(part: Part, row: int) -> list[dict[str, Any]]:
    listed = []
    for drawn in part.overlays:
        overlay, numbers = drawn.overlay, nested(drawn.columns, row)
        if isinstance(overlay, LongTail):
            # Only what isn't as usual; in most scenarios nothing.
            numbers["factors"] = {name: factor for name, factor in numbers["factors"].items() if factor != 1.0}
        link = {"link": overlay.link} if isinstance(overlay, Payload | Pushes) else {}
        listed.append({"kind": overlay.kind, **link, **numbers})
    return listed


def _sensors(part: Part, row: int) -> list[dict[str, Any]]:
    """The calibrated noise of each channel, with what the request changes."""
    channels: dict[str, dict[str, Any]] = {name: noise.model_dump() for name, noise in part.source.twin.sensors.items()}
    for (channel, name), values in part.sensors.items():
        channels.setdefault(str(channel), {})[str(name)] = float(values[row])
    return [{"channel": channel, **fields} for channel, fields in channels.items()]


def column_names(origin: Origin) -> tuple[str, ...]:
    """Names of a table's columns besides index, robot, version and episode seed.

    Raises:
        InvalidInputError: if the robots of a fleet don't have the same.
    """
    first = np.array([origin.choice.first], dtype=np.int64)
    names: tuple[str, ...] = ()
    for source in origin.sources:
        (part,) = chunk_of(origin.choice, (source,), first).parts
        assert part is not None
        own = tuple(name for name, _ in table_columns(part))
        if names and own != names:
            robots = f"{origin.sources[0].twin.robot!r} and {source.twin.robot!r}"
            raise InvalidInputError(
                "format", f"{robots} differ in their parameters, so they don't fit one table", "json or ndjson"
            )
        names = own
    return names


def table_columns(part: Part) -> list[tuple[str, FloatArray]]:
    """A table's columns: parameters by their names, then `episode/…`, `overlay/…` and `sensor/…`."""
    columns = [*part.parameters.items()]
    columns += [(f"episode/{name}", values) for name, values in part.episode.items()]
    for i, drawn in enumerate(part.overlays):
        prefix = f"overlay/{i}/{drawn.overlay.kind}"
        columns += [("/".join((prefix, *map(str, path))), values) for path, values in drawn.columns.items()]
    columns += [("/".join(("sensor", *map(str, path))), values) for path, values in part.sensors.items()]
    return columns


def table(chunk: Chunk) -> tuple[list[FloatArray], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The chunk's columns in the order of `column_names`, and the episodes' seeds."""
    parts = [part for part in chunk.parts if part is not None]
    columns = [[values for _, values in table_columns(part)] for part in parts]
    seeds = [part.episode_seed for part in parts]
    if len(parts) == 1:
        return columns[0], seeds[0]
    order = np.argsort(np.concatenate([part.indices for part in parts]))
    merged = [np.concatenate(same)[order] for same in zip(*columns, strict=True)]
    return merged, np.concatenate(seeds)[order]


def check_holds(origin: Origin, file_format: str) -> None:
    """Check that a file of this format can hold what was asked for.

    Raises:
        InvalidInputError: naming `format`.
    """
    if file_format in {"npz", "parquet"}:
        column_names(origin)


def robots_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """Their ids."""
    return tuple(source.twin.robot for source in sources)
