"""DuckDB: files of records, and its own databases."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from subspacedp.errors import DataError, without_values
from subspacedp.io.engine import NAME, Kind, Source, need
from subspacedp.io.spill import SpillFolder
from subspacedp.tables import Label

__all__ = ["DuckSource"]

_WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
_WHOLE |= {f"U{name}" for name in _WHOLE}
_KINDS = {"FLOAT": Kind.REAL, "DOUBLE": Kind.REAL, "DATE": Kind.DATE, "BOOLEAN": Kind.BOOL}
_KINDS |= dict.fromkeys(_WHOLE, Kind.WHOLE) | {"VARCHAR": Kind.TEXT, "UUID": Kind.TEXT}
_BATCH = 1 << 16


class DuckSource(Source):
    """A table that DuckDB reads: CSV, Parquet, or a DuckDB database.

    Parameters
    ----------
    path
        File, folder of Parquet files, or pattern.
    table
        The table of a database file.
    memory
        The most memory DuckDB takes, such as "2GB"; by default four fifths of the machine's.
    scratch
        The folder under which a private one is made for what does not fit in memory.

    Guarantees
    ----------
    1. What does not fit in memory lies in a folder that only this user can read, and is removed by
       `close`, by the garbage collector, at the end of the interpreter, or, where a process was
       killed, by the next source that is opened.
    2. Data files and databases are opened for reading only.
    3. Every CSV column is read as text: "01001" stays "01001".
    """

    kind = "duckdb"
    dialect = "duckdb"

    def __init__(
        self,
        path: Path,
        *,
        table: str | None = None,
        memory: str | None = None,
        scratch: Path | None = None,
    ) -> None:
        duckdb = need("duckdb", "publish")
        scan = None if _is_database(path) else _scan(path)
        if scan is None and table is None:
            raise DataError(f"`{path.name}` is a database; say which `table` of it.")
        self._spill = SpillFolder(scratch)
        config = {
            "temp_directory": str(self._spill.path),
            "autoinstall_known_extensions": "false",  # nothing is fetched from the network
            "python_enable_replacements": "false",  # a name never means a Python variable
            "preserve_insertion_order": "false",  # sums need no order, and less memory without it
        }
        if memory is not None:
            config["memory_limit"] = memory
        self._con: Any = without_values(
            lambda: duckdb.connect(config=config), "DuckDB could not be started"
        )
        try:
            if scan is None:
                scan = self._attach(path, str(table))
            kinds = self._view(scan, path)
        except BaseException:
            self.close()
            raise
        super().__init__(str(path), kinds)

    def _attach(self, path: Path, table: str) -> str:
        without_values(
            lambda: self._con.execute(f"ATTACH {_text(path)} AS subspacedp_file (READ_ONLY)"),
            f"The database `{path.name}` could not be opened",
        )
        return ".".join(_name(part) for part in ("subspacedp_file", *table.split(".")))

    def _view(self, scan: str, path: Path) -> dict[str, Kind]:
        found = without_values(
            lambda: self._con.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall(),  # noqa: S608 - quoted names
            f"`{path.name}` could not be read",
        )
        kinds = {str(row[0]): _kind(str(row[1])) for row in found}
        columns = ", ".join(_plain(str(row[0]), str(row[1])) for row in found)
        without_values(
            lambda: self._con.execute(f"CREATE TEMP VIEW {NAME} AS SELECT {columns} FROM {scan}"),  # noqa: S608 - quoted names
            f"`{path.name}` could not be read",
        )
        return kinds

    def digest(self, text: Any) -> Any:
        """SHA-256 of the UTF-8 text in lower-case hexadecimal digits, as an expression."""
        return _sha256()(text)

    def close(self) -> None:
        """End the connection and remove the spill files."""
        con, self._con = getattr(self, "_con", None), None
        if con is not None:
            con.close()
        self._spill.close()

    def _list(self, name: str, labels: Sequence[Label]) -> None:
        import pyarrow as pa

        codes = pa.array(range(len(labels)), pa.int64())
        self._con.register(name, pa.table({"label": pa.array(labels), "code": codes}))

    def _run(self, sql: str) -> Iterable[Any]:
        yield from self._con.sql(sql).to_arrow_reader(_BATCH)


@cache
def _sha256() -> Any:
    ibis = need("ibis", "publish")

    @ibis.udf.scalar.builtin(name="sha256", signature=(("string",), "string"))
    def sha256(text): ...  # type: ignore[no-untyped-def]  # the signature is above

    return sha256


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _is_database(path: Path) -> bool:
    return path.suffix in {".duckdb", ".db", ".ddb"}


def _scan(path: Path) -> str:
    """The table function that reads the files."""
    pattern = any(sign in path.name for sign in "*?[") and not path.exists()
    if not pattern and not path.exists():
        raise DataError(f"There is no file `{path}`.")
    if path.is_dir() or path.suffix == ".parquet":
        files = path / "**" / "*.parquet" if path.is_dir() else path
        # A file's minimum and maximum leave NaN out; without this option DuckDB takes them to say
        # that there is none, and even `isnan` is then false (duckdb issue 25521).
        return f"read_parquet({_text(files)}, can_have_nan = true)"
    name = path.name.removesuffix(".gz")
    if not name.endswith((".csv", ".tsv", ".txt")):
        raise DataError(
            f"`{path.name}` is of no known kind; known are .csv, .csv.gz, .tsv, .parquet, a folder "
            "of .parquet files, and .duckdb."
        )
    first = next(iter(sorted(path.parent.glob(path.name))), None) if pattern else path
    if first is None:
        raise DataError(f"No file matches `{path}`.")
    return (
        f"read_csv({_text(path)}, all_varchar = true, header = true, auto_detect = false, "
        f"columns = {_columns(first)}, delim = {_text(_delimiter(first))}, quote = '\"', "
        "escape = '\"', nullstr = '')"
    )


def _header(path: Path) -> str:
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rb") as file:  # decoding ahead would find what is wrong further down
            return str(file.readline(), "utf-8-sig").rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        kind = type(error).__name__
    raise DataError(f"The first line of `{path.name}` could not be read as UTF-8 text ({kind}).")


def _delimiter(path: Path) -> str:
    """The sign that occurs most often in the header."""
    if path.name.removesuffix(".gz").endswith(".tsv"):
        return "\t"
    header = _header(path)
    return max(",;\t|", key=header.count)


def _columns(path: Path) -> str:
    """The header's names, all of them text: nothing is guessed from confidential values."""
    import csv

    names = next(csv.reader([_header(path)], delimiter=_delimiter(path)), [])
    if not names or not all(names):
        raise DataError(f"`{path.name}` must start with a line of column names.")
    repeated = next((n for n in names if [m.lower() for m in names].count(n.lower()) > 1), None)
    if repeated is not None:
        raise DataError(f"`{path.name}` has the column `{repeated}` more than once.")
    return "{" + ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names) + "}"


def _kind(kind: str) -> Kind:
    if kind.startswith("DECIMAL"):
        return Kind.WHOLE if _small_whole(kind) else Kind.REAL
    if kind.startswith("ENUM"):
        return Kind.TEXT
    return _KINDS.get(kind, Kind.OTHER)


def _small_whole(kind: str) -> bool:
    width, scale = (int(part) for part in kind[len("DECIMAL(") : -1].split(","))
    return scale == 0 and width <= 18


def _plain(name: str, kind: str) -> str:
    """The column in the type that its kind stands for."""
    wanted = {Kind.REAL: "DOUBLE", Kind.TEXT: "VARCHAR", Kind.OTHER: "VARCHAR"}.get(_kind(kind))
    if kind.startswith("DECIMAL") and _kind(kind) is Kind.WHOLE:
        wanted = "BIGINT"
    if wanted is None or wanted == kind:
        return _name(name)
    return f"CAST({_name(name)} AS {wanted}) AS {_name(name)}"
