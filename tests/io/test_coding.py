"""Codes of rows against a plain reading of the same values, and what is said of wrong ones."""

import csv
import gzip
import re
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import examples

from subspacedp.errors import DataError, DomainError, SubspaceDPError
from subspacedp.io import (
    AxisColumn,
    ClippedValue,
    Kind,
    bin_labels,
    labels_from_data,
    open_source,
    tabulate,
)
from subspacedp.tables import Axis


def write_csv(path, columns, **options):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, **options)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def counts(source, *axes, **options):
    return tabulate(source, axes, **options).everything.counts


def parquet(folder, **columns):
    pa.parquet.write_table(pa.table(columns), folder / "p.parquet")
    return open_source(folder / "p.parquet")


def test_leading_zeros_stay(tmp_path):
    path = write_csv(tmp_path / "p.csv", {"county": ["01001", "01001", "1001", "1003"]})
    with open_source(path) as source:
        assert source.kinds == {"county": Kind.TEXT}
        found = counts(source, AxisColumn(Axis("county", ["01001", "1001", "1003"])))
        assert found.tolist() == [2, 1, 1]
        assert labels_from_data(source, "county") == ["01001", "1001", "1003"]


@pytest.mark.parametrize(
    "stored", [["1", "2", "2"], [1, 2, 2], [1.0, 2.0, 2.0], ["1.0", " 2", "2."]]
)
@pytest.mark.parametrize("labels", [[1, 2], range(1, 3), range(1, 40), list(range(40))])
def test_whole_labels_match_however_numbers_are_stored(tmp_path, stored, labels):
    with parquet(tmp_path, a=stored) as source:
        found = counts(source, AxisColumn(Axis("a", labels)))
    at = {label: n for label, n in zip(labels, found.tolist(), strict=True) if n}
    assert at == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("stored", "labels"),
    [
        (pa.array([7, 12, 7], pa.int16()), ["7", "12"]),
        (pa.array([True, False, True]), ["true", "false"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b"]),
        (pa.array([10957, 10958, 10957], pa.date32()), ["2000-01-01", "2000-01-02"]),
    ],
)
def test_text_labels_match_what_can_be_written_in_one_way(tmp_path, stored, labels):
    with parquet(tmp_path, a=stored) as source:
        assert counts(source, AxisColumn(Axis("a", labels))).tolist() == [2, 1]


@settings(max_examples=examples(1) // 4)
@given(
    edges=st.lists(st.integers(-20, 20), min_size=1, max_size=6, unique=True).map(sorted),
    half=st.booleans(),
    numbers=st.lists(st.integers(-45, 90), min_size=1, max_size=60),
    kind=st.sampled_from(["whole", "real", "text"]),
)
def test_bins_against_a_plain_reading(tmp_path_factory, edges, half, numbers, kind):
    edges = [edge / 2 for edge in edges] if half else edges
    values = [n if kind == "whole" else n / 4 for n in numbers]
    stored = list(map(str, values)) if kind == "text" else values
    want = np.zeros(len(edges), np.int64)
    below = 0
    for value in values:
        place = sum(value >= edge for edge in edges) - 1
        below += place < 0
        want[max(place, 0)] += place >= 0
    age = AxisColumn(Axis("age", bin_labels(edges)), bins=edges)
    with parquet(tmp_path_factory.mktemp("bins"), age=stored) as source:
        if below:
            with pytest.raises(DataError, match=r"^\d+ rows? ha.* below its first bin") as caught:
                counts(source, age)
            assert caught.value.rows == below
        else:
            assert counts(source, age).tolist() == want.tolist()


def test_bin_labels_are_distinct_and_refuse_nonsense():
    assert bin_labels([0, 5, 18, 65]) == ("0-4", "5-17", "18-64", "65+")
    assert bin_labels([7]) == ("7+",)
    for bad in ([], [1, 1], [2, 1], [0, float("inf")], [True, 2], ["0", "5"]):
        with pytest.raises(DomainError, match="ascending finite numbers"):
            bin_labels(bad)
    with pytest.raises(DomainError, match="one label for each edge"):
        AxisColumn(Axis("age", ["a"]), bins=[0, 5])


@pytest.mark.parametrize("size", [3, 100])
def test_wrong_values_are_counted(tmp_path, size):
    labels = [f"l{i}" for i in range(size)]
    stored = ["l0", None, "secret", "l1", "Secret", None, "L1"]
    with parquet(tmp_path, a=stored) as source, pytest.raises(DataError) as caught:
        counts(source, AxisColumn(Axis("a", labels)))
    assert str(caught.value) == (
        "3 rows have a value of `a` that is not among its labels, and `other: all other` in axis "
        "`a` would take them; 2 rows have no value of `a`, and `missing: not stated` in axis `a` "
        "would take them."
    )


def test_wrong_values_of_several_columns(tmp_path):
    nan, inf = float("nan"), float("inf")
    columns = {"a": ["x", "y", "x", None], "b": ["1", "much", "2", "3"], "c": [nan, inf, -inf, 2.0]}
    axes = [
        AxisColumn(Axis("a", ["x"])),
        AxisColumn(Axis("b", ["few"]), bins=[0]),
        AxisColumn(Axis("c", ["few"]), bins=[0]),
    ]
    with parquet(tmp_path, **columns) as source, pytest.raises(DataError) as caught:
        counts(source, *axes)
    remedy = r", and `(missing: not stated|other: all other)` in axis `\w` would take (it|them)"
    told = re.sub(remedy, "", str(caught.value))
    assert told == (
        "1 row has a value of `a` that is not among its labels; 1 row has no value of `a`; "
        "1 row has a value of `b` that is not a finite number; 1 row has no value of `c`; "
        "2 rows have a value of `c` that is not a finite number."
    )


def test_a_parquet_files_minimum_and_maximum_do_not_hide_nan(tmp_path):
    axis = AxisColumn(Axis("c", ["few", "many"]), bins=[0, 5])
    one = AxisColumn(Axis("one", [1]))
    with parquet(tmp_path, c=[1.0, float("nan"), 7.0], one=[1, 1, 1]) as source:
        with pytest.raises(DataError, match="1 row has no value of `c`"):
            counts(source, axis)
        with pytest.raises(DataError, match="1 row has a value of `c` that is missing or not"):
            counts(source, one, value=ClippedValue(column="c", lower=0, upper=9))
        with pytest.raises(DataError, match="1 row has a value of `c` that is not a whole"):
            counts(source, AxisColumn(Axis("w", [0]), columns={0: "c"}))


def test_columns_that_do_not_fit(tmp_path):
    with parquet(tmp_path, county=["a"], income=[1.5], list=[[1]]) as source:
        with pytest.raises(
            DataError, match="no column `countey` for axis `c`; did you mean `county`"
        ):
            counts(source, AxisColumn(Axis("c", ["a"]), column="countey"))
        with pytest.raises(DataError, match=r"no column `zzz` for axis `zzz`\.$"):
            counts(source, AxisColumn(Axis("zzz", ["a"])))
        with pytest.raises(DataError, match="holds real numbers, which cannot be compared"):
            counts(source, AxisColumn(Axis("income", ["1.5"])))
        with pytest.raises(DataError, match="neither text, numbers nor dates"):
            counts(source, AxisColumn(Axis("list", ["1"])))
        with pytest.raises(DataError, match="did you mean `income`"):
            counts(source, AxisColumn(Axis("county", ["a"])), count="incom")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(("suffix", "sign"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_csv_as_it_comes(tmp_path, ending, suffix, sign):
    lines = ["\ufeffarea,n", 'x,"1"', '"y, or ""z""",2', "x,", ""]
    text = ending.join(line.replace(",", sign) for line in lines)
    (tmp_path / f"p.{suffix}").write_bytes(text.encode())
    with gzip.open(tmp_path / f"p.{suffix}.gz", "wb") as file:
        file.write(text.encode())
    area = AxisColumn(Axis("area", ["x", f'y{sign} or "z"']))
    for name in (f"p.{suffix}", f"p.{suffix}.gz"):
        with open_source(name, base=tmp_path) as source:
            assert source.columns == ("area", "n")
            assert counts(source, area).tolist() == [2, 1]


def test_folders_patterns_and_databases(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(3):
        pa.parquet.write_table(pa.table({"a": ["x", "y"][: i + 1]}), folder / f"{i}.parquet")
    with duckdb.connect(str(tmp_path / "d.duckdb")) as con:
        con.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT * FROM (VALUES ('x'), ('y')) v(a)")
    axis = AxisColumn(Axis("a", ["x", "y"]))
    for address, table, want in (
        (folder, None, [3, 2]),
        (folder / "[12].parquet", None, [2, 2]),
        (tmp_path / "d.duckdb", "s.t", [1, 1]),
    ):
        with open_source(address, table=table) as source:
            assert counts(source, axis).tolist() == want
    before = (tmp_path / "d.duckdb").read_bytes()
    assert (tmp_path / "d.duckdb").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.duckdb", "many"]


def test_sources_that_are_not_there(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "twice.csv").write_text("a,A\n1,2\n")
    (tmp_path / "bad.parquet").write_text("nothing")
    (tmp_path / "p.docx").write_text("nothing")
    (tmp_path / "rows.csv").write_text("a\n")
    for name, table, words in (
        ("none.csv", None, "no file"),
        ("none*.csv", None, "No file matches"),
        ("empty.csv", None, "must start with a line of column names"),
        ("twice.csv", None, "has a column name more than once; does its first line"),
        ("bad.parquet", None, "could not be read"),
        ("p.docx", None, "of no known kind"),
        ("d.duckdb", None, "say which `table`"),
        ("d.duckdb", "t", "could not be opened"),
    ):
        with pytest.raises(DataError, match=words):
            open_source(name, base=tmp_path, table=table)
    with pytest.raises(DataError, match="`mysql://` is of no known kind"):
        open_source("mysql://me:hunter2@host/db", table="t")
    with pytest.raises(DataError, match="needs the name of a `table`"):
        open_source("postgresql://me:hunter2@host/db")
    with open_source("rows.csv", base=tmp_path) as source:
        with pytest.raises(DataError, match="The source has no rows"):
            counts(source, AxisColumn(Axis("a", ["x"])))
        with pytest.raises(DataError, match="The source has no rows"):
            tabulate(source, [AxisColumn(Axis("b", ["x"]), column="a")], unit="a", key="k")


def test_broken_lines_do_not_leak(tmp_path):
    (tmp_path / "p.csv").write_text("a,b\nx,1\nplanted-secret,1,2,3\n")
    with open_source(tmp_path / "p.csv") as source, pytest.raises(SubspaceDPError) as caught:
        counts(source, AxisColumn(Axis("a", ["x"])))
    assert "planted" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_nothing_is_left_behind(tmp_path):
    pa.parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "p.parquet")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = open_source(tmp_path / "p.parquet", scratch=scratch, memory="100MB")
    (folder,) = scratch.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert source._con.sql("SELECT current_setting('memory_limit')").fetchall() == [("95.3 MiB",)]
    (folder / "spill").write_text("secret")
    source.close()
    source.close()
    assert list(scratch.iterdir()) == []
    with pytest.raises(DataError):
        open_source(tmp_path / "none.parquet", scratch=scratch)
    (tmp_path / "bad.parquet").write_text("nothing")
    with pytest.raises(DataError):
        open_source(tmp_path / "bad.parquet", scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    pa.parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "p.parquet")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import os, signal, sys; from subspacedp.io import open_source; from pathlib import Path; "
        "source = open_source(sys.argv[1], scratch=Path(sys.argv[2])); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "p.parquet"), str(scratch)]
    subprocess.run(command, check=False, timeout=300)
    (left,) = scratch.iterdir()
    with open_source(tmp_path / "p.parquet", scratch=scratch):
        (mine,) = scratch.iterdir()
        assert mine != left
        with open_source(tmp_path / "p.parquet", scratch=scratch):
            assert len(list(scratch.iterdir())) == 2  # a folder in use is left alone
    assert list(scratch.iterdir()) == []
