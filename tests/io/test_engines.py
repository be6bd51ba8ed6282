"""The same records and the same key give the same tables on every engine."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.io.oracle import tabulated, units_of

from subspacedp.errors import DataError
from subspacedp.io import (
    AxisColumn,
    ClippedValue,
    bin_labels,
    labels_from_data,
    look,
    open_source,
    tabulate,
)
from subspacedp.io.periods import WEEKDAYS, Periods
from subspacedp.tables import Axis

# Labels that are hard on quoting, collations and case.
AREAS = [
    "01001", "1001", "a", "A", "ä", "Å", "it's", 'say "so"', "back\\slash", "new\nline", "per%cent",
    "semi;colon", "-- no comment", "{brace}", "$1", "?", "tab\tbed", "b ", "zürich", "日本",
]  # fmt: skip
EDGES = (0, 5, 18, 65)
AXES = [
    AxisColumn(Axis("area", AREAS)),
    AxisColumn(Axis("sex", ["F", "M"])),
    AxisColumn(Axis("age", bin_labels(EDGES)), bins=EDGES),
    AxisColumn(Axis("kind", range(3))),
]
SHAPE = (len(AREAS), 2, 4, 3)
VALUE = ClippedValue(column="income", lower=-10.0, upper=40.0, unit=0.5)
IDS = ["p", "P", "ä", "Ä", "p|1", "it's", "back\\slash", "émile", "日", "q"]


def people(rows=600, seed=5):
    rng = np.random.default_rng(seed)
    return {
        "person": [IDS[i] for i in rng.zipf(1.5, rows) % len(IDS)],
        "number": rng.integers(-40, 60, rows).tolist(),
        "area": [AREAS[i] for i in rng.zipf(1.3, rows) % len(AREAS)],
        "sex": [("F", "M")[i] for i in rng.integers(0, 2, rows)],
        "age": rng.integers(0, 90, rows).tolist(),
        "kind": rng.integers(0, 3, rows).tolist(),
        "income": (rng.integers(-120, 200, rows) / 4).tolist(),
    }


def expected(data, unit, **bounds):
    rows = []
    for i, who in enumerate(data[unit]):
        age = sum(data["age"][i] >= edge for edge in EDGES) - 1
        place = (AREAS.index(data["area"][i]), "FM".index(data["sex"][i]), age, data["kind"][i])
        value = units_of(data["income"][i], VALUE.lower, VALUE.upper, VALUE.unit)
        rows.append((who, int(np.ravel_multi_index(place, SHAPE)), value))
    return tabulated(rows, SHAPE, **bounds)


def duckdb_parquet(data, tmp_path, request):
    pa.parquet.write_table(pa.table(data), tmp_path / "p.parquet")
    return open_source("p.parquet", base=tmp_path)


def duckdb_csv(data, tmp_path, request):
    pa.csv.write_csv(pa.table(data), tmp_path / "p.csv")
    return open_source(tmp_path / "p.csv")


def postgres_table(data, tmp_path, request):
    import psycopg

    address = request.getfixturevalue("postgres")
    with psycopg.connect(address, autocommit=True) as con:
        con.execute('DROP TABLE IF EXISTS "Men & women"')
        con.execute(
            'CREATE TABLE "Men & women" (person varchar(40), number int, area text, sex char(3), '
            "age smallint, kind bigint, income numeric(12, 4))"
        )
        with con.cursor() as cursor:
            cursor.executemany(
                'INSERT INTO "Men & women" VALUES (%s, %s, %s, %s, %s, %s, %s)',
                list(zip(*data.values(), strict=True)),
            )
    return open_source(address, table="public.Men & women")


def spark_parquet(data, tmp_path, request):
    request.getfixturevalue("spark")
    pa.parquet.write_table(pa.table(data), tmp_path / "p.parquet")
    return open_source("spark:local[2]", table=str(tmp_path / "p.parquet"))


ENGINES = [duckdb_parquet, duckdb_csv, postgres_table, spark_parquet]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def source(request, tmp_path):
    with request.param(people(), tmp_path, request) as opened:
        yield opened


@pytest.mark.parametrize(
    ("unit", "records", "per_cell"),
    [("person", 1, None), ("number", 7, None), ("person", 7, 2), ("number", 30, 1)],
)
def test_every_engine_finds_what_the_oracle_finds(source, unit, records, per_cell):
    found = tabulate(
        source, AXES, unit=unit, records=records, per_cell=per_cell, key=b"k\x00", value=VALUE
    )
    want = expected(
        people(), unit, records=records, per_cell=per_cell or records, key=b"k\x00", valued=True
    )
    assert np.array_equal(found.everything.counts, want.everything)
    assert np.array_equal(found.bounded.counts, want.bounded)
    assert np.array_equal(found.sums, want.sums)
    assert np.array_equal(found.sums_everything, want.sums_everything)
    assert found.dropped == want.everything.sum() - want.bounded.sum()


def test_rows_that_are_persons_and_sums(source):
    found = tabulate(source, AXES, value=VALUE)
    want = expected(people(), "number", records=1, per_cell=1, key="k", valued=True)
    assert np.array_equal(found.everything.counts, want.everything)
    assert np.array_equal(found.sums, want.sums_everything)
    assert found.bounded is found.everything
    assert np.array_equal(tabulate(source, AXES[:1]).bounded.counts.sum(), len(people()["age"]))


def test_counts_are_added(source):
    found = tabulate(source, AXES[:2], count="age")
    data = people()
    want = np.zeros(SHAPE[:2], np.int64)
    for area, sex, age in zip(data["area"], data["sex"], data["age"], strict=True):
        want[AREAS.index(area), "FM".index(sex)] += age
    assert np.array_equal(found.everything.counts, want)


@pytest.mark.parametrize("bound", [{}, {"unit": "person", "records": 7, "per_cell": 2, "key": "k"}])
def test_tables_on_disk_are_those_in_memory(source, tmp_path, bound):
    scratch = tmp_path / "scratch"
    scratch.mkdir(0o700)
    here, there = tabulate(source, AXES, **bound), tabulate(source, AXES, scratch=scratch, **bound)
    for name in ("everything", "bounded"):
        assert np.array_equal(np.load(getattr(there, name)), getattr(here, name).counts)
        assert getattr(there, name).stat().st_mode & 0o077 == 0
    assert (there.dropped, there.records) == (here.dropped, here.records)
    assert bool(there.dropped) == bool(bound)
    counts = tabulate(source, AXES[:2], count="age", scratch=scratch)
    assert np.array_equal(
        np.load(counts.everything), tabulate(source, AXES[:2], count="age").everything.counts
    )
    files = {path.name for path in scratch.iterdir()}
    assert files == {"everything.npy"} | ({"left-out.npy"} if bound else set())


def test_wrong_rows_are_counted_and_not_shown(source):
    short = AxisColumn(Axis("area", AREAS[1:]))
    wrong = people()["area"].count(AREAS[0])
    with pytest.raises(DataError, match=f"^{wrong} rows have a value of `area` that is not among"):
        tabulate(source, [short, *AXES[1:]])
    with pytest.raises(DataError, match=f"^{wrong} rows have a value of `area` that is not among"):
        tabulate(source, [short, *AXES[1:]], unit="person", key="k")


def test_columns_labels_and_a_look(source):
    assert set(source.columns) == set(people())
    assert labels_from_data(source, "area") == sorted(AREAS)
    columns = {column.name: column for column in look(source, limit=30).columns}
    assert columns["area"].distinct == len(AREAS)
    assert columns["area"].sample == tuple(sorted(AREAS))
    assert columns["number"].distinct is None
    assert columns["age"].kind == "whole"
    assert columns["income"].kind == "real"
    assert columns["sex"].nulls == 0.0


def blank_parquet(path):
    units = ["", " ", "\t\n", None, "p", " p"]
    pa.parquet.write_table(pa.table({"u": units, "a": ["x"] * 6}), path)
    return units


def blank_duckdb(tmp_path, request):
    blank_parquet(tmp_path / "b.parquet")
    return open_source(tmp_path / "b.parquet")


def blank_csv(tmp_path, request):
    (tmp_path / "b.csv").write_text('u,a\n"",x\n" ",x\n"\t\n",x\n,x\np,x\n" p",x\n')
    return open_source(tmp_path / "b.csv")


def blank_postgres(tmp_path, request):
    import psycopg

    address = request.getfixturevalue("postgres")
    with psycopg.connect(address, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS blank")
        con.execute("CREATE TABLE blank (u text, a text)")
        for unit in blank_parquet(tmp_path / "b.parquet"):
            con.execute("INSERT INTO blank VALUES (%s, 'x')", (unit,))
    return open_source(address, table="blank")


def blank_spark(tmp_path, request):
    request.getfixturevalue("spark")
    blank_parquet(tmp_path / "b.parquet")
    return open_source("spark:local[2]", table=str(tmp_path / "b.parquet"))


@pytest.mark.parametrize("made", [blank_duckdb, blank_csv, blank_postgres, blank_spark])
def test_blank_text_names_nobody(made, tmp_path, request):
    axis = AxisColumn(Axis("a", ["x"]))
    with made(tmp_path, request) as source:
        with pytest.raises(DataError, match=r"^4 rows have no value of `u`"):
            tabulate(source, [axis], unit="u", key="k")
        found = tabulate(source, [axis], unit="u", key="k", without_unit=True)
        assert found.everything.counts.tolist() == [2]
        assert found.dropped == 0  # `p` and ` p` are two spellings, and so two persons


@pytest.mark.parametrize("name", ["p.csv", "P.CSV", "folder/p.csv.gz", "p.tsv", "p.txt"])
def test_csv_is_refused_on_spark(name):
    with pytest.raises(DataError, match=r"change `.*` to Parquet, or give its path"):
        open_source("spark:local[2]", table=name)


@pytest.mark.parametrize(("wanted", "decoy"), [("d[1]", "d1"), ("d*", "dz"), ("f{1}/d", "f1/d")])
def test_a_path_that_exists_is_no_pattern_on_spark(spark, tmp_path, wanted, decoy):
    for name, label in ((wanted, "x"), (decoy, "y")):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table({"a": [label]}), path)
    axis = AxisColumn(Axis("a", ["x", "y"]))
    for table in (wanted, f"{wanted[:-1]}?" if "{" in wanted else wanted):
        with open_source("spark:local[2]", table=f"{table}.parquet", base=tmp_path) as source:
            assert tabulate(source, [axis]).everything.counts.tolist() == [1, 0]


SPILLS = """
import os, sys
from subspacedp.io import open_source
os.umask(0o022)
with open_source("spark:local[1]", table=sys.argv[1]) as source:
    environment = source._session.sparkContext._jvm.org.apache.spark.SparkEnv.get()
    for folder in environment.blockManager().diskBlockManager().localDirsString():
        print(oct(os.stat(folder).st_mode & 0o777))
print(oct(os.umask(0)))
"""


def test_what_spark_spills_is_for_its_owner_alone(spark, tmp_path):
    """Where a session that is started here shuffles records by way of the disk."""
    pa.parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "p.parquet")
    ran = subprocess.run(
        [sys.executable, "-c", SPILLS, tmp_path / "p.parquet"],
        stdout=subprocess.PIPE, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert ran.stdout.split() == ["0o700", "0o22"]


def test_a_name_with_a_dot_in_postgresql(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute('DROP TABLE IF EXISTS "t.2010"')
        con.execute("CREATE TABLE \"t.2010\" AS SELECT 'x' AS a")
    for table in ('"t.2010"', 'public."t.2010"'):
        with open_source(postgres, table=table) as source:
            assert source.columns == ("a",)


def test_spellings_that_a_database_calls_equal_are_different_persons(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS folded")
        con.execute("DROP COLLATION IF EXISTS folding")
        con.execute(
            "CREATE COLLATION folding "
            "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        con.execute("CREATE TABLE folded (u text COLLATE folding, a char(5) COLLATE folding)")
        con.execute("INSERT INTO folded VALUES ('p', 'x'), ('P', 'x'), ('p', 'X')")
    axis = AxisColumn(Axis("a", ["x", "X"]))
    with open_source(postgres, table="folded") as source:
        found = tabulate(source, [axis], unit="u", records=2, key="k")
        assert found.everything.counts.tolist() == [2, 1]
        assert found.dropped == 0
        assert tabulate(source, [axis], unit="u", records=1, key="k").dropped == 1


def test_the_database_is_only_read(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS mine")
        con.execute("CREATE TABLE mine (a text)")
        con.execute("INSERT INTO mine VALUES ('x')")
    with open_source(postgres, table="mine") as source:
        assert tabulate(source, [AxisColumn(Axis("a", ["x"]))]).everything.counts.tolist() == [1]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            source._con.execute("DELETE FROM mine")
        with pytest.raises(DataError, match="has no table `yours` that this user may read"):
            open_source(postgres, table="yours")


def test_a_server_that_goes_away_is_one_sentence(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS gone")
        con.execute("CREATE TABLE gone (a text)")
        con.execute("INSERT INTO gone VALUES ('planted')")
        with open_source(postgres, table="gone") as source:
            con.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            with pytest.raises(DataError, match="did not answer the query") as caught:
                tabulate(source, [AxisColumn(Axis("a", ["planted"]))])
    assert caught.value.__context__ is None
    assert "planted" not in str(caught.value)


def test_passwords_are_not_shown(postgres):
    with pytest.raises(DataError, match=r"on 127\.0\.0\.1:1 did not accept") as caught:
        open_source("postgresql://me:hunter2@127.0.0.1:1/db", table="t")
    assert "hunter2" not in repr(caught.value)
    with pytest.raises(DataError) as caught:
        open_source("postgresql://me:hunter2@host:port:hunter2/db?hunter2=1", table="t")
    assert "hunter2" not in repr(caught.value)
    address = postgres.replace("postgres@", "postgres:hunter2@")
    with open_source(address, table="pg_catalog.pg_class") as source:
        assert "hunter2" not in repr(source)
        assert "hunter2" not in source.address
        assert source.kind == "postgres"


EVER = "'infinity', '-infinity', '9999-12-31', '2024-02-29', '1999-12-31'"
YEARS = AxisColumn(
    Axis("d", ["2024", "other"]), periods=Periods("year", "2024", "2024"), other="other"
)
DAYS = AxisColumn(
    Axis("d", ["then", "now", "other"]), bins=("1999-01-01", "2024-01-01"), other="other"
)
WEEKDAY = AxisColumn(Axis("d", [*WEEKDAYS, "other"]), periods=Periods("weekday"), other="other")


def infinite_in_duckdb(kind, tmp_path, request):
    import duckdb

    with duckdb.connect(tmp_path / "d.duckdb") as con:
        con.execute(f"CREATE TABLE d AS SELECT unnest([{EVER}])::{kind} AS d")
    return open_source(tmp_path / "d.duckdb", table="d")


def infinite_in_postgresql(kind, tmp_path, request):
    import psycopg

    address = request.getfixturevalue("postgres")
    with psycopg.connect(address, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS ever")
        con.execute(f"CREATE TABLE ever AS SELECT unnest(ARRAY[{EVER}]::{kind}[]) AS d")
    return open_source(address, table="ever")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("opened", [infinite_in_duckdb, infinite_in_postgresql])
def test_infinite_days_are_no_dates(opened, kind, tmp_path, request):
    with opened(kind, tmp_path, request) as source:
        for axis, counts in (
            (YEARS, [1, 4]),
            (DAYS, [1, 2, 2]),
            (WEEKDAY, [0, 0, 0, 1, 2, 0, 0, 2]),
        ):
            assert tabulate(source, [axis]).everything.counts.tolist() == counts
        with pytest.raises(DataError, match="2 rows have a value of `d` that is not a date"):
            tabulate(source, [AxisColumn(Axis("d", ["now"]), bins=("1999-01-01",))])


def test_domains_and_truth_in_postgresql(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS typed; DROP DOMAIN IF EXISTS years")
        con.execute("CREATE DOMAIN years AS numeric(3, 0) CHECK (VALUE >= 0)")
        con.execute(
            "CREATE TABLE typed AS SELECT CAST(7 * i AS years) AS age, "
            "CASE WHEN i % 3 > 0 THEN i % 3 = 1 END AS works FROM generate_series(1, 10) AS i"
        )
    axes = [
        AxisColumn(Axis("age", bin_labels((0, 18))), bins=(0, 18)),
        AxisColumn(Axis("works", [0, 1, 2]), missing=2),
    ]
    with open_source(postgres, table="typed") as source:
        assert tabulate(source, axes).everything.counts.tolist() == [[1, 1, 0], [2, 3, 3]]


def test_a_session_sees_one_state(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS growing")
        con.execute("CREATE TABLE growing AS SELECT 'x' AS a")
        with open_source(postgres, table="growing") as source:
            for _ in range(2):
                found = tabulate(source, [AxisColumn(Axis("a", ["x"]))])
                assert found.everything.counts.tolist() == [1]
                con.execute("INSERT INTO growing VALUES ('x')")


def test_a_database_without_an_encoding(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP DATABASE IF EXISTS bytes")
        con.execute(
            "CREATE DATABASE bytes "
            "ENCODING SQL_ASCII LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
        )
    address = postgres.replace("/postgres?", "/bytes?")
    with psycopg.connect(address, autocommit=True, client_encoding="UTF8") as con:
        con.execute('CREATE TABLE "tä" AS SELECT \'ü\' AS "ä"')
    with open_source(address, table="tä") as source:
        found = tabulate(source, [AxisColumn(Axis("ä", ["ü"]))])
        assert found.everything.counts.tolist() == [1]


@pytest.mark.parametrize(
    ("refuse", "sentence"),
    [
        ("statement_timeout = 1", "statement_timeout may allow it too little time"),
        ("role = nobody", "this user may not read the table"),
        ("temp_file_limit = 0", "no disk, memory or connection left"),
    ],
)
def test_what_a_server_refuses_is_said(postgres, refuse, sentence):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS refused; DROP ROLE IF EXISTS nobody; CREATE ROLE nobody")
        con.execute(
            "CREATE TABLE refused AS "
            "SELECT md5(CAST(i AS text)) AS u FROM generate_series(1, 300000) AS i"
        )
    with open_source(postgres, table="refused") as source:
        source._con.execute(f"SET {refuse}")
        with pytest.raises(DataError, match="The postgres source did not answer") as caught:
            tabulate(source, [AxisColumn(Axis("u", ["x"]), other="x")], unit="u", key="k")
    assert sentence in str(caught.value)
    assert caught.value.__context__ is None
