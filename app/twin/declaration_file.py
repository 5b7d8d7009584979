"""Reading a declaration's file, YAML or JSON, into plain values: nothing given twice, nothing read as what it isn't."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from app.errors import DeclarationError

_MAX_BYTES: Final = 1024 * 1024
_YAML_SUFFIXES: Final = {".yaml", ".yml"}


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of numbers and truth, and no key twice.

    In YAML 1.1 `1e-6` is text, `on` is true, `12:30` is 750 and `010` is 8: each is a robot or joint name gone wrong.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base class has it

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the base class refuses it
            line = key.start_mark.line + 1
            if key.value in seen:
                raise DeclarationError(f"line {line}", f"{key.value!r} is given twice, first on line {seen[key.value]}")
            seen[key.value] = line
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def read_values(path: Path) -> object:
    """The file's content as dicts, lists, text and numbers.

    Args:
        path: `.yaml`, `.yml` or `.json`.

    Raises:
        DeclarationError: where the file can't be read, isn't well-formed or gives a key twice; names the line.
    """
    suffix = path.suffix.lower()
    if suffix not in _YAML_SUFFIXES | {".json"}:
        raise DeclarationError(str(path), f"is a {suffix or 'file without suffix'}", "a .yaml, .yml or .json file")
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DeclarationError(str(path), f"is larger than {_MAX_BYTES} bytes")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DeclarationError(str(path), error.strerror or "can't be read") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DeclarationError(f"{path.name}, line {line}", "is not UTF-8", "save as UTF-8") from error
    try:
        return _read_yaml(text) if suffix in _YAML_SUFFIXES else _read_json(text)
    except DeclarationError as error:
        raise DeclarationError(f"{path.name}, {error.where}", error.problem, error.remedy) from error
    except RecursionError as error:
        raise DeclarationError(path.name, "is nested too deeply") from error


def _read_yaml(text: str) -> object:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DeclarationError(f"line {line}", f"not well-formed YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DeclarationError("line 1", f"not well-formed YAML: {' '.join(str(error).split())}") from error


def _read_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DeclarationError(f"line {error.lineno}", f"not well-formed JSON: {error.msg}") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise DeclarationError(repr(key), "is given twice")
        values[key] = value
    return values


def _refuse_constant(text: str) -> NoReturn:
    raise DeclarationError(text, "is not JSON", "a finite number or null")
