"""The second table and its records in a publication: said everywhere, and never in the way."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest
from tests.publication.conftest import HEADER

from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.microdata import verify_folder
from subspacedp.publication import plan, read_specification, resources, run

MARGINS = [["county"], ["state", "sex"]]


@pytest.fixture
def spec(world):
    """A specification with records; changes go to `publish`."""

    def of(to="r", **publish):
        given = {"decimals": 0, "margins": MARGINS, "records": True, "to": str(world.folder / to)}
        return world.spec(publish={**given, **publish}, privacy={"epsilon": 0.3})

    return of


def test_records_are_published_with_their_table(spec, world):
    made = run(spec())
    assert verify_folder(made.folder).ok
    table = pyarrow.parquet.read_table(made.folder / "non-negative-biased.parquet")
    records = pyarrow.parquet.read_table(made.folder / "synthetic-records.parquet")
    assert records.num_rows == sum(table["non_negative_biased"].to_pylist()) == len(world.rows)
    assert "person" in HEADER
    assert records.column_names == ["county", "state", "sex", "calibration_weight"]
    stated = json.loads((made.folder / "non-negative-biased.json").read_text("utf-8"))
    assert stated["release_id"] == made.release.release_id
    assert [entry["margin"] for entry in stated["records"]["calibrated_to"]] == MARGINS


def test_readers_are_told(spec):
    made = run(spec())
    for name in ("README.txt", "report.html"):
        words = " ".join((made.folder / name).read_text("utf-8").split())
        assert "Use this table where a negative number cannot be used" in words
        assert "synthetic" in words.casefold()
    with (made.folder / "dictionary.csv").open(encoding="utf-8", newline="") as file:
        meanings = {row["column"]: row["meaning"] for row in csv.DictReader(file)}
    assert meanings["non_negative_biased"].startswith("BIASED")
    assert "may be negative" in meanings["calibration_weight"]
    (planned,) = plan(spec()).releases
    assert "synthetic records made of it" in " ".join(planned.how())
    assert "second table" not in " ".join(plan(spec(records=False)).releases[0].how())


def test_everything_follows_from_the_draw(spec, world):
    """The same draw gives the same bytes, also where its values are written otherwise.

    But for the digest of the values that were written.
    """
    first, again = run(spec("one"), seed=5), run(spec("two"), seed=5)
    stored = run(spec("three", values="npy"), seed=5)
    for file in [*first.folder.glob("*-biased.*"), *first.folder.glob("synthetic-*")]:
        assert file.read_bytes() == (again.folder / file.name).read_bytes()
        apart = [one.release.sha256.encode() for one in (first, stored)]
        kept = (stored.folder / file.name).read_bytes().replace(apart[1], apart[0])
        assert file.read_bytes() == kept
    assert verify_folder(stored.folder).ok
    assert not json.loads((first.folder / "non-negative-biased.json").read_text())[
        "for_publication"
    ]


def test_sums_and_margins_alone_have_none(world, spec):
    sums = {"income": {"lower": 0, "upper": 1000, "unit": 10, "share": 0.5}}
    made = run(spec() | {"sums": sums})
    assert (made.folder / "counts" / "synthetic-records.parquet").is_file()
    assert not list((made.folder / "income").glob("synthetic*"))
    with pytest.raises(SubspaceDPError, match=r"`publish.records` needs the cells"):
        read_specification(spec(cells=False))
    with pytest.raises(SubspaceDPError, match=r"must be true or false; got 'yes'"):
        read_specification(spec(records="yes"))


def test_what_does_not_fit_into_memory_is_refused_before_the_data(spec, monkeypatch):
    """Before anything is opened, with what to leave out."""
    asked = spec()
    needed = resources.FIXED_MEMORY + resources.SECOND * 10
    monkeypatch.setattr(resources, "available_memory", lambda: needed)
    monkeypatch.setattr("subspacedp.publication.running.open_data", None)
    with pytest.raises(ReleaseError, match=r"without a second table \(`non_negative`, `records`\)"):
        run(asked)


def test_inequalities_hold_in_the_table(spec, world):
    """What is publicly known of the counts is true of the second table too."""
    most = int(world.counts().max())
    known = {"at_most": [{"margin": ["county", "sex"], "limit": most}], "part_of": []}
    made = run(spec() | {"inequalities": known})
    table = pyarrow.parquet.read_table(made.folder / "non-negative-biased.parquet")
    counts = table["non_negative_biased"].to_numpy()
    assert np.all((counts >= 0) & (counts <= most))
    assert verify_folder(made.folder).ok
