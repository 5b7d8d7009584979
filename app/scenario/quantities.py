"""What overlays are drawn with: one stream a quantity, and what the robot they lie on has."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from app.errors import InvalidInputError
from app.scenario.distributions import Distribution, values_at
from app.scenario.draws import physical_bounds
from app.scenario.keys import DrawKey
from app.telemetry import FloatArray, IntArray
from app.twin.document import TwinDocument

Path = tuple[str | int, ...]
"""Where a number stands in a scenario; integers are places in a list."""

_NAMED_AT_MOST = 12


@dataclass(frozen=True, slots=True)
class Quantities:
    """The draws of one overlay.

    Attributes:
        key: of the robot's scenarios.
        prefix: of its streams' names.
        indices: of the scenarios, shape (n,).
    """

    key: DrawKey
    prefix: str
    indices: IntArray

    def __call__(self, name: str, distribution: Distribution) -> FloatArray:
        """Values of a quantity, shape (n,)."""
        return values_at(distribution, self.share(name))

    def share(self, name: str) -> FloatArray:
        """Numbers in (0, 1) of a quantity, shape (n,)."""
        return self.key.uniform(f"{self.prefix}/{name}", self.indices)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a robot has that a request may name.

    Attributes:
        links: names of its links; only those with parameters where its description isn't at hand.
        joints: names of the joints that move.
        sliding: those of them that are prismatic.
        positive_parameters: names of the parameters that can't be negative.
        whole: whether `links` are all.
    """

    links: tuple[str, ...]
    joints: tuple[str, ...]
    sliding: frozenset[str]
    positive_parameters: tuple[str, ...]
    whole: bool

    @classmethod
    def of(cls, twin: TwinDocument, links: Iterable[str] | None = None) -> Self:
        """What a twin has.

        Args:
            twin: the document.
            links: of its description; None where that isn't at hand.
        """
        joints, with_parameters = _named(twin, "joint"), _named(twin, "link")
        return cls(
            links=with_parameters if links is None else tuple(links),
            joints=joints,
            sliding=frozenset(joint for joint in joints if f"joint/{joint}/armature_kg" in twin.parameters),
            positive_parameters=tuple(n for n in twin.parameters if physical_bounds(twin, n)[0] >= 0.0),
            whole=links is not None,
        )

    def require_link(self, link: str, where: str) -> None:
        """Check that there is such a link.

        Raises:
            InvalidInputError: naming `where`.
        """
        if link not in self.links:
            known = "it has" if self.whole else "without its description those with parameters are known:"
            raise InvalidInputError(where, f"the robot has no link {link!r}", f"{known} {_listed(self.links)}")

    def require_matches(self, patterns: Sequence[str], names: Sequence[str], where: str) -> None:
        """Check that every pattern matches one of the names.

        Raises:
            InvalidInputError: naming `where` and the pattern's place.
        """
        for i, pattern in enumerate(patterns):
            if not matching((pattern,), names):
                raise InvalidInputError(f"{where}.{i}", f"{pattern!r} matches none", f"one of {_listed(names)}")


def _named(twin: TwinDocument, kind: str) -> tuple[str, ...]:
    """Names of the joints or links that have parameters; a name may hold slashes itself."""
    paths = (name.removeprefix(f"{kind}/") for name in twin.parameters if name.startswith(f"{kind}/"))
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def matching(patterns: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names that a pattern matches (`*` any text, `?` one character)."""
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def nested(columns: Mapping[Path, FloatArray], row: int) -> dict[str, Any]:
    """One scenario's numbers, with the structure that their paths have."""
    whole: dict[str | int, Any] = {}
    for path, values in columns.items():
        place = whole
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = float(values[row])
    return {str(name): _listing(part) for name, part in whole.items()}


def _listing(part: Any) -> Any:
    """Mappings whose keys are places become lists."""
    if not isinstance(part, dict):
        return part
    inner = {key: _listing(value) for key, value in part.items()}
    return list(inner.values()) if all(isinstance(key, int) for key in inner) else inner


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
