"""`twincal ingest`, `replay` and `dead-letters`: telemetry on its way in."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from app.cli.addresses import database_url, mqtt_url
from app.errors import InvalidInputError, ServiceError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from app.ingest.dead_letters import DeadLetter
    from app.ingest.replay import Publisher, ReplayOptions, Sent
    from app.ingest.service import IngestOptions
    from app.telemetry import Recording

_T = TypeVar("_T")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("ingest")(ingest)
    app.command("replay")(replay)
    letters = typer.Typer(no_args_is_help=True, help="What was refused: list it, look at it, try it again.")
    letters.command("list")(list_letters)
    letters.command("show")(show_letter)
    letters.command("replay")(replay_letters)
    app.add_typer(letters, name="dead-letters")


def ingest(
    client_id: Annotated[
        str, typer.Option(help="Name of our session at the broker: one ingester's alone.")
    ] = "twincal-ingest",
    shared: Annotated[
        bool, typer.Option("--shared", help="Divide the messages with other ingesters, each of its own --client-id.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve Prometheus metrics, /livez and /readyz here; none without it."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address the metrics listen on.")] = "127.0.0.1",
) -> None:
    """Store robots' telemetry: from the broker into the database, each message exactly once."""
    from app.cli.logs import log_to_standard_error
    from app.ingest.broker import BrokerAddress
    from app.ingest.service import IngestOptions
    from app.ingest.session import SessionOptions

    log_to_standard_error()
    database, broker = database_url(), mqtt_url()
    session = SessionOptions(BrokerAddress.parse(broker), client_id=client_id, shared=shared)
    health = None if metrics_port is None else (metrics_host, metrics_port)
    asyncio.run(_run_ingest(IngestOptions(database, session), health))


async def _run_ingest(options: IngestOptions, health: tuple[str, int] | None) -> None:
    from app.ingest.health import HealthServer
    from app.ingest.service import IngestService

    service = IngestService(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    with nullcontext() if health is None else HealthServer(*health, service.readiness):
        await service.run()


def replay(
    robot: Annotated[Path, typer.Option(help="Declaration of the robot, robot.yaml: names robot and fleet.")],
    log: Annotated[list[Path], typer.Option(help="A log to publish; may be given several times.")],
    speed: Annotated[str, typer.Option(help="Times real time, or max.")] = "1",
    format_: Annotated[Literal["msgpack", "json"], typer.Option("--format", help="Of the messages.")] = "msgpack",
    broker: Annotated[
        str | None, typer.Option("--mqtt-url", help="The broker; else TWINCAL_MQTT_URL, else that of `twincal up`.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Samples in a message.")] = 50,
) -> None:
    """Publish recorded logs as the robot would have, stamped as if each began now.

    Each log is a recording of its own.
    """
    from app.ingest.broker import BrokerAddress
    from app.ingest.files import read_log
    from app.ingest.replay import Publisher, ReplayOptions
    from app.twin.declaration import load_declaration

    declaration, _ = load_declaration(robot)
    options = ReplayOptions(declaration.fleet, declaration.robot, format_, batch, _speed(speed))
    address = BrokerAddress.parse(broker or mqtt_url())
    # All are read before the first is published: a broken one stops the command while nothing has happened.
    recordings = [(path, read_log(path)) for path in log]
    with Publisher(address, client_id=declaration.robot) as publisher:
        for path, recording in recordings:
            _print_sent(path, recording, options, _replay_one(path, recording, options, publisher))


def _replay_one(path: Path, recording: Recording, options: ReplayOptions, publisher: Publisher) -> Sent:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from app.ingest.replay import replay as publish

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(path.name, total=len(recording))
        return publish(recording, options, publisher, lambda done: progress.update(task, completed=done))


def _print_sent(path: Path, recording: Recording, options: ReplayOptions, sent: Sent) -> None:
    typer.echo(
        f"{path.name}: {sent.samples} samples ({recording.duration_s:.1f} s) of {options.fleet}/{options.robot} in "
        f"{sent.messages} messages, {sent.payload_bytes} bytes, boot id {sent.boot_id}"
    )
    if sent.unheard:
        typer.echo(
            f"warning: nobody is subscribed: the broker dropped {sent.unheard} messages (is an ingester running?)",
            err=True,
        )


def list_letters(
    robot: Annotated[str | None, typer.Option(help="Of this robot alone.")] = None,
    reason: Annotated[str | None, typer.Option(help="Refused for this reason alone.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
) -> None:
    """List refused messages, the newest first."""
    from app.ingest.dead_letters import Selection, list_dead_letters

    selection = Selection(robot, _reason(reason))

    async def listed(engine: AsyncEngine) -> list[DeadLetter]:
        async with engine.connect() as connection:
            return await list_dead_letters(connection, selection, limit=limit)

    for letter in _with_database(listed):
        note = "  [stored since]" if letter.replayed_at else "" if letter.is_whole else "  [cut]"
        typer.echo(
            f"{letter.id:>8}  {letter.received_at:%Y-%m-%d %H:%M:%S}  {letter.robot or '-':<16}  {letter.reason:<20}  "
            f"{letter.payload_bytes:>8} B  {letter.detail}{note}"
        )


def show_letter(
    identifier: Annotated[int, typer.Argument(metavar="ID")],
    payload: Annotated[bool, typer.Option("--payload", help="Write the payload alone, byte for byte.")] = False,
) -> None:
    """Show a refused message and why it was refused."""
    from app.ingest.dead_letters import get_dead_letter

    async def found(engine: AsyncEngine) -> DeadLetter:
        async with engine.connect() as connection:
            return await get_dead_letter(connection, identifier)

    letter = _with_database(found)
    if payload:
        sys.stdout.buffer.write(letter.payload)
        return
    stored = f"{letter.replayed_at:%Y-%m-%dT%H:%M:%SZ}" if letter.replayed_at else "no"
    for name, value in (
        ("id", letter.id),
        ("received", f"{letter.received_at:%Y-%m-%dT%H:%M:%S.%fZ}"),
        ("topic", letter.topic),
        ("content type", letter.content_type or "none"),
        ("reason", letter.reason),
        ("detail", letter.detail),
        ("stored since", stored),
        (
            "payload",
            f"{letter.payload_bytes} bytes{'' if letter.is_whole else f', the first {len(letter.payload)} kept'}",
        ),
    ):
        typer.echo(f"{name + ':':<14} {value}")
    typer.echo(_printable(letter.payload[:2000]))


def replay_letters(
    robot: Annotated[str | None, typer.Option(help="Of this robot alone.")] = None,
    reason: Annotated[str | None, typer.Option(help="Refused for this reason alone.")] = None,
) -> None:
    """Try refused messages again, once their reason is gone: a robot registered, a limit raised."""
    from app.ingest.dead_letters import Replayed, Selection, replay_dead_letters

    selection = Selection(robot, _reason(reason))

    async def replayed(engine: AsyncEngine) -> Replayed:
        return await replay_dead_letters(engine, database_url(), selection)

    done = _with_database(replayed)
    typer.echo(f"stored {done.stored} messages, {done.samples} samples; {done.duplicates} were stored already")
    for name, count in sorted(done.refused.items()):
        typer.echo(f"refused again: {count} × {name}")


def _with_database(action: Callable[[AsyncEngine], Awaitable[_T]]) -> _T:
    """Run something with an engine, and say a database's failure in one line."""
    from asyncpg import PostgresError
    from sqlalchemy.exc import SQLAlchemyError

    from app.database.engine import create_engine

    async def run() -> _T:
        engine = create_engine(database_url(), pool_size=1)
        try:
            return await action(engine)
        finally:
            await engine.dispose()

    try:
        return asyncio.run(run())
    except (OSError, PostgresError, SQLAlchemyError) as error:
        raise ServiceError(f"database: {' '.join(str(getattr(error, 'orig', None) or error).split())}") from error


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.0 < speed < float("inf"):
        raise InvalidInputError("--speed", f"{text!r} is no speed", "a number above 0, or max")
    return speed


def _reason(text: str | None) -> str | None:
    from app.ingest.refusal import REASONS

    if text is not None and text not in REASONS:
        raise InvalidInputError("--reason", f"{text!r} is no reason", f"one of {', '.join(REASONS)}")
    return text


def _printable(payload: bytes) -> str:
    """Text as it is, anything else in hex: a terminal obeys control characters, and anyone may have sent them."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex(" ")
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
