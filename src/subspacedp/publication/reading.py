"""Reading a specification: YAML with the line of every value, code lists, and one-sentence errors.

The text is parsed into events by PyYAML's safe loader and given its meaning here, because YAML 1.1
and 1.2 disagree about what `no`, `007`, `1e-6` or `12:30` are. What they read differently, or read
as something that a label cannot be, is an error that asks for quotes.
"""

from __future__ import annotations

import csv
import datetime
import difflib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

from subspacedp.errors import SubspaceDPError
from subspacedp.privacy.numbers import exact_decimal

__all__ = [
    "CodeList",
    "Loaded",
    "Place",
    "Problem",
    "SpecificationError",
    "failure",
    "load_yaml",
    "missing_extra",
    "nearest",
    "plain_scalar",
    "problems_of",
    "read_code_list",
    "read_text",
    "scan",
    "shown",
    "source_problem",
]

Place = tuple[str | int, ...]  # the keys and list positions that lead to a value

DEEPEST = 16  # a specification nests seven deep; what nests deeper is something else
# In an address; a specification is passed around, and is no place for one.
PASSWORD = re.compile(r"\w+://[^/@\s]*:[^@\s]*@|[?&;\s](password|pwd)=", re.IGNORECASE)
DATABASE = re.compile(
    r"(postgres|postgresql)://|spark:|.*\.(duckdb|db)$", re.IGNORECASE | re.DOTALL
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}
FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}
NOTHING = {"", "~", "null", "Null", "NULL"}
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
REAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,6})?")
# Numbers and dates of YAML 1.1 (octal, hexadecimal, base 60, underscores) that a reader takes for
# text, or the other way about.
TRAP = re.compile(
    r"[-+]?0[0-9_.:]+([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+|[-+]?[0-9][0-9_]*_[0-9_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?"
    r"|[-+]?[0-9.]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


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


# ------------------------------------------------------------------------------------- sentences


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


def source_problem(source: str, table: str | None) -> str | None:
    """What is wrong with the path or address of data; None when nothing is."""
    if PASSWORD.search(source):  # which must not be repeated
        return "has a password in it; leave it to the environment of the database"
    database = DATABASE.match(source)
    if not database and SCHEME.match(source):
        return "is an address of no known kind; known are paths, postgresql:// and spark:"
    if database and table is None:
        return "needs `table` beside it for a database"
    return None


# ------------------------------------------------------------------------------------------ YAML


def read_text(path: Path, what: str) -> str:
    """The text of a public file, in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecificationError(f"There is no {what} `{path}`.", file=str(path)) from None
    except (OSError, ValueError) as error:
        reason = "is not text in UTF-8" if isinstance(error, UnicodeError) else "cannot be read"
        raise SpecificationError(f"The {what} `{path}` {reason}.", file=str(path)) from None


def load_yaml(text: str) -> Loaded:
    """Plain data from YAML, or the first thing that is not plain."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise missing_extra() from None
    try:
        events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        builder = _Builder(events)
        data = builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = error.problem or error.context or "it cannot be parsed"
        raise SpecificationError(
            f"The specification is not valid YAML{at}: {reason}.",
            line=mark.line + 1 if mark else None,
        ) from None
    except yaml.YAMLError:
        raise SpecificationError(
            "The specification has a character that YAML does not allow; save it as plain text."
        ) from None
    loaded = Loaded(data=data, lines=builder.lines, texts=builder.texts)
    if builder.problems:
        raise failure(builder.problems, loaded)
    return loaded


class _Builder:
    """Plain data from PyYAML's events; neither aliases nor tags, so nothing grows or runs."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.lines: dict[Place, int] = {}
        self.texts: dict[Place, str] = {}
        self.problems: list[Problem] = []

    def document(self) -> Any:
        kind = ""
        data, documents = None, 0
        for event in self.events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
            elif kind not in {"StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"}:
                value = self.value(event, ())
                data = value if documents == 1 else data
        if documents > 1:
            self.problems.append(Problem((), "must be one YAML document; remove the line `---`"))
        return data

    def value(self, event: Any, path: Place) -> Any:
        kind = type(event).__name__
        self.lines.setdefault(path, event.start_mark.line + 1)
        if len(path) > DEEPEST:
            raise failure(
                [Problem(path[:3], "is nested too deeply")], Loaded(data=None, lines=self.lines)
            )
        if kind == "AliasEvent" or event.anchor is not None:
            self.wrong(path, "uses `&` or `*`, which a specification does not know; write it out")
        if kind == "ScalarEvent":
            return self.scalar(event, path)
        if kind == "AliasEvent":
            return None
        if event.tag is not None:
            self.wrong(path, "has a YAML tag; write the value without `!`")
        return self.mapping(path) if kind == "MappingStartEvent" else self.sequence(path)

    def sequence(self, path: Place) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Place) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            line = event.start_mark.line + 1
            if type(event).__name__ != "ScalarEvent" or event.tag is not None:
                raise failure(
                    [Problem(path, f"has a key (line {line}) that is not a plain word")],
                    Loaded(data=None, lines=self.lines),
                )
            key, trap = _meaning(event)
            if trap or not isinstance(key, str | int) or isinstance(key, bool):
                self.lines.setdefault((*path, event.value), line)
                self.wrong(
                    (*path, event.value),
                    f"is a key that YAML reads as {_read_as(key, trap)}; put it in quotes",
                )
                key = event.value
            place = (*path, key)
            if key in items:
                self.wrong(place, f"is given twice, again in line {line}")
            self.lines.setdefault(place, line)
            items[key] = self.value(next(self.events), place)
        return items

    def scalar(self, event: Any, path: Place) -> Any:
        if event.tag not in {None, "!", "tag:yaml.org,2002:str"}:
            self.wrong(path, "has a YAML tag; write the value without `!`")
            return event.value
        value, trap = _meaning(event)
        if trap:
            self.wrong(path, f"is {_read_as(value, trap)} to YAML; put `{event.value}` in quotes")
        elif not isinstance(value, str):
            self.texts[path] = event.value
            if isinstance(value, float) and Fraction(event.value) != exact_decimal(value):
                self.wrong(
                    path,
                    f"has more digits than a number can keep; write at most 15, not {event.value}",
                )
        return value

    def wrong(self, path: Place, what: str) -> None:
        self.problems.append(Problem(path, what, rank=0))


def _meaning(event: Any) -> tuple[Any, bool]:
    plain = event.tag is None and event.style is None
    return plain_scalar(event.value) if plain else (event.value, False)


def plain_scalar(text: str) -> tuple[Any, bool]:
    """What a word without quotes means, and whether YAML's readers disagree about it.

    >>> plain_scalar("county"), plain_scalar("1e-6"), plain_scalar("no"), plain_scalar("007")
    (('county', False), (1e-06, False), (False, False), ('007', True))
    """
    if text in NOTHING:
        return None, False
    if text in TRUE or text in FALSE:
        return text in TRUE, False
    if WHOLE.fullmatch(text) and len(text) <= 400:
        return int(text), False
    if REAL.fullmatch(text) and abs(float(text)) != float("inf"):
        return float(text), False
    return text, bool(TRAP.fullmatch(text) or WHOLE.fullmatch(text))


def _read_as(value: object, trap: bool) -> str:
    if trap:
        return "a number or a date"
    return {bool: "true or false", float: "a number", type(None): "nothing"}[type(value)]


# ---------------------------------------------------------------------- what is wrong with data


def scan(loaded: Loaded, may_be_empty: Iterable[str]) -> list[Problem]:
    """Values that are nothing, and keys that are neither text nor whole numbers."""
    allowed, problems = set(may_be_empty), []

    def visit(value: Any, path: Place) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str | int) or isinstance(key, bool):
                    problems.append(Problem(path, f"has the key {shown(key)}; put it in quotes"))
                else:
                    visit(item, (*path, key))
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                visit(item, (*path, i))
        elif value is None and (not path or path[-1] not in allowed):
            text = loaded.texts.get(path)
            hint = f"put `{text}` in quotes" if text else "give it a value or leave it out"
            problems.append(Problem(path, f"is empty; {hint}"))

    visit(loaded.data, ())
    return problems


def problems_of(
    errors: Iterable[Mapping[str, Any]],
    loaded: Loaded,
    known: Callable[[Place], Sequence[str]],
    elsewhere: Callable[[str], str | None],
) -> list[Problem]:
    """Our problems for pydantic's errors.

    Parameters
    ----------
    errors
        What `ValidationError.errors()` lists.
    known
        The keys that may stand at a place.
    elsewhere
        Where else a key belongs, in words.
    """
    problems: list[Problem] = []
    meant: set[Place] = set()  # keys that are missing because they are misspelt
    for error in errors:
        path = _path(error["loc"], loaded.data)
        kind, context = error["type"], error.get("ctx", {})
        if kind == "too_short" and error["input"]:
            continue  # pydantic counts the items that are right; those that are not are told
        if kind == "extra_forbidden":
            near = nearest(str(path[-1]), known(path[:-1]))
            if near:
                meant.add((*path[:-1], near))
            problems.append(_unknown(path, near, elsewhere(str(path[-1])), known(path[:-1])))
        elif kind == "said":
            problems.append(Problem((*path, *context["at"]), context["what"]))
        else:
            text = loaded.texts.get(path, shown(error["input"]).strip("'"))
            what = _phrase(kind, context, error["input"], text)
            problems.append(Problem(path, what, rank=2 if kind == "missing" else 1))
    return [p for p in problems if p.rank != 2 or p.path not in meant]


def _unknown(path: Place, near: str | None, home: str | None, known: Sequence[str]) -> Problem:
    if near:
        return Problem(path, f"is not a known key; did you mean `{near}`?", rank=0)
    if home:
        return Problem(path, f"is not a known key here; {home}", rank=0)
    listed = ", ".join(f"`{key}`" for key in known)
    return Problem(path, f"is not a known key; known here are {listed}", rank=0)


def _path(loc: Sequence[str | int], data: Any) -> Place:
    """The place of an error: its location without the names of pydantic's unions."""
    path: list[str | int] = []
    for number, key in enumerate(loc):
        last = number == len(loc) - 1
        keyed = isinstance(data, Mapping)
        found = key in data if keyed else isinstance(data, list | tuple) and isinstance(key, int)
        if found or (last and keyed and key != "[key]"):
            path.append(key)
            data = data[key] if found else None
    return tuple(path)


def _phrase(kind: str, context: Mapping[str, Any], value: Any, text: str) -> str:
    got = f"; got {shown(value)}"
    match kind:
        case "missing":
            return "is missing"
        case "label" if isinstance(value, bool | float | datetime.date):
            return f"is not a label to YAML; put `{text}` in quotes"
        case "label":
            return f"must be text or a whole number of 64 bits{got}"
        case "string_type" | "invalid_key" if isinstance(value, bool | int | float | datetime.date):
            return f"must be text; put `{text}` in quotes"
        case "string_type":
            return f"must be text{got}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "int_type":
            return f"must be a whole number{got}"
        case "float_type" | "finite_number":
            return f"must be a finite number{got}"
        case "bool_type":
            return f"must be true or false{got}"
        case "tuple_type":
            return f"must be a list, in brackets{got}"
        case "dict_type" | "model_type":
            return f"must be keys with values{got}"
        case "literal_error":
            options = re.findall(r"'([^']*)'", context["expected"])
            near = nearest(value, options) if isinstance(value, str) else None
            hint = f"; did you mean `{near}`?" if near else ""
            return f"must be one of {', '.join(f'`{option}`' for option in options)}{got}{hint}"
        case "greater_than":
            return f"must be above {context['gt']:g}{got}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}{got}"
        case "less_than":
            return f"must be below {context['lt']:g}{got}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}{got}"
    return f"cannot be used{got}"


# ------------------------------------------------------------------------------------ code lists


@dataclass(frozen=True, kw_only=True)
class CodeList:
    """A public list of labels and, for every level, the group of each of them."""

    labels: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]


def read_code_list(path: Path, axis: str, levels: Sequence[str] = ()) -> CodeList:
    """Read labels and groups from a csv file with a header, separated by commas.

    Parameters
    ----------
    path
        The file; UTF-8, with or without a byte order mark.
    axis
        Labels are in the column of this name, or else in the first one. They are text as it
        stands there: `01001` keeps its zero.
    levels
        The columns that give the groups, finest first.
    """
    rows = _rows(path)
    if not rows:
        raise SpecificationError(f"The code list `{path}` is empty.")
    header = rows[0][1]
    if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
        raise SpecificationError(
            f"The code list `{path}` must be separated by commas; its first line is not."
        )
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise SpecificationError(f"The code list `{path}` has two columns `{repeated}`.")
    for name in levels:
        if name not in header:
            near = nearest(name, header)
            columns = ", ".join(f"`{column}`" for column in header)
            hint = f"did you mean `{near}`?" if near else f"its columns are {columns}."
            raise SpecificationError(f"The code list `{path}` has no column `{name}`; {hint}")
    where = header.index(axis) if axis in header else 0
    if header[where] in levels:
        raise SpecificationError(
            f"The code list `{path}` has no column for the labels: its first column is the level "
            f"`{header[where]}`."
        )
    lines: dict[str, int] = {}
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise SpecificationError(
                f"The code list `{path}` has {len(row)} fields in line {line} and "
                f"{len(header)} columns."
            )
        for name in (header[where], *levels):
            if not row[header.index(name)]:
                raise SpecificationError(
                    f"The code list `{path}` has nothing in column `{name}` in line {line}."
                )
        label = row[where]
        if label in lines:
            raise SpecificationError(
                f"The code list `{path}` has the label '{label}' in line {lines[label]} and again "
                f"in line {line}."
            )
        lines[label] = line
    if not lines:
        raise SpecificationError(f"The code list `{path}` has no labels.")
    return CodeList(
        labels=tuple(lines),
        levels={
            name: tuple(row[header.index(name)] for _, row in rows[1:]) for name in levels
        },
    )  # fmt: skip


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with its line."""
    reader = csv.reader(io.StringIO(read_text(path, "code list"), newline=""), strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        raise SpecificationError(
            f"The code list `{path}` is not valid csv in line {reader.line_num}."
        ) from None
