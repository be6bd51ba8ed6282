"""The path or address of data, and what may not stand in it."""

from __future__ import annotations

import re

__all__ = ["source_problem"]

# In an address; a specification is passed around, and is no place for one.
PASSWORD = re.compile(r"\w+://[^/@\s]*:[^@\s]*@|[?&;\s](\w*password|pwd)=", re.IGNORECASE)
DATABASE = re.compile(
    r"(postgres|postgresql)://|spark:|.*\.(duckdb|db)$", re.IGNORECASE | re.DOTALL
)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def source_problem(source: str, table: str | None) -> str | None:
    """What is wrong with the path or address of data; None when nothing is."""
    if PASSWORD.search(source):  # which must not be repeated
        return "has a password in it; leave it to the environment of the database"
    database = DATABASE.match(source)
    if not database and SCHEME.match(source):
        return "is an address of no known kind; known are paths, postgresql:// and spark:"
    if database and table is None:
        return "needs `table` beside it for a database"
    return None
