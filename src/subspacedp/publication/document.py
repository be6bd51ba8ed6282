"""All keys of a specification: what each may hold, and what its section says against itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from subspacedp.errors import BudgetError, DomainError
from subspacedp.io import bin_labels
from subspacedp.io.foreign import is_list
from subspacedp.io.periods import PERIODS, Periods, is_day
from subspacedp.io.sources import HAS_PASSWORD, has_password, is_path, source_fault
from subspacedp.mechanisms.registry import OPTIONS, REPLACED
from subspacedp.privacy import AddRemoveOne, Budget, Neighbours, ReplaceOne
from subspacedp.privacy.budgets import budget_of_fields
from subspacedp.problem import MAX_DECIMALS
from subspacedp.publication.faults import nearest
from subspacedp.publication.fields import (
    DAY,
    Edges,
    Labels,
    Levels,
    Margins,
    Persons,
    Positive,
    Says,
    Section,
    Share,
    Text,
    Texts,
    Titles,
    Value,
    Weights,
    field,
    only,
    said,
)
from subspacedp.release.facts import LONGEST
from subspacedp.tables import Label

FROM_DATA = "from-data"  # labels that are read off the data
DASK = "dask"
ROW = "row"  # every row is another person
ARRAYS = (".npy", ".zarr")
ONE_TABLE = ("hold", "inequalities", "sums")  # keys that stand in each of `tables`
MAX_LIMIT = 2**52 - 1  # sums of float64 beyond it may be rounded
LEAST = "least"  # of a budget: what meets the targets of all margins
AT_MOST = re.compile(r"^at most \+?(\d+(\.\d+)?) ?%$")  # of `cells`
if TYPE_CHECKING:
    MechanismName = str
    PeriodName = str
else:
    MechanismName = Literal[("auto", *OPTIONS)]
    PeriodName = Literal[PERIODS]


class Counts(Section):
    """A table that was counted before.

    One row per cell, several cells side by side in a row, or all cells in order.
    """

    source: Text = field(
        description="Path of the counted table, relative to this file, or an address such as "
        "postgresql://host/database. An array (.npy or .zarr) has the cells in row-major order of "
        "the axes. Confidential."
    )
    value: Text | None = field(
        default=None,
        description="The column with the counts; none where an axis lists `columns`, and for "
        "arrays.",
    )
    table: Text | None = field(
        default=None,
        description="The table within a database, or the sheet of a workbook that has several.",
    )
    in_order: bool | None = field(
        default=None,
        description="Whether Parquet has one row for every cell in row-major order of the axes, so "
        "that no labels are read; arrays always do.",
    )

    def _check(self) -> None:
        _check_source(self.source, self.table)
        array = self.source.casefold().endswith(ARRAYS)
        if array and self.in_order is False:
            raise said("cannot be false for an array", "in_order")
        if self.in_order and not array and not is_path(self.source):
            raise said("is for paths; a database has no order", "in_order")
        if self.cells_in_order and self.table is not None:
            raise said("is for databases", "table")

    @property
    def cells_in_order(self) -> bool:
        """Whether the cells are known by their place alone."""
        return bool(self.in_order) or self.source.casefold().endswith(ARRAYS)


class Data(Section):
    """The confidential data: records of persons, or a table that was counted before."""

    rule: ClassVar[dict[str, Any]] = {
        "oneOf": [{"required": ["source", "unit"]}, {"required": ["counts"]}],
        "dependentRequired": {"unit": ["source"], "table": ["source"], "key": ["source"]},
    }

    source: Text | None = field(
        default=None,
        description="Path of the records, relative to this file, or an address such as "
        "postgresql://host/database or spark:local[2] with `table`. Confidential.",
    )
    unit: Text | None = field(
        default=None,
        description="Whose privacy is protected: the column that says which person a record is "
        "of, or the word `row` where every row is another person.",
    )
    records: Persons = field(
        default=1,
        description="The most records that one person has in a table. With `unit` a column, "
        "further records are left out; with `counts` it is a claim about the data.",
    )
    per_cell: Persons | None = field(
        default=None,
        description="The most of these records that fall in one cell; all of them, if not given.",
    )
    table: Text | None = field(
        default=None,
        description="The table within a database, or the sheet of a workbook that has several.",
    )
    key: Text | None = field(
        default=None,
        description="Any text; decides which records stay of a person who has more than `records`. "
        "It need not be secret, and must not be chosen in view of the data.",
    )
    without_unit: Literal["refuse", "leave-out"] | None = field(
        default=None,
        description="What to do with records that do not say which person they are of: `refuse`, "
        "if not given; `leave-out` of everything, held totals included.",
    )
    decimal: Literal[".", ","] = field(
        default=".",
        description="The sign before the decimals of numbers that are text, as in csv files.",
    )
    counts: Counts | None = field(
        default=None, description="A table that was counted before, instead of records."
    )

    def _check(self) -> None:
        if self.counts is not None:
            for name in ("source", "unit", "table", "key", "without_unit"):
                if getattr(self, name) is not None:
                    raise said("is for records and cannot stand beside `counts`", name)
        elif self.source is None:
            raise said("needs `source` and `unit`, or `counts`")
        elif self.unit is None:
            raise said("needs `unit`: a column that names the person, or `row`")
        else:
            _check_source(self.source, self.table)
        if self.unit == ROW and self.records > 1:
            raise said("must be 1 with `unit: row`, where every row is another person", "records")
        for name in ("key", "without_unit"):
            if self.unit == ROW and getattr(self, name) is not None:
                raise said("needs a column as `unit`", name)
        if self.per_cell is not None and self.per_cell > self.records:
            raise said(
                f"must be at most `records`; got {self.per_cell} > {self.records}", "per_cell"
            )

    @property
    def where(self) -> str:
        """The path or address of the data."""
        return self.counts.source if self.counts else self.source or ""

    @property
    def person(self) -> str | None:
        """The column that names the person; None where every row is one, and for counts."""
        return None if self.unit == ROW else self.unit


def _check_source(source: str, table: str | None) -> None:
    problem = source_fault(source, table)
    if problem is not None:
        raise said(problem, "source")


class AxisEntry(Section):
    """One direction of the tables: where its labels come from and how they group."""

    rule: ClassVar[dict[str, Any]] = {
        "oneOf": [{"required": [name]} for name in ("labels", "bins", "by", "columns")],
        "dependentSchemas": {
            "columns": {
                "properties": dict.fromkeys(("column", "missing", "other"), False),
            },
        },
        "dependentRequired": {"first": ["by"], "last": ["by"], "names": ["labels"]},
    }

    title: Titles | None = field(
        default=None,
        description="What readers see instead of the name, which stays the name of the column in "
        "files: a text such as `Age in years`, or one for each name where the axis has levels, "
        "such as {county: County of residence, state: State}.",
    )
    column: Text | None = field(
        default=None, description="The column of the data; the axis' own name, if not given."
    )
    labels: Labels | None = field(
        default=None,
        description="All labels: a list; codes of the data and the names they are published "
        "under; the path of a public code list (csv, or a spreadsheet), whose column named like "
        "the axis, or else the first, has the labels; or the word `from-data`, which reads them "
        "off the confidential data and protects them not at all.",
    )
    names: Text | None = field(
        default=None,
        description="The column of the code list with the names that labels are published under; "
        "the data have the codes.",
    )
    levels: Levels | None = field(
        default=None,
        description="Coarser levels, finest first: columns of the code list, or for every level "
        "its groups and the labels in them; for `by`, coarser periods such as [year].",
    )
    groupings: Levels | None = field(
        default=None,
        description="Classifications that nest in no level, such as school districts or a grid: "
        "columns of the code list, blank for a label in no group, or for every grouping its groups "
        "and the labels in them.",
    )
    bins: Edges | None = field(
        default=None,
        description="Increasing edges for a column of numbers: [0, 5, 18] makes `0-4`, `5-17` and "
        '`18+`; or for a column of dates, days in quotes: ["2020-01-01", "2021-01-01"].',
    )
    by: PeriodName | None = field(
        default=None,
        description="For a column of dates or times: the period that rows are counted by. A year, "
        "quarter or month needs `first` and `last`.",
    )
    first: Value | None = field(
        default=None, description="The first period: 2015, 2015-Q1 or 2015-01. Public."
    )
    last: Value | None = field(default=None, description="The last period. Public.")
    columns: dict[Value, Text] | None = field(
        default=None,
        description="For a wide table of counts: every label and the column with its counts.",
    )
    missing: Value | None = field(
        default=None,
        description="The public label of rows that have nothing here, such as `not stated`; if not "
        "given, such rows are refused. It joins the labels where it is none of them.",
    )
    other: Value | None = field(
        default=None,
        description="The public label of rows whose value has no place here, such as `all other`; "
        "if not given, such rows are refused. It joins the labels where it is none of them.",
    )

    def _check(self) -> None:
        ways = ("labels", "bins", "by", "columns")
        given = [name for name in ways if getattr(self, name) is not None]
        if not given:
            raise said("needs `labels`, `bins`, `by` or `columns`")
        if len(given) > 1:
            raise said(f"cannot stand beside `{given[0]}`", given[1])
        if self.columns is not None:
            for name in ("column", "missing", "other"):
                if getattr(self, name) is not None:
                    raise said("cannot stand beside `columns`", name)
            if not self.columns:
                raise said("must not be empty", "columns")
        if self.bins is not None:
            _check_bins(self.bins)
        self._check_periods()
        if self.names is not None and self.code_list is None:
            raise said("needs a code list as `labels`, of which it is a column", "names")
        if self.from_data and self.other is not None:
            raise said(
                "cannot stand beside `labels: from-data`, which takes all there are", "other"
            )
        if self.missing is not None and self.missing == self.other:
            raise said("must be another label than `missing`", "other")
        self._check_labels()
        self._check_levels()
        self._check_groups_of("groupings", "grouping", self.groupings)

    def _check_periods(self) -> None:
        for name in ("first", "last"):
            given = getattr(self, name) is not None
            if given and self.by not in ("year", "quarter", "month"):
                raise said("is for `by: year`, `quarter` or `month`", name)
            if not given and self.by in ("year", "quarter", "month"):
                raise said(f"needs `first` and `last`, the public range of the {self.by}s", "by")
        try:
            _ = self.periods
        except DomainError as error:
            raise said(f"cannot be used: {str(error).removesuffix('.')}", "first") from None

    @cached_property
    def periods(self) -> Periods | None:
        """The periods that rows are counted by."""
        if self.by is None:
            return None
        ends = (None if end is None else str(end) for end in (self.first, self.last))
        return Periods(self.by, *ends)

    def _check_labels(self) -> None:
        text = self.labels if isinstance(self.labels, str) else None
        if text is not None and text != FROM_DATA and not is_list(text):
            near = f"; did you mean `{FROM_DATA}`?" if nearest(text, [FROM_DATA]) else ""
            raise said(
                "must be a list in brackets, the path of a code list that ends in `.csv` or as "
                f"spreadsheets do, or `{FROM_DATA}`{near}",
                "labels",
            )
        at = "columns" if self.columns is not None else "labels"
        written = self.labels if isinstance(self.labels, Mapping) else self.inline or ()
        if len({isinstance(label, str) for label in written}) > 1:
            raise said("must be all text or all whole numbers; put the numbers in quotes", at)
        seen: set[Label] = set()
        for label in written:
            if label in seen:
                raise said(f"has the label {label!r} more than once", at)
            seen.add(label)

    def _check_levels(self) -> None:
        if self.levels is None or self.periods is None:
            self._check_groups_of("levels", "level", self.levels)
            return
        known = self.periods.coarser
        if isinstance(self.levels, Mapping) or any(name not in known for name in self.levels):
            wanted = f"must be coarser periods: {', '.join(known)}" if known else "has no place"
            raise said(f"{wanted} with `by: {self.by}`", "levels")
        if list(self.levels) != [name for name in known if name in self.levels]:
            raise said("must have the finer period first, and each once", "levels")

    def _check_groups_of(self, key: str, one: str, given: Levels | None) -> None:
        if given is None:
            return
        if self.from_data:
            raise said("needs labels that are known; `from-data` has none", key)
        if self.code_list is not None and isinstance(given, Mapping):
            raise said("must be a list of columns of the code list", key)
        if self.code_list is None and not isinstance(given, Mapping):
            raise said(f"must give every {one} its groups, as the labels are listed here", key)
        repeated = next((name for name, n in Counter([*given]).items() if n > 1), None)
        if repeated is not None:
            raise said(f"has the {one} `{repeated}` more than once", key)

    @property
    def code_list(self) -> str | None:
        """The path of the code list, where there is one."""
        return self.labels if isinstance(self.labels, str) and not self.from_data else None

    @property
    def from_data(self) -> bool:
        """Whether the labels are read off the confidential data."""
        return self.labels == FROM_DATA

    @property
    def inline(self) -> tuple[Label, ...] | None:
        """The labels that stand in the specification itself, without `missing` and `other`."""
        if self.columns is not None:
            return tuple(self.columns)
        if self.bins is not None:
            return bin_labels(self.bins)
        if self.periods is not None:
            return self.periods.labels
        if isinstance(self.labels, Mapping):
            return tuple(dict.fromkeys(self.labels.values()))
        return self.labels if isinstance(self.labels, tuple) else None

    @property
    def extra(self) -> tuple[Label, ...]:
        """The labels of rows that have no other place."""
        return tuple(label for label in (self.other, self.missing) if label is not None)

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the coarser levels, finest first."""
        return tuple(self.levels or ())

    @property
    def grouping_names(self) -> tuple[str, ...]:
        """The names of the groupings."""
        return tuple(self.groupings or ())

    @property
    def above(self) -> tuple[str, ...]:
        """The names of the coarser levels and of the groupings."""
        return (*self.level_names, *self.grouping_names)

    @property
    def grouped(self) -> Mapping[str, Mapping[Label, tuple[Label, ...]]]:
        """By grouping: the groups and the labels in them; none where a code list has them."""
        return self.groupings if isinstance(self.groupings, Mapping) else {}

    def titles(self, name: str) -> Mapping[str, str]:
        """The titles of an axis of that name and of its levels, by their names."""
        return {name: self.title} if isinstance(self.title, str) else self.title or {}

    @property
    def groups(self) -> Mapping[str, Mapping[Label, tuple[Label, ...]]]:
        """By level: the groups and the labels in them; none where a code list has them."""
        return self.levels if isinstance(self.levels, Mapping) else {}


def _check_bins(edges: Sequence[Any]) -> None:
    if len(edges) < 2:
        raise said("needs at least two edges", "bins")
    if any(isinstance(edge, str) for edge in edges):
        if not all(map(is_day, edges)):
            raise said("must be all numbers, or all days in quotes such as '2024-12-31'", "bins")
        if any(b <= a for a, b in pairwise(edges)):
            raise said("must increase", "bins")
        return
    for a, b in pairwise(edges):
        if b <= a:
            raise said(f"must increase; got {b:g} after {a:g}", "bins")
    if max(abs(edge) for edge in edges) >= 2**53:
        raise said("must be below 2**53 in size", "bins")


class Relative(Section):
    """An error in parts of figures that everybody knows."""

    error: Positive = field(description="The part of a figure that its error may be, such as 0.02.")
    about: Text | None = field(
        default=None,
        description="Path of a csv file of public figures, relative to this file: the labels of "
        "the margin in columns of its levels' names, and the figures in `value`.",
    )
    at_least: Positive | None = field(
        default=None,
        description="Smaller figures, and those of zero, count as this one; if not given, figures "
        "of zero set no target.",
    )

    def _check(self) -> None:
        if self.about is None:
            raise said("needs `about`, a csv file of public figures that errors are parts of")


class MarginEntry(Section):
    """A margin that is published, and how far off its figures may be."""

    margin: Texts = field(description="Its axes or levels; [] for the grand total.")
    error: Annotated[Positive, Says(minimum=1e-9, maximum=1e15)] | None = field(
        default=None,
        description="Its target: what the 95 % margin of error of its worst figure is at most.",
    )
    relative: Relative | None = field(
        default=None, description="Its target, in parts of public figures."
    )

    def _check(self) -> None:
        if self.error is not None and self.relative is not None:
            raise said("cannot stand beside `error`; a margin has one target", "relative")

    @property
    def has_target(self) -> bool:
        """Whether it says how far off figures may be."""
        return self.error is not None or self.relative is not None


Cells = Annotated[
    bool | Annotated[str, Says(pattern=AT_MOST.pattern)],
    only(
        lambda value: isinstance(value, bool) or AT_MOST.search(str(value)),
        "must be true, false or a limit such as `at most +5 %`",
    ),
]
Format = Literal["csv", "parquet", "xlsx", "sdmx-csv"]
PublishedMargins = tuple[
    Annotated[
        Texts | MarginEntry,
        only(
            lambda value: isinstance(value, Mapping | list | tuple),
            "must be a list of axes or levels, in brackets, or keys such as "
            "{margin: [county], error: 20}",
        ),
    ],
    ...,
]


class TablePublish(Section):
    """In which form a table is written."""

    decimals: Annotated[
        Annotated[int, Says(minimum=0, maximum=MAX_DECIMALS)] | None,
        Says(_published={"type": ["integer", "null"], "minimum": 0, "maximum": MAX_DECIMALS}),
    ] = field(
        default=None,
        description="Digits after the point that add up exactly, 0 for whole numbers; null for "
        "real values.",
    )
    cells: Cells = field(
        default=True,
        description="Whether the cells are published. With false, noise is designed for exactly "
        "the `margins`, and a table of all cells is never built, so it may have any size. With "
        "`at most +5 %`, noise is designed for the margins too as long as the mean squared error "
        "of the cells grows by no more than that.",
    )
    margins: PublishedMargins = field(
        default=(),
        description="Further margins to publish beside the cells; with `cells: false`, all that is "
        "published. Noise is designed for all of them, unless `mechanism` says otherwise. Each is "
        "a list of axes or levels, or keys: `margin`, and its target as `error` or `relative`.",
    )
    weights: Weights | None = field(
        default=None,
        description="What the squared error of each margin counts for when the noise is shared "
        "out, one number a margin, the cells first where they are published; if not given, every "
        "table's error counts in multiples of the least it could have.",
    )
    non_negative: bool = field(
        default=False,
        description="Whether to publish, beside the unbiased values, a second table of whole "
        "numbers without negative ones, which is biased.",
    )
    records: bool = field(
        default=False,
        description="Whether to publish that second table also as synthetic records, one row for "
        "each one that it counts, with weights that make their published margins unbiased.",
    )
    values: Literal["csv", "npy", "parquet", "zarr"] | None = field(
        default=None,
        description="How the values of the cells are written: `csv`, with labels and standard "
        "errors, and the same in Parquet; or the values alone, in the order of the cells, as "
        "`npy`, `parquet` or `zarr`. If not given, `csv` for up to 2,000,000 cells and `npy` "
        "beyond.",
    )
    formats: tuple[Format, ...] = field(
        default=(),
        description="What the tables are written as beside `csv` and `parquet`, which are always "
        "there: `xlsx`, an accessible spreadsheet; `sdmx-csv`, with its structure.",
    )

    @property
    def entries(self) -> tuple[MarginEntry, ...]:
        """The margins, in one form."""
        return tuple(
            entry if isinstance(entry, MarginEntry) else MarginEntry(margin=entry)
            for entry in self.margins
        )

    @property
    def cells_at_most(self) -> float | None:
        """What the squared error of the cells may be, in multiples of the least; None: no limit."""
        limit = AT_MOST.search(str(self.cells))
        return None if limit is None else 1 + float(limit[1]) / 100


class Publish(TablePublish):
    """What is written, where, and in which form."""

    to: Text | None = field(
        default=None,
        description="Folder of the release, relative to this file; `release` if not given. With "
        "`tables`, each table has a folder of its own in it.",
    )
    sign: Text | None = field(
        default=None, description="Path of the private key (pem) that signs the release."
    )


class Sum(Section):
    """Sums of a value over the records of each cell; each value clipped to a public range."""

    column: Text | None = field(
        default=None, description="The column with the value; the sum's own name, if not given."
    )
    lower: float = field(description="Values below are moved up to it. Public.")
    upper: float = field(description="Values above are moved down to it. Public.")
    unit: Positive = field(default=1.0, description="Values are rounded to multiples of it.")
    missing: float | None = field(
        default=None,
        description="The public value, from `lower` to `upper`, of rows that have none or no "
        "finite number; if not given, such rows are refused.",
    )
    share: Share = field(
        description="The part of the table's budget for these sums; the counts keep the rest."
    )

    def _check(self) -> None:
        if self.lower >= self.upper:
            raise said(f"must be below `upper`; got {self.lower:g} >= {self.upper:g}", "lower")
        if self.missing is not None and not self.lower <= self.missing <= self.upper:
            raise said("must be from `lower` to `upper`", "missing")
        most = max(abs(self.lower), abs(self.upper)) / self.unit
        if not 0.5 < most < 2**31 - 1:
            raise said(f"must cut the range into 1 to 2**31 units; got {most:.3g} of them", "unit")


def replaced(data: Mapping[str, Any]) -> None:
    """Refuse what earlier versions had for noise at several levels, and say what to write now."""
    now = (
        "write `mechanism: marginals` (or leave it out), and under `publish: margins` the tables "
        "of the levels that count, such as [state, sex]"
    )
    if data.get("mechanism") in REPLACED:
        raise said(f"may no longer be `{data['mechanism']}`; {now}", "mechanism")
    if "levels" in data:
        raise said(f"is no longer a key here; {now}", "levels")
    if "importance" in data:
        raise said(f"is now `weights` under `publish`, one number a table; {now}", "importance")


LimitValue = Annotated[
    Text | Annotated[int, Says(minimum=0, maximum=MAX_LIMIT)],
    only(
        lambda value: is_list(value) if isinstance(value, str) else type(value) in (int, float),
        "must be a whole number, or the path of a csv file with one for every total",
    ),
]


class LimitEntry(Section):
    """A public limit of every total of a margin."""

    margin: Texts = field(description="Its axes or levels; [] for the grand total.")
    limit: LimitValue = field(
        description="What every total is at most: a whole number; or the path of a csv file of "
        "public limits, relative to this file, with the labels of the margin in columns of its "
        "levels' names, and the limits in `value`."
    )

    @property
    def path(self) -> str | None:
        """The file of the limits, where they are in one."""
        return self.limit if isinstance(self.limit, str) else None


Pair = Annotated[
    tuple[Value, Value],
    Says(minItems=2, maxItems=2),
    only(
        lambda value: isinstance(value, list | tuple) and len(value) == 2,
        "must be a part and its whole, such as [households, persons]",
    ),
]


class InequalitiesEntry(Section):
    """What everybody knows of the counts, from public sources and never from the data.

    Counts are not negative, which an empty section says by itself.
    """

    at_most: tuple[LimitEntry, ...] = field(
        default=(), description="Margins whose totals have public limits."
    )
    part_of: tuple[Pair, ...] = field(
        default=(),
        description="Pairs of labels of one axis, a part and its whole: in every combination of "
        "the other axes the part counts at most as much as the whole.",
    )


class TableEntry(Section):
    """One of several tables that share the data and the budget."""

    axes: Annotated[tuple[Text, ...], Says(minItems=1)] = field(
        description="The axes of this table, of those that `axes` defines."
    )
    hold: Margins = field(default=(), description="Margins that are published exactly.")
    inequalities: InequalitiesEntry | None = field(
        default=None, description="What is publicly known of this table's counts."
    )
    share: Share | None = field(
        default=None,
        description="The part of the budget for this table; all shares together are at most 1.",
    )
    mechanism: MechanismName | None = field(
        default=None, description="As above, for this table alone."
    )
    publish: TablePublish | None = field(
        default=None, description="As above, for this table alone; other keys stay as above."
    )
    sums: dict[Text, Sum] = field(
        default_factory=dict, description="Clipped sums of a value beside the counts."
    )

    refuse = staticmethod(replaced)


Amount = Annotated[
    Literal["least"] | Positive,
    only(
        lambda value: value == LEAST or not isinstance(value, str),
        f"must be a number, or `{LEAST}`",
    ),
]


class Privacy(Section):
    """What is promised, and for which change of the data."""

    rule: ClassVar[dict[str, Any]] = {
        "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}, {"required": ["mu"]}],
        "dependentRequired": {"delta": ["epsilon"]},
    }
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "delta", "rho", "mu")

    epsilon: Amount | None = field(
        default=None,
        description="ε of (ε, δ)-differential privacy, or of pure where δ is absent; `least` for "
        "the least with which all targets of `publish.margins` are met, as for `rho` and `mu`.",
    )
    delta: Annotated[Positive, Says(exclusiveMaximum=1)] | None = field(
        default=None, description="δ, beside `epsilon`; below 1, and best far below 1/persons."
    )
    rho: Amount | None = field(
        default=None, description="ρ of zero-concentrated differential privacy."
    )
    mu: Amount | None = field(default=None, description="μ of Gaussian differential privacy.")
    neighbours: Literal["replace-one", "add-remove-one", "add-remove"] = field(
        default="replace-one",
        description="The change that is protected: one person's records replaced by others, or "
        "added or removed (`add-remove` for short).",
    )
    exactly: bool | None = field(
        default=None,
        description="With replace-one: whether every person has exactly `records` records, so "
        "that the grand total cannot change. If not given, so for one record and not for several.",
    )

    def _check(self) -> None:
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if not given:
            raise said("needs a budget: `epsilon`, `epsilon` and `delta`, `rho`, or `mu`")
        if len(given) > 1:
            raise said(f"cannot stand beside `{given[0]}`; a budget is one of the two", given[1])
        if self.delta is not None and self.epsilon is None:
            raise said("needs `epsilon` beside it", "delta")
        if self.exactly is not None and self.neighbours != "replace-one":
            raise said("is for `neighbours: replace-one`", "exactly")

    @property
    def least(self) -> str | None:
        """The parameter that is to be as small as targets allow, if one is."""
        return next((n for n in self.parameters if getattr(self, n) == LEAST), None)

    @property
    def budget(self) -> Budget:
        """The whole budget; where the least is asked for, one of its kind."""
        given = {name: getattr(self, name) for name in self.parameters}
        budget = budget_of_fields(**given | ({self.least: 1.0} if self.least else {}))
        if budget is None:
            raise BudgetError("A budget needs `epsilon`, `epsilon` and `delta`, `rho`, or `mu`.")
        return budget

    def protected(self, data: Data) -> Neighbours:
        """The change of the data that is protected."""
        if self.neighbours == "replace-one":
            return ReplaceOne(records=data.records, per_cell=data.per_cell, exactly=self.exactly)
        return AddRemoveOne(records=data.records, per_cell=data.per_cell)


class Engine(Section):
    """A cluster that makes large tables."""

    dask: Text = field(
        description="Address of a Dask scheduler, such as tcp://host:8786. Workers and scheduler "
        "get the keys of the noise: trust them as this machine."
    )


class Ledger(Section):
    """The account that the budget is taken from."""

    ledger: Text = field(description="Path or address of the ledger.")
    account: Text = field(description="The account within the ledger.")

    def _check(self) -> None:
        if has_password(self.ledger):
            raise said(HAS_PASSWORD, "ledger")


class PublicationFacts(Section):
    """What is said of the publication beside its figures; it is part of every certificate."""

    creator: Text | None = field(default=None, description="Who publishes it.")
    licence: Text | None = field(
        default=None, description="The terms of use: a name such as CC-BY-4.0, or an address."
    )
    version: Text | None = field(
        default=None, description='Of the publication, in quotes where it is a number: "1.0".'
    )
    date: Annotated[Text, Says(_published={"type": "string", "pattern": DAY})] | None = field(
        default=None,
        description="The day of publication, in quotes; the day on which the noise is drawn, if "
        "not given.",
    )

    def _check(self) -> None:
        for name in ("creator", "licence", "version"):
            if len(getattr(self, name) or "") > LONGEST:
                raise said(f"must have at most {LONGEST:,} signs", name)
        if self.date is not None and not is_day(self.date):
            raise said("must be a day in quotes, such as '2026-03-31'", "date")


class About(Section):
    """What the tables are about, and what is publicly known of their size."""

    text: Text | None = field(
        default=None, description="What the tables are about and who publishes them."
    )
    persons: Annotated[int, Says(minimum=1, maximum=10**12)] | None = field(
        default=None,
        description="About how many persons the data are of, from a public source and not from "
        "the data: the plan says how many cells are expected to drown in noise.",
    )


AboutText = Annotated[
    Text | About,
    only(
        lambda value: isinstance(value, str | Mapping),
        "must be a text or `{text: ..., persons: ...}`",
    ),
]


EngineName = Annotated[
    Literal["dask"] | Engine,
    only(
        lambda value: value == DASK or isinstance(value, Mapping),
        f"must be `{DASK}` or `{{{DASK}: address}}`",
    ),
]


def _for_one_table(given: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """What JSON Schema asks of a file without `tables`; with them, keys may stand apart."""
    return {"if": {"not": {"required": ["tables"]}, **given}, "then": then}


def _publishing(properties: dict[str, Any]) -> dict[str, Any]:
    section = {"properties": properties, "required": list(properties)}
    return {"properties": {"publish": section}, "required": ["publish"]}


class Document(Section):
    """The specification of a publication: data, axes, what is held, the budget, the files."""

    rule: ClassVar[dict[str, Any]] = {
        "not": {"anyOf": [{"required": ["tables", name]} for name in ONE_TABLE]},
        "allOf": [
            _for_one_table(
                _publishing({"cells": {"const": False}}),
                _publishing({"margins": {"minItems": 1}}),
            ),
        ],
    }
    only_one_table: ClassVar[tuple[str, ...]] = ONE_TABLE

    title: Text | None = field(default=None, description="Title of the report.")
    about: AboutText | None = field(
        default=None,
        description="What the tables are about and who publishes them; or that as `text`, and how "
        "many `persons` the data are of where that is publicly known.",
    )
    contact: Text | None = field(default=None, description="Whom readers may ask.")
    publication: PublicationFacts | None = field(
        default=None, description="Who publishes it, on what terms, and when."
    )
    data: Data = field(description="The confidential data.")
    axes: Annotated[dict[Text, AxisEntry], Says(minProperties=1)] = field(
        description="The axes, by name; a table has one cell for every combination of labels."
    )
    hold: Margins = field(
        default=(),
        description="Margins that are published exactly: each a list of axes or levels, [] for "
        "the grand total. What is held is not protected.",
    )
    inequalities: InequalitiesEntry | None = field(
        default=None,
        description="What is publicly known of the counts, and never learnt from the data: "
        "intervals use it, and the certificate states it.",
    )
    privacy: Privacy = field(description="The budget, for all tables together.")
    mechanism: MechanismName = field(
        default="auto", description="How noise and held totals are brought together."
    )
    publish: Publish = field(
        default_factory=Publish, description="What is written, where, and in which form."
    )
    sums: dict[Text, Sum] = field(
        default_factory=dict, description="Clipped sums of a value beside the counts."
    )
    tables: Annotated[dict[Text, TableEntry], Says(minProperties=1)] | None = field(
        default=None, description="Several tables from the same data and budget, by name."
    )
    budget: Ledger | None = field(
        default=None, description="The account that the budget is taken from."
    )
    engine: EngineName | None = field(
        default=None,
        description="What makes the blocks of large tables: `dask` for a cluster of processes on "
        "this machine, or the address of a scheduler; threads of one process, if not given.",
    )

    @property
    def share(self) -> float | None:
        """The part of the budget for a file's only table: all of it."""
        return None

    @property
    def about_text(self) -> str:
        """What the tables are about, for the report."""
        return (self.about.text if isinstance(self.about, About) else self.about) or ""

    @property
    def persons(self) -> int | None:
        """How many persons the data are of, where that is publicly known."""
        return self.about.persons if isinstance(self.about, About) else None

    @property
    def axes_known(self) -> bool:
        """Whether every axis of a table is one that `axes` defines."""
        return all(set(table.axes) <= set(self.axes) for table in (self.tables or {}).values())

    refuse = staticmethod(replaced)

    def _check(self) -> None:
        if self.tables is not None:
            for name in self.only_one_table:
                if getattr(self, name):
                    raise said("must stand in each of the `tables`", name)
            for name in ("margins", "weights"):
                if getattr(self.publish, name):
                    raise said("must stand in each of the `tables`", "publish", name)
