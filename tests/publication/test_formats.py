"""Spreadsheets and SDMX-CSV say what the CSV files say, to independent readers."""

import csv
import dataclasses
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile

import numpy as np
import openpyxl
import pytest
import python_calamine
import sdmx
from sdmx.reader.csv import Reader

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.publication import formats, run
from subspacedp.publication.formats import (
    FORMATS,
    ReleaseTables,
    check_formats,
    published_tables,
    workbook,
)
from subspacedp.publication.formats.sdmx import DATA, STRUCTURE
from subspacedp.publication.formats.workbook import WORKBOOK, distinct_heads, sheet_names
from subspacedp.release.folder_checks import verify_folder

FORMULAS = ["=1+1", "+B", "-d", "@c", "007", "_x0041_", "a\tb", "NA", "Doña Ana", "x" * 300]
EVERY_SHEET = "44,34,76,1,,0,false,true,false,false,false,-1"  # as CSV in UTF-8
needs_office = pytest.mark.skipif(
    shutil.which("soffice") is None,
    reason="soffice is not installed: published spreadsheets were NOT opened by LibreOffice",
)


def make_release(decimals=0, mechanism="auto"):
    county = sdp.Axis("county", FORMULAS, levels={"state": ["=S", "T", "T"] * 3 + ["T"]})
    domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"]), sdp.Axis("age", range(3))])
    counts = np.random.default_rng(1).integers(0, 90, domain.shape)
    design = sdp.design(
        domain, sdp.hold("state") & sdp.hold("sex"), sdp.PureDP(1.0), decimals=decimals,
        mechanism=mechanism,
    )  # fmt: skip
    return design.release(sdp.Table(counts, domain), seed=1)


def content_of(release, title="Persons: =by county"):
    tables = published_tables(
        release, [["county"], ["state", "sex"]], [["state"], ["sex"]], cells=True
    )
    return ReleaseTables(release=release, tables=tables, title=title, about="One.\n\n=Two.",
                         contact="Office")  # fmt: skip


@pytest.fixture(scope="module", params=[0, None])
def written(request, tmp_path_factory):
    folder, release = tmp_path_factory.mktemp("formats"), make_release(request.param)
    content = content_of(release)
    for write in FORMATS.values():
        write(content, folder)
    return folder, content


def rows_of(sheet):
    """The head and the rows of the one marked-up table of a sheet."""
    (table,) = sheet.tables.values()
    head, *rows = [list(row) for row in sheet[table.ref]]
    assert [cell.value for cell in head] == [column.name for column in table.tableColumns]
    return head, rows


def test_every_figure_is_on_a_sheet(written):
    folder, content = written
    book = openpyxl.load_workbook(folder / WORKBOOK)
    names = book.sheetnames
    assert names[:3] == ["Cover", "Contents", "Notes"]
    assert len(names) == 3 + len(content.tables)
    for name, table in zip(names[3:], content.tables, strict=True):
        head, rows = rows_of(book[name])
        columns = {**table.labels, **table.numbers}
        assert len(head) == len(columns) + 1
        assert len(rows) == table.rows
        for j, column in enumerate(columns.values()):
            shown = [row[j].value for row in rows]
            if column.dtype.kind == "f":
                assert shown == pytest.approx(column.tolist(), rel=1e-15)
            else:
                assert shown == column.tolist()
        exact = (table.numbers["stderr"] == 0).tolist()
        assert [row[-1].value == "[h]" for row in rows] == exact
    held = {t.words: bool(np.all(t.numbers["stderr"] == 0)) for t in content.tables}
    assert held == {"county by sex by age": False, "county": False, "state by sex": False,
                    "state": True, "sex": True}  # fmt: skip


def test_another_reader_finds_the_same(written):
    folder, content = written
    book = python_calamine.CalamineWorkbook.from_path(folder / WORKBOOK)
    sheet = book.get_sheet_by_name(book.sheet_names[3]).to_python()
    start = next(i for i, row in enumerate(sheet) if row[:2] == ["county", "state"]) + 1
    found = [row[4] for row in sheet[start : start + content.tables[0].rows]]
    assert found == pytest.approx(content.release.values.ravel().tolist(), rel=1e-15)


def test_labels_are_text_and_nothing_is_a_formula(written):
    folder, _ = written
    book = openpyxl.load_workbook(folder / WORKBOOK)
    kinds = {cell.data_type for sheet in book for row in sheet for cell in row if cell.value}
    assert kinds <= {"s", "n"}
    _, rows = rows_of(book[book.sheetnames[3]])
    assert {row[0].value for row in rows} == set(FORMULAS)
    assert {row[0].data_type for row in rows} == {"s"}
    assert {row[3].data_type for row in rows} == {"n"}  # ages are numbers


def test_it_is_laid_out_as_offices_ask(written):
    folder, content = written
    book = openpyxl.load_workbook(folder / WORKBOOK)
    assert book.properties.title == content.title
    assert book.properties.created.year == 2000
    tables = [name for sheet in book for name in sheet.tables]
    assert len(tables) == len(set(tables)) == len(book.sheetnames) - 1
    for sheet in book:
        assert sheet["A1"].value
        assert not sheet.merged_cells.ranges
        assert sheet.freeze_panes is None
        assert all(table.autoFilter is None for table in sheet.tables.values())
        assert len(sheet.tables) == (0 if sheet.title == "Cover" else 1)
        assert len(sheet.title) <= 31
    words = [cell.value for row in book["Notes"] for cell in row]
    texts = [c.value for sheet in book.worksheets[3:] for row in sheet for c in row]
    used = {t for t in texts if isinstance(t, str) and len(t) == 3 and t.startswith("[")}
    assert used == {"[e]", "[h]"}
    assert used <= set(words)


def test_the_same_release_makes_the_same_bytes(written, tmp_path):
    folder, content = written
    again = dataclasses.replace(content, tables=[*content.tables])
    for write in FORMATS.values():
        write(again, tmp_path)
    for name in (WORKBOOK, DATA, STRUCTURE):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@needs_office
def test_libreoffice_opens_it(written, tmp_path):
    folder, content = written
    done = subprocess.run(
        ["soffice", "--headless", f"-env:UserInstallation=file://{tmp_path}/profile",
         "--convert-to", f"csv:Text - txt - csv (StarCalc):{EVERY_SHEET}",
         "--outdir", str(tmp_path), str(folder / WORKBOOK)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in tmp_path.glob("*.csv"))
    assert len(files) == 3 + len(content.tables)
    (cells,) = tmp_path.glob("*1 county by sex by age.csv")
    with cells.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row[-1] in ("[e]", "[h]")]
    assert [row[0] for row in rows] == content.tables[0].labels["county"].tolist()
    assert [float(row[4].replace(",", "")) for row in rows] == pytest.approx(
        content.release.values.ravel().tolist(), abs=0.51
    )


def read_sdmx(folder):
    with (folder / STRUCTURE).open("rb") as file:
        structure = sdmx.read_sdmx(file, format="XML")
    with (folder / DATA).open("rb") as file:
        data = Reader().convert(file, structure=structure.structure["TABLE"])
    return structure, data.data[0].obs


def test_sdmx_is_read_with_its_structure(written):
    folder, content = written
    structure, observations = read_sdmx(folder)
    lists = {name: structure.codelist[f"CL_{name}"] for name in ("COUNTY", "SEX", "AGE")}
    label_of = {name: {code.id: str(code.name) for code in items} for name, items in lists.items()}
    found = {}
    for one in observations:
        key = tuple(label_of[name][one.dimension[name].value] for name in lists)
        attributes = {name: a.value for name, a in one.attached_attribute.items()}
        assert key not in found
        found[key] = (float(one.value), float(attributes["STD_ERR"]), attributes["OBS_STATUS"])
        assert attributes["CONF_STATUS"] == "N"  # made from a seed
    assert len(found) == sum(table.rows for table in content.tables)
    release = content.release
    cells = {
        tuple(map(str, row[:3])): row[3:]
        for row in zip(*(release.query.columns()[n].tolist() for n in lists_of(release)),
                       release.values.ravel().tolist(), release.stderr().ravel().tolist(),
                       strict=True)
    }  # fmt: skip
    for key, (value, error) in cells.items():
        assert found[key][:2] == pytest.approx((value, error), rel=1e-15)
        assert found[key][2] == "E"
    state = found["=S", "All of sex", "All of age"]
    exact = release.margin("state")
    assert state == (exact.value[0], 0.0, "A")


def lists_of(release):
    return [axis.name for axis in release.mechanism.domain.axes]


def test_code_lists_have_levels_above_labels(written):
    folder, _ = written
    structure, _ = read_sdmx(folder)
    items = {str(code.name): code for code in structure.codelist["CL_COUNTY"]}
    assert items["=1+1"].parent is items["=S"]
    assert items["=S"].parent is items["All of county"]
    assert all(code.id[0] not in "=+-@" for code in items.values())


def test_every_urn_names_something_in_the_structure(written):
    folder, _ = written
    root = ET.parse(folder / STRUCTURE).getroot()  # noqa: S314 - our own file
    made = {e.get("id") for e in root.iter() if e.get("id")}
    for element in root.iter():
        if element.text and element.text.startswith("urn:"):
            name = element.text.split("=", 1)[1].split(":", 1)[1]
            assert name.split("(")[0] in made
            assert name.rpartition(").")[2] in made or name.endswith(")")


def test_sheets_have_short_names_of_their_own():
    names = sheet_names(["a" * 60, "a" * 60, "x/y:z?", "'quoted'", "history"])
    assert names == ["1 " + "a" * 29, "2 " + "a" * 29, "3 x y z", "4 'quoted", "5 history"]
    heads = distinct_heads(["Value", "value", "a\nb", "", "z" * 400])
    assert len({head.casefold() for head in heads}) == len(heads)
    assert all(0 < len(head) <= 255 for head in heads)


def test_a_table_with_too_many_rows_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook, "MOST_ROWS", 30)
    FORMATS["xlsx"](content_of(make_release()), tmp_path)
    book = openpyxl.load_workbook(tmp_path / WORKBOOK)
    said = [cell.value for row in book["Contents"] for cell in row if cell.value]
    assert said[-1] == (
        "The 60 figures by county by sex by age are more than the 30 rows that a sheet has here; "
        "they are in the file values.csv."
    )
    assert book.sheetnames[3:] == ["1 county", "2 state by sex", "3 state", "4 sex"]


def test_cells_of_a_store_are_named(tmp_path):
    domain = sdp.Domain([sdp.Axis("a", range(3)), sdp.Axis("b", range(2))])
    design = sdp.design(domain, sdp.hold("a"), sdp.PureDP(1.0), mechanism="projected", decimals=0)
    release = design.release_to(tmp_path / "r", np.ones((3, 2), np.int64), seed=1, store="npy")
    tables = published_tables(release, [["b"]], [["a"]], cells=False)
    FORMATS["xlsx"](ReleaseTables(release=release, tables=tables, title="T"), tmp_path)
    book = openpyxl.load_workbook(tmp_path / WORKBOOK)
    said = [cell.value for row in book["Contents"] for cell in row if cell.value]
    assert said[-1] == "The 6 cells are in values.npy, without labels."
    assert book.sheetnames[3:] == ["1 b", "2 a"]


def test_a_missing_library_is_named_before_anything_is_paid(monkeypatch):
    monkeypatch.setattr("subspacedp.publication.formats.find_spec", lambda _: None)
    check_formats(["sdmx-csv"])
    with pytest.raises(ReleaseError, match=r"subspacedp\[files\]"):
        check_formats(["xlsx"])


SPECIFICATION = """
title: Persons
data: {source: persons.csv, unit: row}
axes:
  county: {labels: ["=a", b, c]}
  sex: {labels: [F, M]}
hold: [[county]]
privacy: {epsilon: 1.0}
publish: {decimals: 0, margins: [[sex]], formats: [xlsx, csv, sdmx-csv]}
"""


@pytest.mark.parametrize("cells", [True, False])
def test_a_specification_asks_for_formats(cells, tmp_path):
    rng = np.random.default_rng(2)
    lines = [f"{rng.choice(['=a', 'b', 'c'])},{rng.choice(['F', 'M'])}" for _ in range(200)]
    (tmp_path / "persons.csv").write_text("\n".join(["county,sex", *lines]) + "\n", "utf-8")
    text = SPECIFICATION
    if not cells:
        text = text.replace("[[sex]]", "[[sex], [county, sex]], cells: false")
    (tmp_path / "publication.yaml").write_text(text, "utf-8")
    run(tmp_path / "publication.yaml")
    release = tmp_path / "release"
    assert {WORKBOOK, DATA, STRUCTURE} <= {path.name for path in release.iterdir()}
    book = openpyxl.load_workbook(release / WORKBOOK)
    assert len(book.sheetnames) == 6
    checked = verify_folder(release)
    assert checked.ok
    assert any(WORKBOOK in note for note in checked.notes)
    assert WORKBOOK in (release / "README.txt").read_text("utf-8")
    _, observations = read_sdmx(release)
    assert len(observations) == 6 + 2 + 3
    altered = (release / DATA).read_text("utf-8").replace("b,F", "c,F", 1)
    (release / DATA).write_text(altered, "utf-8")
    assert not verify_folder(release).ok


def test_groupings_and_titles_have_their_place(tmp_path):
    axis = sdp.Axis(
        "place", ["a", "b", "c"], groupings={"grid": ["E", "W", None]},
        titles={"place": "Place of work", "grid": "Square"},
    )  # fmt: skip
    domain = sdp.Domain([axis, sdp.Axis("sex", ["F", "M"])])
    design = sdp.design(domain, sdp.hold("grid"), sdp.PureDP(1.0), mechanism="projected")
    release = design.release(sdp.Table([[4, 5], [6, 7], [8, 9]], domain), seed=1)
    tables = published_tables(release, [["place"]], [["grid"]], cells=True)
    content = ReleaseTables(release=release, tables=tables, title="Places")
    for write in FORMATS.values():
        write(content, tmp_path)
    structure, observations = read_sdmx(tmp_path)
    names = {code.id: str(code.name) for code in structure.codelist["CL_PLACE"]}
    found = {(names[o.dimension["PLACE"].value], o.dimension["SEX"].value): float(o.value)
             for o in observations}  # fmt: skip
    assert len(found) == len(observations) == 6 + 3 + 2
    assert found["Square: E", "_T"] == 9.0
    assert "All of Place of work" in names.values()
    book = openpyxl.load_workbook(tmp_path / WORKBOOK)
    head, _ = rows_of(book[book.sheetnames[3]])
    assert [cell.value for cell in head][:3] == ["Place of work", "Square", "sex"]


@pytest.mark.parametrize("sign", ["\x1b", "\x00", "\ufffe", "\uffff"])
def test_signs_that_xml_cannot_hold_leave_whole_files(sign, tmp_path, monkeypatch):
    axis = sdp.Axis("place", [f"a{sign}", "b"], levels={f"part{sign}": [f"x{sign}", "y"]})
    domain = sdp.Domain([axis, sdp.Axis(f"se{sign}x", ["F", "M"])])
    design = sdp.design(domain, sdp.hold("place"), sdp.PureDP(1.0), mechanism="projected")
    release = design.release(sdp.Table([[4, 5], [6, 7]], domain), seed=1)
    tables = published_tables(release, [[f"part{sign}"]], [["place"]], cells=True)
    content = ReleaseTables(release=release, tables=tables, title=f"Pla{sign}ces")

    def parsed(folder):
        folder.mkdir()
        for write in FORMATS.values():
            write(content, folder)
        ET.parse(folder / STRUCTURE)  # noqa: S314 - our own files
        with zipfile.ZipFile(folder / WORKBOOK) as book:
            for name in book.namelist():
                ET.fromstring(book.read(name))  # noqa: S314 - our own files

    parsed(tmp_path / "whole")
    for module in (formats.sdmx, formats.workbook):
        with monkeypatch.context() as patch:
            patch.setattr(module, "NOT_IN_XML", re.compile("(?!)"))
            if module is formats.sdmx or sign > "\x1f":
                with pytest.raises(ET.ParseError):
                    parsed(tmp_path / module.__name__)
