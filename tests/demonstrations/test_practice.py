"""Today's practice: its invariants, its budget, its bias, and where it is nearer."""

from fractions import Fraction

import numpy as np
import pytest

from subspacedp.datasets import dallas2010, texas2010
from subspacedp.demonstrations.cell_sizes import METHODS, SIZES, compare_by_size, size_words
from subspacedp.demonstrations.topdown import OneLevel, Shares, TopDown
from subspacedp.errors import BudgetError
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
    assert set(found["methods"]) == set(METHODS)
    assert "squared_error_of_a_county" in found["methods"]["TopDown"]
