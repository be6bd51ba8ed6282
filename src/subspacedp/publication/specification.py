"""The specification of a publication, read, checked and normalised once.

Nothing here touches confidential data: a specification is read, checked and turned into domains,
held margins, budgets and neighbours before any data are opened. What may be written in several ways
(one table or several, records or counts, keys of a table or of all) has one form from here on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp import io
from subspacedp.errors import DomainError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, Inequalities
from subspacedp.io.sources import is_path
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.numbers import exact_decimal, exact_total
from subspacedp.publication.checks import document_faults, table_faults
from subspacedp.publication.code_lists import axis_of, check_columns, read_rows
from subspacedp.publication.document import (
    AxisEntry,
    Document,
    Engine,
    MarginEntry,
    Sum,
    TableEntry,
    TablePublish,
)
from subspacedp.publication.faults import (
    Loaded,
    Place,
    SpecificationError,
    failure,
    nearest,
)
from subspacedp.publication.fields import read_section
from subspacedp.publication.reading import load_yaml, read_text, scan
from subspacedp.tables import Axis, Domain, Label, Margin

VALUE = "value"  # the column of the figures, as in the files of a release
WHAT = "file of public figures"


def relative_target(
    margin: Margin, part: float, path: Path, *, at_least: float | None = None
) -> float:
    """What the margin of error of every figure of a margin may be: part × the smallest figure.

    Figures of one margin have noise of one width (with levels of unequal groups: of a few), so the
    smallest decides. Figures below `at_least` count as that; without it, zeros and figures below,
    as noise makes them, have no relative error and set no target.
    """
    figures = read_figures(path, margin).values()
    counted = [max(f, at_least) if at_least is not None else f for f in figures]
    smallest = min((figure for figure in counted if figure > 0), default=None)
    if smallest is None:
        raise SpecificationError(
            f"The {WHAT} `{path}` has no figure above zero, of which an error could be a part; "
            "give an `error` instead, or `at_least`."
        )
    return part * smallest


def read_limits(path: Path, margin: Margin) -> list[Any]:
    """The public limit of every total of a margin, a list for every level that it names.

    Parameters
    ----------
    path
        As for `read_figures`, with whole numbers.
    """
    figures = read_figures(path, margin)
    levels = [[str(label) for label in level.labels] for level in margin.levels if level.name]
    limits = np.empty([len(labels) for labels in levels], object)
    for place, labels in zip(np.ndindex(limits.shape), itertools.product(*levels), strict=True):
        limit = figures[labels]
        if not (limit.is_integer() and limit >= 0):
            raise SpecificationError(
                f"The {WHAT} `{path}` must have whole numbers from 0 as limits; {_words(labels)} "
                f"has {limit:g}."
            )
        limits[place] = int(limit)
    return limits.tolist()  # type: ignore[no-any-return]


def read_figures(path: Path, margin: Margin) -> dict[tuple[str, ...], float]:
    """The public figure of every cell of a margin, by its labels as text.

    Parameters
    ----------
    path
        A csv file with a header: a column for every level of the margin, and the figures in
        `value`, or else in the only further column. Columns beyond `value` are passed over.
    """
    header, rows = read_rows(path, WHAT)
    file = f"The {WHAT} `{path}`"
    check_columns(margin.names, header, file)
    others = [name for name in header if name not in margin.names]
    column = VALUE if VALUE in header or len(others) != 1 else others[0]
    check_columns([column], header, file)
    places = [header.index(name) for name in margin.names]
    figures: dict[tuple[str, ...], float] = {}
    for line, row in rows:
        labels, text = tuple(row[place] for place in places), row[header.index(column)]
        try:
            figure = float(text)
        except ValueError:
            figure = math.nan
        if not math.isfinite(figure):
            raise SpecificationError(
                f"{file} must have a finite number in column `{column}`; line {line} has '{text}'."
            )
        if labels in figures:
            raise SpecificationError(f"{file} has {_words(labels)} again in line {line}.")
        figures[labels] = figure
    levels = [[str(label) for label in level.labels] for level in margin.levels if level.name]
    wanted = dict.fromkeys(itertools.product(*levels))
    short = next((labels for labels in wanted if labels not in figures), None)
    if short is not None:
        raise SpecificationError(f"{file} has no figure for {_words(short)}.")
    further = next((labels for labels in figures if labels not in wanted), None)
    if further is not None:
        raise SpecificationError(f"{file} has {_words(further)}, which is no cell of the margin.")
    return figures


def _words(labels: tuple[str, ...]) -> str:
    """The labels of a cell, as a message has them."""
    return " × ".join(f"'{label}'" for label in labels) or "the grand total"


ONLY = "table"  # the name of the table of a specification without `tables`
COUNTS = "counts"  # the folder of the counts where sums stand beside them
RELEASE = "release"  # the folder of a publication, if none is named
KEY = "subspacedp"  # decides which records stay where the specification names no key


def read_specification(
    source: Specification | str | PathLike[str] | Mapping[str, Any] | Loaded,
    *,
    folder: str | Path | None = None,
) -> Specification:
    """Read and check a specification.

    Parameters
    ----------
    source
        The path of a YAML file, or its content as a mapping, or as `load_yaml` returned it; one
        that is read already stays as it is.
    folder
        What the paths in it are relative to: by default the folder of the file, or the current
        one for a mapping.

    Examples
    --------
    >>> specification = read_specification(
    ...     {
    ...         "data": {"source": "persons.parquet", "unit": "row"},
    ...         "axes": {"sex": {"labels": ["F", "M"]}, "age": {"bins": [0, 18, 65]}},
    ...         "hold": [["sex"]],
    ...         "privacy": {"epsilon": 0.192},
    ...     }
    ... )
    >>> table = specification.table()
    >>> table.domain(), table.held(), table.budget()
    (Domain(sex: 2, age: 3; 6 cells), hold('sex'), PureDP(epsilon=0.192))
    """
    if isinstance(source, Specification):
        return source
    path, loaded = _loaded(source)
    document = read_section(Document, loaded, *scan(loaded, may_be_empty=["decimals"]))
    home = folder if folder is not None else path.parent if path else "."
    checked = Specification(document=document, folder=Path(home), path=path, loaded=loaded)
    faults = list(document_faults(document))
    if document.axes_known:
        faults += table_faults(checked)
    if faults:
        raise failure(faults, loaded)
    return checked


def _loaded(source: Any) -> tuple[Path | None, Loaded]:
    """Plain data, and the file they are from, if there is one."""
    if isinstance(source, Mapping):
        path, loaded = None, Loaded(data=source)
    elif isinstance(source, Loaded):
        path, loaded = None, source
    elif isinstance(source, str | PathLike):
        path = Path(source)
        loaded = load_yaml(read_text(path, "specification"))
    else:
        raise SpecificationError(
            f"A specification is a path or a mapping; got a {type(source).__name__}."
        )
    if loaded.data is None:
        raise SpecificationError("The specification is empty.")
    if not isinstance(loaded.data, Mapping):
        raise SpecificationError(
            "The specification must be keys with values, such as `data:`; `subspacedp init` "
            "proposes one from data."
        )
    return path, loaded


@frozen(kw_only=True)
class DataSpecification:
    """Where the confidential data are, and how persons are counted in them.

    Parameters
    ----------
    address, table
        The path or address as it was written; the table within a database.
    counted
        Whether it is a table that was counted before, and no records of persons.
    count
        The column with the counts of such a table; None where an axis lies in `columns`.
    in_order
        Whether its cells are known by their place alone, in row-major order of the axes.
    unit
        Whose privacy is protected: the column that names a person, `row`, or `counts`.
    bound
        How the records of a person are bounded, as `tabulate` takes it; empty where every row is
        another person, and for counts.
    decimal
        The sign before the decimals of numbers that are text.
    """

    address: str
    table: str | None
    counted: bool
    count: str | None
    in_order: bool
    unit: str
    bound: Mapping[str, Any]
    decimal: str

    @property
    def bounded(self) -> bool:
        """Whether records of a person are bounded when they are tabulated."""
        return bool(self.bound)

    @classmethod
    def of(cls, document: Document) -> DataSpecification:
        """From the section `data`, in whichever form it is."""
        data, counts = document.data, document.data.counts
        if counts is not None:
            return cls(
                address=counts.source,
                table=counts.table,
                counted=True,
                count=counts.value,
                in_order=counts.cells_in_order,
                unit=COUNTS,
                bound={},
                decimal=data.decimal,
            )
        bound = {
            "unit": data.person,
            "records": data.records,
            "per_cell": data.per_cell,
            "key": data.key or KEY,
            "without_unit": data.without_unit == "leave-out",
        }
        return cls(
            address=data.where,
            table=data.table,
            counted=False,
            count=None,
            in_order=False,
            unit=str(data.unit),
            bound={} if data.person is None else bound,
            decimal=data.decimal,
        )


@frozen(kw_only=True, eq=False, repr=False)
class Specification:
    """What is to be published, from which data, and under which promise. Public but for the data.

    Parameters
    ----------
    document
        The keys of the file with their values, as they were written.
    folder
        What paths are relative to.
    path
        The file, if there was one.
    """

    document: Document
    folder: Path
    path: Path | None = None
    loaded: Loaded = field(default_factory=lambda: Loaded(data=None))

    @cached_property
    def data(self) -> DataSpecification:
        """Where the confidential data are, and how persons are counted in them."""
        return DataSpecification.of(self.document)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return self.document.privacy.protected(self.document.data)

    @cached_property
    def tables(self) -> tuple[TableSpecification, ...]:
        """All tables, in order; the one of a specification without `tables` is called `table`."""
        if self.document.tables is None:
            return (TableSpecification.of(self, ONLY, self.document),)
        return tuple(
            TableSpecification.of(self, name, entry, "tables", name)
            for name, entry in self.document.tables.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(table.name for table in self.tables)

    def table(self, name: str | None = None) -> TableSpecification:
        """The table of that name; without a name, the only one."""
        if name is None and len(self.names) > 1:
            listed = ", ".join(f"`{known}`" for known in self.names)
            raise SpecificationError(f"The specification has several tables: {listed}; name one.")
        for table in self.tables:
            if name in (None, table.name):
                return table
        near = nearest(str(name), self.names)
        hint = f"; did you mean `{near}`?" if near else "."
        raise SpecificationError(f"The specification has no table `{name}`{hint}")

    @property
    def target(self) -> Path:
        """The folder of the publication."""
        return self.folder / (self.document.publish.to or RELEASE)

    @property
    def source(self) -> Path | str:
        """Where the confidential data are: a path, or an address."""
        address = self.data.address
        return self.folder / Path(address).expanduser() if is_path(address) else address

    @property
    def ledger(self) -> Path | str | None:
        """Where the ledger is that pays: a path, or an address; None where none does."""
        paying = self.document.budget
        if paying is None:
            return None
        return paying.ledger if "://" in paying.ledger else self.folder / paying.ledger

    @property
    def engine(self) -> str | None:
        """What makes the blocks of large tables: None for threads, "dask", or an address."""
        engine = self.document.engine
        return engine.dask if isinstance(engine, Engine) else engine

    def column(self, axis: str) -> str:
        """The column of the data that an axis is read from."""
        return self.document.axes[axis].column or axis

    def as_dict(self) -> dict[str, Any]:
        """The keys that were given, as plain data; `read_specification` takes it back."""
        return self.document.as_dict()

    def __repr__(self) -> str:
        name = f"{self.path.name!r}, " if self.path else ""
        return f"Specification({name}tables: {', '.join(self.names)})"


@frozen(kw_only=True, eq=False, repr=False)
class TableSpecification:
    """One table of a specification, and the library objects that it asks for.

    Parameters
    ----------
    specification, name
        Where it is from, and what it is called.
    entry, place
        The section with its keys, and where that stands in the file.
    axes, hold, sums, mechanism, publish
        Its keys, those of the whole file where it has none of its own.
    share
        The part of the whole budget for this table, its sums included.
    """

    specification: Specification
    name: str
    entry: Document | TableEntry
    place: Place
    axes: Mapping[str, AxisEntry]
    hold: tuple[tuple[str, ...], ...]
    sums: Mapping[str, Sum]
    mechanism: str
    publish: TablePublish
    share: Fraction

    @classmethod
    def of(
        cls, specification: Specification, name: str, entry: Document | TableEntry, *place: str
    ) -> TableSpecification:
        """The table of a section; keys that are not given there are those of the file."""
        document = specification.document
        return cls(
            specification=specification,
            name=name,
            entry=entry,
            place=place,
            axes={axis: document.axes[axis] for axis in entry.axes},
            hold=entry.hold,
            sums=entry.sums,
            mechanism=entry.mechanism or document.mechanism,
            publish=document.publish.updated(entry.publish or document.publish),
            share=Fraction(1) if entry.share is None else exact_decimal(entry.share),
        )

    def place_of(self, *path: str) -> Place:
        """Where a key stands in the file: with the table, or above for all."""
        section: Any = self.entry
        for key in path:
            if key not in section.given:
                return path
            section = getattr(section, key)
        return (*self.place, *path)

    @property
    def margins_alone(self) -> bool:
        """Whether noise is designed for the margins, and no table of cells is built."""
        return self.publish.cells is False

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The further margins that are published."""
        return tuple(entry.margin for entry in self.publish.entries)

    @property
    def has_targets(self) -> bool:
        """Whether a margin says how far off its figures may be."""
        return any(entry.has_target for entry in self.publish.entries)

    def targets(self, domain: Domain) -> tuple[float | None, ...] | None:
        """What the margin of error of each margin's worst figure is at most; None without any."""
        return tuple(
            self._target(i, entry, domain) for i, entry in enumerate(self.publish.entries)
        ) if self.has_targets else None  # fmt: skip

    @property
    def folder(self) -> Path:
        """The folder of the release."""
        whole = self.specification.target
        return whole / self.name if self.place else whole

    def release_folder(self, of: str | None = None) -> str:
        """The folder of the counts, or of one of the sums, below that of the publication.

        It is empty for the only release of a publication.
        """
        if self.place:
            return self.name if of is None else f"{self.name}-{of}"
        return of or (COUNTS if self.sums else "")

    @property
    def from_data(self) -> tuple[str, ...]:
        """The axes whose labels are read off the confidential data."""
        return tuple(name for name, axis in self.axes.items() if axis.from_data)

    @cached_property
    def levels(self) -> dict[str, tuple[str, int]]:
        """By the name of every level: its axis, and how many steps it is above the labels."""
        return {
            level: (axis, step)
            for axis, entry in self.axes.items()
            for step, level in enumerate((axis, *entry.level_names))
        }

    @property
    def groupings(self) -> dict[str, str]:
        """By the name of every grouping: its axis."""
        return {
            grouping: axis for axis, entry in self.axes.items() for grouping in entry.grouping_names
        }

    def grouped(self, margin: Sequence[str]) -> str | None:
        """The first grouping that a margin names; None where it names levels alone."""
        return next((name for name in margin if name in self.groupings), None)

    def domain(self, labels: Mapping[str, Sequence[Label]] | None = None) -> Domain:
        """The public shape of the table.

        Parameters
        ----------
        labels
            For every axis with `labels: from-data`, and for no other, the labels found.
        """
        known = dict(labels or {})
        unknown = next((name for name in known if name not in self.from_data), None)
        if unknown is not None:
            raise SpecificationError(
                f"Labels are passed for `{unknown}`, which is no axis with `labels: from-data`."
            )
        return Domain([self._axis(name, axis, known) for name, axis in self.axes.items()])

    def held(self) -> Held:
        """What is held exact."""
        return Held(tuple(dict.fromkeys(self.hold)))

    def inequalities(self, domain: Domain) -> Inequalities | None:
        """What is publicly known of its counts; None where nothing is said."""
        given = self.entry.inequalities
        if given is None:
            return None
        at: Place = ("inequalities",)
        try:
            limits: dict[tuple[str, ...], Any] = {}
            for i, entry in enumerate(given.at_most):
                at = ("inequalities", "at_most", i)
                limits[entry.margin] = entry.limit
                if entry.path is not None:
                    path = self.specification.folder / entry.path
                    limits[entry.margin] = read_limits(path, domain.margin(*entry.margin))
                Inequalities(at_most={entry.margin: limits[entry.margin]}).limits_on(domain)
            at = ("inequalities", "part_of")
            known = Inequalities(at_most=limits, part_of=given.part_of)
            known.pairs_on(domain)
        except (InvariantError, SpecificationError) as error:
            where = self.specification.loaded.where((*self.place, *at))
            raise SpecificationError(f"{where}: {error}", **error.evidence) from None
        return known

    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return self.specification.neighbours

    def budget(self, of: str | None = None) -> Budget:
        """The budget of the table's counts, or of one of its sums.

        Guarantees
        ----------
        1. The budgets of the counts and the sums of all tables add up to at most the budget of the
           specification.
        """
        if self.specification.document.privacy.least is not None:
            raise SpecificationError(
                "The budget is the least that meets all targets, which `plan` finds."
            )
        if of is not None and of not in self.sums:
            raise SpecificationError(f"The table `{self.name}` has no sum `{of}`.")
        part = (
            1 - exact_total(entry.share for entry in self.sums.values())
            if of is None
            else exact_decimal(self.sums[of].share)
        )
        return self.specification.document.privacy.budget.part(self.share * part)

    def _target(self, number: int, entry: MarginEntry, domain: Domain) -> float | None:
        if entry.relative is None:
            return entry.error
        path = self.specification.folder / str(entry.relative.about)
        try:
            return relative_target(
                domain.margin(*entry.margin),
                entry.relative.error,
                path,
                at_least=entry.relative.at_least,
            )
        except SpecificationError as error:
            place = (*self.place_of("publish", "margins"), number, "relative")
            at = self.specification.loaded.where(place)
            raise SpecificationError(f"{at}: {error}", **error.evidence) from None

    def clipped_value(self, of: str) -> io.ClippedValue:
        """The value that one of the sums adds up, and its public range."""
        entry = self.sums[of]
        return io.ClippedValue(
            column=entry.column or of,
            lower=entry.lower,
            upper=entry.upper,
            unit=entry.unit,
            missing=entry.missing,
            where=self.specification.loaded.where((*self.place, "sums", of)),
        )

    def _axis(self, name: str, entry: AxisEntry, known: Mapping[str, Sequence[Label]]) -> Axis:
        if entry.from_data:
            if name not in known:
                raise SpecificationError(
                    f"The labels of axis `{name}` are to be read from the data; pass them."
                )
            labels = list(known[name])
            if len(set(labels)) < len(labels):
                # Which one is repeated stays with the data.
                raise SpecificationError(f"The labels found for axis `{name}` are not distinct.")
            return axis_of(name, entry, self.specification.folder, labels)
        loaded = self.specification.loaded
        try:
            return axis_of(name, entry, self.specification.folder)
        except DomainError as error:
            given = (key for key in ("levels", "groupings") if getattr(entry, key))
            at = loaded.where(("axes", name, next(given, "labels")))
            raise SpecificationError(f"{at}: {error}") from None
        except SpecificationError as error:
            raise SpecificationError(
                f"{loaded.where(('axes', name, 'labels'))}: {error}", **error.evidence
            ) from None

    def __repr__(self) -> str:
        return f"TableSpecification({self.name!r}, axes: {', '.join(self.axes)})"
