"""The `twincal` command: each group module registers its commands, every failure is one line.

The modules imported here are light: what a command needs beyond typer and the standard library it imports when it runs,
so that `twincal --help` answers at once.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Final, NoReturn

import typer
from typer.exceptions import TyperException

from app.cli import demo, files, keys, robots, scenarios, services, telemetry
from app.errors import TwincalError

BAD_INPUT: Final = 2
"""Exit code when something handed to twincal is wrong: an option, a file, a setting."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""


def create_app() -> typer.Typer:
    """The command-line application with the commands of every group."""
    app = typer.Typer(
        name="twincal",
        help="Digital-twin calibration for robot fleets.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for group in (files, scenarios, telemetry, services, robots, keys, demo):
        group.register(app)
    return app


def main() -> None:
    """Run the command line; whatever is wrong with its input is one line on standard error and exit code 2."""
    try:
        code = create_app()(standalone_mode=False)
    except (TwincalError, TyperException) as error:
        _fail(error.format_message() if isinstance(error, TyperException) else str(error))
    except typer.Abort:
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    # Without any argument typer prints the help and leaves no message.
    if message.strip():
        sys.stderr.write(f"twincal: {' '.join(message.split())}\n")
    sys.exit(BAD_INPUT)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twincal {version('twincal')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Digital-twin calibration for robot fleets: telemetry in, calibrated twins with honest uncertainty out."""
