"""Ledgers for the tests: SQLite in a folder of its own, and a real PostgreSQL server."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: no ledger can be tested")

_NUMBERS = count()


def _binaries() -> Path | None:
    found = shutil.which("pg_ctl")
    if found and shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """The socket folder of a server that lives in a temporary folder.

    PostgreSQL refuses to run as root, so root hands the folder to the user `postgres`.
    """
    binaries = _binaries()
    if binaries is None:
        pytest.skip("NO POSTGRESQL SERVER BINARIES: the ledger is not tested with PostgreSQL")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    who: dict[str, object] = {}
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, "postgres", "postgres")
        except LookupError:
            pytest.skip("POSTGRESQL REFUSES ROOT and there is no user `postgres`: not tested")
        who = {"user": "postgres", "group": "postgres", "extra_groups": []}

    def run(*command: object) -> None:
        subprocess.run(
            [str(part) for part in command], check=True, cwd=folder, timeout=60,
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **who,
        )  # fmt: skip

    data = folder / "data"
    options = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=32MB"
    try:
        run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        run(binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield folder
        finally:
            run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
