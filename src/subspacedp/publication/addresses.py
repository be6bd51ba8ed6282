"""The path or address of data or of a ledger, and what may not stand in it."""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["ledger_problem", "source_problem"]

# In an address; a specification is passed around, and is no place for one.
PASSWORD = re.compile(r"\w+://[^/@]*:[^@]*@|[?&;\s](\w*password|pwd)\s*=", re.IGNORECASE)
HAS_PASSWORD = "has a password in it; leave it to the environment of the database"  # noqa: S105
DATABASE = re.compile(
    r"(postgres|postgresql)://|spark:|.*\.(duckdb|db)$", re.IGNORECASE | re.DOTALL
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def source_problem(source: str, table: str | None) -> str | None:
    """What is wrong with the path or address of data; None when nothing is."""
    if _has_password(source):  # which must not be repeated
        return HAS_PASSWORD
    database = DATABASE.match(source)
    if not database and SCHEME.match(source):
        return "is an address of no known kind; known are paths, postgresql:// and spark:"
    if database and table is None:
        return "needs `table` beside it for a database"
    return None


def ledger_problem(address: str) -> str | None:
    """What is wrong with the path or address of a ledger; None when nothing is."""
    return HAS_PASSWORD if _has_password(address) else None


def _has_password(address: str) -> bool:
    """Whether there is one, be its name, its colon or its sign written in percents.

    >>> _has_password("postgresql://me@host/db?p%61ssword=x"), _has_password("postgresql://me@host")
    (True, False)
    """
    while not PASSWORD.search(address):
        plain = unquote(address)
        if plain == address:
            return False
        address = plain
    return True
