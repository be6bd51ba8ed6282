"""From an address to a source: which engine reads it."""

from __future__ import annotations

from pathlib import Path

from subspacedp.errors import DataError
from subspacedp.io.engine import Source

__all__ = ["Source", "open_source"]


def open_source(
    address: str | Path,
    *,
    base: Path | None = None,
    table: str | None = None,
    memory: str | None = None,
    scratch: Path | None = None,
) -> Source:
    """Open a table of records or counts where it lies; close it, or use it in a `with` statement.

    Parameters
    ----------
    address
        One of

        - a path to .csv, .csv.gz, .tsv, .parquet, a folder of .parquet files, or a pattern of
          files with the same columns;
        - a path to a .duckdb or .db file, with `table`;
        - `postgresql://user@host/database`, with `table`; a password is better kept in
          `PGPASSWORD` or a password file than in an address;
        - `spark:local[2]` or `spark://host:port`, with `table`: a table of its catalogue, or a
          path to .parquet.
    base
        The folder that relative paths start from; by default the working one.
    table
        The table of a database, `schema.name` or `name`; a part that has a dot stands in double
        quotes.
    memory
        For files: the most memory to use, such as "2GB".
    scratch
        For files: where what does not fit in memory is kept until the source is closed.

    Guarantees
    ----------
    1. The source is only read.
    2. Every column of a CSV file is read as text, so that an identifier keeps its leading zeros.
    3. No message and no `repr` shows a password.
    """
    text = str(address)
    if text.startswith(("postgres://", "postgresql://")):
        from subspacedp.io.postgres import PostgresSource

        return PostgresSource(text, _needed(table, "a PostgreSQL database"))
    if text.startswith("spark:"):
        from subspacedp.io.spark import SparkSource

        return SparkSource(text, _needed(table, "Spark"), base=base)
    scheme, found, _ = text.partition("://")
    if found:
        raise DataError(
            f"An address starting with `{scheme}://` is of no known kind; known are files, "
            "postgresql:// and spark:."
        )
    from subspacedp.io.duck import DuckSource

    path = Path(text).expanduser()
    if base is not None:
        path = base / path
    return DuckSource(path, table=table, memory=memory, scratch=scratch)


def _needed(table: str | None, owner: str) -> str:
    if not table:
        raise DataError(f"A source in {owner} needs the name of a `table`.")
    return table
