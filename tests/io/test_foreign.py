"""Spreadsheets and files of statistical packages, each written by a library of its own kind."""

import csv
import datetime
import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from subspacedp.errors import DataError
from subspacedp.io import foreign, look, open_source
from subspacedp.publication import run
from subspacedp.publication.code_lists import read_code_list
from subspacedp.publication.starter import starter

pyreadstat = pytest.importorskip("pyreadstat", reason="the extra `files` is not installed")
xlsxwriter = pytest.importorskip("xlsxwriter", reason="the extra `files` is not installed")

HEADER = ["pid", "sex", "income", "born", "seen", "job", "ok"]
ROWS = [
    ["007", 1.0, 1.5, datetime.date(1960, 2, 29), datetime.datetime(2020, 1, 2, 3, 4), "ä", 1.0],
    ["008", 2.0, -0.25, datetime.date(1959, 12, 31), None, "it's", 0.0],
    ["009", None, 123456789012.0, None, datetime.datetime(2021, 1, 1, 5, 30), "日本", 1.0],
    ["010", 9.0, None, datetime.date(2000, 1, 1), datetime.datetime(2021, 1, 1, 5, 30), None, None],
]
TEXT = [
    ["007", "1", "1.5", "1960-02-29", "2020-01-02 03:04:00", "ä", "1"],
    ["008", "2", "-0.25", "1959-12-31", None, "it's", "0"],
    ["009", None, "123456789012", None, "2021-01-01 05:30:00", "日本", "1"],
    ["010", "9", None, "2000-01-01", "2021-01-01 05:30:00", None, None],
]
NAMES = {"sex": {1.0: "Male", 2.0: "Female", 3.0: "Diverse"}}
TITLES = {"sex": "Sex of the person"}


def frame():
    import pandas as pd

    return pd.DataFrame({name: [row[i] for row in ROWS] for i, name in enumerate(HEADER)})


def spss(path):
    pyreadstat.write_sav(frame(), path, column_labels=TITLES, variable_value_labels=NAMES)


def stata(path):
    data, names = frame(), {"sex": {1: "Male", 2: "Female", 3: "Diverse"}}
    data["sex"] = data["sex"].astype("Int32")
    pyreadstat.write_dta(data, path, version=15, column_labels=TITLES, variable_value_labels=names)


def sas(path):
    pyreadstat.write_xport(frame(), path, column_labels=TITLES)


def workbook(path, sheets=("People",)):
    with xlsxwriter.Workbook(str(path)) as book:
        day, time = (book.add_format({"num_format": f}) for f in ("yyyy-mm-dd", "yyyy-mm-dd hh:mm"))
        for name in sheets:
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, HEADER)
            for i, row in enumerate(ROWS):
                for j, value in enumerate(row):
                    if isinstance(value, datetime.date):
                        form = time if isinstance(value, datetime.datetime) else day
                        sheet.write_datetime(2 * i + 1, j, value, form)  # every other row is empty
                    elif value is not None:
                        sheet.write(2 * i + 1, j, value)


def converted(kind):
    """The workbook as LibreOffice writes it in another format."""

    def write(path):
        office = shutil.which("soffice")
        if office is None:
            pytest.skip(f"NO LIBREOFFICE: .{kind} files are not tested")
        home = path.parent / "office"
        home.mkdir()
        workbook(home / f"{path.stem}.xlsx")
        subprocess.run(
            [office, f"-env:UserInstallation=file://{home}", "--headless", "--convert-to", kind,
             "--outdir", str(path.parent), str(home / f"{path.stem}.xlsx")],
            check=True, timeout=300, capture_output=True, env={**os.environ, "HOME": str(home)},
        )  # fmt: skip

    return write


KINDS = {
    "sav": spss, "zsav": lambda path: pyreadstat.write_sav(frame(), path, compress=True),
    "dta": stata, "xpt": sas, "xlsx": workbook, "ods": converted("ods"), "xls": converted("xls"),
}  # fmt: skip


def rows_of(source):
    out = []
    for batch in source.batches(source.table):
        out += [list(row.values()) for row in batch.to_pylist()]
    return sorted(out)


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read_as_the_same_text(tmp_path, kind):
    KINDS[kind](tmp_path / f"people.{kind}")
    with open_source(f"people.{kind}", base=tmp_path) as source:
        assert source.columns == tuple(HEADER)
        assert {str(k) for k in source.kinds.values()} == {"text"}
        assert rows_of(source) == TEXT
        seen = look(source)
    assert {column.name: column.kind for column in seen.columns} == {
        "pid": "text", "sex": "whole", "income": "real", "born": "date", "seen": "time",
        "job": "text", "ok": "whole",
    }  # fmt: skip


def test_a_file_that_sas_wrote(tmp_path):
    """The sample of pyreadstat (Apache-2.0), for no library writes this format."""
    packed = Path(__file__).with_name("sample.sas7bdat.gz")
    (tmp_path / "sample.sas7bdat").write_bytes(gzip.decompress(packed.read_bytes()))
    with open_source(tmp_path / "sample.sas7bdat") as source:
        assert source.columns[:4] == ("mychar", "mynum", "mydate", "dtime")
        assert [row[:4] for row in rows_of(source)] == [
            ["a", "1.1", "2018-05-06", "2018-05-06 10:10:10"],
            ["b", "1.2", "1880-05-06", "1880-05-06 10:10:10"],
            ["c", "-1000.3", "1960-01-01", "1960-01-01 00:00:00"],
            ["d", "-1.4", "1583-01-01", "1583-01-01 00:00:00"],
            ["e", "1000.3", None, None],
        ]


def test_files_of_many_parts_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "ROWS", 2)  # four rows: the last part that is asked for is empty
    for kind in ("sav", "xpt", "xlsx"):
        KINDS[kind](tmp_path / f"people.{kind}")
        with open_source(tmp_path / f"people.{kind}") as source:
            assert rows_of(source) == TEXT


def test_names_of_codes_and_titles_are_what_the_file_says(tmp_path):
    for kind in ("sav", "dta"):
        KINDS[kind](tmp_path / f"people.{kind}")
        with open_source(tmp_path / f"people.{kind}") as source:
            assert source.code_names == {"sex": {"1": "Male", "2": "Female", "3": "Diverse"}}
            assert source.titles == TITLES


def test_codes_declared_missing_are_rows_without_a_value_and_no_labels(tmp_path):
    path = tmp_path / "people.sav"
    names = {"sex": {**NAMES["sex"], 9.0: "Refused"}}
    missing = {"sex": [9.0]}
    pyreadstat.write_sav(frame(), path, variable_value_labels=names, missing_ranges=missing)
    with open_source(path) as source:
        assert [row[1] for row in rows_of(source)] == ["1", "2", None, None]
        assert "9" not in source.code_names["sex"]


def test_a_workbook_of_several_sheets_needs_to_be_told_which(tmp_path):
    workbook(tmp_path / "two.xlsx", ("People", "Others"))
    with pytest.raises(DataError, match="has the sheets `People`, `Others`; say which as `table`"):
        open_source(tmp_path / "two.xlsx")
    with pytest.raises(DataError, match="has no sheet `Nobody`"):
        open_source(tmp_path / "two.xlsx", table="Nobody")
    with open_source(tmp_path / "two.xlsx", table="Others") as source:
        assert rows_of(source) == TEXT
    spss(tmp_path / "one.sav")
    with pytest.raises(DataError, match="is one table; leave out `table`"):
        open_source(tmp_path / "one.sav", table="People")


def test_a_sheet_is_proposed_by_its_name_and_counted(tmp_path):
    workbook(tmp_path / "two.xlsx", ("People", "Others"))
    with open_source(tmp_path / "two.xlsx", table="Others") as source:
        assert "table: Others" in starter(look(source), "two.xlsx", "Others").text
    (tmp_path / "counts.yaml").write_text(
        "data: {counts: {source: two.xlsx, table: Others, value: income}}\n"
        "axes: {sex: {labels: {1: Male, 2: Female}, missing: none, other: other}}\n"
        "privacy: {epsilon: 1.0}\n",
        "utf-8",
    )
    with pytest.raises(DataError, match="`income`"):  # are no counts
        run(tmp_path / "counts.yaml", out=tmp_path / "release", seed=1)
    with xlsxwriter.Workbook(str(tmp_path / "two.xlsx")) as book:
        for name, women in (("Notes", 1), ("Others", 70)):
            sheet = book.add_worksheet(name)
            for i, row in enumerate([["sex", "income"], [1, 60], [2, women], [None, 5]]):
                sheet.write_row(i, 0, row)
    path = tmp_path / "counts.yaml"
    path.write_text(path.read_text("utf-8") + "hold: [[]]\npublish: {decimals: 0}\n", "utf-8")
    made = run(path, out=tmp_path / "release", seed=1)
    assert made.release.values.sum() == 60 + 70 + 5  # held exactly


@pytest.mark.parametrize("name", ["a.xlsx", "a.xls", "a.ods", "a.sav", "a.dta", "a.sas7bdat"])
def test_a_file_that_is_none_is_refused_without_its_content(tmp_path, name):
    (tmp_path / name).write_text("secret,secret\n1,2\n", "utf-8")
    with pytest.raises(DataError, match=f"`{name}` could not be read") as caught:
        open_source(tmp_path / name)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(DataError, match="There is no file"):
        open_source(tmp_path / f"b{name}")


@pytest.mark.parametrize(
    ("name", "library"), [("a.sav", "pyreadstat"), ("a.ods", "python_calamine")]
)
def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"`{library}`; install it with `pip .*\[files\]`"):
        open_source(name)


def test_nothing_of_the_rows_stays_on_disk(tmp_path):
    spss(tmp_path / "people.sav")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with open_source(tmp_path / "people.sav", scratch=scratch) as source:
        rows_of(source)
        assert "007" not in repr(source)
        left = [path for path in scratch.rglob("*") if path.is_file() and path.stat().st_size]
        assert left == []
    assert list(scratch.iterdir()) == []


def test_columns_without_a_name_are_left_out_and_two_of_one_name_refused(tmp_path):
    for name, header in (("gap", ["a", None, 2020]), ("twice", ["a", "A"]), ("none", [])):
        with xlsxwriter.Workbook(str(tmp_path / f"{name}.xlsx")) as book:
            sheet = book.add_worksheet()
            sheet.write_row(2, 1, header)
            sheet.write_row(3, 1, [1, 2, 3])
    with open_source(tmp_path / "gap.xlsx") as source:
        assert source.columns == ("a", "2020")
        assert rows_of(source) == [["1", "3"]]
    with pytest.raises(DataError, match="has a column name more than once"):
        open_source(tmp_path / "twice.xlsx")


def test_code_lists_may_be_spreadsheets_or_have_semicolons(tmp_path):
    lines = [["county", "state"], ["01001", "AL"], ["10001", "DE"]]
    with xlsxwriter.Workbook(str(tmp_path / "codes.xlsx")) as book:
        sheet = book.add_worksheet()
        for i, line in enumerate(lines):
            sheet.write_row(i, 0, line)
    with (tmp_path / "codes.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows(lines)
    for name in ("codes.xlsx", "codes.csv"):
        found = read_code_list(tmp_path / name, "county", ["state"])
        assert (found.labels, found.levels) == (("01001", "10001"), {"state": ("AL", "DE")})


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_packed_files_with_semicolons_and_decimal_commas(tmp_path, packing):
    path = tmp_path / f"people.csv.{packing}"
    kind = {"gz": "gzip", "zst": "zstd"}[packing]
    with pa.CompressedOutputStream(str(path), kind) as file:
        file.write("name;x\nä;1,5\nb;-2\n".encode())
    with open_source(path, decimal=",") as source:
        assert rows_of(source) == [["b", "-2"], ["ä", "1,5"]]
        assert look(source).decimal == ","
    path.write_bytes(b"not packed\n")
    with pytest.raises(DataError, match="could not be read"):
        open_source(path)
