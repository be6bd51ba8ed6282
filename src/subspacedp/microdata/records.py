"""Records made from a table of whole numbers, a row per person counted, and their weights.

Rows are made a piece at a time, in the order of the cells, and never held together.

Records counted with calibration weights add up to the unbiased margins. A table without negative
values is biased, and so are sums of its records. Weights near 1 can take that out of chosen totals:
of all weights w_i of cells with n_i records, those nearest 1,

    least Σ n_i (w_i − 1)²  with  Σ_{i in g} n_i w_i = t_g  for every group g of the margins,

are w = 1 + Aᵀλ: linear calibration, as surveys use it (Deville and Särndal 1992).
They may be negative. A group without records has no weighted total but 0; where such a group stands
in the way of others, the weights come as near as weights can, by least squares in units of √n_g.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.arrow import arrow_array
from subspacedp.queries import Query
from subspacedp.release import Release
from subspacedp.release.label_columns import LabelColumns
from subspacedp.tables import Margin

WEIGHT = "calibration_weight"
ROWS = 1 << 20  # at a time: one row group of a Parquet file
MAX_CSV_RECORDS = 10_000_000  # beyond, text files are larger than anybody opens


def record_tables(query: Query, table: Int64Array, weights: FloatArray) -> Iterator[Any]:
    """The records of every cell, in row-major order, as arrow tables of one schema.

    Parameters
    ----------
    query
        Of the cells, for their labels.
    table, weights
        How many records each has, and what one of them counts for.
    """
    import pyarrow as pa

    labels = LabelColumns.of_query(query)
    ends = np.cumsum(table.reshape(-1))
    weight = weights.reshape(-1)
    total = int(ends[-1]) if ends.size else 0
    for start in range(0, max(total, 1), ROWS):  # one empty table where there is no record
        stop = min(start + ROWS, total)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        inside = np.arange(first, min(last + 1, ends.size))
        begins = np.concatenate([[0], ends])[inside] if inside.size else np.zeros(0, np.int64)
        number = np.minimum(ends[inside], stop) - np.maximum(begins, start)
        cell = np.repeat(inside, np.maximum(number, 0))
        # Plain values: programs that add up rows stumble over a dictionary for every piece.
        plain = {name: column.dictionary_decode() for name, column in labels.of(cell).items()}
        yield pa.table({**plain, WEIGHT: arrow_array(weight[cell])})


def write_records(
    query: Query, table: Int64Array, weights: FloatArray, *, parquet: Path, csv: Path | None
) -> None:
    """Write records to a Parquet file, and to a CSV file where one is named."""
    import pyarrow.csv
    import pyarrow.parquet

    with ExitStack() as files:
        writers: list[Any] = []
        for part in record_tables(query, table, weights):
            if not writers:
                writers.append(pyarrow.parquet.ParquetWriter(parquet, part.schema))
                if csv is not None:
                    writers.append(pyarrow.csv.CSVWriter(csv, part.schema))
                for writer in writers:
                    files.enter_context(writer)
            for writer in writers:
                writer.write_table(part)


DECIMALS = 9  # of a published weight
MAX_STEPS = 5000
HELD = 1e4  # how much more a held total counts where not all totals can be met
MET = 1e-6  # of a total, or of 1 if that is more: what rounded weights may be off


@dataclass(frozen=True, kw_only=True)
class CalibratedMargin:
    """How near weighted totals of a margin are to its unbiased ones.

    Parameters
    ----------
    names
        Its levels.
    groups, met
        How many totals it has, and how many are met.
    without_records
        How many are not met as no record is there to be weighted; then others, which shall add up
        to the same held totals, are off too.
    farthest
        The largest difference where there are records.
    """

    names: tuple[str, ...]
    groups: int
    met: int
    without_records: int
    farthest: float

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "margin": list(self.names),
            "groups": self.groups,
            "met": self.met,
            "without_records": self.without_records,
            "farthest": float(f"{self.farthest:.6g}"),
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Weights:
    """The weight of a record of every cell.

    Parameters
    ----------
    values
        In the shape of the table; 1 in cells without records.
    margins
        The margins that they are calibrated to.
    negative
        How many records have a weight below zero.
    least, most
        The smallest and the largest weight of a record.
    """

    values: FloatArray
    margins: tuple[CalibratedMargin, ...]
    negative: int
    least: float
    most: float

    def as_dict(self) -> dict[str, Any]:
        """What is said of them, as plain data."""
        return {
            "records_with_negative_weight": self.negative,
            "least": self.least,
            "most": self.most,
            "calibrated_to": [margin.as_dict() for margin in self.margins],
        }


def calibrate(
    release: Release, table: Int64Array, margins: Sequence[Sequence[str]] = ()
) -> Weights:
    """Weights for the records of a table, so that their margins are those of a release.

    Parameters
    ----------
    release
        Of every cell.
    table
        Whole numbers that are not negative, in its shape, with its held totals.
    margins
        Whose unbiased totals weighted counts shall have, beside the held ones.

    Guarantees
    ----------
    1. They are a function of the release and the table alone.
    2. Where a margin's totals are all said to be met, weighted counts are the release's to a
       millionth.
    """
    from scipy.sparse.linalg import LinearOperator, lsmr

    domain = release.domain
    chosen = [domain.margin(*names) for names in margins]
    held = [margin for margin, _ in release.mechanism.held.totals(release.exact)]
    used = list(dict.fromkeys([*held, *chosen]))
    totals = [_unbiased(release, margin) for margin in used]
    counts = table.astype(np.float64)
    sizes = [margin.sum(counts) for margin in used]
    # Rows of groups in units of √n_g: one margin by itself is then a matrix with orthonormal rows.
    units = [
        np.divide(HELD if margin in held else 1.0, np.sqrt(n), out=np.zeros(n.shape), where=n > 0)
        for margin, n in zip(used, sizes, strict=True)
    ]
    root = np.sqrt(counts)
    cuts = np.cumsum([n.size for n in sizes])[:-1]

    def rows(u: FloatArray) -> FloatArray:
        moved = root * u.reshape(root.shape)
        parts = zip(used, units, strict=True)
        return np.concatenate([(margin.sum(moved) * unit).reshape(-1) for margin, unit in parts])

    def columns(dual: FloatArray) -> FloatArray:
        pieces = np.split(dual, cuts)
        spread = [
            margin.spread(unit * piece.reshape(unit.shape))
            for margin, unit, piece in zip(used, units, pieces, strict=True)
        ]
        return np.asarray(root * sum(spread)).reshape(-1)

    weights = np.ones(table.shape)
    if used:
        miss = zip(totals, sizes, units, strict=True)
        wanted = np.concatenate([((t - n) * unit).reshape(-1) for t, n, unit in miss])
        shape = (wanted.size, root.size)
        operator = LinearOperator(shape, matvec=rows, rmatvec=columns, dtype=np.float64)
        u = lsmr(operator, wanted, atol=1e-14, btol=1e-14, conlim=0, maxiter=MAX_STEPS)[0]
        step = np.divide(u.reshape(root.shape), root, out=np.zeros(root.shape), where=root > 0)
        weights = np.round(1.0 + step, DECIMALS) + 0.0
    weighted = counts * weights
    used_weights = weights[table > 0] if table.any() else np.ones(1)
    return Weights(
        values=weights,
        margins=tuple(
            _calibrated(release, margin, table, weighted) for margin in dict.fromkeys(chosen)
        ),
        negative=int(table[weights < 0].sum()),
        least=float(used_weights.min()),
        most=float(used_weights.max()),
    )


def _unbiased(release: Release, margin: Margin) -> FloatArray:
    totals = np.asarray(release.margin(*margin.names).value, np.float64)
    return totals.reshape(margin.shape)


def _calibrated(
    release: Release, margin: Margin, table: Int64Array, weighted: FloatArray
) -> CalibratedMargin:
    wanted, some = _unbiased(release, margin), margin.sum(table) > 0
    off = np.abs(margin.sum(weighted) - wanted)
    met = off <= MET * np.maximum(np.abs(wanted), 1.0)
    return CalibratedMargin(
        names=margin.names,
        groups=off.size,
        met=int(met.sum()),
        without_records=int(np.count_nonzero(~met & ~some)),
        farthest=float(off[some & ~met].max(initial=0.0)),
    )
