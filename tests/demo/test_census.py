"""The census demonstration: its numbers, its files, its page, and bad input."""

import html
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from subspacedp import datasets
from subspacedp.demo.census import census
from subspacedp.demo.study import CensusStudy, HousingStudy, count_slopes
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.inference import replicates
from subspacedp.release import verify_folder
from subspacedp.report.page import _environment

FIGURES = {
    "every-county",
    "errors-il",
    "errors-ten-states",
    "slopes-by-state",
    "negative-slopes",
    "california",
}


@pytest.fixture(scope="module")
def study():
    return CensusStudy(0.192, 300)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("census") / "out"
    said = []
    return census(folder, 20, progress=said.append), folder, said


# -------------------------------------------------------------------------------------------- data


def test_the_tables_agree_with_each_other():
    """Three files from different sources have the same people, county by county."""
    counties = datasets.census2010()
    people = dict(zip(counties.domain.axes[0].labels, counties.counts.tolist(), strict=True))
    texas = datasets.texas2010()
    for code, size in zip(
        texas.domain.axes[0].labels, texas.counts.sum(axis=(1, 2)).tolist(), strict=True
    ):
        assert people[code] == size
    assert people["48113"] == int(datasets.dallas2010().counts.sum())
    california = datasets.das_california2022()
    for code, size in zip(
        california.table.domain.axes[0].labels, california.table.counts.tolist(), strict=True
    ):
        assert people[code] == size
    assert int(california.errors.sum()) == 0
    assert datasets.census2010_housing().counts[:, 0].tolist() == counties.counts.tolist()


# ----------------------------------------------------------------------------------------- numbers


def test_48_states_have_more_than_five_counties(study):
    trend = study.trend(study.table.counts + next(replicates(study.mechanism, 1, seed=1)))
    assert trend.groups == 48
    assert set(study.states) - set(trend.labels) == {"DC", "DE", "HI", "RI"}


def test_the_ten_states_follow_their_rule(study):
    names, counties = np.unique(study.states, return_counts=True)
    sizes = dict(zip(names.tolist(), counties.tolist(), strict=True))
    assert study.ten_states == ["TX", "GA", "VA", "KY", "MO", "KS", "NC", "IA", "TN", "NE"]
    fewest = min(sizes[state] for state in study.ten_states)
    assert all(
        count <= fewest for name, count in sizes.items() if name not in [*study.ten_states, "IL"]
    )


def test_counties_are_in_order_and_state_totals_stay(study):
    illinois = study.boxed("IL")
    assert illinois.errors.shape == (10, 102)
    assert np.all(np.diff(illinois.size) >= 0)
    assert int(illinois.size.sum()) == 12_830_632
    np.testing.assert_allclose(illinois.errors.sum(axis=1), 0, atol=1e-9)


def test_slopes_of_ours_are_half_negative_and_one_in_a_hundred_significant(study):
    """14,400 slopes: half within 5.5 standard deviations; a tilt of 1 person is found."""
    slopes = study.slopes
    assert (slopes.groups, slopes.runs) == (48, 300)
    sd = 0.5 / np.sqrt(48 * 300)
    assert abs(slopes.share_negative - 0.5) < 5.5 * sd
    assert 0.005 < slopes.share_significant < 0.016  # t-tests are approximate for Laplace noise
    tilt = -1.0 * np.log(study.table.counts)
    tilted = count_slopes(
        (noise + tilt for noise in replicates(study.mechanism, 40, seed=2)),
        study.table.counts,
        study.states,
    )
    assert tilted.share_negative - 0.5 > 5.5 * 0.5 / np.sqrt(48 * 40)


def test_california_beside_the_official_release(study):
    trend = study.official_trend
    assert trend.slope[0] == pytest.approx(-0.3277, abs=1e-4)
    assert trend.pvalue[0] == pytest.approx(0.0816, abs=1e-4)
    goal = float(np.mean(study.official.errors**2))
    assert np.mean(study.matched.expected_error().per_cell) <= goal
    assert study.matched.mechanism.budget.epsilon == 1.09
    ours, near = study.california
    assert ours.codes == near.codes
    assert near.errors.std() < 0.3 * ours.errors.std()
    order = np.argsort(study.official.table.counts, kind="stable")
    assert ours.official.tolist() == near.official.tolist()
    assert ours.official.tolist() == study.official.errors[order].tolist()


def test_housing_units_are_held_in_every_county_and_people_by_state():
    study = HousingStudy(0.192)
    release = study.mechanism.release(study.table, seed=1)
    assert release.values[:, 1].tolist() == study.table.counts[:, 1].tolist()
    states = study._states
    errors = np.asarray(release.values)[:, 0] - study.table.counts[:, 0]
    assert max(abs(errors[states == state].sum()) for state in np.unique(states)) < 1e-6
    assert np.abs(errors).max() > 10
    found = study.summary(release)
    assert (found["held"], found["answers"]) == (52 + 3221, 2 * 3221)
    assert found["share_exposed_of_housing_units"] == pytest.approx(1)
    assert found["share_exposed_of_a_population"] < 0.02
    assert release.verify().ok


# ------------------------------------------------------------------------------------------- files


def test_the_folder_has_release_figures_and_page(made):
    results, folder, said = made
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "values.csv",
        "values.parquet",
        "certificate.json",
        "error-model.json",
        "digests.json",
        "housing",
        "figures",
        "results.json",
        "index.html",
    }
    assert verify_folder(folder).ok
    assert verify_folder(folder / "housing").ok
    assert results["page"] == str(folder / "index.html")
    written = json.loads((folder / "results.json").read_text("utf-8"))
    assert written == {k: v for k, v in results.items() if k not in ("folder", "page")}
    assert len(said) >= 3


def test_every_figure_is_there_as_svg(made):
    _, folder, _ = made
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.svg" for name in FIGURES
    }
    for name in FIGURES:
        drawn = ElementTree.parse(folder / "figures" / f"{name}.svg")  # noqa: S314 - our own
        assert drawn.getroot().tag.endswith("svg")


def test_the_same_thing_has_the_same_colour_everywhere(made):
    """Blue for ours, orange for TopDown; nothing else but ink and grid."""
    _, folder, _ = made
    known = {"#0072b2", "#d55e00", "#24292f", "#d0d7de", "white", "transparent", "none"}
    for name in FIGURES:
        text = (folder / "figures" / f"{name}.svg").read_text("utf-8")
        used = {colour.lower() for colour in re.findall(r'(?:fill|stroke)="([^"]+)"', text)}
        assert used <= known, (name, used - known)


def test_the_page_says_what_was_found_and_loads_nothing(made):
    results, folder, _ = made
    page = (folder / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    for piece in (
        "The data are public",
        "1,316,470, exact",
        "by a factor of at most 1.21",
        "the ten states with the most counties, Illinois apart (TX, GA, VA",
        "more than five counties",
        "16 March 2022",
        "may not be passed on",
        "Housing units as a second invariant",
        f"ours has the same error from {results['california']['matching_budget']} on",
    ):
        assert piece in text, piece
    assert page.count("<figure") == len(FIGURES)
    for loaded in ("http:", "https:", "<script", "<link", "<img", "url(", "@import"):
        assert loaded not in page, loaded
    assert "default-src 'none'" in html.unescape(page)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("runs", [0, 1, -3, 1.5, True, 10**9])
def test_bad_runs_are_refused(tmp_path, runs):
    with pytest.raises(ReleaseError, match="`runs` must be a whole number from 2 to 100,000"):
        census(tmp_path / "out", runs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["jinja2"])
def test_a_missing_library_names_the_extra(tmp_path, monkeypatch, missing):
    _environment.cache_clear()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SubspaceDPError, match=rf"`{missing}` is not .* subspacedp\[publish\]"):
        census(tmp_path / "out", 2)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ReleaseError, match="Cannot write to"):
        census(tmp_path / "file" / "out", 2)
    with pytest.raises(ReleaseError, match="exists already"):
        census(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_slopes_need_a_run():
    with pytest.raises(ReleaseError, match="at least one run"):
        count_slopes([], [1, 2, 3])


@pytest.mark.soak
def test_a_thousand_runs():
    """The figures of the paper's check: half within 5.5 standard deviations, about 1 %."""
    slopes = CensusStudy(0.192, 1000).slopes
    assert abs(slopes.share_negative - 0.5) < 5.5 * 0.5 / np.sqrt(48_000)
    assert abs(slopes.share_significant - 0.01) < 0.003
