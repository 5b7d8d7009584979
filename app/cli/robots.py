"""`twincal robots`, `calibrate` and `twins`: what the API does, from a shell beside the database."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from uuid import UUID

import typer

from app.cli.database import in_transaction
from app.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.calibration.jobs import Calibration
    from app.calibration.request import CalibrationRequest
    from app.calibration.versions import VersionSummary
    from app.registry.robots import Robot
    from app.twin.declaration import RobotDeclaration
    from app.twin.description import Description

_SHELL: Final = "shell"
"""Who the audit trail says it was."""

_PAGE: Final = 500
_POLL_S: Final = 1.0


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    robots = typer.Typer(no_args_is_help=True, help="Robots: register, list, show.")
    robots.command("put")(put)
    robots.command("list")(list_all)
    robots.command("show")(show)
    app.add_typer(robots, name="robots")
    app.command("calibrate")(calibrate)
    twins = typer.Typer(no_args_is_help=True, help="Twin versions: list, show, activate.")
    twins.command("list")(list_versions)
    twins.command("show")(show_version)
    twins.command("activate")(activate)
    app.add_typer(twins, name="twins")


def put(declaration: Annotated[Path, typer.Argument(help="robot.yaml; its description is uploaded with it.")]) -> None:
    """Register a robot with its description, or replace both."""
    from app.twin.declaration import load_declaration

    declared, description = load_declaration(declaration)

    async def stored(connection: AsyncConnection) -> tuple[Robot, bool]:
        return await _put(connection, declared, description)

    robot, created = in_transaction(stored)
    typer.echo(f"{robot.robot} of fleet {robot.fleet} is {'registered' if created else 'replaced'}")


def list_all(fleet: Annotated[str | None, typer.Option(help="Of this fleet alone.")] = None) -> None:
    """List the robots."""
    from app.registry.robots import list_robots

    async def found(connection: AsyncConnection) -> list[Robot]:
        robots: list[Robot] = []
        while page := await list_robots(connection, fleet, robots[-1].robot if robots else None, _PAGE):
            robots += page
        return robots

    for robot in in_transaction(found):
        typer.echo(f"{robot.robot:<24}  {robot.fleet:<20}  {robot.updated_at:%Y-%m-%d %H:%M:%SZ}")


def show(robot: Annotated[str, typer.Argument()]) -> None:
    """Print a robot's declaration as JSON."""
    from app.registry.robots import get_robot

    async def found(connection: AsyncConnection) -> Robot:
        return await get_robot(connection, robot)

    declaration = in_transaction(found).declaration
    typer.echo(declaration.model_dump_json(by_alias=True, exclude_unset=True, indent=2))


def calibrate(
    robot: Annotated[str, typer.Argument()],
    recording: Annotated[
        list[UUID] | None, typer.Option(help="To be fitted; repeatable. Without it the last hour with motion.")
    ] = None,
    holdout_recording: Annotated[list[UUID] | None, typer.Option(help="That only judges; repeatable.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random draw.")] = 0,
    budget_s: Annotated[float, typer.Option(min=1.0, max=86_400.0, help="Safety limit on the fit's time.")] = 300.0,
    activation: Annotated[Literal["if_better", "never"], typer.Option("--activate", help="Serve it.")] = "if_better",
) -> None:
    """Queue a calibration and wait for its end; a worker must be running. Exits with 3 if it gave no twin."""
    from app.calibration.request import CalibrationRequest, Holdout

    request = CalibrationRequest(
        recordings=tuple(recording) if recording else None,
        holdout=Holdout(recordings=tuple(holdout_recording)) if holdout_recording else Holdout(fraction=0.25),
        seed=seed,
        budget_s=budget_s,
        activate=activation,
    )
    job = in_transaction(lambda connection: _submit(connection, robot, request))
    typer.echo(f"calibration {job.id}", err=True)
    job = _watch(job)
    typer.echo(f"{job.state}{f', version {job.version}' if job.version else ''}: {job.reason}")
    if job.version is None:
        raise typer.Exit(3)


def list_versions(robot: Annotated[str, typer.Argument()]) -> None:
    """List a robot's twin versions, newest first."""
    from app.calibration.versions import list_versions as read_page
    from app.registry.robots import get_robot

    async def found(connection: AsyncConnection) -> Sequence[VersionSummary]:
        known = (await get_robot(connection, robot)).robot
        return await read_page(connection, known, before=None, limit=_PAGE)

    for version in in_transaction(found):
        typer.echo(
            f"{version.version:>6}  {version.state:<10}  {version.created_at:%Y-%m-%d %H:%M:%SZ}  {version.digest}"
        )


def show_version(
    robot: Annotated[str, typer.Argument()],
    version: Annotated[int | None, typer.Argument(min=1, help="Without it the active one.")] = None,
) -> None:
    """Print a twin document, byte for byte as it is served."""
    from app.calibration.versions import read_active, read_version
    from app.registry.robots import get_robot

    async def found(connection: AsyncConnection) -> bytes:
        known = (await get_robot(connection, robot)).robot
        if version is None:
            return (await read_active(connection, known)).document
        return (await read_version(connection, known, version)).document

    sys.stdout.buffer.write(in_transaction(found) + b"\n")


def activate(
    robot: Annotated[str, typer.Argument()],
    version: Annotated[int, typer.Argument(min=1)],
    reason: Annotated[str, typer.Option(help="For the audit trail.")] = "",
) -> None:
    """Serve a version from now on: promote it, or roll back to it."""
    from app.calibration.audit import Move
    from app.calibration.versions import activate as make_active
    from app.registry.robots import get_robot

    async def moved(connection: AsyncConnection) -> VersionSummary:
        known = (await get_robot(connection, robot)).robot
        return await make_active(connection, known, version, Move(_SHELL, reason))

    typer.echo(f"version {in_transaction(moved).version} of {robot} is active")


async def _put(connection: AsyncConnection, declared: RobotDeclaration, description: Description) -> tuple[Robot, bool]:
    from app.registry.descriptions import store_description
    from app.registry.robots import put_robot
    from app.twin.declaration import DescriptionReference

    sha256 = await store_description(connection, description.source)
    reference = DescriptionReference(sha256=sha256)
    return await put_robot(connection, declared.model_copy(update={"description": reference}))


async def _submit(connection: AsyncConnection, robot: str, request: CalibrationRequest) -> Calibration:
    from app.calibration.jobs import submit
    from app.calibration.selection import check_recordings
    from app.registry.descriptions import robot_description
    from app.registry.robots import get_robot

    registered = await get_robot(connection, robot)
    if await robot_description(connection, robot) is None:
        raise ConflictError(f"robot {robot!r} has no description and neither has its fleet")
    await check_recordings(connection, robot, request)
    return await submit(connection, registered.robot, request, _SHELL)


def _watch(job: Calibration) -> Calibration:
    """Show progress until the job has ended; only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from app.calibration.jobs import read

    async def read_again(connection: AsyncConnection) -> Calibration:
        return await read(connection, job.id)

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(job.state, total=1.0)
        while not job.finished:
            time.sleep(_POLL_S)
            job = in_transaction(read_again)
            bar.update(task, completed=job.progress, description=job.stage or job.state)
    return job
