"""From person records to tables of margins: the engine counts, a few axes at a time.

A table of all axes would be too large. Rows are coded once; then every GROUP BY takes as many axes
as fit into a table of moderate size, and all margins inside it follow. Only cells and counts come
back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError, without_values
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, LinearInvariants, StructuralZeros, as_held
from subspacedp.invariants.margin_space import hold_of_workload
from subspacedp.io.bounding import checked_bounds, left_out, no_unit, unit_of
from subspacedp.io.coding import AxisColumn, domain_of, error_of_rows, key_of, sum_of, with_cells
from subspacedp.io.engine import Source, need, read_whole
from subspacedp.queries import Margins
from subspacedp.tables import Domain, Margin, MarginTables

Progress = Callable[[str], None]

MOST_CELLS = 1 << 17  # of one GROUP BY, where a margin itself is not larger
PLACES = 10  # decimal digits of a code in the text that names a cell


@frozen(eq=False, repr=False, kw_only=True)
class TabulatedMargins:
    """Tables of the margins of a workload. Confidential: nothing of them is shown.

    Parameters
    ----------
    everything
        All records: held totals come from them.
    bounded
        The records within the bound: what noise is added to, and the guarantee is about. The same
        object as `everything` when nothing was left out.
    dropped
        How many records the bound left out.
    """

    everything: MarginTables
    bounded: MarginTables
    dropped: int

    def __repr__(self) -> str:
        return f"Tabulated{self.everything!r}"


def tabulate_margins(
    source: Source,
    axes: Sequence[AxisColumn],
    workload: Margins,
    held: Held | LinearInvariants | StructuralZeros | None = None,
    *,
    unit: str | None = None,
    records: int = 1,
    per_cell: int | None = None,
    key: bytes | str | None = None,
    without_unit: bool = False,
    progress: Progress | None = None,
) -> TabulatedMargins:
    r"""Tables of all margins that a workload and what is held need.

    Parameters
    ----------
    source
        From `open_source`.
    axes
        The axes of the workload's domain, in order, and the columns they are read from.
    workload, held
        The margins that are wanted; what is held must be margins too.
    unit, records, per_cell, key, without_unit, progress
        As for `tabulate`; a cell is one of the whole domain's, however many there are.

    Guarantees
    ----------
    1. With `unit`: for every key, and for all sources that differ in the records of one person,
       the `bounded` tables are those of records that differ by at most what the neighbour relation
       with these `records` and `per_cell` states (docs/proofs/contributions.md).
    2. No message tells a value of the source, and no row leaves the engine.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from subspacedp.io import open_source
    >>> from subspacedp.tables import Axis
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "visits.csv"
    >>> _ = path.write_text("person,age,sex\n1,young,F\n2,old,M\n3,old,F\n")
    >>> columns = [AxisColumn(Axis("age", ["young", "old"])), AxisColumn(Axis("sex", ["F", "M"]))]
    >>> workload = Margins(Domain([c.axis for c in columns]), ["age", "sex"])
    >>> with open_source(path) as source:
    ...     found = tabulate_margins(source, columns, workload)
    >>> workload.answers(found.everything)
    array([1, 2, 2, 1])
    >>> folder.cleanup()
    """
    tell = progress or (lambda sentence: None)
    if not domain_of(axes).matches(workload.domain):
        raise DataError("The axes that are read are not those of the workload.")
    if any(entry.columns is not None for entry in axes):
        raise DataError("Margins are counted from records: no axis can be spread over `columns`.")
    bounds = checked_bounds(unit, records, per_cell, key)
    domain = workload.domain
    wanted = (*workload.margins, *hold_of_workload(as_held(held), workload).margins)
    counting = _Counting(source, axes, domain, _blocks(domain, wanted), tell)
    rows = counting.coded(unit, without_unit=without_unit)
    everything = counting.tables(rows, None)
    if unit is None:
        return TabulatedMargins(everything=everything, bounded=everything, dropped=0)
    tell("choosing which records stay")
    late = counting.late(rows, bounds)
    gone = counting.tables(late, "n")
    dropped = int(gone.of(domain.margin()).sum())
    bounded = everything
    if dropped:
        kept = {margin: everything.tables[margin] - lost for margin, lost in gone.tables.items()}
        bounded = MarginTables(domain, kept)
    return TabulatedMargins(everything=everything, bounded=bounded, dropped=dropped)


def _blocks(domain: Domain, margins: Sequence[Margin]) -> list[tuple[int, ...]]:
    """Sets of axes that are counted together: every margin lies in one of them.

    Greedy: the largest margin that is left, and then whichever axes bring most other margins in.
    """
    sizes = domain.shape
    wanted = {frozenset(_kept(m)) for m in margins}
    wanted = {w for w in wanted if not any(w < other for other in wanted)}
    left = sorted(wanted, key=lambda w: (-math.prod(sizes[a] for a in w), sorted(w)))
    blocks: list[tuple[int, ...]] = []
    while left:
        block = set(left[0])
        cells = math.prod(sizes[a] for a in block)
        while True:
            best: tuple[float, int] | None = None
            for a in range(len(sizes)):
                if a in block or cells * sizes[a] > MOST_CELLS:
                    continue
                grown = block | {a}
                gain = sum(1 for w in left if w <= grown and not w <= block)
                # Small axes first among equals: room for more of them.
                worth = (gain / math.log(sizes[a] + 1.0), -a)
                if gain and (best is None or worth > best):
                    best = worth
            if best is None:
                break
            block.add(-best[1])
            cells *= sizes[-best[1]]
        blocks.append(tuple(sorted(block)))
        left = [w for w in left if not w <= block]
    return blocks


def _kept(margin: Margin) -> list[int]:
    return [a for a, level in enumerate(margin.levels) if level.name]


@frozen(eq=False, repr=False)
class _Counting:
    """The statements of one tabulation."""

    source: Source
    axes: Sequence[AxisColumn]
    domain: Domain
    blocks: list[tuple[int, ...]]
    tell: Progress

    def coded(self, unit: str | None, *, without_unit: bool) -> Any:
        """Every row as codes, checked: a row without a place is refused, with how many there are.

        All axes are read, so that a cell is one of the whole domain's.
        """
        self.tell(f"coding rows in {self.source.kind}")
        table = self.source.table
        whose = {}
        if unit is not None:
            if without_unit:
                table = table.filter(unit_of(self.source, unit, table).notnull())
            whose = {"u": unit_of(self.source, unit, table)}
        keys = {f"k{i}": key_of(entry, self.source, table) for i, entry in enumerate(self.axes)}
        rows = table.select(**whose, **keys)
        rows = with_cells(self.source, self.axes, rows, [0] * len(self.axes))
        codes = {
            f"code{i}": rows[f"code{i}"].cast(_narrow(len(entry.axis)))
            for i, entry in enumerate(self.axes)
        }
        kept = self.source.keep(
            rows.select(**({"u": rows.u} if whose else {}), bad=rows.cell, **codes)
        )
        self._check(kept, unit)
        return kept

    def _check(self, rows: Any, unit: str | None) -> None:
        ibis = need("ibis", "publish")

        lost = rows.u.isnull().ifelse(1, 0).sum() if unit is not None else ibis.literal(0)
        counted = rows.group_by("bad").agg(n=rows.count(), lost=lost.cast("int64"))
        batches = self.source.batches(counted)
        without_values(
            lambda: self._refuse(read_whole(batches, ("bad", "n", "lost")), unit),
            "The engine's answer cannot be used",
        )

    def _refuse(self, columns: dict[str, Int64Array], unit: str | None) -> None:
        cells = dict(zip(columns["bad"].tolist(), columns["n"].tolist(), strict=True))
        if not cells:
            raise DataError("The source has no rows.")
        lost = int(columns["lost"].sum())
        unnamed = no_unit(lost, unit) if lost else None
        error = error_of_rows(self.axes, {c: n for c, n in cells.items() if c < 0}, unnamed)
        if error is not None:
            raise error

    def late(self, rows: Any, bounds: tuple[int, int, str]) -> Any:
        """What the bound leaves out, as codes with the number of records `n`.

        A cell goes by the text of its codes: its number may leave 64 bits.
        """
        ibis = need("ibis", "publish")

        name = sum_of(
            rows[f"code{i}"].cast("string").lpad(PLACES, "0") for i in range(len(self.axes))
        )
        named = rows.select(u=rows.u, cell=name)
        m, k, key = bounds
        gone = left_out(self.source, named, records=m, per_cell=k, key=key, valued=False)
        codes = {
            f"code{i}": gone.cell.substr(i * PLACES, PLACES).cast("int64")
            for i in range(len(self.axes))
        }
        return self.source.keep(gone.select(n=gone.n.cast("int64") + ibis.literal(0), **codes))

    def tables(self, rows: Any, weight: str | None) -> MarginTables:
        """The tables of all blocks, one GROUP BY each."""
        tables = {}
        for number, block in enumerate(self.blocks):
            self.tell(f"counting table {number + 1} of {len(self.blocks)} in {self.source.kind}")
            shape = [len(self.domain.axes[a]) for a in block]
            strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
            ibis = need("ibis", "publish")
            place = (
                sum_of(rows[f"code{a}"].cast("int64") * s
                       for a, s in zip(block, strides, strict=True))
                if block else ibis.literal(0, "int64")
            )  # fmt: skip
            placed = rows.mutate(place=place)
            total = placed.count() if weight is None else placed[weight].sum()
            batches = self.source.batches(placed.group_by("place").agg(n=total.cast("int64")))
            names = tuple(self.domain.axes[a].name for a in block)
            margin = self.domain.margin(*names)
            tables[margin] = _read(batches, shape)
        return MarginTables(self.domain, tables)


def _read(batches: Iterable[Any], shape: list[int]) -> Int64Array:
    return without_values(lambda: _filled(batches, shape), "The engine's answer cannot be used")


def _filled(batches: Iterable[Any], shape: list[int]) -> Int64Array:
    columns = read_whole(batches, ("place", "n"))
    out = np.zeros(math.prod(shape), np.int64)
    np.add.at(out, columns["place"], columns["n"])
    return out.reshape(shape)


def _narrow(labels: int) -> str:
    return "int16" if labels < 2**15 else "int32" if labels < 2**31 else "int64"
