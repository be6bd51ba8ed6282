"""What is made of a release beside it: a biased table without negative values, and records of it.

A table without negative values is biased, so everything of it says so: the names of its files, its
columns, and a statement beside them. All of it follows from the release alone, and is derived again
by whoever checks it.

Records made from the table have a row for every person it counts. They are made a piece at a time,
in the order of the cells, and never held together. Records counted with calibration weights add up
to the unbiased margins: of all weights w_i of cells with n_i records, those nearest 1,

    least Σ n_i (w_i − 1)²  with  Σ_{i in g} n_i w_i = t_g  for every group g of the margins,

are w = 1 + Aᵀλ: linear calibration, as surveys use it (Deville and Särndal 1992).
They may be negative. A group without records has no weighted total but 0; where such a group stands
in the way of others, the weights come as near as weights can, by least squares in units of √n_g.
Proofs: `docs/proofs/records.md`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.arrow import arrow_array, numpy_array, write_parts
from subspacedp.blocks.digests import values_hash
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.queries import Query
from subspacedp.release import Release, Verification
from subspacedp.release import verify_folder as verify_release_folder
from subspacedp.release.certificate import certificate_text
from subspacedp.release.files import BIASED, RECORDS, SECOND, LabelColumns, write_rows
from subspacedp.release.folder_checks import check_table
from subspacedp.release.verify import Check
from subspacedp.stated import read_json, shown_text
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.inference import NonNegativeTable
    from subspacedp.inference.nonnegative import BiasOfSize

__all__ = ["CalibratedMargin", "SecondTable", "Weights", "calibrate", "verify_folder"]


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
    write_parts(record_tables(query, table, weights), csv=csv, parquet=parquet)


DECIMALS = 9  # of a published weight
MAX_STEPS = 5000
HELD = 1e4  # how much more a held total counts where not all totals can be met
MET = 1e-6  # of a total, or of 1 if that is more: what rounded weights may be off


@frozen(kw_only=True)
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


@frozen(kw_only=True, eq=False, repr=False)
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


FORMAT = "subspacedp second table 1"
COUNT, UNBIASED = "non_negative_biased", "unbiased_value"
MAX_RECORDS = 10**9
NEAR = 1e-5  # of a stated number: machines round sums differently, and statements have six digits
WEIGHTS_NEAR = 1e-6
REPEAT = (
    "Recomputed and compared by `subspacedp verify FOLDER`; in Python "
    "subspacedp.inference.NonNegativeTable(subspacedp.Release.load(FOLDER)).values has the same "
    "numbers. Nothing but the release enters."
)
SYNTHETIC = (
    "SYNTHETIC: as many rows per cell as the biased table counts. No row is a person's, and rows "
    "say nothing that the table does not."
)


@frozen(kw_only=True, eq=False, repr=False)
class SecondTable:
    """A release's table without negative values, and the records made of it.

    Parameters
    ----------
    release
        Of every cell.
    records
        Whether records are made.
    margins
        Whose unbiased totals records with their weights have.

    Guarantees
    ----------
    1. Everything here is a function of the release and these arguments.
    """

    release: Release
    records: bool = False
    margins: Sequence[Sequence[str]] = ()

    @cached_property
    def table(self) -> NonNegativeTable:
        """Whole numbers that are not negative."""
        from subspacedp.inference import NonNegativeTable

        return NonNegativeTable(self.release)

    @cached_property
    def weights(self) -> Weights:
        """What a record of every cell counts for."""
        return calibrate(self.release, self.table.values, self.margins)

    @property
    def total(self) -> int:
        """The number of persons that the table counts."""
        return int(self.table.values.sum())

    @property
    def made(self) -> bool:
        """Whether there are records: asked for, and not too many."""
        return self.records and self.total <= MAX_RECORDS

    @property
    def as_text(self) -> bool:
        """Whether the records are few enough for a text file too."""
        return self.made and self.total <= MAX_CSV_RECORDS

    @cached_property
    def bias(self) -> tuple[BiasOfSize, ...]:
        """What is expected of the errors of cells, by their size; of sizes that are expected."""
        return tuple(one for one in self.table.expected_bias() if one.cells >= 1)

    @property
    def words(self) -> str:
        """Which table to use for what, in two sentences."""
        from subspacedp.inference.nonnegative import WHICH_TABLE

        return WHICH_TABLE

    @property
    def record_words(self) -> str:
        """What the records are, how many, and how many weights are below zero."""
        weights = self.weights
        if weights.negative:
            rows = "row has" if weights.negative == 1 else "rows have"
            below = f"{weights.negative:,} {rows} a weight below zero, which sums need as it is"
        else:
            below = "no weight is below zero"
        return (
            f"{self.total:,} rows, one for each one that this table counts; none is a person's. "
            f"Their weights, from {weights.least:.3g} to {weights.most:.3g}, make the published "
            f"margins of rows unbiased where they can; {below}."
        )

    @cached_property
    def statement(self) -> dict[str, Any]:
        """What the files say of themselves, as plain data."""
        release, kind = self.release, self.release.guarantee.kind
        if kind == "S":  # is of figures apart from what is held, and this table uses both
            kind = "G"
        digest = values_hash(self.table.values.shape, whole=True)
        digest.update(
            np.ascontiguousarray(self.table.values, "<i8").reshape(-1).view(np.uint8).data
        )
        return {
            "format": FORMAT,
            "biased": True,
            "statement": self.table.describe(),
            "release_id": release.release_id,
            "for_publication": not release.seeded,
            "release_values_sha256": release.sha256,
            "kept_exactly": str(release.mechanism.held),
            "privacy": f"Post-processing of the release, at no further cost: kind {kind}.",
            "repeat": REPEAT,
            "table": {"type": "int64", "total": self.total, "sha256": digest.hexdigest()},
            "expected_bias": [
                {
                    "size": one.words,
                    "cells": float(f"{one.cells:.6g}"),
                    "bias": float(f"{one.bias:.6g}"),
                }
                for one in self.bias
            ],
            **({"records": self._of_records()} if self.records else {}),
        }

    def _of_records(self) -> dict[str, Any]:
        margins = [list(names) for names in self.margins]
        if not self.made:
            words = f"More than {MAX_RECORDS:,} records are not written; the table has the counts."
            return {"margins": margins, "statement": words}
        return {
            "margins": margins,
            "statement": SYNTHETIC,
            "rows": self.total,
            "text": self.as_text,
            **self.weights.as_dict(),
        }

    def write(self, folder: Path) -> list[str]:
        """Write all files into a folder that exists; their names."""
        query = self.release.mechanism.query
        numbers = {COUNT: self.table.values, UNBIASED: np.asarray(self.release.values)}
        write_rows(
            LabelColumns.of_query(query),
            numbers,
            csv=folder / f"{BIASED}.csv",
            parquet=folder / f"{BIASED}.parquet",
        )
        text = certificate_text(self.statement) + "\n"
        (folder / f"{BIASED}.json").write_text(text, "utf-8")
        written = [f"{BIASED}.csv", f"{BIASED}.parquet", f"{BIASED}.json"]
        if self.made:
            csv = folder / f"{RECORDS}.csv" if self.as_text else None
            write_records(
                query,
                self.table.values,
                self.weights.values,
                parquet=folder / f"{RECORDS}.parquet",
                csv=csv,
            )
            written += [f"{RECORDS}.parquet", *([] if csv is None else [csv.name])]
        return written


def verify_folder(
    folder: str | PathLike[str], *, public_key: str | PathLike[str] | None = None
) -> Verification:
    """All checks of a folder, those of second tables and their records included.

    Parameters
    ----------
    folder, public_key
        As for `subspacedp.release.verify_folder`.
    """
    return verify_release_folder(folder, public_key=public_key, second_table=check_second_table)


def check_second_table(release: Release, home: Path) -> list[Check]:
    """Derive the second table of a release again, and compare its files."""
    present = [name for name in SECOND if os.path.lexists(home / name)]
    name = f"{BIASED}.json"
    try:
        stated = read_json(home / name)
        records = stated.get("records")
        margins = [tuple(map(str, names)) for names in (records or {}).get("margins", ())]
        second = SecondTable(release=release, records=records is not None, margins=margins)
        wanted = second.statement
    except (SubspaceDPError, OSError, AttributeError, TypeError, ValueError) as error:
        reason = shown_text(str(error)) if isinstance(error, SubspaceDPError) else "it is no JSON"
        return [Check(name, False, f"the second table cannot be derived again: {reason}")]
    checks = [_check_statement(stated, wanted)]
    columns = {
        **{key: np.asarray(labels) for key, labels in release.mechanism.query.columns().items()},
        COUNT: second.table.values.reshape(-1),
        UNBIASED: np.asarray(release.values).reshape(-1),
    }
    checks += [check_table(home, f"{BIASED}.{kind}", columns) for kind in ("csv", "parquet")]
    files = [f"{RECORDS}.parquet"] if second.made else []
    files += [f"{RECORDS}.csv"] if second.as_text else []
    checks += [_check_records(home / file, second) for file in files]
    further = sorted({n for n in present if n.startswith(RECORDS)} - set(files))
    checks += [Check(n, False, "no such file follows from the second table") for n in further]
    return checks


def _check_statement(stated: Any, wanted: Mapping[str, Any]) -> Check:
    name = f"{BIASED}.json"
    fresh = json.loads(json.dumps(wanted))
    for key in [*fresh, *stated]:
        if not _same(stated.get(key, stated), fresh.get(key, fresh)):
            return Check(name, False, f"`{key}` does not follow from the release")
    return Check(name, True, "bias, totals and weights derived again, all equal")


def _same(stated: Any, wanted: Any) -> bool:
    """Equal as plain data, real numbers nearly."""
    if isinstance(wanted, dict):
        keys = isinstance(stated, dict) and list(stated) == list(wanted)
        return keys and all(_same(stated[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        items = isinstance(stated, list) and len(stated) == len(wanted)
        return items and all(map(_same, stated, wanted))
    if isinstance(wanted, float):
        number = isinstance(stated, int | float) and not isinstance(stated, bool)
        return number and math.isclose(stated, wanted, rel_tol=NEAR, abs_tol=NEAR)
    return type(stated) is type(wanted) and bool(stated == wanted)


def _check_records(path: Path, second: SecondTable) -> Check:
    """Every row is the one that the table gives, in order; read a piece at a time."""
    import pyarrow as pa

    query, values = second.release.mechanism.query, second.table.values
    rows = 0
    try:
        wanted = record_tables(query, values, second.weights.values)
        for present, expected in _alongside(_pieces(path, query, values, second), wanted):
            if present.column_names != expected.column_names:
                return Check(path.name, False, "it does not have the columns of these records")
            for column in expected.column_names:
                if not _equal(present[column], expected[column], near=column == WEIGHT):
                    return Check(path.name, False, f"column `{column}` differs")
            rows += expected.num_rows
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        told = str(error) if isinstance(error, ReleaseError) else "cannot be read as records"
        return Check(path.name, False, told)
    return Check(path.name, True, f"{rows:,} rows, as the table counts them")


def _equal(present: Any, wanted: Any, *, near: bool) -> bool:
    a, b = numpy_array(present), numpy_array(wanted)
    if a.dtype.kind != b.dtype.kind:
        return False
    if near:
        return bool(np.all(np.abs(a - b) <= WEIGHTS_NEAR * np.maximum(np.abs(b), 1.0)))
    return bool(np.array_equal(a, b))


def _pieces(path: Path, query: Any, values: Any, second: SecondTable) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield pa.Table.from_batches([batch])
        return
    one = next(record_tables(query, np.minimum(values, 0), second.weights.values))  # its schema
    options = pyarrow.csv.ConvertOptions(
        column_types=one.schema,
        null_values=[""],  # a label in no group; an empty label stands in quotes
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with pyarrow.csv.open_csv(path, convert_options=options) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _alongside(present: Iterator[Any], wanted: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Two streams of rows in pieces of equal length; an error where one is longer."""
    here: Any = None
    for expected in wanted:
        start = 0
        while start < expected.num_rows:
            if here is None or not here.num_rows:
                here = next(present, None)
                if here is None:
                    raise ReleaseError("has fewer rows than the table counts")
                continue
            number = min(here.num_rows, expected.num_rows - start)
            yield here.slice(0, number), expected.slice(start, number)
            here, start = here.slice(number), start + number
    rest = [here] if here is not None else []
    if any(piece.num_rows for piece in (*rest, *present)):
        raise ReleaseError("has more rows than the table counts")
