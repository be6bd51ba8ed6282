"""A path means the files it says, and what is wrong with a file is told without its contents."""

import gzip

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from subspacedp.errors import DataError
from subspacedp.io import AxisColumn, look, open_source, tabulate
from subspacedp.tables import Axis

AXIS = AxisColumn(Axis("a", ["x", "y"]))


def counts(path, **options):
    with open_source(path, **options) as source:
        return tabulate(source, [AXIS]).everything.counts.tolist()


def refused(path, axis=AXIS, **options):
    """The sentence, which has neither planted values nor the engine's error about it."""
    with pytest.raises(DataError) as caught, open_source(path, **options) as source:
        tabulate(source, [axis])
    sentence = str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "planted" not in sentence
    assert sentence.count("\n") == 0
    return sentence


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("wanted", "decoy"), [("d[1]", "d1"), ("d?", "dz"), ("d*", "dz"), ("f[1]/d", "f1/d")]
)
def test_a_path_that_exists_is_no_pattern(tmp_path, kind, wanted, decoy):
    for name, label in ((wanted, "x"), (decoy, "y")):
        path = tmp_path / f"{name}.{kind}"
        path.parent.mkdir(exist_ok=True)
        if kind == "csv":
            path.write_text(f"a\n{label}\n")
        else:
            pa.parquet.write_table(pa.table({"a": [label]}), path)
    assert counts(tmp_path / f"{wanted}.{kind}") == [1, 0]


@pytest.mark.parametrize("name", ["*", "", "d?.parquet"])
def test_signs_in_the_folder_of_a_pattern(tmp_path, name):
    for folder, label in (("f[1]", "x"), ("f1", "y")):
        (tmp_path / folder).mkdir()
        for i in range(2):
            path = tmp_path / folder / f"d{i}.parquet"
            pa.parquet.write_table(pa.table({"a": [label]}), path)
    assert counts(tmp_path / "f[1]" / name) == [2, 0]


def test_a_pattern_of_csv_files_with_one_header(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\nx,y\n")
    (tmp_path / "2.csv").write_bytes(b'\xef\xbb\xbf"a",b\r\nx,y\r\n')
    assert counts(tmp_path / "[12].csv") == [2, 0]


@pytest.mark.parametrize("other", ["b,a\ny,x\n", "a\nx\n", "a;b\nx;y\n", "A,b\nx,y\n"])
def test_csv_files_with_other_headers_are_refused(tmp_path, other):
    (tmp_path / "1.csv").write_text("a,b\nx,y\n")
    (tmp_path / "2.csv").write_text(other)
    assert "must have the same first line" in refused(tmp_path / "*.csv")


@pytest.mark.parametrize(
    "columns", [{"b": ["x"]}, {"a": ["x"], "c": [1]}, {"a": [1], "b": ["x"]}, {"a": [b"x"]}]
)
def test_parquet_files_with_other_columns_are_refused(tmp_path, columns):
    pa.parquet.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "1.parquet")
    pa.parquet.write_table(pa.table(columns), tmp_path / "2.parquet")
    for path in (tmp_path, tmp_path / "?.parquet"):
        assert "must all have the same columns of the same types" in refused(path)


def test_parquet_files_that_differ_in_order_and_width_alone(tmp_path):
    for i, kind in enumerate([pa.int32(), pa.int64()]):
        columns = {"a": pa.array(["x"]), "n": pa.array([1], kind)}
        table = pa.table(dict(sorted(columns.items(), reverse=bool(i))))
        pa.parquet.write_table(table, tmp_path / f"{i}.parquet")
    assert counts(tmp_path) == [2, 0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\rplanted,1\rx,2\r", "the lines must end in LF or CRLF."),
        (b"a,b\r\nx,1\nplanted,2\n", "do not all end in LF or all in CRLF."),
        (b"a,b\nx,1\rplanted,2\n", "do not all end in LF or all in CRLF."),
        (b"planted" * 500_000, "the lines must end in LF or CRLF."),
        (b"planted" * 20_000 + b",b\nx,1\n", "a name that is too long; does its first line"),
        (b'"a\nplanted",b\nx,1\n', "has a quote that is not closed"),
        (b"a,b\nx,1\nplanted,1,2,3\n", "a row does not have the 2 fields of the header"),
        (b"a,b\nx,1\nplanted\n", "a row does not have the 2 fields of the header"),
        (b'a,b\nx,1\n"planted,2\nx,3\n', "a quote is not closed"),
        (b"a,b\nx,1\n" + b"planted" * 500_000 + b",2\n", "a row is too long"),
        (b"a,b\nx,1\nplanted\xff\xfe,2\n", "a row is not UTF-8 text"),
        (b"planted,planted\nx,1\n", "has a column name more than once; does its first line"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_broken_text_is_told_in_a_sentence_that_helps(tmp_path, content, words, packed):
    name = "p.csv.gz" if packed else "p.csv"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    assert words in refused(tmp_path / name)


def test_a_packed_file_that_is_broken(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"x,planted\n" * 100)
    (tmp_path / "p.csv.gz").write_bytes(whole[:12] + b"\xff\x00\xff" + whole[15:])
    assert "could not be read as UTF-8 text" in refused(tmp_path / "p.csv.gz")


@pytest.mark.parametrize("first", ["x,planted-son,1975", "1,Anna planted,planted-son"])
def test_a_record_in_the_place_of_the_header_is_not_shown(tmp_path, first):
    (tmp_path / "p.csv").write_text(f"{first}\ny,Other,1980\n")
    for name in ("a", "1976", "plant-son", "lastname"):
        sentence = refused(tmp_path / "p.csv", AxisColumn(Axis("b", ["x"]), column=name))
        assert sentence.endswith("; does its first line have the column names?")
        assert "1975" not in sentence


def test_hints_are_for_names_that_are_near(tmp_path):
    (tmp_path / "p.csv").write_text("county,sex\nx,F\n")
    for name, end in (
        ("countey", "; did you mean `county`?"),
        ("country of birth", "; does its first line have the column names?"),
    ):
        sentence = refused(tmp_path / "p.csv", AxisColumn(Axis("b", ["x"]), column=name))
        assert sentence == f"The source has no column `{name}` for axis `b`{end}"


def test_upper_case_endings(tmp_path):
    (tmp_path / "P.CSV").write_text("a\nx\n")
    (tmp_path / "Q.CSV.GZ").write_bytes(gzip.compress(b"a\nx\n"))
    (tmp_path / "T.TSV").write_text("a\tb,c\nx\t1\n")
    pa.parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "R.PARQUET")
    with duckdb.connect(str(tmp_path / "D.DuckDB")) as con:
        con.execute("CREATE TABLE t AS SELECT 'x' AS a")
    for name, table in (
        ("P.CSV", None), ("Q.CSV.GZ", None), ("T.TSV", None), ("R.PARQUET", None),
        ("D.DuckDB", "t"), ("", None),
    ):  # fmt: skip
        assert counts(tmp_path / name, table=table) == [1, 0]


def test_tables_of_a_database(tmp_path):
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 'x' AS a")
        con.execute("CREATE TABLE \"t.2010\" AS SELECT 'y' AS a")
    path = tmp_path / "d.duckdb"
    assert counts(path, table="s.t") == counts(path, table='s."t"') == [1, 0]
    assert counts(path, table='"t.2010"') == counts(path, table='main."t.2010"') == [0, 1]
    for table in ("nobody", "s.nobody", "no.t", '"s.t"', "t.2010", 'a"b'):
        sentence = refused(path, table=table)
        assert sentence == f"`d.duckdb` could not be read: it has no table `{table}`."


def test_folders_and_names_that_hold_nothing(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert refused(".") == "`empty` could not be read: the folder has no .parquet file."
    assert refused("n" * 300 + ".csv").startswith("There is no file")
    assert refused("**n.csv").startswith("No file matches")


def test_a_look_says_what_adds_up_and_what_is_repeated(tmp_path):
    lines = ["id,pop_total,pop_a,pop_b,pop_c,vap_a,vap_b,who,low"]
    lines += [f"{i},{3 * i + 5},{i},{2 * i},5,{i},{i},p{i % 3},{i - 1}" for i in range(9)]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    with open_source(tmp_path / "p.csv") as source:
        found = {column.name: column for column in look(source, limit=4).columns}
    assert [name for name, column in found.items() if column.adds_up] == ["pop_total"]
    assert [name for name, column in found.items() if column.negative] == ["low"]
    assert [found[name].per_value for name in ("id", "who", "pop_c")] == [1.0, 3.0, 9.0]


def test_a_look_at_numbers_beyond_64_bits(tmp_path):
    big = "170141183460469231731687303715884105727::HUGEINT"
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute(f"CREATE TABLE t AS SELECT {big} AS p_a, {big} AS p_b, {big} AS p_c")
    with open_source(tmp_path / "d.duckdb", table="t") as source:
        assert not any(
            column.negative or column.adds_up for column in look(source, limit=0).columns
        )
