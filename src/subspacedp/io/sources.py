"""From an address to a source: which engine reads it, and what may not stand in an address."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from subspacedp.errors import DataError
from subspacedp.io.duck import DuckSource
from subspacedp.io.engine import Source
from subspacedp.io.postgres import PostgresSource
from subspacedp.io.spark import SparkSource

READERS: tuple[type[Source], ...] = (PostgresSource, SparkSource, DuckSource)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# In an address; a specification is passed around, and is no place for one.
PASSWORD = re.compile(r"\w+://[^/@]*:[^@]*@|[?&;\s](\w*password|pwd)\s*=", re.IGNORECASE)
HAS_PASSWORD = "has a password in it; leave it to the environment of the database"  # noqa: S105


def open_source(
    address: str | Path,
    *,
    base: Path | None = None,
    table: str | None = None,
    memory: str | None = None,
    scratch: Path | None = None,
    decimal: str = ".",
) -> Source:
    """Open a table of records or counts where it lies; close it, or use it in a `with` statement.

    Parameters
    ----------
    address
        One of

        - a path to .csv or .tsv, also packed (.csv.gz, .csv.zst), .parquet, a folder of .parquet
          files, or a pattern of files with the same columns;
        - a path to a spreadsheet (.xlsx, .xlsm, .xlsb, .xls, .ods), with `table` for one of several
          sheets, or to a file of SPSS (.sav, .zsav, .por), Stata (.dta) or SAS (.sas7bdat, .xpt);
        - a path to a .duckdb or .db file, with `table`;
        - `postgresql://user@host/database`, with `table`; a password is better kept in
          `PGPASSWORD` or a password file than in an address;
        - `spark:local[2]` or `spark://host:port`, with `table`: a table of its catalogue, or a
          path to .parquet.
    base
        The folder that relative paths start from; by default the working one.
    table
        The table of a database, `schema.name` or `name`; a part that has a dot stands in double
        quotes. The sheet of a workbook.
    memory
        For files: the most memory to use, such as "2GB".
    scratch
        For files: where what does not fit in memory is kept until the source is closed.
    decimal
        The sign before the decimals of numbers that are text: "." or ",".

    Guarantees
    ----------
    1. The source is only read.
    2. Every column of a CSV file, a spreadsheet or a statistical package is read as text, so that
       an identifier keeps its leading zeros.
    3. No message and no `repr` shows a password.
    """
    text = str(address)
    reader = _reader_of(text)
    if reader is None:
        scheme = text.partition("://")[0]
        raise DataError(
            f"An address starting with `{scheme}://` is of no known kind; known are "
            f"{_known('files')}."
        )
    if reader.schemes and not table:
        raise DataError(f"A source in {reader.owner} needs the name of a `table`.")
    source = reader.at(text, table, base=base, memory=memory, scratch=scratch)
    source.decimal = decimal
    return source


def source_fault(address: str, table: str | None) -> str | None:
    """What is wrong with the path or address of data; None when nothing is."""
    if has_password(address):  # which must not be repeated
        return HAS_PASSWORD
    reader = _reader_of(address)
    if reader is None:
        return f"is an address of no known kind; known are {_known('paths')}"
    if table is None and reader.needs_table(address):
        return "needs `table` beside it for a database"
    return None


def is_path(address: str) -> bool:
    """Whether it is the path of files, and no address."""
    reader = _reader_of(address)
    return reader is not None and not reader.schemes


def has_password(address: str) -> bool:
    """Whether there is one, be its name, its colon or its sign written in percents.

    >>> has_password("postgresql://me@host/db?p%61ssword=x"), has_password("postgresql://me@host")
    (True, False)
    """
    while not PASSWORD.search(address):
        plain = unquote(address)
        if plain == address:
            return False
        address = plain
    return True


def _reader_of(address: str) -> type[Source] | None:
    """The engine that an address is for: the one of paths where it has no scheme."""
    for reader in READERS:
        if address.casefold().startswith(reader.schemes):
            return reader
    if SCHEME.match(address):
        return None
    return next(reader for reader in READERS if not reader.schemes)


def _known(paths: str) -> str:
    *others, last = (paths, *(reader.schemes[-1] for reader in READERS if reader.schemes))
    return f"{', '.join(others)} and {last}"
