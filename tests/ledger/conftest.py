"""Ledgers for the tests: SQLite in a folder of its own, and a real PostgreSQL server."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.postgres import postgres_folder

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: no ledger can be tested")

_NUMBERS = count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """The socket folder of a server."""
    with postgres_folder("the ledger is not tested with PostgreSQL") as folder:
        yield folder


@pytest.fixture
def postgres(postgres_server: Path) -> str:
    """The address of a new, empty database."""
    import psycopg

    name = f"ledger{next(_NUMBERS)}"
    with psycopg.connect(
        f"postgresql://postgres@/postgres?host={postgres_server}", autocommit=True
    ) as con:
        con.execute(f"CREATE DATABASE {name}")
    return f"postgresql://postgres@/{name}?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new ledger, in either database."""
    if request.param == "sqlite":
        return str(tmp_path / "budget.db")
    return str(request.getfixturevalue("postgres"))
