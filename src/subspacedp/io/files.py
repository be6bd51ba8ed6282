"""Which files a path means, and the table function by which DuckDB reads just these."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Sequence
from pathlib import Path

from subspacedp.errors import DataError
from subspacedp.frozen import frozen

FIRST_LINE = "does its first line have the column names?"
_LONGEST_HEADER = 1 << 20  # bytes
_SIGNS = ",;\t|"
PACKED = {".gz": "gzip", ".zst": "zstd"}


@frozen(kw_only=True)
class Scan:
    """How files are read.

    Parameters
    ----------
    sql
        The table function.
    files
        The files, each escaped so that DuckDB takes no sign of its name for a pattern.
    fields
        For CSV, how many fields a row has; 0 otherwise.
    """

    sql: str
    files: tuple[str, ...]
    fields: int = 0


def scan_of(path: Path) -> Scan:
    """How the files that a path means are read; a path that exists is never a pattern."""
    files = _files(path)
    names = tuple(_escaped(file) for file in files)
    listed = f"[{', '.join(map(sql_text, names))}]"
    if all(_is_parquet(file) for file in files):
        # A file's minimum and maximum leave NaN out; without this option DuckDB takes them to say
        # that there is none, and even `isnan` is then false (duckdb issue 25521).
        return Scan(sql=f"read_parquet({listed}, can_have_nan = true)", files=names)
    if not all(is_csv(file.name) for file in files):
        raise DataError(
            f"`{shown_name(path)}` is of no known kind; known are .csv and .tsv, also .gz and .zst "
            "of them, .parquet, a folder of .parquet files, .duckdb, .xlsx, .xls, .ods, .sav, "
            ".dta, .sas7bdat and .xpt."
        )
    packed = {_packing(file) for file in files}
    headers = {_columns(file) for file in files}
    if len(headers) > 1 or len(packed) > 1:
        raise DataError(
            f"The files that match `{path.name}` must have the same first line, with the same "
            "columns in the same order, and all or none of them be packed."
        )
    ((sign, columns),) = headers
    kinds = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in columns)
    return Scan(
        sql=f"read_csv({listed}, all_varchar = true, header = true, auto_detect = false, "
        f"columns = {{{kinds}}}, delim = {sql_text(sign)}, quote = '\"', escape = '\"', "
        f"nullstr = '', compression = {sql_text(packed.pop() or 'none')})",
        files=names,
        fields=len(columns),
    )


def sql_text(value: object) -> str:
    """A text as DuckDB's SQL writes it."""
    return "'" + str(value).replace("'", "''") + "'"


def shown_name(path: Path) -> str:
    """The last part of a path; that of the folder for a path such as `.`."""
    return path.name or path.resolve().name or str(path)


def is_csv(name: str) -> bool:
    """Whether a file's name says that it is text with delimiters."""
    return _unpacked(name).endswith((".csv", ".tsv", ".txt"))


def _unpacked(name: str) -> str:
    """A file's name in small letters, without the ending of one that is packed."""
    return name.lower().removesuffix(".gz").removesuffix(".zst")


def _packing(path: Path) -> str | None:
    return PACKED.get(path.suffix.lower())


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def _escaped(path: Path) -> str:
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _files(path: Path) -> list[Path]:
    try:
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError):  # a name that the system does not even look for
        there, folder = False, False
    if folder:
        files = sorted(f for f in path.rglob("*") if _is_parquet(f) and f.is_file())
        if not files:
            raise DataError(
                f"`{shown_name(path)}` could not be read: the folder has no .parquet file."
            )
        return files
    if there:
        return [path]
    if not any(sign in path.name for sign in "*?["):
        raise DataError(f"There is no file `{path}`.")
    try:
        matching = sorted(path.parent.glob(path.name))
    except (OSError, ValueError):
        matching = []
    files = [file for match in matching for file in _files(match)]
    if not files:
        raise DataError(f"No file matches `{path}`.")
    return files


def _header(path: Path) -> str:
    import pyarrow as pa

    kind, line = "", b""
    try:
        with pa.input_stream(str(path), compression=_packing(path)) as file:
            line, end, _ = file.read(_LONGEST_HEADER + 1).partition(b"\n")
        line += end
        text = "" if len(line) > _LONGEST_HEADER else str(line, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:  # arrow's own errors are OSErrors
        kind = type(error).__name__
    if kind:
        raise DataError(
            f"The first line of `{path.name}` could not be read as UTF-8 text ({kind})."
        )
    if len(line) > _LONGEST_HEADER:
        raise DataError(
            f"The first line of `{path.name}` is longer than a line of column names can be; the "
            "lines must end in LF or CRLF."
        )
    text = text.removesuffix("\n").removesuffix("\r")
    if "\r" in text:
        raise DataError(f"`{path.name}` cannot be read: the lines must end in LF or CRLF.")
    return text


def _columns(path: Path) -> tuple[str, tuple[str, ...]]:
    """The delimiter, and the header's names; nothing is guessed from confidential values."""
    header = _header(path)
    tabbed = _unpacked(path.name).endswith(".tsv")
    sign = "\t" if tabbed else delimiter_of(header)
    names: list[str] | None = None
    with contextlib.suppress(csv.Error):  # told below, without the error as its context
        names = next(csv.reader([header], delimiter=sign, strict=True), [])
    if names is None:
        raise DataError(
            f"The first line of `{path.name}` has a quote that is not closed, or a name that is "
            f"too long; {FIRST_LINE}"
        )
    return sign, check_names(names, path)


def delimiter_of(header: str) -> str:
    """The sign between the names of columns: whichever the line has most of."""
    return max(_SIGNS, key=header.count)


def check_names(names: Sequence[str], path: Path) -> tuple[str, ...]:
    """The names of a file's columns, if these can be told apart."""
    if not names or not all(names):
        raise DataError(f"`{path.name}` must start with a line of column names.")
    if len({name.lower() for name in names}) < len(names):
        raise DataError(f"`{path.name}` has a column name more than once; {FIRST_LINE}")
    return tuple(names)
