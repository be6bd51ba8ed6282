"""Files of spreadsheets and statistical packages: rows of text, and what the file says of them.

All values become text, as a CSV file has them: 1.0 as `1`, a day as 2024-12-31. So no type of a
column follows from confidential values, and what is wrong with a row is judged row by row.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any

from subspacedp.errors import DataError, without_values
from subspacedp.frozen import frozen
from subspacedp.io.engine import need
from subspacedp.io.files import check_names

SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
PACKAGES = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
SPSS = (".sav", ".zsav")
ROWS = 1 << 17  # at a time
EXACT = 2.0**53


@frozen(kw_only=True)
class ForeignFile:
    """A table of such a file. Its rows are confidential; the rest is what the file says of them.

    Parameters
    ----------
    columns
        The names of the columns.
    parts
        Their values, some rows at a time; they can be gone through once.
    names
        By column: what the codes in it are called, where the file says so.
    titles
        By column: what it is called for readers, where the file says so.
    """

    columns: tuple[str, ...]
    parts: Iterator[Sequence[Sequence[Any]]]
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)

    def texts(self) -> Iterator[list[str]]:
        """The rows of a public list; empty text for nothing."""
        for part in self.parts:
            for row in zip(*part, strict=True):
                yield [_text(value) or "" for value in row]

    def reader(self) -> Any:
        """The rows as arrow batches of text; nothing is read before it is asked for."""
        import pyarrow as pa

        schema = pa.schema([(name, pa.string()) for name in self.columns])
        batches = (
            pa.record_batch([_texts(values) for values in part], schema=schema)
            for part in self.parts
        )
        return pa.RecordBatchReader.from_batches(schema, batches)


def is_foreign(path: Path) -> bool:
    """Whether a file's name says that it is a spreadsheet or of a statistical package."""
    return path.suffix.lower() in (*SHEETS, *PACKAGES)


def is_list(path: str) -> bool:
    """Whether a path is one of a public list: csv, or such a file."""
    return path.casefold().endswith(".csv") or is_foreign(Path(path))


def open_foreign(path: Path, table: str | None = None) -> ForeignFile:
    """A table of a file; `table` is the name of a sheet, where there are several."""
    sheets = path.suffix.lower() in SHEETS
    if table is not None and not sheets:
        raise DataError(f"`{path.name}` is one table; leave out `table`.")
    library = need("python_calamine" if sheets else "pyreadstat", "files")
    if not path.is_file():
        raise DataError(f"There is no file `{path}`.")
    return without_values(
        lambda: _sheet(library, path, table) if sheets else _package(library, path),
        f"`{path.name}` could not be read",
    )


# ----------------------------------------------------------------------------------- spreadsheets


def _sheet(calamine: Any, path: Path, table: str | None) -> ForeignFile:
    book = calamine.load_workbook(str(path))
    kinds = (calamine.SheetTypeEnum.WorkSheet, calamine.SheetVisibleEnum.Visible)
    names = [s.name for s in book.sheets_metadata if (s.typ, s.visible) == kinds]
    listed = ", ".join(f"`{name}`" for name in names)
    if table is not None and table not in names:
        raise DataError(f"`{path.name}` has no sheet `{table}`; its sheets are {listed}.")
    if table is None and len(names) > 1:
        names = [name for name in names if book.get_sheet_by_name(name).height]
        if len(names) > 1:
            raise DataError(f"`{path.name}` has the sheets {listed}; say which as `table`.")
    if not names:
        raise DataError(f"`{path.name}` has no sheet.")
    # A row without anything is none: sheets end somewhere below their last one.
    rows = (
        row
        for row in book.get_sheet_by_name(table or names[0]).iter_rows()
        if any(value != "" for value in row)
    )
    header = [_text(value) for value in next(rows, [])]
    named = {i: name for i, name in enumerate(header) if name is not None}
    columns = check_names(list(named.values()), path)
    return ForeignFile(columns=columns, parts=_columns_of(rows, list(named)))


def _columns_of(rows: Iterable[Sequence[Any]], places: Sequence[int]) -> Iterator[list[list[Any]]]:
    rows = iter(rows)
    while some := list(islice(rows, ROWS)):
        yield [[row[place] for row in some] for place in places]


# ------------------------------------------------------------------------- statistical packages


def _package(pyreadstat: Any, path: Path) -> ForeignFile:
    read = getattr(pyreadstat, PACKAGES[path.suffix.lower()])
    spss = path.suffix.lower() in SPSS
    # Codes that a file declares missing are rows without a value, and no labels.
    more = {"user_missing": True} if spss else {}
    _, meta = read(str(path), metadataonly=True, output_format="dict", **more)
    columns = check_names(meta.column_names, path)
    titles = {name: title.strip() for name, title in meta.column_names_to_labels.items() if title}
    names = {
        column: {
            _text(code) or "": name
            for code, name in listed.items()
            if not _declared_missing(code, meta.missing_ranges.get(column, ()))
        }
        for column, listed in meta.variable_value_labels.items()
    }
    return ForeignFile(
        columns=columns, parts=_package_parts(read, path, columns), names=names, titles=titles
    )


def _package_parts(read: Any, path: Path, columns: Sequence[str]) -> Iterator[list[Sequence[Any]]]:
    # Some formats do not say how many rows they have, and the library's own loop then never ends.
    start, number = 0, ROWS
    while number == ROWS:
        part, _ = read(str(path), row_offset=start, row_limit=ROWS, output_format="dict")
        number = len(part[columns[0]])
        start += number
        if number:
            yield [part[name] for name in columns]


def _declared_missing(code: Any, ranges: Iterable[Mapping[str, Any]]) -> bool:
    return any(type(one["lo"]) is type(code) and one["lo"] <= code <= one["hi"] for one in ranges)


# ------------------------------------------------------------------------------------------ text


def _texts(values: Sequence[Any]) -> Any:
    """Values of a column as text; numbers, of which there are many, at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = set(map(type, values)) - {type(None)}
    if kinds != {float}:
        return pa.array([_text(value) for value in values], pa.string())
    numbers = pa.array(values, pa.float64(), from_pandas=True)  # NaN is nothing
    small = pc.less(pc.abs(numbers), EXACT)
    whole = pc.and_(small, pc.equal(numbers, pc.floor(numbers)))
    digits = pc.if_else(whole, numbers, None).cast(pa.int64()).cast(pa.string())
    return pc.coalesce(digits, numbers.cast(pa.string()))


def _text(value: Any) -> str | None:
    """A value as text; None for nothing.

    >>> [_text(value) for value in ("007", 1.0, 2.5, True, "", datetime.date(2024, 12, 31))]
    ['007', '1', '2.5', 'true', None, '2024-12-31']
    """
    match value:
        case None | "":
            return None
        case str():
            return value
        case bool():
            return str(value).lower()
        case float() if value != value:  # NaN
            return None
        case float() if abs(value) < EXACT and value == int(value):
            return str(int(value))
        case datetime.datetime():
            return value.isoformat(" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)
