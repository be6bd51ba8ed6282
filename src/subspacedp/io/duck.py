"""DuckDB: files of records, and its own databases."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any, Unpack

import numpy as np

from subspacedp.arrow import arrow_table
from subspacedp.errors import DataError, without_values
from subspacedp.io.engine import NAME, Kind, Opening, Source, name_parts, need, sql_name
from subspacedp.io.files import Scan, scan_of, shown_name, sql_text
from subspacedp.io.foreign import ForeignFile, is_foreign, open_foreign
from subspacedp.tables import Label

_WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
_WHOLE |= {f"U{name}" for name in _WHOLE}
_KINDS = {"FLOAT": Kind.REAL, "DOUBLE": Kind.REAL, "DATE": Kind.DATE, "BOOLEAN": Kind.BOOL}
_KINDS |= dict.fromkeys(_WHOLE, Kind.WHOLE) | {"VARCHAR": Kind.TEXT, "UUID": Kind.TEXT}
_BATCH = 1 << 16
_PREFIX = "subspacedp-spill-"
_LOCK = "in-use"


class DuckSource(Source):
    """A table that DuckDB reads: CSV, Parquet, a DuckDB database, or rows that others read for it.

    Parameters
    ----------
    path
        File, folder of Parquet files, or a pattern of files with the same columns. Only the last
        part of a path can be a pattern, and a path that exists is none.
    table
        The table of a database file; a part of its name that has a dot stands in double quotes. The
        sheet of a workbook that has several.
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
    3. Every column of CSV, spreadsheets and statistical packages is read as text: "01001" stays
       "01001".
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
        foreign = open_foreign(path, table) if is_foreign(path) else None
        scan = None if foreign or _is_database(path) else scan_of(path)
        if _is_database(path) and table is None:
            raise DataError(f"`{path.name}` is a database; say which `table` of it.")
        self._scan = scan
        self._kept = 0
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
        self._limit = f"SET memory_limit = '{memory}'" if memory else "RESET memory_limit"
        try:
            if foreign is not None:
                kinds = self._view(self._loaded(foreign, path), shown_name(path), None)
            elif scan is None:
                kinds = self._view(self._attach(path, str(table)), shown_name(path), table)
            else:
                self._check_parts(scan, path)
                kinds = self._view(scan.sql, shown_name(path), None)
        except BaseException:
            self.close()
            raise
        super().__init__(str(path), kinds, headed=scan is not None and scan.fields > 0)
        if foreign is not None:
            self.code_names, self.titles = foreign.names, foreign.titles

    @classmethod
    def at(cls, address: str, table: str | None, **opening: Unpack[Opening]) -> Source:
        """Open an address; the arguments are those of `open_source`."""
        path = (opening["base"] or Path()) / Path(address).expanduser()
        return cls(path, table=table, memory=opening["memory"], scratch=opening["scratch"])

    @classmethod
    def needs_table(cls, address: str) -> bool:
        """Whether it is a database, and no file of one table."""
        return _is_database(Path(address))

    def _attach(self, path: Path, table: str) -> str:
        without_values(
            lambda: self._con.execute(f"ATTACH {sql_text(path)} AS subspacedp_file (READ_ONLY)"),
            f"The database `{path.name}` could not be opened",
        )
        return ".".join(sql_name(part) for part in ("subspacedp_file", *name_parts(table)))

    def _loaded(self, foreign: ForeignFile, path: Path) -> str:
        """The rows of a file that can be read once only; like everything here they may spill."""
        rows, name = "subspacedp_rows", "subspacedp_file"

        def load() -> None:
            self._con.register(rows, foreign.reader())
            self._con.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {rows}")  # noqa: S608 - our own names
            self._con.unregister(rows)

        without_values(load, f"`{path.name}` could not be read")
        return name

    def _check_parts(self, scan: Scan, path: Path) -> None:
        """Refuse Parquet files that differ: DuckDB reads all of them as it reads the first."""
        if scan.fields or len(scan.files) < 2:
            return
        listed = ", ".join(map(sql_text, scan.files))
        schemas = f"parquet_schema([{listed}]) WHERE duckdb_type IS NOT NULL"
        query = f"SELECT file_name, name, duckdb_type FROM {schemas}"  # noqa: S608 - quoted names
        described = without_values(
            lambda: self._con.execute(query).fetchall(), f"`{shown_name(path)}` could not be read"
        )
        parts: dict[str, set[tuple[str, str]]] = {}
        for file, name, kind in described:
            plain = Kind.WHOLE.value if kind in _WHOLE else str(kind)
            parts.setdefault(str(file), set()).add((str(name), plain))
        first, *others = parts.values()
        if any(other != first for other in others):
            raise DataError(
                f"The Parquet files of `{shown_name(path)}` must all have the same columns of the "
                "same types."
            )

    def _view(self, scan: str, name: str, table: str | None) -> dict[str, Kind]:
        duckdb = need("duckdb", "publish")

        def describe() -> list[Any] | None:
            try:
                return list(self._con.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall())  # noqa: S608 - quoted names
            except (duckdb.CatalogException, duckdb.BinderException):
                if table is None:
                    raise
            return None

        described = without_values(describe, f"`{name}` could not be read")
        if described is None:
            raise DataError(f"`{name}` could not be read: it has no table `{table}`.")
        kinds = {str(row[0]): _kind(str(row[1])) for row in described}
        columns = ", ".join(_plain(str(row[0]), str(row[1])) for row in described)
        without_values(
            lambda: self._con.execute(f"CREATE TEMP VIEW {NAME} AS SELECT {columns} FROM {scan}"),  # noqa: S608 - quoted names
            f"`{name}` could not be read",
        )
        return kinds

    def _explain(self, error: Exception) -> str | None:
        """What is wrong with a CSV file; DuckDB's own text quotes the row and is not told."""
        fields = self._scan.fields if self._scan is not None else 0
        if not fields or type(error).__name__ != "InvalidInputException":
            return None
        text = str(error)
        if "not utf-8 encoded" in text:
            return "a row is not UTF-8 text; save the file in that encoding"
        if "Maximum line size" in text:
            return "a row is too long, or a quote is not closed"
        number = "1 field" if fields == 1 else f"{fields} fields"
        return (
            f"a row does not have the {number} of the header, a quote is not closed, or the lines "
            "do not all end in LF or all in CRLF"
        )

    def digest(self, text: Any) -> Any:
        """SHA-256 of the UTF-8 text in lower-case hexadecimal digits, as an expression."""
        return _sha256()(text)

    def keep(self, expression: Any) -> Any:
        """The answer in a temporary table of this connection; it spills like everything else."""
        ibis = need("ibis", "publish")

        name = f"subspacedp_kept_{self._kept}"
        self._kept += 1
        sql = f"CREATE TEMP TABLE {name} AS {self._sql(expression)}"
        # Callers tell their own progress; DuckDB would draw a bar over it.
        self._asked(lambda: self._con.execute("SET enable_progress_bar = false").execute(sql))
        return ibis.table(expression.schema(), name=name)

    def close(self) -> None:
        """End the connection and remove the spill files."""
        con, self._con = getattr(self, "_con", None), None
        if con is not None:
            con.close()
        self._spill.close()

    def _list(self, name: str, codes: Mapping[Label, int]) -> None:
        labels = list(codes)
        kind = np.int64 if labels and isinstance(labels[0], int) else object
        columns = {"label": np.array(labels, kind), "code": np.array([*codes.values()], np.int64)}
        self._con.register(name, arrow_table(columns))

    def _run(self, sql: str, scratch: Path | None) -> Iterable[Any]:
        del scratch  # DuckDB hands out batches
        yield from self._con.sql(sql).to_arrow_reader(_BATCH)
        # Its allocator keeps what an answer took, a gigabyte for 10⁷ cells, until it is told anew
        # how much there is.
        self._con.execute(self._limit)


@cache
def _sha256() -> Any:
    ibis = need("ibis", "publish")

    @ibis.udf.scalar.builtin(name="sha256", signature=(("string",), "string"))
    def sha256(text): ...  # type: ignore[no-untyped-def]  # the signature is above

    return sha256


def _is_database(path: Path) -> bool:
    return path.suffix.lower() in {".duckdb", ".db", ".ddb"}


def _kind(kind: str) -> Kind:
    if kind.startswith("DECIMAL"):
        return Kind.WHOLE if _small_whole(kind) else Kind.REAL
    if kind.startswith("ENUM"):
        return Kind.TEXT
    if kind.startswith("TIMESTAMP"):
        return Kind.TIME
    return _KINDS.get(kind, Kind.OTHER)


def _small_whole(kind: str) -> bool:
    width, scale = (int(part) for part in kind[len("DECIMAL(") : -1].split(","))
    return scale == 0 and width <= 18


def _plain(name: str, kind: str) -> str:
    """The column in the type that its kind stands for."""
    wanted = {Kind.REAL: "DOUBLE", Kind.TEXT: "VARCHAR", Kind.OTHER: "VARCHAR"}.get(_kind(kind))
    if kind.startswith("DECIMAL") and _kind(kind) is Kind.WHOLE:
        wanted = "BIGINT"
    if kind == "TIMESTAMP WITH TIME ZONE":  # in UTC, whatever zone the machine is in
        time = f"make_timestamp(epoch_us({sql_name(name)}))"  # NULL for an infinite one
        ever = f"isinf({sql_name(name)}) THEN CAST('infinity' AS TIMESTAMP)"
        return f"CASE WHEN {ever} ELSE {time} END AS {sql_name(name)}"
    if kind.startswith("TIMESTAMP"):
        wanted = "TIMESTAMP"
    if wanted is None or wanted == kind:
        return sql_name(name)
    return f"CAST({sql_name(name)} AS {wanted}) AS {sql_name(name)}"


class SpillFolder:
    """A folder that only this user can read, removed when it is closed or forgotten.

    A process that is killed cannot remove its folder. The kernel then drops the lock on a file in
    it, and the next folder made beside it removes every one whose lock is free.
    """

    def __init__(self, beside: Path | None = None) -> None:
        root = Path(tempfile.gettempdir() if beside is None else beside)
        _remove_abandoned(root)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        # Locked before it has its name, so that nobody finds it free.
        lock = (self.path / "new").open("w", encoding="utf-8")
        _take(lock)
        (self.path / "new").rename(self.path / _LOCK)
        self._end = weakref.finalize(self, _remove, self.path, lock)

    def close(self) -> None:
        """Remove the folder; a second call does nothing."""
        self._end()


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def _take(lock: IO[str]) -> bool:
    """Whether the lock was free; it stays taken as long as the file is open."""
    try:
        import fcntl
    except ImportError:  # Windows: folders of killed processes are left to the system
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(root: Path) -> None:
    user = os.getuid() if hasattr(os, "getuid") else None
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            if user is not None and folder.stat().st_uid != user:
                continue
            with (folder / _LOCK).open("r+", encoding="utf-8") as lock:
                if _take(lock):
                    shutil.rmtree(folder, ignore_errors=True)
