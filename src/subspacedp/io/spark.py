"""Spark: tables of its catalogue, and Parquet files."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Unpack

from subspacedp.errors import DataError, without_values
from subspacedp.io.engine import NAME, Kind, Opening, Source, need, values
from subspacedp.io.files import is_csv
from subspacedp.tables import Label

_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), Kind.WHOLE),
    **dict.fromkeys(("float", "double"), Kind.REAL),
    "string": Kind.TEXT,
    "date": Kind.DATE,
    **dict.fromkeys(("timestamp", "timestamp_ntz"), Kind.TIME),
    "boolean": Kind.BOOL,
}
_AS = {Kind.WHOLE: "bigint", Kind.REAL: "double", Kind.TEXT: "string", Kind.OTHER: "string"}
_UTC = (
    "CAST('1970-01-01 00:00:00' AS timestamp_ntz) + "
    "make_dt_interval(0, 0, 0, CAST(unix_micros({}) AS decimal(24, 6)) / 1000000)"
)


class SparkSource(Source):
    """A table that Spark reads.

    Parameters
    ----------
    address
        `spark:local[2]`, or `spark://host:port`. A session that runs already is used as it is.
    table
        A table of the catalogue, or a path to .parquet.
    base
        The folder that relative paths start from.
    """

    kind = "spark"
    dialect = "pyspark"
    schemes = ("spark:",)
    owner = "Spark"

    def __init__(self, address: str, table: str, *, base: Path | None = None) -> None:
        if is_csv(table):
            # Spark takes broken rows for others than the other engines do, and drops some.
            raise DataError(
                f"Spark does not read every CSV file as it is meant; change `{Path(table).name}` "
                "to Parquet, or give its path as the source, without Spark."
            )
        sql = need("pyspark.sql", "spark")
        need("ibis", "publish").pyspark  # noqa: B018 - registers options that its compiler reads
        master = address if address.startswith("spark://") else address.removeprefix("spark:")
        running = sql.SparkSession.getActiveSession()
        self._own = running is None
        self._session: Any = running or without_values(
            lambda: _start(sql, master), f"Spark could not be started with the master `{master}`"
        )
        self._prefix: list[str] = []
        try:
            frame = without_values(
                lambda: self._open(table, base), f"Spark could not read the table `{table}`"
            )
            kinds = self._view(frame)
        except BaseException:
            self.close()
            raise
        super().__init__(f"{address} {table}", kinds)

    @classmethod
    def at(cls, address: str, table: str | None, **opening: Unpack[Opening]) -> Source:
        """Open an address; the arguments are those of `open_source`."""
        return cls(address, str(table), base=opening["base"])

    def _open(self, table: str, base: Path | None) -> Any:
        if not table.lower().endswith(".parquet") and "/" not in table:
            return self._session.table(table)
        if base is None or "://" in table:
            return self._session.read.parquet(_escaped(table))
        return self._session.read.parquet(_escaped(str(base / table)))

    def _view(self, frame: Any) -> dict[str, Kind]:
        kinds, columns = {}, []
        for field in frame.schema.fields:
            stored = field.dataType.simpleString()
            kind = _kind(stored)
            quoted = "`" + field.name.replace("`", "``") + "`"
            plain = f"CAST({quoted} AS {_AS[kind]})" if kind in _AS else quoted
            if stored == "timestamp":  # in UTC, whatever zone the session is in
                plain = _UTC.format(quoted)
            # Spark pads CHAR(n) on reading; the padding is no part of the value.
            if str(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")).startswith("char("):
                plain = f"rtrim({plain})"
            kinds[field.name] = kind
            columns.append(f"{plain} AS {quoted}")
        frame.selectExpr(*columns).createOrReplaceTempView(self._name)
        return kinds

    @property
    def _name(self) -> str:
        """Sources of one session share its names; this one is this source's own."""
        return f"{NAME}_{id(self)}"

    def digest(self, text: Any) -> Any:
        """SHA-256 of the UTF-8 text in lower-case hexadecimal digits, as an expression."""
        return _sha2()(text, 256)

    def close(self) -> None:
        """Forget the table, and end the session if it was started here."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.catalog.dropTempView(self._name)
            if self._own:
                session.stop()
        except Exception as error:
            kind = type(error).__name__
        else:
            return
        raise DataError(f"The Spark session could not be ended ({kind}).")

    def _list(self, name: str, codes: Mapping[Label, int]) -> None:
        self._prefix.append(values(name, codes, "spark", _sql_type))

    def _run(self, sql: str, scratch: Path | None) -> Iterable[Any]:
        prefix = [f"{NAME} AS (SELECT * FROM {self._name})", *self._prefix]  # noqa: S608 - our own names
        frame = self._session.sql(f"WITH {', '.join(prefix)} SELECT * FROM ({sql}) AS answer")  # noqa: S608 - compiled by ibis
        with warnings.catch_warnings():
            # PySpark leaves the socket of an answer to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            if scratch is None:
                yield from frame.toArrow().to_batches()
            else:
                yield from _between(frame, scratch)


def _between(frame: Any, scratch: Path) -> Iterable[Any]:
    """The answer by way of Parquet files: PySpark hands out whole answers, or single rows."""
    import pyarrow.dataset

    folder = scratch / "answer"
    shutil.rmtree(folder, ignore_errors=True)
    frame.write.parquet(str(folder.absolute()))
    parts = sorted(map(str, folder.glob("*.parquet")))
    if not parts:
        raise DataError(
            f"The workers of Spark did not write their counts to `{scratch}`; publish to a folder "
            "that they and this machine share."
        )
    yield from pyarrow.dataset.dataset(parts).to_batches()
    shutil.rmtree(folder)


def _escaped(path: str) -> str:
    """A path that Spark takes no sign of for a pattern: all of it, or all but its last part."""
    if "://" in path:
        return path
    place = Path(path)
    escaped = re.sub(r"([*?\[\]{}\\])", r"\\\1", path if place.exists() else str(place.parent))
    return escaped if place.exists() else f"{escaped}/{place.name}"


def _start(sql: Any, master: str) -> Any:
    builder = (
        sql.SparkSession.builder.master(master)
        .appName("subspacedp")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    # What Spark shuffles by way of the disk are records: its process takes the umask from here.
    before = os.umask(0o077)
    try:
        session = builder.getOrCreate()
    finally:
        os.umask(before)
    # What Spark logs of a failed task may quote the row that it failed on.
    session.sparkContext.setLogLevel("OFF")
    return session


@cache
def _sha2() -> Any:
    ibis = need("ibis", "publish")

    @ibis.udf.scalar.builtin(name="sha2", signature=(("string", "int32"), "string"))
    def sha2(text, bits): ...  # type: ignore[no-untyped-def]  # the signature is above

    return sha2


def _sql_type(kind: str) -> str:
    return {"string": "string", "int64": "bigint"}[kind]


def _kind(kind: str) -> Kind:
    if kind.startswith("decimal("):
        width, scale = (int(part) for part in kind[len("decimal(") : -1].split(","))
        return Kind.WHOLE if scale == 0 and width <= 18 else Kind.REAL
    return _KINDS.get(kind, Kind.OTHER)
