"""A release on disk: values in a store or as rows with labels, certificate, digests.

Labels are written a run of rows at a time, as codes and a short dictionary: a table of ten million
cells has ten million rows of labels, and only a few thousand labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, BoolArray, Int64Array
from subspacedp.arrow import arrow_array, arrow_table, label_array, numpy_array, write_parts
from subspacedp.blocks.stores import STORES, StoredValues, copy_store
from subspacedp.errors import AlteredError, ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, HeldMargins, HeldMatrix, HeldValues, held_from
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.registry import UNREADABLE, mechanism_from
from subspacedp.queries import Query, query_from
from subspacedp.release.certificate import (
    ERROR_MODEL,
    FORMAT,
    Distributed,
    certificate_text,
    error_model_text,
)
from subspacedp.release.facts import Facts
from subspacedp.release.folders import new_folder
from subspacedp.release.release import Release
from subspacedp.release.signature import write_digests
from subspacedp.release.verify import verify_release
from subspacedp.stated import check_plain, first_difference, read_json, shown_text
from subspacedp.tables import Domain

ROWS = 1 << 20  # at a time: one row group of a Parquet file


@frozen(eq=False, repr=False)
class LabelColumns:
    """The labels of rows in row-major order of a shape.

    Parameters
    ----------
    shape
        Of the figures, one row each.
    columns
        By name: the axis, the code of every position on it, and the labels by code.
    plain
        Columns that have no such structure, whole.
    """

    shape: tuple[int, ...]
    columns: Mapping[str, tuple[int, Int64Array, AnyArray]]
    plain: Mapping[str, AnyArray]

    @classmethod
    def of_query(cls, query: Query) -> LabelColumns:
        """Those of the answers: as `query.columns()` has them."""
        domain = query.axes
        if query.workload is not None or domain is None or domain.shape != query.shape:
            return cls(query.shape, {}, query.columns())
        return cls.of_domain(domain)

    @classmethod
    def of_domain(cls, domain: Domain) -> LabelColumns:
        """Every label and level of a table's cells."""
        columns = {
            level.name: (a, level.codes, np.asarray(level.labels))
            for a, axis in enumerate(domain.axes)
            for level in axis.named
        }
        return cls(domain.shape, columns, {})

    def part(self, start: int, stop: int) -> dict[str, Any]:
        """Some of the rows, as arrow arrays with dictionaries."""
        return self.of(np.arange(start, stop))

    def of(self, row: Int64Array) -> dict[str, Any]:
        """The rows of these numbers, in their order and as often as they occur."""
        import pyarrow as pa

        out: dict[str, Any] = {}
        for name, column in self.plain.items():
            out[name] = arrow_array(column[row]).dictionary_encode()
        for name, (axis, codes, labels) in self.columns.items():
            position = row // math.prod(self.shape[axis + 1 :]) % self.shape[axis]
            code = codes[position]
            low, high = (int(code.min()), int(code.max()) + 1) if code.size else (0, 0)
            out[name] = pa.DictionaryArray.from_arrays(
                _places(code - low, code == len(labels)), arrow_array(labels[low:high])
            )
        return out

    def parts(self, numbers: Mapping[str, AnyArray]) -> Iterator[Any]:
        """All rows with columns of numbers beside them, as arrow tables of one schema."""
        import pyarrow as pa

        rows = math.prod(self.shape)
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            flat = {name: arrow_array(n.reshape(-1)[start:stop]) for name, n in numbers.items()}
            yield pa.table({**self.part(start, stop), **flat})


def _places(places: Int64Array, nowhere: BoolArray) -> Any:
    """Places in a list of labels; nothing for what is in no group."""
    import pyarrow as pa

    numbers = places.astype(np.int32)
    return pa.array(numbers, mask=nowhere) if nowhere.any() else arrow_array(numbers)


def write_rows(
    labels: LabelColumns,
    numbers: Mapping[str, AnyArray],
    *,
    csv: Path | Any,
    parquet: Path | None = None,
) -> None:
    """Write labels and numbers to a CSV file, or an open one, and to a Parquet file."""
    write_parts(labels.parts(numbers), csv=csv, parquet=parquet)


CERTIFICATE, PARQUET, CSV = "certificate.json", "values.parquet", "values.csv"
MARGINS = "margins"
BIASED, RECORDS = "non-negative-biased", "synthetic-records"
# What is made of a release beside it: a biased table with its statement, and records of it.
SECOND = (
    *(f"{BIASED}.{kind}" for kind in ("csv", "parquet", "json")),
    *(f"{RECORDS}.{kind}" for kind in ("csv", "parquet")),
)
# What readers compute with; words may change from version to version.
ESSENTIAL = {
    "noise": ("family", "rate", "sigma", "variance", "unit", "sensitivity"),
    "guarantee": ("kind",),
    "values": ("type", "expected_squared_error"),
}
LEVEL = 0.95  # of the intervals in files of margins
SAME = 1e-9  # errors may differ in the last bits between machines, and between versions


def save(release: Release, folder: str | PathLike[str]) -> None:
    """Write a release to a new folder.

    Guarantees
    ----------
    1. The folder appears complete or not at all: it is written beside its place and renamed.
    2. An existing folder is never touched.
    """
    with new_folder(folder) as scratch:
        write_files(release, scratch)
        write_digests(scratch, known=release.file_digests)


def write_files(release: Release, folder: Path) -> None:
    """Write values, certificate and error model into a folder that exists.

    It may be that of the store.
    """
    if release.stored is None:
        numbers = {"value": release.values, "stderr": release.stderr()}
        labels = LabelColumns.of_query(release.mechanism.query)
        write_rows(labels, numbers, csv=folder / CSV, parquet=folder / PARQUET)
    elif release.stored.folder != folder:
        copy_store(release.stored, folder)
    text = certificate_text(release.certificate())
    (folder / CERTIFICATE).write_text(text + "\n", "utf-8")
    (folder / ERROR_MODEL).write_text(error_model_text(release.mechanism), "utf-8")


def load(folder: str | PathLike[str]) -> Release:
    """Read a release; its values must be the ones the certificate was made for.

    The standard errors beside them must follow from the certificate's design, so a budget that
    was altered is found. Values in a store are read when they are asked for, and `verify` checks
    them.
    """
    source = Path(folder)
    release, table = read_release(source)
    _check_essentials(release, source)
    if table is None:
        return release
    stated = numpy_array(table["stderr"]) if "stderr" in table.column_names else None
    if stated is None or not same_column("stderr", release.stderr().ravel(), stated):
        raise AlteredError(
            f"The standard errors in `{source / PARQUET}` do not follow from its certificate."
        )
    return release


def _check_essentials(release: Release, source: Path) -> None:
    """What a reader computes with must follow from the design: totals, law, kind of guarantee."""
    checks = verify_release(release).checks if release.stored is None else ()
    failed = next((check for check in checks if not check.ok), None)
    if failed is not None:
        raise AlteredError(
            f"`{source}` was altered: {failed.name} does not hold ({failed.detail})."
        )
    stated, fresh = read_certificate(source), json.loads(json.dumps(release.certificate()))
    if stated.get("design_sha256", fresh["design_sha256"]) != fresh["design_sha256"]:
        raise AlteredError(
            f"`{source / CERTIFICATE}` was altered: its design is not the one it was made for."
        )
    try:
        for part, keys in ESSENTIAL.items():
            for key in keys:
                if not _same(stated[part].get(key), fresh[part].get(key)):
                    raise AlteredError(
                        f"`{source / CERTIFICATE}` was altered: `{part}.{key}` is not what its "
                        "design implies."
                    )
    except (AttributeError, KeyError, TypeError):
        raise ReleaseError(f"`{source / CERTIFICATE}` is not usable: a part is missing.") from None


def _same(stated: Any, fresh: Any) -> bool:
    """Whether a number or word is as computed, but for the last bits of floating point."""
    if isinstance(stated, float) and isinstance(fresh, float):
        return math.isclose(stated, fresh, rel_tol=SAME)
    return bool(stated == fresh)


def read_release(source: Path) -> tuple[Release, Any]:
    """A release, and its Parquet table of rows with labels where it has one.

    Rows are read, and must be those that the certificate was made for; stores are not.
    """
    data = read_certificate(source)
    stated = _stated_digest(data)
    kind = data["values"].get("store")
    if kind is not None:
        mechanism = mechanism_from(data["design"])
        if not isinstance(kind, str) or kind not in STORES:
            raise ReleaseError(
                f"`{source / CERTIFICATE}` is not usable: `values.store` must be one of "
                f"{', '.join(STORES)}."
            )
        stored = StoredValues(
            kind=kind,
            folder=source,
            shape=mechanism.query.shape,
            dtype=np.dtype(np.int64 if mechanism.decimals == 0 else np.float64),
            sha256=stated,
        )
        return _release(data, mechanism, stored), None
    table = read_parquet(source)
    mechanism = mechanism_from(data["design"], answers=table.num_rows)
    _check_rows(table, mechanism)
    values = numpy_array(table["value"]).reshape(mechanism.query.shape).copy()
    release = _release(data, mechanism, values)
    if release.sha256 != stated:
        raise AlteredError(
            f"The values in `{source / PARQUET}` are not the ones its certificate was made for."
        )
    return release, table


def _stated_digest(data: dict[str, Any]) -> str:
    try:
        return str(data["values"]["sha256"])
    except (KeyError, TypeError):
        raise ReleaseError("The certificate is not usable: it states no digest.") from None


def margin_stem(names: Sequence[str]) -> str:
    """The name of a margin's files, without their endings."""
    return "-by-".join(names) or "total"


def write_margins(release: Release, margins: Sequence[Sequence[str]], folder: Path) -> list[str]:
    """Write the totals of some margins with standard errors and intervals; the files' names.

    Guarantees
    ----------
    1. Every file is in `margins` below the folder, whatever the axes are named.
    2. No file takes the place of another one.
    """
    import pyarrow.csv
    import pyarrow.parquet

    home = folder / MARGINS
    stems = [margin_stem(names) for names in margins]
    for stem in stems:
        if (home / f"{stem}.csv").resolve().parent != home.resolve():
            raise ReleaseError(f"The margin `{stem}` cannot be the name of a file.")
        if [other.casefold() for other in stems].count(stem.casefold()) > 1:
            raise ReleaseError(f"Two margins would be written to the file `{stem}.csv`.")
    written = []
    for names in margins:
        home.mkdir(exist_ok=True)
        stem = f"{MARGINS}/{margin_stem(names)}"
        table = arrow_table(release.margin(*names).columns(LEVEL))
        pyarrow.csv.write_csv(table, folder / f"{stem}.csv")
        pyarrow.parquet.write_table(table, folder / f"{stem}.parquet")
        written.append(stem)
    return written


def read_certificate(source: Path) -> dict[str, Any]:
    """The certificate of a folder as plain data, with the parts that every certificate has."""
    try:
        data = read_json(source / CERTIFICATE)
    except FileNotFoundError:
        raise ReleaseError(f"`{source}` has no {CERTIFICATE}; it is not a release.") from None
    except OSError as error:
        raise ReleaseError(f"Cannot read `{source / CERTIFICATE}`: {error.strerror}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReleaseError(
            f"`{source / CERTIFICATE}` is not a certificate that this version can read: its "
            f"`format` must be {FORMAT!r}."
        )
    missing = {"design", "values", "invariants", "software", "release_id"} - set(data)
    if missing:
        raise ReleaseError(f"`{source / CERTIFICATE}` lacks `{min(missing)}`.")
    return data


def read_parquet(source: Path) -> Any:
    """The table of values of a folder."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(source / PARQUET) as file:  # without pandas, a slow import
            table = file.read()
        _ = table.column_names  # may not be text
        return table
    except FileNotFoundError:
        raise ReleaseError(f"`{source}` has no {PARQUET}.") from None
    except (OSError, ValueError, pa.ArrowException):
        raise ReleaseError(f"`{source / PARQUET}` is not a readable Parquet file.") from None


def _check_rows(table: Any, mechanism: Mechanism) -> None:
    """Rows must be the answers of the query, in order."""
    if table.num_rows != mechanism.query.size or "value" not in table.column_names:
        raise AlteredError("The values file does not have the rows and columns of its certificate.")
    for name, wanted in mechanism.query.columns().items():
        if name not in table.column_names or not np.array_equal(label_array(table[name]), wanted):
            raise AlteredError(
                f"The labels of `{name}` in the values file are not those of its certificate."
            )


def _release(data: dict[str, Any], mechanism: Mechanism, values: Any) -> Release:
    distributed = Distributed.from_dict(data["distributed"]) if "distributed" in data else None
    facts = Facts.from_dict(data["publication"]) if "publication" in data else Facts()
    # Approximate: only of earlier versions, and never with the projected mechanism.
    if distributed is not None and not distributed.exact and mechanism.measures_counts:
        raise AlteredError("The certificate misstates whether its parts were computed exactly.")
    try:
        return Release(
            mechanism=mechanism,
            values=values,
            exact=held_values(data, mechanism.held),
            release_id=str(data["release_id"]),
            seeded=data["for_publication"] is not True,
            version=str(data["software"]["version"]),
            distributed=distributed,
            facts=facts,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ReleaseError(
            "The certificate is not usable: its held totals cannot be read."
        ) from None


def same_column(column: str, wanted: Any, present: Any) -> bool:
    """Whether a column is the wanted one: exactly, but for the last bits of standard errors."""
    if wanted.shape != present.shape:
        return False
    numbers = {wanted.dtype.kind, present.dtype.kind} & set("iuf")
    if numbers and wanted.dtype.kind != present.dtype.kind:
        return False  # float64 does not tell whole numbers beyond 2**53 apart
    if column == "stderr":
        return bool(np.allclose(wanted, present, rtol=SAME, atol=0.0, equal_nan=True))
    return bool(np.array_equal(wanted, present))


# ----------- what a certificate states beside its mechanism: held values, and what is held of what


def rebuild_invariants(data: Mapping[str, Any]) -> tuple[Query, Held]:
    """What is asked and what is held of it, from the plain data of a design."""
    try:
        check_plain({key: data[key] for key in ("query", "held")}, "what is held")
        query = query_from(data["query"], None)
        return query, held_from(data["held"], query)
    except SubspaceDPError as error:
        raise ReleaseError(shown_text(f"What is held cannot be read: {error}")) from None
    except UNREADABLE as error:
        raise ReleaseError(f"What is held cannot be read ({type(error).__name__}).") from None


def held_values(data: Mapping[str, Any], held: HeldMargins | HeldMatrix) -> HeldValues:
    """The held values that a certificate states, in their shapes, each of its own type."""
    kind = np.int64 if held.exact else np.float64
    out = tuple(
        np.asarray(item["values"], kind).reshape(shape)
        for shape, item in zip(held.value_shapes, data["invariants"], strict=True)
    )
    written = [{"shape": list(v.shape), "values": v.ravel().tolist()} for v in out]
    if first_difference(data["invariants"], written) is not None:
        raise ReleaseError("The certificate is not usable: its held totals cannot be read.")
    return out
