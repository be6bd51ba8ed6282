"""Variances of noise on the lattice, against enumeration, and its place beside G."""

import itertools
import math

import numpy as np
import pytest

import subspacedp as sdp
from studies.integers import (
    guarantee_at_least,
    one_total,
    overlapping_totals,
    projected_beside,
    two_margins,
)


def enumerated(rows, epsilon, reach):
    """Variances of all cells by summing over whole z with C z = 0 and entries up to `reach`."""
    matrix = np.array(rows)
    z = np.array(list(itertools.product(range(-reach, reach + 1), repeat=matrix.shape[1])))
    z = z[~np.any(z @ matrix.T, axis=1)]
    weights = np.exp(-epsilon * np.abs(z).sum(axis=1))
    return weights @ (z * z) / weights.sum()


@pytest.mark.parametrize("cells", [2, 3, 4])
def test_one_total_by_enumeration(cells):
    oracle = enumerated(np.ones((1, cells), int), 2.5, 9)
    assert np.allclose(oracle, one_total(2.5, cells), rtol=1e-8)
    assert not np.allclose(oracle, one_total(2.4, cells), rtol=1e-2)  # the check can fail


def test_overlapping_totals_by_enumeration():
    oracle = enumerated([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], 3.0, 4)
    apart, shared = overlapping_totals(3.0, 2, 2)
    assert np.allclose(oracle, [apart, apart, shared, shared, apart, apart], rtol=1e-5)
    assert not np.allclose(oracle[0], overlapping_totals(2.9, 2, 2)[0], rtol=1e-2)


def test_two_margins_by_enumeration():
    # two rows of four: the second is minus the first
    z = np.array(list(itertools.product(range(-9, 10), repeat=3)))
    row = np.concatenate([z, -z.sum(axis=1, keepdims=True)], axis=1)
    weights = np.exp(-2 * 1.5 * np.abs(row).sum(axis=1))
    oracle = weights @ (row * row) / weights.sum()
    assert np.allclose(oracle, two_margins(1.5, 2), rtol=1e-8)


@pytest.mark.parametrize("cells", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 0.7])
def test_the_k_norm_mechanism_draws_this_law_where_no_change_alters_the_total(cells, epsilon):
    domain = sdp.Domain([sdp.Axis("cell", list(range(cells)))])
    mechanism = sdp.design(
        domain, sdp.hold(), sdp.PureDP(2 * epsilon), mechanism="knorm", decimals=0
    )
    assert mechanism.guarantee.kind == "plain"
    assert math.isclose(
        mechanism.expected_error().total / cells, one_total(epsilon, cells), rel_tol=1e-9
    )


def law_of(difference, epsilon, parity):
    """M^γ of Statement 3 for two cells: the law of y₁ − y₂, of the parity of γ."""
    steps = np.arange(-400 + parity, 401, 2)
    weights = np.exp(-epsilon * np.abs(steps - difference))
    return weights / weights.sum()


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize("parity", [0, 1])
def test_two_cells_lose_exactly_the_bound(epsilon, parity):
    losses = [
        np.abs(np.log(law_of(d, epsilon, parity)) - np.log(law_of(d + 1, epsilon, parity))).max()
        for d in range(-6, 6)
    ]
    assert math.isclose(max(losses), epsilon + math.log(math.cosh(epsilon)), rel_tol=1e-9)
    assert math.isclose(max(losses), guarantee_at_least(epsilon, 2), rel_tol=1e-9)


def test_the_bound_of_one_step_is_that_of_the_two_laws():
    # all laws on the tables of total γ that are within ε′ of their neighbours' leave mass 1 inside
    epsilon, cells = 0.9, 3
    w = np.array(list(itertools.product(range(-30, 31), repeat=cells - 1)))
    w = np.concatenate([w, 1 - w.sum(axis=1, keepdims=True)], axis=1)
    z = np.array(list(itertools.product(range(-30, 31), repeat=cells - 1)))
    z = np.concatenate([z, -z.sum(axis=1, keepdims=True)], axis=1)
    whole = np.exp(-epsilon * np.abs(z).sum(axis=1)).sum()
    laws = np.stack(
        [np.exp(-epsilon * np.abs(w - np.eye(cells, dtype=int)[i]).sum(axis=1)) for i in range(3)]
    )
    least = math.log(laws.max(axis=0).sum() / whole)
    most = -math.log(laws.min(axis=0).sum() / whole)
    one_step = max(least, most)
    assert one_step <= guarantee_at_least(epsilon, cells) + 1e-6
    assert guarantee_at_least(epsilon, cells) >= 2 * epsilon * (1 - 1 / cells) - 1e-12


def test_ours_beside_it():
    rows = projected_beside(0.5)
    assert [row.problem.split(",")[0] for row in rows][:2] == ["six cells", "4 × 4 table"]
    assert all(row.lattice < row.real <= row.whole for row in rows)  # its promise is weaker
    assert rows[-1].ratio < 1.1 < rows[0].ratio
