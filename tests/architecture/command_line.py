"""The commands, options and settings that exist in the code, for what documents and configurations claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from app.cli import create_app
from app.settings import Settings


def commands() -> Mapping[str, frozenset[str]]:
    """Each command's words, e.g. `keys create`, with the options it takes."""
    return dict(_walk(typer.main.get_command(create_app()), ""))


def setting_names() -> frozenset[str]:
    """The environment variables that settings are read from."""
    prefix = str(Settings.model_config.get("env_prefix", ""))
    return frozenset(f"{prefix}{name}".upper() for name in Settings.model_fields)


def _walk(command: Any, words: str) -> Iterator[tuple[str, frozenset[str]]]:
    children: Mapping[str, Any] = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _walk(child, f"{words} {name}".strip())
    if not children and words:
        yield words, frozenset(option for parameter in command.params for option in parameter.opts)
