"""What coins add to totals of margins that are not rounded themselves: all at once."""

import itertools

import numpy as np
import pytest
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp import hold
from subspacedp.subspace import WorkloadDigits, total_coins
from subspacedp.tables import Margin, Margins

PLAIN = oracle.plain(3, 4, 2, 3)
UNEQUAL, THREE, EQUAL = oracle.unequal_levels(), oracle.three_levels(), oracle.equal_levels()
BELOW = hold("a", "b") & hold("b", "c") & hold("a", "d")
CASES = {
    "merged": (PLAIN, [["a", "b", "c"]], hold()),
    "apart": (PLAIN, [["a", "b", "c"], ["c", "d"]], None),
    "merged in two": (PLAIN, [["a", "b", "c", "d"]], hold("a", "b") & hold("c", "d")),
    "three below": (
        PLAIN,
        [["a", "b", "c", "d"]],
        hold("a", "b") & hold("b", "c") & hold("a", "d"),
    ),
    "unequal levels": (UNEQUAL, [["l", "b"], ["g"]], hold("b")),
    "level held": (UNEQUAL, [["l", "b"]], hold("g")),
    "equal levels": (EQUAL, [["l", "b"]], hold("g")),
    "three levels": (THREE, [["l", "b"], ["g"]], hold("r", "b")),
    "levels, nothing held": (THREE, [["l", "b"], ["r"], ["g", "b"]], None),
}


def beside(digits):
    """Margins of levels in use that the workload determines, and that are not rounded."""
    c = digits.contrasts
    for steps in itertools.product(*(axis.steps for axis in c.axes)):
        margin = Margin(tuple(c.domain.axes), steps)
        known = any(m.determines(margin) for m in c.workload)
        if known and margin not in digits.family:
            yield margin


def one_by_one(digits, margin):
    query, out = digits.held.query, np.zeros(margin.shape)
    for place in np.ndindex(*margin.shape):
        one = np.zeros(margin.shape)
        one[place] = 1.0
        out[place] = digits.variance(query.indicator(margin, one))
    return out


def test_squares_of_all_totals_are_those_of_each(monkeypatch):
    seen = 0
    for (domain, margins, held), whole in itertools.product(CASES.values(), (False, True)):
        space = oracle.space(Margins(domain, margins), held)
        digits = WorkloadDigits(space, 1, whole)
        for margin in beside(digits):
            found, each = digits.margin_variance(margin), one_by_one(digits, margin)
            assert np.allclose(found, each, rtol=1e-12, atol=1e-14)
            with monkeypatch.context() as patch:  # as with very many coarser tables
                patch.setattr(total_coins, "MOST_LOWER", 0)
                assert np.all(digits.margin_variance(margin) >= each - 1e-14)
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("name", ["optimal", "projected"])
def test_standard_errors_of_a_margin_take_no_pass_over_the_workload_each(monkeypatch, name):
    query = sdp.Margins(oracle.plain(30, 40), [["a", "b"]])
    mechanism = sdp.design(query, None, sdp.ZCDP(0.5), mechanism=name, decimals=0)

    def slow(self, weights):
        raise AssertionError("coins of one total at a time")

    monkeypatch.setattr(WorkloadDigits, "coefficients", slow)
    assert mechanism.margin_accuracy("a").stderr.shape == (30,)
