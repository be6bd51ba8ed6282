"""What is wrong with a specification: its place and line, in one sentence."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subspacedp.errors import SubspaceDPError

__all__ = ["Loaded", "Place", "Problem", "SpecificationError", "failure", "missing_extra", "shown"]

Place = tuple[str | int, ...]  # the keys and list positions that lead to a value


class SpecificationError(SubspaceDPError):
    """A specification cannot be used; `where`, `line` and `others` say more."""


def missing_extra() -> SpecificationError:
    """The sentence for an installation without the extra."""
    return SpecificationError(
        "Reading a specification needs packages that are not installed; "
        "install `subspacedp[publish]`."
    )


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the place, and a phrase that follows the place's name."""

    path: Place
    what: str
    rank: int = 1  # the lowest is told first


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Plain data, with the line and the text of the values in the file they came from."""

    data: Any
    lines: Mapping[Place, int] = field(default_factory=dict)
    texts: Mapping[Place, str] = field(default_factory=dict)  # of values that are not text

    def line(self, path: Place) -> int | None:
        """The line of a place, or of the nearest place around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def where(self, path: Place) -> str:
        """The name of a place, with its line where it has one."""
        line = self.line(path)
        name = _name(path, self.data)
        return f"{name} (line {line})" if line else name


def failure(problems: Sequence[Problem], loaded: Loaded) -> SpecificationError:
    """The error that tells the most useful problem, and how many others there are."""
    first = min(problems, key=lambda p: (p.rank, loaded.line(p.path) or 0))
    others = len({problem.path for problem in problems}) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    end = f"?{more}" if first.what.endswith("?") else f"{more}."
    return SpecificationError(
        f"{loaded.where(first.path)} {first.what.removesuffix('?')}{end}",
        where=_name(first.path, loaded.data).replace("`", ""),
        line=loaded.line(first.path),
        others=others,
    )


def _name(path: Place, data: Any) -> str:
    """`axes.age.bins`, or `hold` item 2 for the second item of a list."""
    if not path:
        return "The specification"
    keys: list[str] = []
    items = ""
    for key in path:
        if isinstance(key, int) and not isinstance(data, Mapping):
            items += f", item {key + 1}" if items else f" item {key + 1}"
        else:
            word = str(key) if str(key).isprintable() else repr(key).strip("'")
            keys.append(f'"{word}"' if not word or "." in word else word)
        try:
            data = data[key]
        except (TypeError, LookupError):
            data = None
    return f"`{'.'.join(keys)}`{items}" if keys else f"The specification{items}"


def shown(value: object) -> str:
    """A value of the specification, as short as it can be told."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value) if len(value) <= 60 else f"a text of {len(value)} characters"
        case datetime.date():
            return value.isoformat()
        case int() | float():
            return repr(value) if len(repr(value)) <= 60 else "a very long number"
        case Mapping():
            return "keys with values"
        case list() | tuple() | set():
            return "a list"
    return "nothing" if value is None else f"a {type(value).__name__}"
