"""The paper's correlated Gaussian: its blocks, its error, its corrections."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms import decompose

GAUSS = sdp.ApproxDP(1.0, 1e-6)
BOTH = [sdp.AddRemoveOne(), sdp.ReplaceOne()]


def changes(A, relation):
    if relation.persons == 1:
        return A
    return np.array([a - b for a, b in itertools.combinations(A.T, 2)]).T


@pytest.mark.parametrize("relation", BOTH, ids=repr)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_blocks_are_an_orthonormal_basis_with_their_radii(relation, seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(3, 14))
    A = rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1)))
    V = changes(A, relation)
    rank = np.linalg.matrix_rank(V)
    found = decompose(A, relation)
    whole = np.concatenate([b.directions for b in found.blocks], axis=1)
    assert np.allclose(whole.T @ whole, np.eye(rank), atol=1e-8)
    assert np.allclose(whole @ (whole.T @ V), V, atol=1e-8 * np.abs(V).max())
    assert len(found.blocks) == math.floor(math.log2(rank)) + 1
    assert [b.dimension for b in found.blocks][-1] == 1
    for block in found.blocks:
        moved = np.linalg.norm(block.directions.T @ V, axis=0).max()
        assert block.radius == pytest.approx(moved, rel=1e-9)
    for split in ("equal", "best"):
        covered = sum(
            (b.radius / s) ** 2
            for b, s in zip(found.blocks, found.deviations(split), strict=True)
        )  # fmt: skip
        assert covered == pytest.approx(1.0)
    best = sum(math.sqrt(b.dimension) * b.radius for b in found.blocks) ** 2
    assert found.squared_error("best") == pytest.approx(best)
    assert found.squared_error("best") <= found.squared_error("equal") * (1 + 1e-12)


@pytest.mark.parametrize("relation", BOTH, ids=repr)
@pytest.mark.parametrize("held", [None, sdp.LinearInvariants([[1, 0, 0, 0, 0, 1]])], ids=str)
def test_error_is_at_most_the_papers_with_the_same_radii(relation, held):
    query = sdp.LinearQuery(np.tril(np.ones((6, 6))))
    errors = {}
    for split in ("equal", "best"):
        made = sdp.design(
            query, held, GAUSS, neighbours=relation, mechanism=sdp.Correlated(split=split)
        )
        paper = made.mechanism.decomposition.squared_error(split) / GAUSS.gaussian_mu**2
        errors[split] = made.expected_error().total
        assert errors[split] <= paper * (1 + 1e-6)
    best = sdp.design(query, held, GAUSS, neighbours=relation, mechanism="optimal")
    assert best.expected_error().total <= min(errors.values()) * 1.001


@pytest.mark.parametrize("unit", [1.0, 0.125, 8.0])
def test_the_decomposition_is_in_units_of_the_answers(unit):
    query = sdp.LinearQuery(unit * np.tril(np.ones((6, 6))))
    assert unit == 8.0 or float(query.grid) == unit
    made = sdp.design(query, None, GAUSS, mechanism=sdp.Correlated(split="equal"))
    paper = made.mechanism.decomposition.squared_error("equal") / GAUSS.gaussian_mu**2
    # In units of the grid, as it once was, one of these fails by a factor of 64.
    assert 0.3 * paper <= made.expected_error().total <= paper * (1 + 1e-6)
    radii = [b.radius for b in made.mechanism.decomposition.blocks]
    plain = sdp.design(
        sdp.LinearQuery(np.tril(np.ones((6, 6)))), None, GAUSS, mechanism="correlated"
    )
    np.testing.assert_allclose(
        radii, [unit * b.radius for b in plain.mechanism.decomposition.blocks]
    )


def test_replacement_uses_differences():
    """A = [1, −1]. The printed radius is 1, what a replacement changes is 2."""
    A = np.array([[1.0, -1.0]])
    assert decompose(A, sdp.AddRemoveOne()).blocks[0].radius == 1
    assert decompose(A, sdp.ReplaceOne()).blocks[0].radius == 2


def test_a_query_without_full_rank_is_reduced_to_its_image():
    A = np.array([[1.0, 0, 2], [1.0, 0, 2], [0, 3, 1]])
    found = decompose(A, sdp.AddRemoveOne())
    assert sum(b.dimension for b in found.blocks) == 2


def test_beats_spherical_noise_where_scales_differ():
    A = np.diag([100.0, 10.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    query = sdp.LinearQuery(A)
    made = {
        name: sdp.design(query, None, GAUSS, neighbours=BOTH[0], mechanism=name)
        for name in ("extended", "correlated", "optimal")
    }
    errors = {name: m.expected_error().total for name, m in made.items()}
    # Columns at right angles: each is in one block, so that exact calibration gives the optimum.
    assert errors["optimal"] <= errors["correlated"] * (1 + 1e-4)
    assert errors["correlated"] < errors["extended"] / 3


def test_a_split_that_is_none_is_refused():
    with pytest.raises(ReleaseError, match="`split` must be"):
        sdp.design(sdp.LinearQuery(np.eye(3)), None, GAUSS, mechanism=sdp.Correlated(split="x"))
