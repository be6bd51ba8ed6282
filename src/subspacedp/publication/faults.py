"""What is wrong with a specification: its place and line, in one sentence, and what was meant."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from subspacedp.errors import SubspaceDPError
from subspacedp.frozen import frozen

Place = tuple[str | int, ...]  # the keys and list positions that lead to a value


class SpecificationError(SubspaceDPError):
    """A specification cannot be used; `where`, `line`, `others` and `every` say more."""


def missing_extra() -> SpecificationError:
    """The sentence for an installation without the extra."""
    return SpecificationError(
        "Reading a specification needs packages that are not installed; "
        "install `subspacedp[publish]`."
    )


# What the library calls it, and what a specification does; in this order.
YAML_WORDS = (
    (r"\bdecimals=None\b", "`decimals: null`"),
    (r"\bdecimals=(\d+)", r"`decimals: \1`"),
    (r"\bmechanism='(\w+)'", r"`mechanism: \1`"),
    (r"\btake '(\w+)' or '(\w+)'", r"take `mechanism: \1` or `mechanism: \2`"),
    (r"\bPureDP\([^()]*\)", "`privacy: {epsilon: ...}`"),
    (r"\bApproxDP\([^()]*\)", "`privacy: {epsilon: ..., delta: ...}`"),
    (r"\bZCDP\([^()]*\)", "`privacy: {rho: ...}`"),
    (r"\bGaussianDP\([^()]*\)", "`privacy: {mu: ...}`"),
    (r"\bReplaceOne\([^()]*\)", "`neighbours: replace-one`"),
    (r"\bAddRemoveOne\([^()]*\)", "`neighbours: add-remove-one`"),
    (r"\bcapped=True", "a bound on `data.records`"),
    (r"Margins\(domain, [^()]*\)", "`publish.margins` with `cells: false`"),
    (r"\bhold\(\.\.\.\)(, combined with &)?", "`hold`"),
)


def in_yaml(sentence: str) -> str:
    """A sentence of the library in the words of a specification.

    >>> in_yaml("Publish real values (decimals=None) with the k-norm one.")
    'Publish real values (`decimals: null`) with the k-norm one.'
    """
    for python, yaml in YAML_WORDS:
        sentence = re.sub(python, yaml, sentence)
    return sentence


@frozen
class Fault:
    """One thing that is wrong: the place, and a phrase that follows the place's name."""

    path: Place
    what: str
    rank: int = 1  # the lowest is told first


@frozen(kw_only=True)
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


def failure(faults: Sequence[Fault], loaded: Loaded) -> SpecificationError:
    """The error that tells the most useful fault, and how many others there are."""
    in_order = sorted(faults, key=lambda p: (p.rank, loaded.line(p.path) or 0))
    first = in_order[0]
    others = len({fault.path for fault in faults}) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    return SpecificationError(
        _sentence(first, loaded, more),
        where=_name(first.path, loaded.data).replace("`", ""),
        line=loaded.line(first.path),
        others=others,
        every=tuple((loaded.line(one.path), _sentence(one, loaded)) for one in in_order),
    )


def _sentence(fault: Fault, loaded: Loaded, more: str = "") -> str:
    end = f"?{more}" if fault.what.endswith("?") else f"{more}."
    return f"{loaded.where(fault.path)} {fault.what.removesuffix('?')}{end}"


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


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typing error turns into this one, or None.

    >>> nearest("lables", ["labels", "levels"]), nearest("ot", ["to", "sign"]), nearest("x", ["to"])
    ('labels', 'to', None)
    """
    folded = word.casefold().replace("_", "-")

    def rank(candidate: str) -> tuple[int, float]:
        other = candidate.casefold().replace("_", "-")
        return _distance(folded, other), -difflib.SequenceMatcher(None, folded, other).ratio()

    words = list(known)
    best = min(words, key=rank, default=None)
    if best is None:
        return None
    # A single letter is one typing error away from every other: no hint.
    if len(best) > 1 and rank(best)[0] <= max(1, min(len(best), len(word)) // 3):
        return best
    begun = [word for word in words if len(folded) > 2 and word.casefold().startswith(folded)]
    return begun[0] if len(begun) == 1 else None


def _distance(a: str, b: str) -> int:
    """Letters to insert, delete, replace or swap with their neighbour."""
    if abs(len(a) - len(b)) > 8 or max(len(a), len(b)) > 200:
        return max(len(a), len(b))
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]
