"""The releases that a specification asks for: their designs, and how their data are counted.

A table is published by its cells or by margins alone, with sums beside its counts; what differs
between these is said here, so that a run, a plan or an audit treats all releases alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError, ReleaseError, SubspaceDPError
from subspacedp.invariants import Held, HeldValues
from subspacedp.io import (
    AxisColumn,
    ClippedValue,
    Source,
    Tabulated,
    labels_from_data,
    open_source,
    tabulate,
    tabulate_margins,
)
from subspacedp.mechanisms import default_name
from subspacedp.mechanisms.base import Options
from subspacedp.mechanisms.estimates import Accuracy
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.privacy import Budget
from subspacedp.publication.specification import Specification, TableSpecification
from subspacedp.queries import Cells, Margins, Query
from subspacedp.release import Design, design
from subspacedp.tables import Domain, Label

__all__ = [
    "MOST_CELLS",
    "CellsRelease",
    "Confidential",
    "MarginsRelease",
    "Progress",
    "ReleaseSpecification",
    "SumsRelease",
    "found_labels",
    "open_data",
    "public_domain",
    "releases_of",
    "tabulate_release",
]

Int64Array = npt.NDArray[np.int64]
Progress = Callable[[str], None]
MOST_CELLS = 2 * 10**8  # figures of one release: 1.6 GB of float64, and several such are needed
MAX_JOINT_CELLS = 10**7  # beyond, `auto` stays with noise on the cells, whose errors have few kinds
AUTO = "auto"
WORTH_WHILE = 1.01  # times less squared error: what noise for all tables must gain to be taken


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """The data of one release, as the engine counted them. Confidential: nothing is shown."""

    protected: Any
    everything: Any  # None where nothing was bounded
    dropped: int
    records: int

    @property
    def whole(self) -> Any:
        """The data of all records."""
        return self.protected if self.everything is None else self.everything

    def __repr__(self) -> str:
        return "Counted(hidden)"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Confidential:
    """The data of one release, checked; nothing of them is shown.

    Parameters
    ----------
    answers, full
        What is measured, and what held values come from, as `Mechanism.check` returns them.
    dropped, records
        How many records the bound left out, and how many there are.
    """

    answers: Int64Array
    full: Int64Array
    dropped: int
    records: int

    @property
    def pair(self) -> tuple[Int64Array, Int64Array]:
        """What a release is made from."""
        return self.answers, self.full

    def __repr__(self) -> str:
        return "Confidential(hidden)"


@dataclass(frozen=True, kw_only=True)
class ReleaseSpecification(ABC):
    """One release of a specification.

    Parameters
    ----------
    table
        The table in the specification.
    folder
        Its folder below that of the publication; empty when it is the only one.
    """

    table: TableSpecification
    folder: str

    counts: ClassVar[bool] = True  # whether its figures count persons' records
    cells: ClassVar[bool] = True  # whether every cell of the table is published

    @property
    def name(self) -> str:
        """What the release is called in reports."""
        return self.folder or self.table.name

    @property
    def prefix(self) -> str:
        """Before the names of its files."""
        return f"{self.folder}/" if self.folder else ""

    @property
    def specification(self) -> Specification:
        """Where it is from."""
        return self.table.specification

    @property
    def budget(self) -> Budget:
        """Its part of the budget."""
        return self.table.budget()

    @property
    def held(self) -> Held:
        """What is held exact."""
        return self.table.held()

    @property
    def margins(self) -> tuple[tuple[str, ...], ...]:
        """The margins that are published, beside the cells or by themselves."""
        return self.table.margins

    @property
    def held_margins(self) -> tuple[tuple[str, ...], ...]:
        """Held margins that get files of their own: where there are cells, these show them."""
        return ()

    @property
    def decimals(self) -> int | None:
        """Published digits after the point; None for real values."""
        return self.table.publish.decimals

    @property
    def non_negative(self) -> bool:
        """Whether the nearest table without negative values is published too."""
        return self.table.publish.non_negative

    @property
    def mechanism_name(self) -> str:
        """What the specification calls the mechanism."""
        return self.table.mechanism

    @property
    @abstractmethod
    def what(self) -> str:
        """Its figures, in words."""

    @abstractmethod
    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""

    @abstractmethod
    def count(
        self, domain: Domain, source: Source, progress: Progress, *, held_alone: bool = False
    ) -> Counted:
        """Have its data counted where they lie; if possible, only what is held."""

    def options(self, name: str | None = None) -> dict[str, Any]:
        """The arguments of `design` beyond the budget, for this or another mechanism."""
        return {
            "neighbours": self.specification.neighbours,
            "mechanism": self._mechanism(name or self.mechanism_name),
            "decimals": self.decimals,
            "capped": self.specification.data.bounded,
        }

    def _mechanism(self, name: str) -> str | Options:
        """What a mechanism's name stands for here."""
        return name

    def design(self, domain: Domain, name: str | None = None) -> Design:
        """The mechanism that the specification asks for, or another one for comparison."""
        self.check_size(domain)
        return design(self.query(domain), self.held, self.budget, **self.options(name))

    def check_files(self, domain: Domain) -> None:
        """Refuse held margins for which no file can be written: without cells nothing has them."""
        published = [domain.margin(*names) for names in self.margins]
        for names in self.held_margins:
            if not any(margin.determines(domain.margin(*names)) for margin in published):
                raise ReleaseError(
                    f"The table `{self.table.name}` holds {' × '.join(names) or 'the total'}, "
                    "which does not follow from any of the published margins; publish it or a "
                    "finer one, or do not hold it."
                )

    def check_size(self, domain: Domain) -> None:
        """Refuse what is too large to publish."""
        if domain.size > MOST_CELLS:
            raise ReleaseError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and at most "
                f"{MOST_CELLS:,} can be published; leave out an axis, take coarser labels, or "
                "publish margins alone (`cells: false`).",
                cells=domain.size,
            )

    def held_values(self, domain: Domain, source: Source, progress: Progress) -> HeldValues:
        """The held values of the data, and nothing else of them. Confidential."""
        held = self.held.margins_on(domain)
        if not held:
            return ()
        counted = self.count(domain, source, progress, held_alone=True)
        return tuple(counted.whole.of(margin) for margin in held)

    def _columns(self, domain: Domain) -> list[AxisColumn]:
        return [
            AxisColumn(axis, column=entry.column, bins=entry.bins, columns=entry.columns)
            for axis, entry in zip(domain.axes, self.table.axes.values(), strict=True)
        ]

    def _tabulated(
        self,
        domain: Domain,
        source: Source,
        progress: Progress,
        value: ClippedValue | None = None,
    ) -> Tabulated:
        """The table of all cells, of records within the bound and of all."""
        if domain.size > MOST_CELLS:
            raise DataError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and a table that was "
                f"counted before is read with at most {MOST_CELLS:,}; margins of more are counted "
                "from records."
            )
        data = self.specification.data
        return tabulate(
            source,
            self._columns(domain),
            value=value,
            count=data.count,
            progress=progress,
            **data.bound,
        )

    def _counted(self, found: Tabulated) -> Counted:
        everything = found.everything if self.specification.data.bounded else None
        return Counted(found.bounded, everything, found.dropped, int(found.everything.counts.sum()))


@dataclass(frozen=True, kw_only=True)
class CellsRelease(ReleaseSpecification):
    """Every cell of a table, and margins beside them."""

    @property
    def what(self) -> str:
        """Its figures, in words."""
        return self.folder or "every cell"

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        return Cells(domain)

    def count(
        self, domain: Domain, source: Source, progress: Progress, *, held_alone: bool = False
    ) -> Counted:
        """Have the table counted where its records lie."""
        del held_alone  # what is held follows from the table
        return self._counted(self._tabulated(domain, source, progress))

    def _mechanism(self, name: str) -> str | Options:
        if name != Marginals.name:
            return name
        return MarginalsOptions(
            margins=[*self.margins] or None,
            weights=self.table.publish.weights,
            cells_at_most=self.table.publish.cells_at_most,
        )

    def design(self, domain: Domain, name: str | None = None) -> Design:
        """The mechanism that the specification asks for, or another one for comparison."""
        cells = super().design(domain, name)
        if (name or self.mechanism_name) != AUTO or not self._for_tables:
            return cells
        if domain.size > MAX_JOINT_CELLS:
            words = (
                f"Noise for the margins too is not looked at for more than {MAX_JOINT_CELLS:,} "
                "cells; `mechanism: marginals` asks for it."
            )
            return replace(cells, why=f"{cells.why} {words}".strip())
        try:
            joint = super().design(domain, Marginals.name)
        except SubspaceDPError as error:
            return replace(
                cells, why=f"{cells.why} Noise for the margins too cannot be had: {error}"
            )
        return self._better(cells, joint)

    @property
    def _for_tables(self) -> bool:
        """Whether margins that are not exact are published beside the cells."""
        known = {frozenset(names) for names in self.table.hold}
        return any(frozenset(names) not in known for names in self.margins)

    def _better(self, cells: Design, joint: Design) -> Design:
        """Of noise designed for the cells and noise for all published tables, the one to take.

        With weights the one with the smaller sum of squared errors; without, by the geometric
        mean, over the tables, of the ratio of mean squared errors.
        """
        published = [tuple(self.table.axes), *self.table.margins]
        errors = [
            [_squared_error(m.margin_accuracy(*names)) for m in (cells, joint)]
            for names in published
        ]
        weights = self.table.publish.weights
        ratios = [before / after for before, after in errors if min(before, after) > 0]
        if weights is None:
            gain = math.exp(math.fsum(map(math.log, ratios)) / max(len(ratios), 1))
            what = f"squared errors of the {len(ratios)} published tables are"
            how = "times smaller, in geometric mean,"
        else:
            sums = [
                math.fsum(w * e[i] for w, e in zip(weights, errors, strict=True)) for i in (0, 1)
            ]
            gain = sums[0] / sums[1]
            what, how = "the weighted sum of squared errors is", "times smaller"
        if gain <= WORTH_WHILE:
            words = "Noise for the margins too would not be better over all tables."
            return replace(cells, why=f"{cells.why} {words}")
        than = f"than with the {cells.mechanism.name} mechanism"
        why = f"marginals: {what} {gain:,.3g} {how} {than}; "
        return replace(joint, why=f"{why}those of the cells are {1 / ratios[0]:.3g} times its.")


@dataclass(frozen=True, kw_only=True)
class MarginsRelease(ReleaseSpecification):
    """Margins alone: noise is designed for exactly these, and no table of cells is built."""

    cells: ClassVar[bool] = False

    @property
    def what(self) -> str:
        """Its figures, in words."""
        return f"all margins{f' of {self.name}' if self.folder else ''}, one after another"

    @property
    def held_margins(self) -> tuple[tuple[str, ...], ...]:
        """Held margins that get files of their own: without cells nothing else shows them."""
        known = {frozenset(names) for names in self.margins}
        fresh = (names for names in self.table.hold if frozenset(names) not in known)
        return tuple({frozenset(names): names for names in fresh}.values())

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        return Margins(domain, self.margins, self.table.publish.weights)

    def count(
        self, domain: Domain, source: Source, progress: Progress, *, held_alone: bool = False
    ) -> Counted:
        """Have the margins counted one by one; of a table that was counted before, its cells."""
        data = self.specification.data
        if data.counted:
            return self._counted(self._tabulated(domain, source, progress))
        found = tabulate_margins(
            source,
            self._columns(domain),
            Margins(domain, self.held.margins if held_alone else self._counted_margins(domain)),
            self.held,
            progress=progress,
            **data.bound,
        )
        records = int(found.everything.of(domain.margin()).sum())
        everything = found.everything if data.bounded else None
        return Counted(found.bounded, everything, found.dropped, records)

    def _counted_margins(self, domain: Domain) -> tuple[tuple[str, ...], ...]:
        """The margins that are published, and tables beside them that are measured."""
        beside = self.design(domain).mechanism.measured_beside if self.budget.pure else ()
        return (*self.margins, *beside)

    def check_size(self, domain: Domain) -> None:
        """Refuse what is too large to publish."""
        sizes = {
            names: math.prod(domain.margin(*names).shape)
            for names in (*self.margins, *self.table.hold)
        }
        if sum(sizes.values()) > MOST_CELLS:
            largest = max(sizes, key=lambda names: sizes[names])
            raise ReleaseError(
                f"The margins of `{self.table.name}` have {sum(sizes.values()):,} figures "
                f"together, and at most {MOST_CELLS:,} can be published; the largest is "
                f"{' × '.join(largest)} with {sizes[largest]:,}.",
                cells=sum(sizes.values()),
            )


@dataclass(frozen=True, kw_only=True)
class SumsRelease(ReleaseSpecification):
    """Clipped sums of a value beside the counts of a table; nothing is held of them."""

    sum: str

    counts: ClassVar[bool] = False

    @property
    def what(self) -> str:
        """Its figures, in words."""
        return self.folder

    @property
    def budget(self) -> Budget:
        """Its part of the table's budget."""
        return self.table.budget(self.sum)

    @property
    def held(self) -> Held:
        """Nothing: held margins are those of the counts."""
        return Held()

    @property
    def decimals(self) -> int | None:
        """Sums are real values."""
        return None

    @property
    def non_negative(self) -> bool:
        """Sums may be negative."""
        return False

    @property
    def mechanism_name(self) -> str:
        """Sums have no choice."""
        return default_name()

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        return self.table.clipped_value(self.sum).sums(domain)

    def count(
        self, domain: Domain, source: Source, progress: Progress, *, held_alone: bool = False
    ) -> Counted:
        """Have the values added up where they lie."""
        del held_alone  # nothing is
        found = self._tabulated(domain, source, progress, self.table.clipped_value(self.sum))
        counted = self._counted(found)
        bounded = self.specification.data.bounded
        return replace(
            counted,
            protected=found.sums,
            everything=found.sums_everything if bounded else None,
        )


def _squared_error(accuracy: Accuracy) -> float:
    """The sum of squared errors of a family of figures, from its kinds."""
    parts = (kinds.variance * kinds.number for kinds in accuracy.figures.kinds())
    return math.fsum(float(part.sum()) for part in parts)


def releases_of(specification: Specification) -> tuple[ReleaseSpecification, ...]:
    """All releases, in order: every table's counts, then its sums."""
    out: list[ReleaseSpecification] = []
    for table in specification.tables:
        counts = MarginsRelease if table.margins_alone else CellsRelease
        out.append(counts(table=table, folder=table.release_folder()))
        out += [
            SumsRelease(table=table, folder=table.release_folder(name), sum=name)
            for name in table.sums
        ]
    return tuple(out)


def public_domain(
    table: TableSpecification, labels: Mapping[str, Sequence[Label]] | None = None
) -> Domain | None:
    """The table's domain; None while labels have still to be read off the data."""
    known = {axis: (labels or {})[axis] for axis in table.from_data if axis in (labels or {})}
    if set(known) != set(table.from_data):
        return None
    return table.domain(known)


def open_data(specification: Specification) -> Source:
    """Open the source of a specification."""
    data = specification.data
    return open_source(data.address, base=specification.folder, table=data.table)


def found_labels(
    specification: Specification, source: Source, progress: Progress
) -> dict[str, Sequence[Label]]:
    """The labels of axes with `labels: from-data`; they are not protected."""
    axes = {axis for table in specification.tables for axis in table.from_data}
    out: dict[str, Sequence[Label]] = {}
    for axis in sorted(axes):
        progress(f"reading the labels of `{axis}` off the data")
        out[axis] = labels_from_data(source, specification.column(axis))
    return out


def tabulate_release(
    wanted: ReleaseSpecification, design: Design, source: Source, progress: Progress
) -> Confidential:
    """Have what one release needs counted, and refuse what cannot be released."""
    counted = wanted.count(design.mechanism.domain, source, progress)
    answers, full = design.check(counted.protected, everything=counted.everything)
    return Confidential(
        answers=answers, full=full, dropped=counted.dropped, records=counted.records
    )
