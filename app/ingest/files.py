"""Log files: one function from a path to a recording, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from app.errors import LogError
from app.ingest.csv_log import read_csv
from app.ingest.json_log import read_json_lines
from app.telemetry import Recording

_READERS: Final[Mapping[str, Callable[[Path], Recording]]] = MappingProxyType(
    {".csv": read_csv, ".jsonl": read_json_lines, ".ndjson": read_json_lines}
)
"""Reader by suffix, lower case."""


def read_log(path: Path) -> Recording:
    """Read a log into the recording that the same samples would make over MQTT, bit for bit.

    Values are raw: the robot's own units and signs.

    Args:
        path: a CSV file, or telemetry payloads as JSON lines (`.jsonl`, `.ndjson`); the suffix names the format.

    Raises:
        LogError: naming the file, and the line and column at fault.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise LogError(str(path), f"a log can't be of kind {path.suffix!r}", f"one of {', '.join(_READERS)}")
    if not path.is_file():
        raise LogError(str(path), "there is no such file")
    return reader(path)
