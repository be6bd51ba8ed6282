"""A real PostgreSQL server in a temporary folder, for the tests that need one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["postgres_folder"]


@contextmanager
def postgres_folder(what: str, *locale: str) -> Iterator[Path]:
    """The folder of the socket that a new server listens on.

    Without a server's binaries the tests are skipped, and `what` says which ones.
    PostgreSQL refuses to run as root, so root hands the folder to the user `postgres`.
    """
    binaries = _binaries()
    if binaries is None:
        pytest.skip(f"NO POSTGRESQL SERVER BINARIES: {what}")
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
            [str(part) for part in command], check=True, cwd=folder, timeout=300,
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **who,
        )  # fmt: skip

    data = folder / "data"
    options = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=32MB"
    try:
        run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", *locale)
        run(binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield folder
        finally:
            run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path | None:
    found = shutil.which("pg_ctl")
    if found and shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)
