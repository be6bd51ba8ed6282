"""Engines for the tests: a real PostgreSQL server and a real local Spark, each started once."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from tests.postgres import postgres_folder

pytest.importorskip("ibis", reason="ibis is not installed: nothing of `io` can be tested")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server whose database sorts text by the rules of a language.

    Most do; it must not matter.
    """
    locale = ("-E", "UTF8", "--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8")
    with postgres_folder("engine equality with PostgreSQL is not tested", *locale) as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


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
