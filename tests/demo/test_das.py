"""A user's own demonstration file, in the layout of NHGIS."""

import csv

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.datasets import census2010, read_das
from subspacedp.demo.census import census
from subspacedp.demo.study import CensusStudy, OfficialErrors
from subspacedp.errors import DataError


def nhgis_file(path, codes=("H7V001",), states=("DE", "IL", "RI"), tilt=0.0, extra=()):
    """An invented file: true populations, and released ones that are off, more for large places."""
    table = census2010()
    axis = table.domain.axes[0]
    rows = []
    for label, state, count in zip(
        axis.labels, axis.levels["state"], table.counts.tolist(), strict=True
    ):
        if state in states:
            off = round(tilt * (np.log(count) - 10)) + (int(label) % 7 - 3)
            counts = {
                f"{code}_{kind}": count + off * (kind == "dp")
                for code in codes
                for kind in ("sf", "dp")
            }
            rows.append(
                {
                    "gisjoin": f"G{label[:2]}0{label[2:]}0",
                    "name": "x",
                    "state": int(label[:2]),
                    **counts,
                }
            )
    rows += extra
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("codes", [("H7V001",), ("H72001",), ("H7V001", "H72001")])
def test_a_file_is_read_by_county(tmp_path, codes):
    das = read_das(nhgis_file(tmp_path / "nhgis_ppdd_county.csv", codes))
    assert len(das.names) == 3 + 102 + 5
    true = dict(zip(census2010().domain.axes[0].labels, census2010().counts.tolist(), strict=True))
    labels = das.table.domain.axes[0].labels
    assert das.table.counts.tolist() == [true[label] for label in labels]
    assert das.errors.tolist() == [int(label) % 7 - 3 for label in labels]
    assert das.names[labels.index("17031")] == "Cook County"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "needs the columns `gisjoin`"),
        ("", "has no rows"),
        ("gisjoin,H7V001_sf,H7V001_dp\nG9900010,1,2\n", "'G9900010' is no county of 2010"),
        ("gisjoin,H7V001_sf,H7V001_dp\nG0100010,1,2\nG0100010,1,2\n", "a county twice"),
        ("gisjoin,H7V001_sf,H7V001_dp\nG0100010,1,x\n", "`H7V001_dp` of das.csv has to be whole"),
        ("gisjoin,H7V001_sf,H7V001_dp\nG0100010,1\n", "has to be whole"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path, text, words):
    (tmp_path / "das.csv").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        read_das(tmp_path / "das.csv")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"There is no demonstration file .*nowhere\.csv"):
        read_das(tmp_path / "nowhere.csv")


def test_states_are_taken_by_the_papers_rule(tmp_path):
    study = CensusStudy(0.192, 2)
    steep = OfficialErrors(study, read_das(nhgis_file(tmp_path / "a.csv", tilt=-3.0)))
    assert steep.trend.groups == 1  # Illinois: the others have five counties or fewer
    assert steep.biased_states == []  # it has a figure of its own
    states = ("IL", "KS", "IA", "NE")
    steep = OfficialErrors(
        study, read_das(nhgis_file(tmp_path / "b.csv", states=states, tilt=-3.0))
    )
    assert set(steep.biased_states) == {"KS", "IA", "NE"}
    by_state = dict(zip(steep.trend.labels, steep.trend.slope, strict=True))
    assert steep.biased_states == sorted(steep.biased_states, key=by_state.get)
    up = OfficialErrors(study, read_das(nhgis_file(tmp_path / "c.csv", states=states, tilt=3.0)))
    assert up.biased_states == []


def test_counties_that_a_file_lacks_are_not_drawn(tmp_path):
    das = read_das(nhgis_file(tmp_path / "das.csv"))
    official = OfficialErrors(CensusStudy(0.192, 2), das)
    assert not np.isnan(official.boxed("IL").official).any()
    assert np.isnan(official.boxed("KS").official).all()


def test_the_demonstration_draws_a_file_beside_ours(tmp_path):
    states = ("IL", "KS", "IA", "NE", "DE")
    file = nhgis_file(tmp_path / "das.csv", states=states, tilt=-3.0)
    results = census(tmp_path / "out", 3, das=file)
    assert results["das"]["significant_negative"] == 4
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "those of the paper&#39;s rule" in page or "those of the paper's rule" in page
    assert "official TopDown, your file (4 states)" in page
    figures = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert "official-slopes-by-state" in figures
    plain = census(tmp_path / "plain", 3)
    assert "das" not in plain


def test_a_file_of_small_states_alone_is_refused_before_anything_is_written(tmp_path):
    file = nhgis_file(tmp_path / "das.csv", states=("DE", "RI"))
    with pytest.raises(DataError, match="no state with more than five counties"):
        census(tmp_path / "out", 3, das=file)
    assert not (tmp_path / "out").exists()


def test_it_is_public():
    assert sdp.datasets.read_das is read_das
