"""The second table of a release: files, what they state of themselves, and their checks.

A table without negative values is biased, so everything of it says so: the names of its files, its
columns, and a statement beside them. All of it follows from the release, and is derived again by
whoever checks it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrow import numpy_array
from subspacedp.blocks.digests import values_hash
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.microdata.records import (
    MAX_CSV_RECORDS,
    WEIGHT,
    Weights,
    calibrate,
    record_tables,
    write_records,
)
from subspacedp.release import Release, Verification
from subspacedp.release import verify_folder as verify_release_folder
from subspacedp.release.certificate import certificate_text
from subspacedp.release.files import BIASED, RECORDS, SECOND
from subspacedp.release.folder_checks import check_table
from subspacedp.release.label_columns import LabelColumns, write_rows
from subspacedp.release.verify import Check
from subspacedp.stated import read_json, shown_text

if TYPE_CHECKING:
    from subspacedp.inference import NonNegativeTable
    from subspacedp.inference.nonnegative import BiasOfSize

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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
    options = pyarrow.csv.ConvertOptions(column_types=one.schema)
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
