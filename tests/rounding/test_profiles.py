"""Profiles of a margin's groups and the roundings in their totals, against dense matrices."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import dense
from tests.strategies import margins, problems

import subspacedp as sdp
from subspacedp.rounding import GroupProfiles, MarginRounding, corner_counts

SIZES = {"max_axes": 3, "max_cells": 60, "max_labels": 8}


@st.composite
def asked(draw, **sizes):
    """A domain, held margins, and the margin that is asked for."""
    domain, held = draw(problems(**{**SIZES, **sizes}))
    return domain, held, draw(margins(domain))


def set_up(case):
    domain, held, names = case
    space = sdp.null_space(domain, held)
    groups = dense.margin_matrix(domain, names)  # one row a group, in row-major order
    inside = groups @ dense.float_projector(dense.matrix(domain, held))
    return GroupProfiles(space, domain.margin(*names)), groups, inside


@given(case=asked())
def test_squared_norms_are_those_of_the_dense_projector(case):
    profiles, groups, inside = set_up(case)
    truth = np.einsum("gi,gi->g", inside, inside)
    found = profiles.squared()
    assert found.shape == profiles.margin.shape
    assert np.allclose(found.ravel(), truth, rtol=0, atol=1e-9 * max(1, groups.sum(axis=1).max()))


@given(case=asked())
def test_squared_norms_are_zero_exactly_where_the_invariants_fix_a_total(case):
    """By exact rank: a row is fixed when it adds none to C."""
    domain, held, _ = case
    profiles, groups, _ = set_up(case)
    C = dense.matrix(domain, held)
    rank = dense.rank(C)
    fixed = [not g.any() or dense.rank(np.vstack([C, g[None]])) == rank for g in groups]
    assert (profiles.squared().ravel() == 0.0).tolist() == fixed


@given(case=asked())
def test_profiles_are_the_values_of_the_projected_group(case):
    profiles, _, inside = set_up(case)
    classes = profiles.classes()
    assert classes.shape == profiles.margin.shape
    known = {}
    for number, row in zip(classes.ravel().tolist(), inside, strict=True):
        if number not in known:
            weights, counts = profiles.profile(number)
            known[number] = np.sort(np.repeat(weights, counts.astype(int)))
        truth = np.sort(row[np.abs(row) > 1e-9])
        found = known[number][np.abs(known[number]) > 1e-9]
        assert len(found) == len(truth)
        assert np.allclose(found, truth, rtol=0, atol=1e-9)


@given(case=asked())
def test_profile_and_squared_norm_agree(case):
    profiles, _, _ = set_up(case)
    squared = profiles.squared().ravel()
    for place, number in enumerate(profiles.classes().ravel().tolist()):
        weights, counts = profiles.profile(number)
        total = float(counts @ weights**2)
        assert total == pytest.approx(squared[place], rel=1e-9, abs=1e-9)


@given(case=asked(min_margins=1), decimals=st.sampled_from([0, 0, 1]))
def test_corner_counts_are_the_entries_that_are_rounded(case, decimals):
    """Every non-zero ±1 in the differenced indicator of a group that no held margin determines."""
    domain, held, names = case
    plan = MarginRounding(sdp.null_space(domain, held), decimals)
    assume(plan.needed)
    margin = domain.margin(*names)
    found = corner_counts(plan, margin)
    assert found.shape == margin.shape
    ends = plan._all_ends
    groups = dense.margin_matrix(domain, names)
    for count, group in zip(found.ravel().tolist(), groups, strict=True):
        corners = plan._corners(group.astype(float))
        assert set(np.unique(corners)) <= {-1.0, 0.0, 1.0}
        assert count == int(np.count_nonzero(corners[~ends]))
        coefficients, _ = plan.coefficients(group)
        # Entries that are whole for every noise need no rounding: there can be fewer, never more.
        assert np.count_nonzero(coefficients) <= count


@given(case=asked(min_margins=1))
def test_no_rounding_enters_a_held_total(case):
    domain, held, _ = case
    plan = MarginRounding(sdp.null_space(domain, held), 0)
    for names in held.margins:
        assert not corner_counts(plan, domain.margin(*names)).any()


@given(case=asked(min_margins=1), seed=st.integers(0, 2**32 - 1))
def test_coefficients_reproduce_the_rounding(case, seed):
    """Σ w·(rounded − lifted) = Σ v·u for the roundings' outcomes u, whatever they are."""
    domain, held, _ = case
    plan = MarginRounding(sdp.null_space(domain, held), 0)
    assume(plan.needed)
    rng = np.random.default_rng(seed)
    residual = dense.residual(domain, held, rng.integers(-9, 10, domain.shape))
    dither = rng.integers(0, 2**64, domain.size, dtype=np.uint64)
    moved = plan.apply(residual, dither) - plan.space.lift(residual)
    weights = rng.normal(size=domain.shape)
    v, variance = plan.coefficients(weights)
    assert np.all(variance > 0)
    total = float(np.sum(weights * moved))
    assert abs(total) <= np.abs(v).sum() + 1e-9  # |u| < 1
    u = plan._from_domain(moved)  # cumulated, what was moved is what the roundings did
    for a in range(u.ndim):
        u = np.cumsum(u, axis=a)
    u = u[plan._entry_variance > 0]
    assert np.all(np.abs(u) < 1)
    assert total == pytest.approx(float(v @ u), abs=1e-9)


def test_a_twin_that_takes_groups_as_cells_is_caught():
    """Group sizes enter: the profile of a state is not that of a county."""
    domain = sdp.Domain([sdp.Axis("county", range(5), levels={"state": list("AAABB")})])
    space = sdp.null_space(domain, sdp.hold())
    state = GroupProfiles(space, domain.margin("state"))
    cells = GroupProfiles(space, domain.margin("county"))
    assert state.squared().tolist() == pytest.approx([3 * 2 / 5, 2 * 3 / 5])
    assert cells.squared().tolist() == pytest.approx([0.8] * 5)
    assert np.all(space.diagonal() == pytest.approx(0.8))


def test_equal_sizes_are_one_class_however_many_cells():
    domain = sdp.Domain(
        [sdp.Axis(n, range(100), levels={f"{n}2": [i // 10 for i in range(100)]}) for n in "abc"]
    )
    held = sdp.hold("a", "b2") & sdp.hold("b", "c")
    profiles = GroupProfiles(sdp.null_space(domain, held), domain.cells)
    assert np.prod(profiles.class_shape) == 1
    weights, counts = profiles.profile(0)
    assert len(weights) <= 12
    assert float(counts @ weights**2) == pytest.approx(float(profiles.squared()[0, 0, 0]))
