"""Tests and regression on a release of margins whose table is never built."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp import inference

DOMAIN = sdp.Domain(
    [
        sdp.Axis("age", ["young", "middle", "old"]),
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("place", ["a", "b", "c", "d"]),
    ]
)
COUNTS = np.random.default_rng(3).poisson(400, DOMAIN.shape)
QUERY = sdp.Margins(DOMAIN, [["age", "sex"], ["sex", "place"]])


@pytest.fixture(scope="module")
def releases():
    table, held = sdp.Table(COUNTS, DOMAIN), sdp.hold("place")
    budget = sdp.ZCDP(0.5)
    margins = sdp.design(QUERY, held, budget).release(table, seed=1)
    cells = sdp.design(DOMAIN, held, budget).release(table, seed=1)
    return margins, cells


def test_a_two_way_table_of_a_workload_is_tested_as_that_of_cells_is(releases):
    margins, cells = releases
    ours = inference.test_independence(margins, rows="sex", columns="place", seed=1)
    theirs = inference.test_independence(cells, rows="sex", columns="place", seed=1)
    assert ours.pvalue == pytest.approx(theirs.pvalue, abs=0.2)


def test_a_table_that_the_workload_does_not_determine_is_refused(releases):
    with pytest.raises(sdp.SubspaceDPError, match="age"):
        inference.test_independence(releases[0], rows="age", columns="place", seed=1)


def test_regression_on_a_margin_of_a_workload(releases):
    women = np.arange(6) % 2
    X = np.column_stack([np.ones(6), women])
    fitted = inference.regress(releases[0], women[:, None], figures=["age", "sex"])
    truth = np.linalg.lstsq(X, COUNTS.sum(axis=2).reshape(-1).astype(float), rcond=None)[0]
    # Within six standard errors of what least squares finds in the counts themselves.
    assert np.all(np.abs(fitted.coefficients - truth) < 6 * fitted.stderr)
