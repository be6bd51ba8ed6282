"""What every engine offers: the columns of one table, and answers to expressions about it.

Expressions are built with ibis on tables without a connection and compiled to the engine's SQL; the
engine's own driver runs the text and hands back arrow batches. So one expression means the same
everywhere, and nothing but the answer leaves the engine.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.arrow import whole_array
from subspacedp.errors import DataError, without_values
from subspacedp.io.files import FIRST_LINE
from subspacedp.lazy import postpone
from subspacedp.tables import Label

T = TypeVar("T")

NAME = "subspacedp_source"
# The first line of a CSV file without a header is a record; what is quoted must look like a name.
_NAME_LIKE = re.compile(r"[A-Za-z_][\w .-]*")
_NEAR = 0.75


class Kind(StrEnum):
    """What a column holds, as far as tables are concerned."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    DATE = "date"
    TIME = "time"  # a date with a time of day
    BOOL = "bool"
    OTHER = "other"


# What ibis is told; sources give their columns this type, so that a cast that ibis leaves out as
# needless is needless in the engine too.
_IBIS = {
    Kind.TEXT: "string",
    Kind.WHOLE: "int64",
    Kind.REAL: "float64",
    Kind.DATE: "date",
    Kind.TIME: "timestamp",
    Kind.BOOL: "boolean",
    Kind.OTHER: "string",
}


class Opening(TypedDict):
    """The arguments of `open_source` that engines may need."""

    base: Path | None
    memory: str | None
    scratch: Path | None


class Source(ABC):
    """One table of confidential data in the engine that holds it.

    Close it, or use it in a `with` statement: spill files and connections end with it.

    Parameters
    ----------
    address
        Where it is, without a password.
    kinds
        The columns and what they hold.
    headed
        Whether the names of the columns are the first line of a text file.

    Attributes
    ----------
    code_names
        By column: what its codes are called, where the source says so.
    titles
        By column: what it is called for readers, where the source says so.
    """

    kind: ClassVar[str]
    dialect: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]] = ()  # how its addresses start; none for paths of files
    owner: ClassVar[str] = ""  # what holds its tables, in words

    decimal = "."  # the sign before the decimals of numbers that are text

    def __init__(self, address: str, kinds: Mapping[str, Kind], *, headed: bool = False) -> None:
        self.address = address
        self.headed = headed
        self.kinds = dict(kinds)
        self.code_names: Mapping[str, Mapping[str, str]] = {}
        self.titles: Mapping[str, str] = {}
        self._lists: dict[tuple[tuple[Label, int], ...], str] = {}

    @classmethod
    @abstractmethod
    def at(cls, address: str, table: str | None, **opening: Unpack[Opening]) -> Source:
        """Open an address; the arguments are those of `open_source`."""

    @classmethod
    def needs_table(cls, address: str) -> bool:
        """Whether an address is of several tables, one of which has to be named."""
        del address
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.kinds)

    @property
    def table(self) -> Any:
        """The table as an ibis expression."""
        ibis = need("ibis", "publish")

        return ibis.table({name: _IBIS[kind] for name, kind in self.kinds.items()}, name=NAME)

    def column(self, name: str, role: str) -> Kind:
        """What a column holds; an error that names the nearest one where there is none."""
        kind = self.kinds.get(name)
        if kind is not None:
            return kind
        names = [column for column in self.columns if _NAME_LIKE.fullmatch(column)]
        if self.headed and len(names) < len(self.columns):
            names = []
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=_NEAR)
        hint = f"; {FIRST_LINE}" if self.headed else "."
        if near:
            hint = f"; did you mean `{near[0]}`?"
        raise DataError(f"The source has no column `{name}` for {role}{hint}", column=name)

    def listing(self, codes: Mapping[Label, int]) -> Any:
        """Public labels as a table in the engine: columns `label` and `code`."""
        ibis = need("ibis", "publish")

        listed = tuple(codes.items())
        if listed not in self._lists:
            name = f"subspacedp_labels_{len(self._lists)}"
            self._list(name, codes)
            self._lists[listed] = name
        kind = "string" if isinstance(next(iter(codes)), str) else "int64"
        return ibis.table({"label": kind, "code": "int64"}, name=self._lists[listed])

    def batches(self, expression: Any, scratch: Path | None = None) -> Iterator[Any]:
        """The answer as arrow record batches; errors are told without the engine's words.

        With a scratch folder, for an answer that need not fit in memory: an engine that hands out
        whole answers alone writes it there first.
        """
        rows = iter(self._run(self._sql(expression), scratch))
        while (batch := self._asked(lambda: next(rows, None))) is not None:
            yield batch

    def keep(self, expression: Any) -> Any:
        """The answer as a table that later expressions can use.

        An engine that cannot keep it beside the data works it out again for every one of them.
        """
        return expression

    def _sql(self, expression: Any) -> str:
        ibis = need("ibis", "publish")
        postpone("ibis.backends.sql.compilers")  # of twenty engines, each with its grammar

        return str(ibis.to_sql(expression, dialect=self.dialect))

    def _asked(self, work: Callable[[], T], unexplained: str | None = None) -> T:
        sentence = f"The {self.kind} source did not answer the query"

        def ask() -> T:
            try:
                return work()
            except Exception as error:
                reason = self._explain(error)
                if reason is None:
                    raise
            raise DataError(f"{sentence}: {reason}.")

        return without_values(ask, unexplained or sentence)

    def _explain(self, error: Exception) -> str | None:
        """What an error of the engine means, without any of its words; None for no idea."""
        return None

    @abstractmethod
    def digest(self, text: Any) -> Any:
        """SHA-256 of the UTF-8 text in lower-case hexadecimal digits, as an expression."""

    @abstractmethod
    def close(self) -> None:
        """End the connection and remove what it left on disk; a second call does nothing."""

    @abstractmethod
    def _list(self, name: str, codes: Mapping[Label, int]) -> None:
        """Make labels and their codes known under a name."""

    @abstractmethod
    def _run(self, sql: str, scratch: Path | None) -> Iterable[Any]:
        """The arrow batches of a statement; `scratch` as in `batches`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Source({self.kind}, {self.address!r}, {len(self.kinds)} columns)"

    def __reduce__(self) -> str:
        raise TypeError("a source is a connection to confidential data and is not pickled")


def sql_name(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def name_parts(table: str) -> list[str]:
    """The parts of a table's name between the dots; a part in double quotes may have dots.

    >>> name_parts("public.persons"), name_parts('main."persons.2010"')
    (['public', 'persons'], ['main', 'persons.2010'])
    """
    if not re.fullmatch(r'("([^"]|"")+"|[^."]+)(\.("([^"]|"")+"|[^."]+))*', table):
        return table.split(".")
    parts = re.findall(r'"(?:[^"]|"")+"|[^."]+', table)
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in parts]


def need(module: str, extra: str) -> Any:
    """An optional library, or one sentence on how to install it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        pass
    raise DataError(
        f"Reading this source needs `{module}`; install it with `pip install subspacedp[{extra}]`."
    )


def literal(label: Label, dialect: str) -> str:
    """A public label as the engine's SQL writes it."""
    from sqlglot import expressions as sge

    return str(sge.convert(label).sql(dialect))


def values(name: str, codes: Mapping[Label, int], dialect: str, cast: Callable[[str], str]) -> str:
    """A common table expression with the labels and their codes."""
    rows = (f"({literal(label, dialect)}, {code})" for label, code in codes.items())
    kind = "string" if isinstance(next(iter(codes)), str) else "int64"
    label, code = f"CAST(label AS {cast(kind)}) AS label", f"CAST(code AS {cast('int64')}) AS code"
    listed = f"(VALUES {', '.join(rows)}) AS v(label, code)"
    return f"{name} AS (SELECT {label}, {code} FROM {listed})"  # noqa: S608 - escaped by sqlglot


def read_whole(batches: Iterable[Any], names: Sequence[str]) -> dict[str, Int64Array]:
    """The named columns of arrow batches as int64 arrays."""
    parts: dict[str, list[Int64Array]] = {name: [] for name in names}
    for batch in batches:
        for name in names:
            parts[name].append(whole_array(batch.column(batch.schema.get_field_index(name))))
    empty = np.zeros(0, np.int64)
    return {name: np.concatenate([empty, *columns]) for name, columns in parts.items()}


def rows_have(number: int) -> str:
    """The start of a sentence about rows of confidential data: how many, never which."""
    return "1 row has" if number == 1 else f"{number} rows have"
