"""PostgreSQL, read through psycopg in a read-only session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

from subspacedp.errors import DataError, without_values
from subspacedp.io.engine import NAME, Kind, Opening, Source, name_parts, need, sql_name, values
from subspacedp.tables import Label

_KINDS = {
    **dict.fromkeys(("smallint", "integer", "bigint"), Kind.WHOLE),
    **dict.fromkeys(("real", "double precision"), Kind.REAL),
    **dict.fromkeys(("text", "character", "character varying", "citext", "uuid"), Kind.TEXT),
    "name": Kind.TEXT,
    "date": Kind.DATE,
    "boolean": Kind.BOOL,
}
# "C" compares bytes: the same equality and order as everywhere else, whatever the column's own
# collation says. The cast to text also takes off the padding of CHAR(n).
_AS = {
    Kind.WHOLE: "CAST({} AS bigint)",
    Kind.REAL: "CAST({} AS double precision)",
    Kind.DATE: "{}",
    Kind.TIME: "{}",
    Kind.BOOL: "{}",
    Kind.TEXT: 'CAST({} AS text) COLLATE "C"',
    Kind.OTHER: 'CAST({} AS text) COLLATE "C"',
}
_BATCH = 1 << 16
_MEANINGS = {  # by SQLSTATE, or its class
    "08": "the connection ended; run the same again",
    "22003": "a number is beyond the range of double precision, or a sum beyond 64 bits",
    "22021": "text in the table is not in the encoding of the database",
    "22P05": "a label has a character that the encoding of the database lacks",
    "40": "the server cancelled it for others; run the same again",
    "42501": "this user may not read the table, or not all of the columns that are used",
    "53": "the server has no disk, memory or connection left for it (temp_file_limit may say so)",
    "57014": "it was cancelled; statement_timeout may allow it too little time",
    "57": "the server ended the connection; run the same again",
}


class PostgresSource(Source):
    """A table or view of a PostgreSQL database.

    Parameters
    ----------
    address
        `postgresql://user@host/database`, as libpq takes it.
    table
        `name` or `schema.name`; a part that has a dot stands in double quotes.

    Guarantees
    ----------
    1. The session is read-only; nothing is created in the database, not even temporarily.
    2. All statements see one state of the table: exact totals of two states, published side by
       side, would tell who came between.
    """

    kind = "postgres"
    dialect = "postgres"
    schemes = ("postgres://", "postgresql://")
    owner = "a PostgreSQL database"

    def __init__(self, address: str, table: str) -> None:
        psycopg = need("psycopg", "postgres")
        conninfo = need("psycopg.conninfo", "postgres")
        options = without_values(
            lambda: conninfo.conninfo_to_dict(address), "The PostgreSQL address cannot be read"
        )
        where = str(options.get("host", "this machine"))
        where += f":{options['port']}" if "port" in options else ""
        public = f"postgresql://{where}/{options.get('dbname', '')}"
        self._con: Any = without_values(
            lambda: psycopg.connect(**{**options, "client_encoding": "UTF8"}),
            f"The PostgreSQL server on {where} did not accept the connection; check the address, "
            "the user, and the password in PGPASSWORD or a password file",
        )
        self._con.read_only = True
        self._con.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._prefix: list[str] = []
        try:
            kinds = self._describe(table)
        except BaseException:
            self.close()
            raise
        super().__init__(f"{public} {table}", kinds)

    @classmethod
    def at(cls, address: str, table: str | None, **opening: Unpack[Opening]) -> Source:
        """Open an address; the arguments are those of `open_source`."""
        del opening
        return cls(address, str(table))

    def _describe(self, table: str) -> dict[str, Kind]:
        quoted = ".".join(sql_name(part) for part in name_parts(table))
        sentence = f"The database has no table `{table}` that this user may read"

        def ask() -> list[Any]:
            self._con.execute("SET standard_conforming_strings = on")
            self._con.execute("SET idle_in_transaction_session_timeout = 0")
            query = (  # of a domain, the type that it is over
                "SELECT a.attname, format_type(b.oid, "
                "CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END), b.typtype "
                "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
                "JOIN pg_type b "
                "ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END "
                "WHERE a.attrelid = CAST(%s AS regclass) AND a.attnum > 0 AND NOT a.attisdropped "
                "ORDER BY a.attnum"
            )
            return list(self._con.execute(query, (quoted,)).fetchall())

        described = self._asked(ask, sentence)
        kinds = {str(name): _kind(str(kind), str(group)) for name, kind, group in described}
        if not kinds:
            raise DataError(f"{sentence}.")
        columns = ", ".join(
            f"{_AS[kinds[name]].format(_column(name, kind))} AS {sql_name(name)}"
            for name, kind, _ in described
        )
        # Not materialised: only the columns that a statement uses are read.
        self._prefix.append(f"{NAME} AS NOT MATERIALIZED (SELECT {columns} FROM {quoted})")  # noqa: S608 - quoted names
        return kinds

    def digest(self, text: Any) -> Any:
        """SHA-256 of the UTF-8 text in lower-case hexadecimal digits, as an expression."""
        convert, sha, encode = _functions()
        return encode(sha(convert(text, "UTF8")), "hex")

    def _explain(self, error: Exception) -> str | None:
        """By the number of the error; one of the driver without any is a lost connection."""
        if isinstance(error, UnicodeError):
            return _MEANINGS["22P05"]
        code = getattr(error, "sqlstate", None)
        if code is None:
            return _MEANINGS["08"] if type(error).__name__ == "OperationalError" else None
        return _MEANINGS.get(code, _MEANINGS.get(code[:2]))

    def close(self) -> None:
        """End the session."""
        if not self._con.closed:
            self._con.close()

    def _list(self, name: str, codes: Mapping[Label, int]) -> None:
        self._prefix.append(values(name, codes, self.dialect, _sql_type))

    def _run(self, sql: str, scratch: Path | None) -> Iterable[Any]:
        import pyarrow as pa

        del scratch
        statement = f"WITH {', '.join(self._prefix)} SELECT * FROM ({sql}) AS answer"  # noqa: S608 - compiled by ibis
        with self._con.cursor() as cursor:
            # Row by row from the server: neither side has the whole answer in memory, and unlike
            # with a cursor of the server it may count on several processors.
            rows = cursor.stream(statement)
            while some := list(islice(rows, _BATCH)):
                names = [column.name for column in cursor.description]
                columns = [pa.array(column) for column in zip(*some, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names)


@cache
def _functions() -> tuple[Any, Any, Any]:
    ibis = need("ibis", "publish")

    builtin = ibis.udf.scalar.builtin

    @builtin(name="convert_to", signature=(("string", "string"), "binary"))
    def convert(text, encoding): ...  # type: ignore[no-untyped-def]  # the signature is above

    @builtin(name="sha256", signature=(("binary",), "binary"))
    def sha(data): ...  # type: ignore[no-untyped-def]  # the signature is above

    @builtin(name="encode", signature=(("binary", "string"), "string"))
    def encode(data, how): ...  # type: ignore[no-untyped-def]  # the signature is above

    return convert, sha, encode


def _sql_type(kind: str) -> str:
    return {"string": "text", "int64": "bigint"}[kind]


def _column(name: str, kind: str) -> str:
    """The column; a time with a zone is that of UTC, whatever zone the server is in."""
    zoned = kind.startswith("timestamp") and kind.endswith("with time zone")
    return f"({sql_name(name)} AT TIME ZONE 'UTC')" if zoned else sql_name(name)


def _kind(kind: str, group: str) -> Kind:
    if group == "e":
        return Kind.TEXT
    if kind.startswith("timestamp"):
        return Kind.TIME
    plain, _, size = kind.partition("(")
    if plain == "numeric":
        width, _, scale = size.rstrip(")").partition(",")
        whole = width.isdigit() and int(width) <= 18 and scale in ("", "0")
        return Kind.WHOLE if whole else Kind.REAL
    return _KINDS.get(plain, Kind.OTHER)
