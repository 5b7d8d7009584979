"""`twincal scenarios`: many robots like this one, from a twin's file or from the database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.errors import InvalidInputError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.scenario.records import Origin

_TABLES = {"npz", "parquet"}


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("scenarios")(scenarios)


def scenarios(
    n: Annotated[int, typer.Option("-n", min=1, max=1_000_000, help="How many.")],
    twin: Annotated[Path | None, typer.Option(help="A twin document; no server is needed.")] = None,
    robot: Annotated[str | None, typer.Option(help="A robot of the database instead: its active twin.")] = None,
    fleet: Annotated[str | None, typer.Option(help="A fleet instead: each scenario is of one of its robots.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Of --robot's twin; without it the active one.")] = None,
    description: Annotated[
        Path | None, typer.Option(help="With --twin: its URDF, for overlays on links that have no parameters.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every draw.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Index of the first.")] = 0,
    difficulty: Annotated[
        float, typer.Option(min=0.0, max=2.0, help="Factor on the posterior's spread; 0 is the twin itself.")
    ] = 1.0,
    overlays: Annotated[
        Path | None, typer.Option(help="YAML or JSON: a list of overlays, or a mapping of overlays and sensors.")
    ] = None,
    file_format: Annotated[Literal["json", "ndjson", "npz", "parquet"], typer.Option("--format")] = "ndjson",
    out: Annotated[Path | None, typer.Option(help="Where they go; without it to standard output.")] = None,
) -> None:
    """Draw scenarios from what is known of a robot: its posterior, with correlations, and overlays on top."""
    from app.scenario.formats import write

    if sum(given is not None for given in (twin, robot, fleet)) != 1:
        raise InvalidInputError("--twin, --robot, --fleet", "say whose scenarios", "exactly one of them")
    if twin is None and description is not None:
        raise InvalidInputError("--description", "belongs to --twin; the database has its own")
    if robot is None and version is not None:
        raise InvalidInputError("--version", "belongs to --robot")
    asked = {"n": n, "first": first, "seed": seed, "difficulty": difficulty, **_overlays(overlays)}
    if twin is not None:
        origin = _from_file(asked, twin, description)
    else:
        origin = _from_database({**asked, "robot": robot, "fleet": fleet, "version": version or "active"})
    if out is None and file_format in _TABLES and sys.stdout.isatty():
        raise InvalidInputError("--format", f"{file_format} is not for a terminal", "--out with a file's name")
    _write(write(origin, file_format), out)


def _overlays(path: Path | None) -> dict[str, Any]:
    from app.twin.declaration_file import read_values

    if path is None:
        return {}
    values = read_values(path)
    if isinstance(values, list):
        return {"overlays": values}
    if isinstance(values, dict) and set(values) <= {"overlays", "sensors"}:
        return {str(name): value for name, value in values.items()}
    raise InvalidInputError(str(path), "holds something else", "a list of overlays, or overlays: […] and sensors: […]")


def _from_file(asked: dict[str, Any], twin: Path, description: Path | None) -> Origin:
    from app.scenario.generate import source_of
    from app.scenario.records import Origin
    from app.scenario.request import ScenarioChoice, read_choice
    from app.twin.description import parse_urdf
    from app.twin.document import read_document

    choice = read_choice(ScenarioChoice, asked)
    document = read_document(_bytes_of(twin))
    links = None
    if description is not None:
        parsed = parse_urdf(_bytes_of(description))
        if parsed.sha256 != document.description.sha256:
            raise InvalidInputError(str(description), "is not the description the twin was fitted on")
        links = list(parsed.links)
    return Origin(choice, (source_of(document, choice, links),))


def _from_database(asked: dict[str, Any]) -> Origin:
    from app.api.auth import LOCAL
    from app.api.scenario_twins import stored_origin
    from app.cli.database import in_transaction
    from app.scenario.request import ScenarioRequest, read_choice

    request = read_choice(ScenarioRequest, asked)

    async def found(connection: AsyncConnection) -> Origin:
        return await stored_origin(connection, request, LOCAL)

    return in_transaction(found)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(str(path), error.strerror or "can't be read") from error


def _write(pieces: Iterator[bytes], out: Path | None) -> None:
    if out is None:
        try:
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Whoever reads has seen enough; the interpreter would still flush at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        with out.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise InvalidInputError(str(out), error.strerror or "can't be written") from error
