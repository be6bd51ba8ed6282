"""The specification of a publication, and the library objects that it asks for.

Nothing here touches confidential data: a specification is read, checked and turned into domains,
held margins, budgets and neighbours before any data are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from subspacedp.errors import BudgetError, DomainError
from subspacedp.invariants import Held
from subspacedp.privacy import Budget
from subspacedp.privacy.numbers import exact_decimal
from subspacedp.publication.budgeting import budget_of, neighbours_of, rest_of, total_of
from subspacedp.publication.reading import (
    Loaded,
    Place,
    Problem,
    SpecificationError,
    failure,
    load_yaml,
    missing_extra,
    nearest,
    problems_of,
    read_code_list,
    read_text,
    scan,
)
from subspacedp.publication.schema import (
    ROW,
    AxisEntry,
    Document,
    Publish,
    Sum,
    home_of,
    known_keys,
)
from subspacedp.tables import Axis, ClippedSums, Domain, Label, Neighbours
from subspacedp.tables.domain import RESERVED

try:
    from pydantic import ValidationError
except ImportError:
    raise missing_extra() from None

__all__ = ["ONLY", "Specification", "TableSpecification", "read_specification"]

ONLY = "table"  # the name of the table of a specification without `tables`
RELEASE = "release"  # the folder of a release, if none is named
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.]+://|spark:")
FOLDER_NAME = re.compile(r"\w[\w.-]*")


def read_specification(
    source: str | Path | Mapping[str, Any], *, folder: str | Path | None = None
) -> Specification:
    """Read and check a specification.

    Parameters
    ----------
    source
        The path of a YAML file, or its content as a mapping.
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
    if isinstance(source, Mapping):
        path, loaded = None, Loaded(data=source)
    elif isinstance(source, str | Path):
        path = Path(source)
        loaded = load_yaml(read_text(path, "specification"))
    else:
        raise SpecificationError(
            f"A specification is a path or a mapping; got a {type(source).__name__}."
        )
    if loaded.data is None:
        raise SpecificationError("The specification is empty.")
    if not isinstance(loaded.data, Mapping):
        raise SpecificationError("The specification must be keys with values, such as `data:`.")
    problems = scan(loaded, may_be_empty=["decimals"])
    try:
        document = Document.model_validate(dict(loaded.data))
    except ValidationError as error:
        problems += problems_of(error.errors(include_url=False), loaded, known_keys, home_of)
    if problems:
        raise failure(problems, loaded)
    home = folder if folder is not None else path.parent if path else "."
    made = Specification(document=document, folder=Path(home), path=path, loaded=loaded)
    problems = list(_problems(made))
    if problems:
        raise failure(problems, loaded)
    return made


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Specification:
    """What is to be published, from which data, and under which promise. Public but for the data.

    Parameters
    ----------
    document
        The keys of the file with their values.
    folder
        What paths are relative to.
    path
        The file, if there was one.
    """

    document: Document
    folder: Path
    path: Path | None = None
    loaded: Loaded = field(default_factory=lambda: Loaded(data=None))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables; `table` for the one of a specification without `tables`."""
        return tuple(self.document.tables) if self.document.tables is not None else (ONLY,)

    @cached_property
    def tables(self) -> tuple[TableSpecification, ...]:
        """All tables, in order."""
        return tuple(TableSpecification(specification=self, name=name) for name in self.names)

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
    def source(self) -> Path | str:
        """Where the confidential data are: a path, or an address."""
        return self.resolve(self.document.data.where)

    def resolve(self, text: str) -> Path | str:
        """A path relative to the specification's folder, or an address as it stands."""
        return text if ADDRESS.match(text) else self.folder / Path(text).expanduser()

    def column(self, axis: str) -> str:
        """The column of the data that an axis is read from."""
        return self.document.axes[axis].column or axis

    @property
    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return neighbours_of(self.document.privacy, self.document.data)

    def as_dict(self) -> dict[str, Any]:
        """The keys that were given, as plain data; `read_specification` takes it back."""
        return self.document.model_dump(exclude_unset=True)

    def __repr__(self) -> str:
        name = f"{self.path.name!r}, " if self.path else ""
        return f"Specification({name}tables: {', '.join(self.names)})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableSpecification:
    """One table of a specification."""

    specification: Specification
    name: str

    @property
    def axes(self) -> dict[str, AxisEntry]:
        """The axes of this table, by name, in order."""
        document = self.specification.document
        if document.tables is None:
            return dict(document.axes)
        return {name: document.axes[name] for name in document.tables[self.name].axes}

    @property
    def hold(self) -> tuple[tuple[str, ...], ...]:
        """The margins that are published exactly."""
        document = self.specification.document
        return document.hold if document.tables is None else document.tables[self.name].hold

    @property
    def sums(self) -> dict[str, Sum]:
        """The clipped sums beside the counts, by name."""
        document = self.specification.document
        return document.sums if document.tables is None else document.tables[self.name].sums

    @property
    def mechanism(self) -> str:
        """`auto`, `projected` or `extended`."""
        document = self.specification.document
        own = document.tables[self.name].mechanism if document.tables is not None else None
        return own or document.mechanism

    @cached_property
    def publish(self) -> Publish:
        """What is written: the table's own keys, and those of the whole file."""
        document = self.specification.document
        own = document.tables[self.name].publish if document.tables is not None else None
        if own is None:
            return document.publish
        return document.publish.model_copy(
            update={key: getattr(own, key) for key in own.model_fields_set}
        )

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The further margins that are published."""
        return self.publish.margins

    @property
    def folder(self) -> Path:
        """The folder of the release."""
        document = self.specification.document
        whole = self.specification.folder / (document.publish.to or RELEASE)
        return whole if document.tables is None else whole / self.name

    @property
    def from_data(self) -> tuple[str, ...]:
        """The axes whose labels are read off the confidential data."""
        return tuple(name for name, axis in self.axes.items() if axis.from_data)

    def domain(self, labels: Mapping[str, Sequence[Label]] | None = None) -> Domain:
        """The public shape of the table.

        Parameters
        ----------
        labels
            For every axis with `labels: from-data`, and for no other, the labels found.
        """
        found = dict(labels or {})
        unknown = next((name for name in found if name not in self.from_data), None)
        if unknown is not None:
            raise SpecificationError(
                f"Labels are passed for `{unknown}`, which is no axis with `labels: from-data`."
            )
        return Domain([self._axis(name, axis, found) for name, axis in self.axes.items()])

    def held(self) -> Held:
        """What is held exact."""
        return Held(tuple(dict.fromkeys(self.hold)))

    def neighbours(self) -> Neighbours:
        """The change of the data that is protected."""
        return self.specification.neighbours

    @property
    def share(self) -> Fraction:
        """The part of the whole budget for this table, its sums included."""
        tables = self.specification.document.tables
        own = tables[self.name].share if tables is not None else None
        return Fraction(1) if own is None else exact_decimal(own)

    def budget(self, of: str | None = None) -> Budget:
        """The budget of the table's counts, or of one of its sums.

        Guarantees
        ----------
        1. The budgets of the counts and the sums of all tables add up to at most the budget of the
           specification.
        """
        if of is not None and of not in self.sums:
            raise SpecificationError(f"The table `{self.name}` has no sum `{of}`.")
        part = (
            rest_of(entry.share for entry in self.sums.values())
            if of is None
            else exact_decimal(self.sums[of].share)
        )
        return budget_of(self.specification.document.privacy, self.share * part)

    def sum_queries(self, domain: Domain) -> dict[str, ClippedSums]:
        """The clipped sums as queries on the domain, by name."""
        return {
            name: ClippedSums(domain, entry.column or name, entry.lower, entry.upper, entry.unit)
            for name, entry in self.sums.items()
        }

    def _axis(self, name: str, entry: AxisEntry, found: Mapping[str, Sequence[Label]]) -> Axis:
        if entry.from_data:
            if name not in found:
                raise SpecificationError(
                    f"The labels of axis `{name}` are to be read from the data; pass them."
                )
            labels = list(found[name])
            if len(set(labels)) < len(labels):
                # Which one is repeated stays with the data.
                raise SpecificationError(f"The labels found for axis `{name}` are not distinct.")
            return Axis(name, labels, from_data=True)
        loaded = self.specification.loaded
        try:
            return axis_of(name, entry, self.specification.folder)
        except DomainError as error:
            at = loaded.where(("axes", name, "levels" if entry.levels else "labels"))
            raise SpecificationError(f"{at}: {error}") from None
        except SpecificationError as error:
            raise SpecificationError(
                f"{loaded.where(('axes', name, 'labels'))}: {error}", **error.evidence
            ) from None

    def __repr__(self) -> str:
        return f"TableSpecification({self.name!r}, axes: {', '.join(self.axes)})"


def axis_of(name: str, entry: AxisEntry, folder: Path) -> Axis:
    """The axis that an entry describes; reads its code list."""
    if entry.code_list is not None:
        codes = read_code_list(folder / entry.code_list, name, entry.level_names)
        return Axis(name, codes.labels, levels=codes.levels)
    labels = entry.inline or ()
    levels, groups = {}, {}
    if isinstance(entry.levels, Mapping):
        for level, members in entry.levels.items():
            group_of = {label: group for group, inside in members.items() for label in inside}
            levels[level] = [group_of[label] for label in labels]
            groups[level] = list(members)
    return Axis(name, labels, levels=levels, groups=groups)


# ------------------------------------------------------------------- checks across the sections


def _problems(specification: Specification) -> Iterator[Problem]:
    document = specification.document
    yield from _names(document)
    yield from _data(document)
    for name, entry in document.axes.items():
        yield from _groups(name, entry)
    if document.tables is None:
        yield from _table(specification, ONLY, ())
        return
    known = True
    for name, table in document.tables.items():
        place: Place = ("tables", name)
        if not FOLDER_NAME.fullmatch(name):
            yield Problem(
                place, "must be a name of letters, digits, `_`, `-` and `.`, as a folder has it"
            )
        for i, axis in enumerate(table.axes):
            if axis not in document.axes:
                yield Problem((*place, "axes", i), _no_such("axis", axis, document.axes))
                known = False
            elif axis in table.axes[:i]:
                yield Problem((*place, "axes", i), f"names the axis `{axis}` a second time")
        if table.share is None and len(document.tables) > 1:
            yield Problem(place, "needs a `share` of the budget")
    if known:
        yield from _shares(specification)
        for name in document.tables:
            yield from _table(specification, name, ("tables", name))


def _names(document: Document) -> Iterator[Problem]:
    """Names of axes and levels are unique in the file, and not those of published columns."""
    seen: dict[str, str] = {}
    for axis, entry in document.axes.items():
        place: Place = ("axes", axis)
        levels: Place = (*place, "levels")
        if axis in RESERVED:
            yield Problem(place, f"may not be named `{axis}`, which is a column of every release")
        if axis in seen:
            yield Problem(place, f"has the name of a level of axis `{seen[axis]}`")
        if axis in entry.level_names:
            yield Problem(levels, f"has a level that is named like the axis, `{axis}`")
        for level in entry.level_names:
            if level in RESERVED:
                yield Problem(
                    levels, f"may not have a level `{level}`, which is a column of every release"
                )
            if level in seen:
                yield Problem(levels, f"has the level `{level}`, a name of axis `{seen[level]}`")
        seen.update(dict.fromkeys((axis, *entry.level_names), axis))


def _data(document: Document) -> Iterator[Problem]:
    counts, unit = document.data.counts, document.data.unit
    wide = [name for name, entry in document.axes.items() if entry.columns is not None]
    for name in wide:
        if counts is None:
            yield Problem(
                ("axes", name, "columns"), "is for a wide table of counts; give `data.counts`"
            )
    if len(wide) > 1:
        yield Problem(
            ("axes", wide[1], "columns"), f"can be given for one axis only; `{wide[0]}` has it"
        )
    if counts is not None and wide and counts.value is not None:
        yield Problem(
            ("data", "counts", "value"), f"cannot stand beside the columns of axis `{wide[0]}`"
        )
    if counts is not None and not wide and counts.value is None:
        yield Problem(("data", "counts"), "needs `value`, the column with the counts")
    for name, entry in document.axes.items():
        if unit not in (None, ROW) and (entry.column or name) == unit:
            yield Problem(("axes", name), f"cannot be the column `{unit}` that names the person")
        if entry.columns is not None:
            columns = list(entry.columns.values())
            twice = next((column for column in columns if columns.count(column) > 1), None)
            if twice is not None:
                yield Problem(("axes", name, "columns"), f"has the column `{twice}` twice")


def _groups(name: str, entry: AxisEntry) -> Iterator[Problem]:
    """Every label that stands in the file is in one group of every level."""
    if not isinstance(entry.levels, Mapping) or entry.inline is None:
        return
    place: Place = ("axes", name, "levels")
    fine = True
    for level, members in entry.levels.items():
        seen: dict[Label, Label] = {}
        for group, inside in members.items():
            for label in inside:
                if label not in entry.inline:
                    yield Problem(
                        (*place, level, group), _no_such("label", label, map(str, entry.inline))
                    )
                elif label in seen:
                    yield Problem(
                        (*place, level, group),
                        f"has the label {label!r}, which `{seen[label]}` has already",
                    )
                seen.setdefault(label, group)
        left = [label for label in entry.inline if label not in seen]
        if left:
            yield Problem((*place, level), f"has no group for the label {left[0]!r}")
        fine = fine and not left and set(seen) <= set(entry.inline)
    if fine:
        try:
            axis_of(name, entry, Path())
        except DomainError as error:
            yield Problem(place, f"cannot be used, as {_inner(error)}")


def _shares(specification: Specification) -> Iterator[Problem]:
    tables = specification.document.tables or {}
    total = total_of(table.share for table in tables.values() if table.share is not None)
    if total > 1:
        yield Problem(("tables",), f"has shares that add up to {_decimal(total)}, more than 1")
    folders: dict[str, str] = {}
    for table in specification.tables:
        folder = str(table.folder).casefold()
        if folder in folders:
            yield Problem(
                ("tables", table.name),
                f"would be written to the same folder as `{folders[folder]}`; give it another name",
            )
        folders.setdefault(folder, table.name)


def _table(specification: Specification, name: str, place: Place) -> Iterator[Problem]:
    table = specification.table(name)
    axis_of_level = {
        level: axis for axis, entry in table.axes.items() for level in (axis, *entry.level_names)
    }
    for i, margin in enumerate(table.hold):
        at: Place = (*place, "hold", i)
        yield from _margin(at, margin, axis_of_level)
        if set(margin) == set(table.axes):
            yield Problem(at, "holds every cell, so that nothing is left to protect")
    for i, margin in enumerate(table.margins):
        yield from _margin((*place, "publish", "margins", i), margin, axis_of_level)
    if table.mechanism == "extended" and table.publish.decimals is not None:
        own = specification.document.tables is None or (
            (entry := specification.document.tables[name].publish) is not None
            and "decimals" in entry.model_fields_set
        )
        yield Problem(
            (*(place if own else ()), "publish", "decimals"),
            "needs `mechanism: projected`; the extended one gives real values (null)",
        )
    if table.sums:
        yield from _sums(specification, table, place)
    else:
        yield from _budget(table, None)


def _sums(
    specification: Specification, table: TableSpecification, place: Place
) -> Iterator[Problem]:
    at: Place = (*place, "sums")
    if specification.document.data.counts is not None:
        yield Problem(at, "needs records; `data.counts` has none")
    for name in table.sums:
        if not FOLDER_NAME.fullmatch(name):
            yield Problem((*at, name), "must be a name of letters, digits, `_`, `-` and `.`")
    total = total_of(entry.share for entry in table.sums.values())
    if total >= 1:
        yield Problem(
            at, f"has shares that add up to {_decimal(total)}, which leaves nothing for the counts"
        )
        return
    for part in (None, *table.sums):
        yield from _budget(table, part)


def _budget(table: TableSpecification, of: str | None) -> Iterator[Problem]:
    try:
        table.budget(of)
    except BudgetError as error:
        yield Problem(("privacy",), f"cannot be used, as {_inner(error)}")


def _margin(
    place: Place, margin: Sequence[str], axis_of_level: Mapping[str, str]
) -> Iterator[Problem]:
    used: dict[str, str] = {}
    for name in margin:
        if name not in axis_of_level:
            yield Problem(place, _no_such("axis or level", name, axis_of_level))
            continue
        axis = axis_of_level[name]
        if axis in used:
            yield Problem(
                place,
                f"names `{name}` twice"
                if used[axis] == name
                else f"names `{used[axis]}` and `{name}`, which are levels of one axis, `{axis}`",
            )
        used[axis] = name


def _no_such(kind: str, name: object, known: Any) -> str:
    near = nearest(str(name), known)
    hint = f"; did you mean `{near}`?" if near else ""
    article = "an" if kind.startswith("a") else "a"
    return f"names `{name}`, which is not {article} {kind} here{hint}"


def _inner(error: Exception) -> str:
    """A sentence of the library within one of ours."""
    text = str(error).removesuffix(".")
    return text[:1].lower() + text[1:]


def _decimal(number: Fraction) -> str:
    """A sum of decimals, all digits; it always ends."""
    digits = 0
    while number * 10**digits % 1:
        digits += 1
    text = f"{int(number * 10**digits):0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
