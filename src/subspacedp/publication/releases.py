"""The releases that a specification asks for: their designs, and how their data are counted.

A table is published by its cells or by margins alone, with sums beside its counts; what differs
between these is said here, so that a run, a plan or an audit treats all releases alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from subspacedp import io
from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError, InvariantError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, HeldValues, Inequalities
from subspacedp.mechanisms import default_name
from subspacedp.mechanisms.base import Mechanism, Options
from subspacedp.mechanisms.block_view import CountFacts, OnePiece
from subspacedp.mechanisms.marginals import Marginals, MarginalsOptions
from subspacedp.privacy import Budget
from subspacedp.publication.code_lists import column_of
from subspacedp.publication.faults import in_yaml
from subspacedp.publication.formats import FORMATS, check_formats
from subspacedp.publication.specification import Specification, TableSpecification
from subspacedp.queries import Cells, Margins, Query
from subspacedp.release import Design, design
from subspacedp.release.designs import Judged, compare_quick
from subspacedp.release.drawing import LABELLED, MAX_LABELLED, look_at
from subspacedp.release.targets import LeastBudget, least_budget
from subspacedp.tables import Domain, Label, Margin, MarginTables, RowPlan, Table
from subspacedp.tables.domain import Box, blocks

if TYPE_CHECKING:
    from subspacedp.blocks.passes import Survey
    from subspacedp.blocks.sources import Source as BlockSource
    from subspacedp.io import AxisColumn, ClippedValue, Source, Tabulated

Progress = Callable[[str], None]
MOST_CELLS = 2 * 10**8  # figures made at once: 1.6 GB of float64, and several such are needed
MOST_STORED = 10**11  # figures of one release: 800 GB on disk
AT_ONCE = 1 << 22  # cells of a table on disk that are summed at a time
MAX_JOINT_CELLS = 10**7  # beyond, `auto` stays with noise on the cells, whose errors have few kinds
MAX_CROSSED_LABELS = 20_000  # beyond, a split over classifications that cross takes too long here
AUTO = "auto"


@frozen(eq=False, repr=False)
class Counted:
    """The data of one release, as the engine counted them; a path for a table on disk.

    Confidential: nothing is shown.
    """

    protected: Any
    everything: Any  # None where nothing was bounded
    dropped: int = 0
    records: int = 0

    def __repr__(self) -> str:
        return "Counted(hidden)"


@frozen(eq=False, repr=False, kw_only=True)
class Confidential:
    """The data of one release, looked at once; nothing of them is shown.

    Parameters
    ----------
    counts, everything
        What is measured; and where records are bounded, what held values come from.
    surveyed
        The held values, and how the data are known again.
    dropped, records
        How many records the bound left out, and how many there are, where records were counted.
    """

    counts: BlockSource
    everything: BlockSource | None
    surveyed: Survey
    dropped: int = 0
    records: int = 0

    def arrays(self, shape: tuple[int, ...]) -> tuple[Int64Array, Int64Array]:
        """What is measured and what held values come from, in memory."""
        counts = read_all(self.counts, shape)
        return counts, counts if self.everything is None else read_all(self.everything, shape)

    def close(self) -> None:
        """Let go of open files."""
        for source in filter(None, (self.counts, self.everything)):
            source.close()

    def __repr__(self) -> str:
        return "Confidential(hidden)"


@frozen(kw_only=True)
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
        """Its part of the budget, or the least that meets its targets."""
        return self.table.budget() if self.least is None else self.least.budget

    @cached_property
    def least(self) -> LeastBudget | None:
        """The least budget that meets its targets, where the specification asks for that."""
        privacy = self.specification.document.privacy
        if privacy.least is None:
            return None
        domain = self.table.domain()
        self.check_size(domain)
        return least_budget(
            self.query(domain), self.held, privacy.budget, **self._arguments(domain)
        )

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
        """Held margins that get files of their own: those that are not published as margins."""
        known = {frozenset(names) for names in self.margins}
        fresh = (names for names in self.held.margins if frozenset(names) not in known)
        return tuple({frozenset(names): names for names in fresh}.values())

    @property
    def decimals(self) -> int | None:
        """Published digits after the point; None for real values."""
        return self.table.publish.decimals

    @property
    def non_negative(self) -> bool:
        """Whether a biased table without negative values is published too."""
        return self.table.publish.non_negative or self.records

    @property
    def records(self) -> bool:
        """Whether records are made of that table."""
        return self.table.publish.records

    def inequalities(self, domain: Domain) -> Inequalities | None:
        """What is publicly known of its counts beside what is held."""
        return self.table.inequalities(domain)

    @property
    def formats(self) -> tuple[str, ...]:
        """What its tables are written as beside CSV and Parquet, in one order, each once."""
        return tuple(name for name in FORMATS if name in self.table.publish.formats)

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
        self, domain: Domain, source: Source | None, progress: Progress, scratch: Path | None
    ) -> Counted:
        """Have its data counted where they lie: in memory, or to files in a scratch folder."""

    def options(self, name: str | None = None) -> dict[str, Any]:
        """The arguments of `design` beyond the budget, for this or another mechanism."""
        return {
            "neighbours": self.specification.neighbours,
            "mechanism": self._mechanism(name or self.mechanism_name),
            "decimals": self.decimals,
            "capped": self.specification.data.bounded,
        }

    def _arguments(self, domain: Domain, name: str | None = None) -> dict[str, Any]:
        """Its options, and what is publicly known, which no error depends on."""
        return {**self.options(name), "inequalities": self.inequalities(domain)}

    def _mechanism(self, name: str) -> str | Options:
        """What a mechanism's name stands for here."""
        return name

    def design(self, domain: Domain, name: str | None = None) -> Design:
        """The mechanism that the specification asks for, or another one for comparison."""
        self.check_size(domain)
        try:
            designed = self._designed(domain, name)
        except SubspaceDPError as error:
            error.args = (in_yaml(str(error)),)
            raise
        if domain.size > MOST_CELLS and self.cells and in_one_piece(designed.mechanism):
            raise ReleaseError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and the "
                f"{designed.mechanism.name} mechanism makes at most {MOST_CELLS:,} at once; take "
                f"`mechanism: {default_name()}`, leave out an axis, take coarser labels, or "
                "publish margins alone (`cells: false`).",
                cells=domain.size,
            )
        return designed

    def _designed(self, domain: Domain, name: str | None) -> Design:
        if self.least is not None and name is None:
            return self.least.design
        return design(self.query(domain), self.held, self.budget, **self._arguments(domain, name))

    @property
    def store(self) -> str | None:
        """How values are written; None: by their number."""
        return self.table.publish.values

    def check_files(self, domain: Domain) -> None:
        """Refuse formats without a library, and held margins for which no file can be written."""
        del domain
        check_formats(self.formats)

    def check_size(self, domain: Domain) -> None:
        """Refuse what is too large to publish, whatever the mechanism."""
        if domain.size > MOST_STORED:
            raise ReleaseError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and at most "
                f"{MOST_STORED:,} can be published; leave out an axis, take coarser labels, or "
                "publish margins alone (`cells: false`).",
                cells=domain.size,
            )
        if self.non_negative and domain.size > MAX_LABELLED:
            raise ReleaseError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and a table without "
                f"negative values is worked out for at most {MAX_LABELLED:,}; leave out "
                "`non_negative` and `records`.",
                cells=domain.size,
            )

    def held_values(self, domain: Domain, source: Source | None, progress: Progress) -> HeldValues:
        """The held values of the data, and nothing else of them. Confidential."""
        held, data = self.held.margins_on(domain), self.specification.data
        if not held:
            return ()
        if data.in_order:
            with closing(self._in_place()) as counts:
                return margin_totals(counts, domain, held)
        if source is None:
            raise InvariantError("The data were not opened.")
        if data.counted:
            table = self._counted(self._tabulated(domain, source, progress)).protected
            return tuple(table.of(margin) for margin in held)
        # Groupings are sums of labels, by which margins are counted.
        axes = self.table.groupings
        names = ([axes.get(name, name) for name in margin] for margin in self.held.margins)
        margins = Margins(domain, list(dict.fromkeys(map(tuple, names))))
        counted = io.tabulate_margins(
            source, self._columns(domain), margins, progress=progress, **data.bound
        )
        return tuple(counted.everything.of(margin) for margin in held)

    def _in_place(self) -> BlockSource:
        """A table that was counted before and whose cells are in order, where it lies."""
        from subspacedp.blocks.sources import open_source as open_blocks

        return open_blocks(self.specification.source, self.specification.data.count)

    def _columns(self, domain: Domain) -> list[AxisColumn]:
        specification = self.specification
        return [
            column_of(
                axis, entry, specification.folder, specification.loaded.where(("axes", axis.name))
            )
            for axis, entry in zip(domain.axes, self.table.axes.values(), strict=True)
        ]

    def _tabulated(
        self,
        domain: Domain,
        source: Source,
        progress: Progress,
        value: ClippedValue | None = None,
        scratch: Path | None = None,
    ) -> Tabulated:
        """The table of all cells, of records within the bound and of all."""
        if domain.size > MOST_CELLS and scratch is None:
            raise DataError(
                f"The table `{self.table.name}` has {domain.size:,} cells, and a table that was "
                f"counted before is read with at most {MOST_CELLS:,}; margins of more are counted "
                "from records."
            )
        data = self.specification.data
        return io.tabulate(
            source,
            self._columns(domain),
            value=value,
            count=data.count,
            scratch=scratch,
            progress=progress,
            **data.bound,
        )

    def _counted(self, tabulated: Tabulated) -> Counted:
        everything = tabulated.everything if self.specification.data.bounded else None
        return Counted(tabulated.bounded, everything, tabulated.dropped, tabulated.records)


@frozen(kw_only=True)
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
        self, domain: Domain, source: Source | None, progress: Progress, scratch: Path | None
    ) -> Counted:
        """Have the table counted where its records lie; cells in order stay where they are."""
        if source is None:
            return Counted(self._in_place(), None)
        return self._counted(self._tabulated(domain, source, progress, scratch=scratch))

    @property
    def mechanism_name(self) -> str:
        """What the specification calls the mechanism; with targets there is one for them."""
        return Marginals.name if self.table.has_targets else self.table.mechanism

    def _mechanism(self, name: str) -> str | Options:
        return self._joint if name == Marginals.name else name

    @property
    def _joint(self) -> Options:
        """Noise for all published tables."""
        publish = self.table.publish
        if not self.table.has_targets:
            return MarginalsOptions(
                margins=[*self.margins] or None,
                weights=publish.weights,
                cells_at_most=publish.cells_at_most,
            )
        domain = self.table.domain()
        listed = list(zip(self.margins, self.table.targets(domain) or (), strict=True))
        cells = {frozenset(self.table.axes)}
        beside = [(names, target) for names, target in listed if frozenset(names) not in cells]
        of_cells = [target for names, target in listed if frozenset(names) in cells]
        return MarginalsOptions(
            margins=[names for names, _ in beside],
            targets=[*(of_cells or [None]), *(target for _, target in beside)],
        )

    def _designed(self, domain: Domain, name: str | None) -> Design:
        if (name or self.mechanism_name) != AUTO or not self._for_tables:
            return super()._designed(domain, name)
        crossed = {
            axis for margin in (*self.margins, *self.table.hold)
            for name, axis in self.table.groupings.items() if name in margin
        }  # fmt: skip
        labels = max((len(axis) for axis in domain.axes if axis.name in crossed), default=0)
        few = domain.size <= MAX_JOINT_CELLS and labels <= MAX_CROSSED_LABELS
        options = self._arguments(domain, name)
        del options["mechanism"]
        chosen = compare_quick(
            self.query(domain), self.held, self.budget,
            judged=Judged(
                tables=(tuple(self.table.axes), *self.margins), weights=self.table.publish.weights
            ),
            beside=[self._joint] if few else (),
            **options,
        ).chosen  # fmt: skip
        if few:
            return chosen
        most = f"{MAX_JOINT_CELLS:,} cells"
        if domain.size <= MAX_JOINT_CELLS:
            most = f"{MAX_CROSSED_LABELS:,} labels of an axis with groupings"
        words = (
            f"Noise for the margins too is not looked at for more than {most}; "
            "`mechanism: marginals` asks for it."
        )
        return replace(chosen, why=f"{chosen.why} {words}")

    @property
    def _for_tables(self) -> bool:
        """Whether margins that are not exact are published beside the cells."""
        known = {frozenset(names) for names in self.table.hold}
        return any(frozenset(names) not in known for names in self.margins)


@frozen(kw_only=True)
class MarginsRelease(ReleaseSpecification):
    """Margins alone: noise is designed for exactly these, and no table of cells is built."""

    cells: ClassVar[bool] = False

    @property
    def what(self) -> str:
        """Its figures, in words."""
        return f"all margins{f' of {self.name}' if self.folder else ''}, one after another"

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        return Margins(domain, self.margins, self.table.publish.weights, self.table.targets(domain))

    def count(
        self, domain: Domain, source: Source | None, progress: Progress, scratch: Path | None
    ) -> Counted:
        """Have the margins counted one by one; of a table that was counted before, its cells."""
        del scratch  # margins are counted in memory
        data, margins = self.specification.data, self.counted_margins(domain)
        if source is None:
            wanted = [domain.margin(*names) for names in (*margins, *self.held.margins)]
            with closing(self._in_place()) as counts:
                totals = margin_totals(counts, domain, wanted)
            return Counted(MarginTables(domain, dict(zip(wanted, totals, strict=True))), None)
        if data.counted:
            return self._counted(self._tabulated(domain, source, progress))
        tabulated = io.tabulate_margins(
            source,
            self._columns(domain),
            Margins(domain, margins),
            self.held,
            progress=progress,
            **data.bound,
        )
        records = int(tabulated.everything.of(domain.margin()).sum())
        everything = tabulated.everything if data.bounded else None
        return Counted(tabulated.bounded, everything, tabulated.dropped, records)

    def counted_margins(self, domain: Domain) -> tuple[tuple[str, ...], ...]:
        """The margins that are published, and tables beside them that are measured."""
        beside = self.design(domain).mechanism.measured_beside if self.budget.pure else ()
        return (*self.margins, *beside)

    def check_files(self, domain: Domain) -> None:
        """Refuse formats and held margins as for all; without cells not every margin follows."""
        super().check_files(domain)
        published = [domain.margin(*names) for names in self.margins]
        for names in self.held_margins:
            if not any(margin.determines(domain.margin(*names)) for margin in published):
                raise ReleaseError(
                    f"The table `{self.table.name}` holds {' × '.join(names) or 'the total'}, "
                    "which does not follow from any of the published margins; publish it or a "
                    "finer one, or do not hold it."
                )

    @property
    def store(self) -> str | None:
        """Figures of several margins have labels."""
        return LABELLED

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


@frozen(kw_only=True)
class SumsRelease(ReleaseSpecification):
    """Clipped sums of a value beside the counts of a table; nothing is held of them."""

    sum: str

    counts: ClassVar[bool] = False
    decimals: ClassVar[int | None] = None  # sums are real values
    non_negative: ClassVar[bool] = False  # sums may be negative
    records: ClassVar[bool] = False  # records are made of counts

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

    def inequalities(self, domain: Domain) -> Inequalities | None:
        """None: inequalities are for counts."""
        del domain
        return None

    @property
    def mechanism_name(self) -> str:
        """Sums have no choice."""
        return default_name()

    def query(self, domain: Domain) -> Query:
        """What is asked of the data."""
        return self.table.clipped_value(self.sum).sums(domain)

    def count(
        self, domain: Domain, source: Source | None, progress: Progress, scratch: Path | None
    ) -> Counted:
        """Have the values added up where they lie."""
        del scratch  # sums are made in memory
        if source is None:
            raise InvariantError("Sums need records.")
        tabulated = self._tabulated(domain, source, progress, self.table.clipped_value(self.sum))
        everything = tabulated.sums_everything if self.specification.data.bounded else None
        return replace(self._counted(tabulated), protected=tabulated.sums, everything=everything)


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


def open_data(specification: Specification) -> AbstractContextManager[Source | None]:
    """Open the source of a specification; None where the cells lie in order, ready to be read."""
    data = specification.data
    if data.in_order:
        return nullcontext()
    return io.open_source(
        data.address, base=specification.folder, table=data.table, decimal=data.decimal
    )


def found_labels(
    specification: Specification, source: Source | None, progress: Progress
) -> dict[str, Sequence[Label]]:
    """The labels of axes with `labels: from-data`; they are not protected."""
    axes = {axis for table in specification.tables for axis in table.from_data}
    out: dict[str, Sequence[Label]] = {}
    if source is not None:
        for axis in sorted(axes):
            progress(f"reading the labels of `{axis}` off the data")
            out[axis] = io.labels_from_data(source, specification.column(axis))
    return out


def tabulate_release(
    wanted: ReleaseSpecification,
    design: Design,
    source: Source | None,
    progress: Progress,
    *,
    scratch: Path | None = None,
    memory: int | None = None,
    engine: str | None = None,
    tag_key: bytes | None = None,
) -> Confidential:
    """Have what one release needs counted, look at it, and refuse what cannot be released.

    Parameters
    ----------
    scratch
        A folder of its owner's alone for tables that do not fit into memory; None for those that
        do.
    memory, engine, tag_key
        As `look_at` takes them.
    """
    from subspacedp.blocks.sources import ArraySource
    from subspacedp.blocks.sources import open_source as open_blocks

    counted = wanted.count(design.mechanism.domain, source, progress, scratch)
    if isinstance(counted.protected, Table | MarginTables | np.ndarray):
        answers, full = design.check(counted.protected, everything=counted.everything)
        counts: BlockSource = ArraySource(answers)
        everything: BlockSource | None = None
        if counted.everything is not None:
            everything = ArraySource(full)
    else:
        counts = open_blocks(counted.protected)
        everything = None if counted.everything is None else open_blocks(counted.everything)
    progress(f"looking at the data of {wanted.name}")
    surveyed = look_at(design, counts, everything, memory=memory, engine=engine, tag_key=tag_key)
    domain = design.mechanism.domain
    # Their intervals are written after the draw, when nothing may be refused any more.
    design.mechanism.check_held(
        surveyed.exact, *(domain.margin(*names) for names in wanted.margins)
    )
    return Confidential(
        counts=counts,
        everything=everything,
        surveyed=surveyed,
        dropped=counted.dropped,
        records=counted.records,
    )


def in_one_piece(mechanism: Mechanism) -> bool:
    """Whether a mechanism is carried out at once, however large its table is."""
    return isinstance(mechanism.blocks(), OnePiece)


def margin_totals(
    counts: BlockSource, domain: Domain, margins: Sequence[Margin]
) -> tuple[Int64Array, ...]:
    """The totals of margins of a table that is read in blocks. Confidential."""
    shape, plan = domain.shape, RowPlan(tuple(margins))
    totals, facts = np.zeros(int(plan.starts[-1]), np.int64), CountFacts()
    if counts.shape not in (shape, (math.prod(shape),)):
        raise DataError(f"The counts must have the domain's shape {shape}; got {counts.shape}.")
    for box in blocks(shape, AT_ONCE):
        part = np.empty(box.size, np.int64)
        counts.read(box, shape, part)
        facts += CountFacts.of(part)
        RowPlan(tuple(margins), box).add_sums(part, totals)
    facts.check()
    return tuple(part.copy() for part in plan.split(totals))


def read_all(counts: BlockSource, shape: tuple[int, ...]) -> Int64Array:
    """A table in memory. Confidential."""
    out = np.empty(math.prod(shape), np.int64)
    counts.read(Box((0,) * len(shape), shape), shape, out)
    return out.reshape(shape)
