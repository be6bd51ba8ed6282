"""Titles: readers see them everywhere, and files keep their columns."""

import csv
import json

import pytest

import subspacedp as sdp
from subspacedp.microdata import verify_folder as verify_second
from subspacedp.publication import SpecificationError, audit, plan, read_specification, run, writing
from subspacedp.release.folder_checks import verify_folder
from subspacedp.stated import UNSEEN

TITLES = {"county": "County of residence", "state": "State <2020>"}


def titled(world, title=TITLES, **publish):
    axes = json.loads(json.dumps(world.spec()["axes"]))
    if title is not None:
        axes["county"]["title"] = title
    margins = {"decimals": 0, "margins": [["county"]], "to": str(world.folder / "release")}
    return world.yaml(axes=axes, publish=margins | publish)


def test_titles_are_everywhere_readers_look_and_columns_keep_their_names(world):
    path = titled(world)
    assert [line.what for line in plan(path).releases[0].lines] == [
        "every cell", "State <2020> (held)", "County of residence",
    ]  # fmt: skip
    assert "every State <2020> total" in str(audit(path)["table"])
    run(path)
    folder = world.folder / "release"
    with (folder / "values.csv").open() as file:
        assert next(csv.reader(file)) == ["county", "state", "sex", "value", "stderr"]
    with (folder / "dictionary.csv").open() as file:
        assert {row["column"]: row["title"] for row in csv.DictReader(file)} == {
            **TITLES, "sex": "", "value": "", "stderr": "", "lower": "", "upper": "",
        }  # fmt: skip
    page = (folder / "report.html").read_text()
    assert "County of residence" in page
    assert "State &lt;2020&gt;" in page
    assert "<2020>" not in page.replace("\\u003c2020", "")
    assert "State <2020> total" in (folder / "README.txt").read_text().replace("\n", " ")
    loaded = sdp.load(folder)
    assert [level.title for level in loaded.mechanism.domain.axes[0].chain] == [*TITLES.values()]
    assert verify_folder(folder).ok


def test_titles_are_in_spreadsheets_and_beside_weights(world):
    run(titled(world, formats=["xlsx"], records=True))
    folder = world.folder / "release"
    book = pytest.importorskip("openpyxl").load_workbook(folder / "tables.xlsx")
    assert any("County of residence" in name for name in book.sheetnames)
    assert not any("county" in name for name in book.sheetnames)
    page = (folder / "report.html").read_text()
    assert '<th scope="row">County of residence</th>' in page.partition("met by weighted")[2]
    assert verify_second(folder).ok


def test_a_title_that_was_altered_is_found(world):
    run(titled(world))
    certificate = world.folder / "release" / "certificate.json"
    certificate.write_text(certificate.read_text().replace("County of res", "Country of res"))
    failed = [
        check.name for check in verify_folder(world.folder / "release").checks if not check.ok
    ]
    assert "digests" in failed
    assert "the certificate follows from its design" in failed


def test_titles_change_no_number(world):
    def values(name, title):
        path = titled(world, title)
        run(path, out=world.folder / name, seed=3)
        return sdp.load(world.folder / name)

    plain, with_titles = values("a", None), values("b", TITLES)
    assert (plain.values == with_titles.values).all()
    assert plain.mechanism.query.same_as(with_titles.mechanism.query)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ({"stat": "State"}, "is not an axis or level here; did you mean `state`?"),
        ("sex", "is `sex`, which is that of `county` too"),
        ("", "must not be empty"),
        (7, "must be a text, or give names their titles; got 7"),
        ("a\nb", "must be one line of text"),
        ("x" * 201, "must have at most 200 characters"),
    ],
)  # fmt: skip
def test_titles_that_cannot_be_used(world, title, words):
    with pytest.raises(SpecificationError) as caught:
        read_specification(titled(world, title))
    assert words in str(caught.value)
    assert "title" in str(caught.value)


def test_the_readme_moves_no_cursor(world, monkeypatch):
    sign = "\x1b[2J\x9b1A\u202e"
    path = world.yaml(title=f"Persons{sign}\nof Texas", publication={"creator": sign})
    run(path, out=world.folder / "release")
    said = (world.folder / "release" / "README.txt").read_text("utf-8")
    assert said.startswith("Persons\\x1b[2J\\x9b1A\\u202e\nof Texas\n")
    assert "Published by: \\x1b[2J" in said
    assert not UNSEEN.search(said.replace("\n", ""))
    monkeypatch.setattr(writing, "visible", lambda text: text)
    run(path, out=world.folder / "twin")
    assert "\x1b[2J" in (world.folder / "twin" / "README.txt").read_text("utf-8")


def test_the_entry_for_catalogues_ends_no_script(world, monkeypatch):
    title = "</script><script>alert(1)</script> & more"
    path = world.yaml(title=title)
    run(path, out=world.folder / "release")
    text = (world.folder / "release" / "dataset.jsonld").read_text("utf-8")
    assert json.loads(text)["name"] == title
    assert "<" not in text
    monkeypatch.setattr(writing, "in_script", lambda text: text)
    run(path, out=world.folder / "twin")
    assert "</script>" in (world.folder / "twin" / "dataset.jsonld").read_text("utf-8")
