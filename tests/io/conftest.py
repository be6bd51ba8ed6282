"""Engines for the tests: a real PostgreSQL server and a real local Spark, each started once."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ibis", reason="ibis is not installed: nothing of `io` can be tested")


def _binaries() -> Path | None:
    found = shutil.which("pg_ctl")
    if found and shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server that lives in a temporary folder and listens on a socket in it.

    PostgreSQL refuses to run as root, so root hands the folder to the user `postgres`. The
    database sorts text by the rules of a language, as most do: what must not matter.
    """
    binaries = _binaries()
    if binaries is None:
        pytest.skip("NO POSTGRESQL SERVER BINARIES: engine equality with PostgreSQL is not tested")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
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
        run(
            binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        run(binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            address = f"postgresql://postgres@/postgres?host={folder}"
            with psycopg.connect(address, autocommit=True) as con:
                con.execute("SELECT 1")
            yield address
        finally:
            run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A local Spark session; sources that are opened meanwhile use it."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("NO JAVA: engine equality with Spark is not tested")
    folder = tempfile.mkdtemp(prefix="spark-")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", folder)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
