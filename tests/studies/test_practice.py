"""Today's practice: its invariants, its budget, its bias, and where it is nearer."""

import json
import re
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from studies import practice as module
from studies.__main__ import app
from studies.cell_sizes import METHODS, SECOND, SIZES, compare_by_size, size_words
from studies.practice import PracticeStudy, practice, slower_runs
from studies.topdown import OneLevel, Shares, TopDown
from subspacedp.datasets import dallas2010, texas2010
from subspacedp.errors import BudgetError, SubspaceDPError
from subspacedp.tables import Axis, Domain, Table

EPSILON = 0.192
RUNS = 12


@pytest.fixture(scope="module")
def texas():
    return compare_by_size(texas2010(), EPSILON, RUNS, name="Texas: …", seed=5)


def small_table(seed):
    rng = np.random.default_rng(seed)
    domain = Domain(
        [Axis("place", range(7)), Axis("race", ["a", "b", "c"]), Axis("age", ["y", "o"])]
    )
    return Table(rng.poisson(rng.choice([0.0, 0.3, 5.0, 100.0], (7, 3, 2))), domain)


@pytest.mark.parametrize("method", [OneLevel, TopDown])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [0.01, 0.192, 5.0])
def test_releases_are_whole_without_negatives_and_keep_the_total(method, seed, epsilon):
    table = small_table(seed)
    release = method(domain=table.domain, epsilon=epsilon).release(table, seed=seed)
    assert release.dtype == np.int64
    assert release.shape == table.counts.shape
    assert release.min() >= 0
    assert int(release.sum()) == int(table.counts.sum())


@pytest.mark.parametrize("table", [texas2010(), dallas2010()], ids=["Texas", "Dallas"])
def test_every_level_keeps_what_the_one_above_decided(table):
    method = TopDown(domain=table.domain, epsilon=EPSILON)
    total = int(table.counts.sum())
    (measured,) = method._measured(table, 1, 3)
    release = method.finish(measured, total)
    assert release.min() >= 0
    assert int(release.sum()) == total
    places = method.places(measured[1], measured[2], total)
    assert release.sum(axis=(1, 2)).tolist() == places.tolist()
    # The cells of the whole are fitted alone, before anything below is looked at.
    other = [measured[0], measured[1], measured[2][::-1].copy()]
    again = method.finish(other, total)
    assert release.sum(axis=0).tolist() == again.sum(axis=0).tolist()


@pytest.mark.parametrize("epsilon", [0.192, 1.0, 0.1, 1 / 3, 0.30000000000000004])
def test_the_shares_never_add_up_to_more_than_the_budget(epsilon):
    parts = [
        Fraction(repr(mechanism.mechanism.budget.epsilon))
        for mechanism in TopDown(domain=small_table(1).domain, epsilon=epsilon).mechanisms
    ]
    asked = Fraction(repr(epsilon))
    assert sum(parts) <= asked
    assert sum(parts) >= asked * (1 - Fraction(1, 10**12))


def test_the_measurements_are_of_the_same_people():
    """One person replaced moves every measured table by one out and one in: Δ₁ = 2 each."""
    method = TopDown(domain=small_table(1).domain, epsilon=EPSILON)
    for mechanism, share in zip(method.mechanisms, ("0.0192", "0.0384", "0.1344"), strict=True):
        assert mechanism.mechanism.law.rate == Fraction(share) / 2
        assert mechanism.guarantee.kind == "plain"  # a replaced record never moves the total


@pytest.mark.parametrize("shares", [(0, 3, 7), (2, 2, 2), (-1, 4, 7)])
def test_bad_shares_are_refused(shares):
    whole, totals, cells = (Fraction(share, 10) for share in shares)
    with pytest.raises(BudgetError, match="must be positive and add up to 1"):
        Shares(whole=whole, totals=totals, cells=cells)


def test_projecting_first_changes_nothing():
    """The measurements keep the held total; least squares with that total cannot tell."""
    table = small_table(3)
    method = TopDown(domain=table.domain, epsilon=0.05)
    total = int(table.counts.sum())
    (measured,) = method._measured(table, 1, 8)
    moved = [part + shift for part, shift in zip(measured, (4.0, -7.0, 2.5), strict=True)]
    assert method.finish(moved, total).tolist() == method.finish(measured, total).tolist()


def test_every_cell_is_in_one_class(texas):
    assert sum(texas.cells) == 4064
    assert texas.least == SIZES
    assert [size_words(least) for least in texas.least][:3] == ["0", "1–9", "10–29"]
    assert (texas.small_cells, texas.small_people) == (385 + 727, 3049)


def test_ours_is_unbiased_in_every_class_and_the_same_check_finds_post_processing(texas):
    """Eight classes at 6.5 standard errors of the known law: a false alarm below 10⁻⁶."""
    errors = np.sqrt(texas.expected_mse / (RUNS * np.array(texas.cells)))
    alarms = {
        method: int(np.count_nonzero(np.abs(texas.outcomes[method].bias) > 6.5 * errors))
        for method in METHODS
    }
    assert alarms["projected"] == 0
    assert alarms["one level"] >= 5
    assert alarms["TopDown"] >= 4


def test_post_processing_lifts_empty_cells_and_lowers_others(texas):
    for method in METHODS[1:]:
        bias = texas.outcomes[method].bias
        assert bias[0] > 2
        assert bias[1] > 1
        assert bias[3] < -1


def test_post_processing_is_nearer_for_small_cells_and_says_so(texas):
    assert texas.nearer("one level") == ["0", "1–9", "10–29"]
    assert texas.nearer("TopDown") == ["0", "1–9"]
    assert texas.farther("one level") == []
    assert texas.farther("TopDown")[-4:] == ["100–299", "300–999", "1,000–9,999", "10,000+"]
    ours = texas.outcomes["projected"]
    assert ours.overall_mse == pytest.approx(texas.expected_mse, rel=0.05)
    assert texas.outcomes["one level"].overall_mse < ours.overall_mse
    second = texas.outcomes[SECOND]
    assert second.overall_mse < 0.9 * texas.outcomes["one level"].overall_mse
    assert abs(second.small_sum_bias) < 0.2 * texas.outcomes["one level"].small_sum_bias
    assert second.negative == 0


def test_what_was_cut_off_does_not_average_out(texas):
    """The sum of the small cells: nearer cell by cell, farther by far together."""
    ours, one, down = (texas.outcomes[method] for method in METHODS)
    assert one.small_sum_bias > texas.small_people  # more than doubled
    assert down.small_sum_bias > 0.5 * texas.small_people
    assert ours.small_sum_rms < 0.3 * one.small_sum_rms
    assert texas.small_stderr == pytest.approx(418.5, abs=0.1)
    # A mean of 12 with this standard error.
    assert abs(ours.small_sum_bias) < 6 * texas.small_stderr / np.sqrt(RUNS)
    assert ours.negative > 0.05
    assert one.negative == down.negative == 0


def test_the_summary_is_for_programs(texas):
    found = texas.summary()
    assert found["sizes"][0] == "0"
    assert set(found["methods"]) == {*METHODS, SECOND}
    assert "squared_error_of_a_county" in found["methods"]["TopDown"]


def test_adding_up_post_processed_cells_tilts_and_totals_by_themselves_do_not():
    study = PracticeStudy(EPSILON, 60)
    assert study.post_processed_slopes.share_negative == pytest.approx(0.5, abs=0.06)
    texas = study.texas_slopes
    assert texas["one level"].share_negative == 1
    assert texas["one level"].share_significant_negative > 0.8
    for method in ("projected", "TopDown"):
        # 60 fair coins: beyond 51 or below 9 once in ten million.
        assert 9 <= int(texas[method].negative.sum()) <= 51
        assert texas[method].share_significant_negative < 0.2


def test_slower_comparisons_have_fewer_runs():
    assert [slower_runs(runs) for runs in (2, 40, 1000)] == [2, 2, 50]


# ------------------------------------------------------------------------------------------ folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("practice") / "out"
    sentences = []
    return practice(folder, 40, progress=sentences.append), folder, sentences


def test_the_folder_has_figures_numbers_and_a_page(written):
    results, folder, sentences = written
    assert {path.name for path in folder.iterdir()} == {"figures", "results.json", "index.html"}
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}-by-cell-size.svg" for name in ("bias", "squared-error")
    }
    stored = json.loads((folder / "results.json").read_text("utf-8"))
    assert stored == {name: part for name, part in results.items() if name != "page"}
    assert results["page"] == str(folder / "index.html")
    assert len(sentences) >= 5


def test_the_same_method_has_the_same_colour_in_every_figure(written):
    """Blue for ours, orange for TopDown, green for one level; nothing else but ink and grid."""
    known = {"#0072b2", "#d55e00", "#009e73", "#24292f", "#d0d7de", "white", "transparent", "none"}
    for path in (written[1] / "figures").glob("*.svg"):
        text = path.read_text("utf-8")
        used = {colour.lower() for colour in re.findall(r'(?:fill|stroke)="([^"]+)"', text)}
        assert used <= known, (path.name, used - known)


def test_the_page_says_who_is_nearer_and_loads_nothing(written):
    page = (written[1] / "index.html").read_text("utf-8")
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    for piece in (
        "nearer than ours for cells of 0, 1–9 and 10–29 people",
        "Texas, sums of race × age",
        "official TopDown",
    ):
        assert piece in text, piece
    assert page.count("<figure") == 2
    for loaded in ("http:", "https:", "<script", "<link", "<img", "url(", "@import"):
        assert loaded not in page, loaded


def test_bad_input_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SubspaceDPError, match="`runs` must be a whole number from 2 to 100,000"):
        practice(tmp_path / "out", 1)
    with pytest.raises(SubspaceDPError, match="`epsilon` must be a positive finite number"):
        practice(tmp_path / "out", 2, epsilon=-1.0)
    with pytest.raises(SubspaceDPError, match="exists already"):
        practice(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_figures_and_the_path(tmp_path, monkeypatch, written):
    monkeypatch.setattr(module, "practice", lambda out, runs, epsilon, progress: written[0])
    command = ["practice", "--out", str(tmp_path / "x")]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    for piece in ("Texas, race × age added up", "post-processed", "of 3,049", "of 8,401"):
        assert piece in told.output, piece
    assert str(written[1] / "index.html") in told.output.replace("\n", "")
    told = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(told.stdout)["slopes"]["projected"]["runs"] == 40
