"""The quality report of the curator: right on a right release, and a biased twin stands out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report.conftest import margins_alone, with_levels

import subspacedp as sdp
from subspacedp.report.quality import Quality, quality_report, size_rows


def judged(release: sdp.Release, truth: np.ndarray) -> Quality:
    return Quality(name="table", release=release, truth=truth.astype(np.float64).ravel())


def test_a_release_is_as_far_off_as_it_says(release: sdp.Release, table: sdp.Table) -> None:
    *sizes, everything = size_rows(judged(release, table.counts))
    assert sum(row.figures for row in sizes) == everything.figures == 120
    assert everything.covered >= 0.9
    assert everything.seen == pytest.approx(everything.stated, rel=0.25)
    assert all(abs(row.bias) < 4 * row.doubt + 1e-9 for row in sizes)
    # State totals are held, and so are the mean of all errors and its standard error.
    assert everything.bias == 0
    assert everything.doubt == pytest.approx(0, abs=1e-9)


def test_a_biased_twin_stands_out(release: sdp.Release, table: sdp.Table) -> None:
    shifted = table.counts + 3 * np.where(table.counts < 1000, release.stderr(), 0)
    small = size_rows(judged(release, shifted))[0]
    assert abs(small.bias) > 5 * small.doubt
    assert small.covered < 0.5
    assert small.seen > 2 * small.stated


def test_the_standard_error_of_a_mean_is_that_of_the_joint_law(table: sdp.Table) -> None:
    """Errors of margins hang together: they are not those of independent figures."""
    release = margins_alone(table)
    quality = judged(release, np.zeros(66))
    inside = np.zeros(66, bool)
    inside[60:] = True  # all of state × sex, whose states are held
    independent = float(np.sqrt(np.square(release.stderr()[inside]).sum())) / 6
    assert quality.doubt(inside) < independent / 100


def test_the_page_says_that_it_is_confidential_and_loads_nothing(table: sdp.Table) -> None:
    release = with_levels(table)
    page = quality_report("<b>Counties</b>", [judged(release, table.counts)])
    assert "<b>Counties" not in page
    assert page.count("Confidential.") == 1
    assert "<title>CONFIDENTIAL" in page
    for loaded in ("http:", "https:", "<script", "<link", "<img", "url("):
        assert loaded not in page
    assert "all with noise" in page
