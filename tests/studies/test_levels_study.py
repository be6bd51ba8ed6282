"""The study of levels: what it compares is what it says it compares."""

from dataclasses import replace

import numpy as np
import pytest

from studies.levels_study import (
    MARGINS,
    LevelStudy,
    dense_least_squares,
    main,
    measured_tables,
    places_of_texas,
    top_down,
)
from subspacedp.errors import ReleaseError
from subspacedp.invariants import hold
from subspacedp.mechanisms import MarginalsOptions
from subspacedp.noise import ReleaseKeys
from subspacedp.privacy import ZCDP
from subspacedp.release import design

PART = (["48001", "48003", "48005"], 5)


@pytest.fixture(scope="module")
def part():
    """A table of eight places, its mechanism, and one measurement of it."""
    table = places_of_texas(*PART)
    options = MarginalsOptions(margins=MARGINS, measured="tables")
    mechanism = design(table.domain, hold(), ZCDP(0.01), mechanism=options).mechanism
    keys = ReleaseKeys.from_seed(3, mechanism.context)
    return table, mechanism, mechanism.measure(table, keys), keys


def test_places_are_all_of_texas():
    table = places_of_texas()
    assert table.counts.shape == (253 + 529, 8, 2)
    assert int(table.counts.sum()) == 25_145_561
    assert table.domain.axes[0].step(1).groups == 254
    assert table.domain.axes[0].step(2).groups == 1


def test_least_squares_is_that_of_explicit_matrices():
    assert LevelStudy(rho=0.1).agreement() < 1e-9


def test_dense_least_squares_with_wrong_variances_is_another_estimate(part):
    table, mechanism, noisy, keys = part
    exact = mechanism.held.sums(table.counts)
    ours = mechanism.reconstruct(noisy, exact, keys.stream("dither"))
    tables = measured_tables(mechanism, noisy)
    total = table.domain.margin()
    wrong = {
        names: replace(t, variance=4 * t.variance if names == ("county",) else t.variance)
        for names, t in tables.items()
    }

    def off(measured):
        dense = dense_least_squares(
            table.domain, measured, total, np.asarray(total.sum(table.counts)), inside=True
        )
        return float(np.abs(dense - ours).max())

    assert off(tables) < 1e-9 < 1e-3 < off(wrong)


def test_steps_keep_whole_tables_without_negative_numbers(part):
    table, mechanism, noisy, _ = part
    assert np.any(noisy < 0)  # there is something to cut off
    total = int(table.counts.sum())
    released = top_down(table.domain, measured_tables(mechanism, noisy), total)
    assert released.dtype == np.int64
    assert released.shape == table.counts.shape
    assert released.min() >= 0
    assert released.sum() == total


def test_measured_tables_are_the_tables_plus_noise(part):
    table, mechanism, noisy, _ = part
    for measured in measured_tables(mechanism, noisy).values():
        off = (measured.totals - measured.margin.sum(table.counts)).reshape(-1)
        # A sum of n squared normal numbers of unit variance exceeds n + 10√n + 50 with
        # probability below 10⁻¹⁰ (Laurent and Massart), and noise was added at all.
        assert 0 < off @ off / measured.variance < off.size + 10 * np.sqrt(off.size) + 50


def test_contrasts_have_no_measured_tables(part):
    table, _, noisy, _ = part
    mechanism = design(table.domain, hold(), ZCDP(0.01), mechanism="marginals").mechanism
    with pytest.raises(ReleaseError, match="whole measured tables"):
        measured_tables(mechanism, noisy)


def test_the_table_of_figures(capsys):
    assert main(["0.1", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ρ = 0.1, 2 runs; 4,538 small cells"
    rows = {line[:32].strip(): line[32:].split() for line in lines[3:]}
    assert len(rows) == 6
    assert float(rows["contrasts, counties held"][3]) == 0
