"""Theorem 12 in both directions, and the properties of subspace privacy, by exact enumeration.

Mechanisms live on finite sets, so a privacy claim is checked on every atom in fractions.
"""

from fractions import Fraction

import pytest
from tests.privacy.exhaustion import null_space_part, row_space_part
from tests.theorems.laws import (
    ODDS,
    add,
    mix,
    pair,
    push,
    ring_bound,
    ring_mechanism,
    small_tables,
    smallest_delta,
    times,
    worst_ratio,
)

from subspacedp import AddRemoveOne, ReplaceOne

INVARIANTS = {
    "total of three": [[1, 1, 1]],
    "the odd ones": [[1, 0, 1]],
    "weights": [[1, 2, -1]],
    "two rows": [[1, 1, 0], [0, 0, 1]],
}
RELATIONS = [ReplaceOne(), AddRemoveOne()]
TABLES = small_tables(3)

every_case = pytest.mark.parametrize(
    ("C", "relation"), [(C, r) for C in INVARIANTS.values() for r in RELATIONS], ids=str
)


def inside(C):
    """M̂: a private mechanism with its image in N."""
    part = null_space_part(C)
    return lambda x: push(ring_mechanism(x), part)


def extend(hat, C):
    """𝓜(x) = M̂(x) + Π_R A(x)."""
    lifted = row_space_part(C)
    return lambda x: push(hat(x), lambda y: add(y, lifted(x)))


def seen_in_null_space(mechanism, C):
    part = null_space_part(C)
    return lambda x: push(mechanism(x), part)


@every_case
def test_a_private_mechanism_in_n_extends_to_an_induced_subspace_private_one(C, relation):
    hat = inside(C)
    whole = extend(hat, C)
    bound = ring_bound(relation.l1)
    assert worst_ratio(hat, TABLES, relation) <= bound
    for x in TABLES:  # the invariant holds with probability one
        assert {times(C, y) for y in whole(x)} == {times(C, x)}
    assert worst_ratio(seen_in_null_space(whole, C), TABLES, relation) <= bound
    # The two ratios are the same number: nothing is lost or gained.
    assert worst_ratio(seen_in_null_space(whole, C), TABLES, relation) == worst_ratio(
        hat, TABLES, relation
    )


@every_case
def test_an_induced_subspace_private_mechanism_is_a_private_one_moved(C, relation):
    """The converse: subtract Π_R A(x), and what is left is private with its image in N."""
    lifted = row_space_part(C)
    whole = extend(inside(C), C)
    hat = lambda x: push(whole(x), lambda y: add(y, (-v for v in lifted(x))))  # noqa: E731
    zero = (Fraction(0),) * len(C)
    for x in TABLES:
        assert {times(C, y) for y in hat(x)} == {zero}
    stated = worst_ratio(seen_in_null_space(whole, C), TABLES, relation)
    assert worst_ratio(hat, TABLES, relation) == stated


@every_case
def test_a_mechanism_in_n_that_is_not_private_extends_to_one_that_is_not(C, relation):
    part = null_space_part(C)
    broken = lambda x: {part(x): Fraction(1)}  # noqa: E731 - no noise at all
    whole = extend(broken, C)
    assert worst_ratio(broken, TABLES, relation) is None
    assert worst_ratio(seen_in_null_space(whole, C), TABLES, relation) is None
    # With δ: both have the same, 1.
    assert smallest_delta(broken, TABLES, relation, Fraction(100)) == 1
    assert smallest_delta(seen_in_null_space(whole, C), TABLES, relation, Fraction(100)) == 1


@every_case
def test_both_directions_with_delta(C, relation):
    """With probability 3/4 no noise: some δ ≤ 3/4 at the old ε, the same for M̂ and for 𝓜."""
    part = null_space_part(C)
    hat = lambda x: mix({part(x): Fraction(1)}, inside(C)(x), Fraction(3, 4))  # noqa: E731
    whole = seen_in_null_space(extend(hat, C), C)
    odds = ring_bound(relation.l1)
    delta = smallest_delta(hat, TABLES, relation, odds)
    assert 0 < delta <= Fraction(3, 4)
    assert smallest_delta(whole, TABLES, relation, odds) == delta


def test_an_image_outside_n_breaks_the_invariant():
    C = [[1, 1, 1]]
    whole = extend(ring_mechanism, C)  # private, but not inside N
    assert {times(C, y) for y in whole((1, 0, 1))} != {times(C, (1, 0, 1))}


# ------------------------------------------------------------- Proposition 7, Corollary 8, mixtures


@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_nested_subspaces(relation):
    """V₂ ⊆ V₁: the loss seen in V₂ is never above that seen in V₁."""
    chain = [[], [[1, 1, 1]], [[1, 1, 1], [1, -1, 0]]]  # more rows, smaller null space
    losses = [
        worst_ratio(lambda x, C=C: push(ring_mechanism(x), null_space_part(C)), TABLES, relation)
        for C in chain
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == ring_bound(relation.l1)


@every_case
def test_plain_privacy_implies_every_subspace(C, relation):
    for part in (null_space_part(C), row_space_part(C)):
        seen = worst_ratio(lambda x, p=part: push(ring_mechanism(x), p), TABLES, relation)
        assert seen <= ring_bound(relation.l1)


@every_case
def test_mixtures(C, relation):
    first, second = extend(inside(C), C), extend(lambda x: {(Fraction(0),) * 3: Fraction(1)}, C)
    for share in (Fraction(1, 3), Fraction(9, 10)):
        mixed = lambda x, s=share: mix(first(x), second(x), s)  # noqa: E731
        for x in TABLES:
            assert {times(C, y) for y in mixed(x)} == {times(C, x)}
        seen = worst_ratio(seen_in_null_space(mixed, C), TABLES, relation)
        assert seen <= ring_bound(relation.l1)


# ------------------------------------------------------------ Proposition 9 and its two caveats


def test_composition_adds_budgets_and_shrinks_what_is_protected():
    C1, C2, few = [[1, 1, 1]], [[1, 0, 1]], small_tables(3, 1)
    relation = ReplaceOne()
    both = lambda x: pair(inside(C1)(x), inside(C2)(x))  # noqa: E731
    one, two = worst_ratio(inside(C1), few, relation), worst_ratio(inside(C2), few, relation)
    assert worst_ratio(both, few, relation) <= one * two
    assert worst_ratio(both, few, relation) > max(one, two)
    # (1, −2, 1) is orthogonal to the first held row, and the two rows together fix it.
    question = (1, -2, 1)
    assert null_space_part(C1)(question) == tuple(map(Fraction, question))
    assert not any(null_space_part([*C1, *C2])(question))


def test_post_processing_that_mixes_in_c_breaks_s():
    """v ↦ v + κ(v₁ + v₂)(1, −1) keeps the total; the difference then carries κ times the total.

    Two cells, add-remove: the law of the difference moves by the parity of c, so its support does.
    """
    C, relation, data = [[1, 1]], AddRemoveOne(), small_tables(2, 3)
    released = extend(inside(C), C)
    assert worst_ratio(seen_in_null_space(released, C), data, relation) <= ODDS

    def mixed_in(y, kappa=7):
        total = kappa * (y[0] + y[1])
        return (y[0] + total, y[1] - total)

    after = lambda x: push(released(x), mixed_in)  # noqa: E731
    for x in data:
        assert {times(C, y) for y in after(x)} == {times(C, x)}  # still invariant-respecting
    assert worst_ratio(seen_in_null_space(after, C), data, relation) is None
    # Post-processing that acts inside N alone is harmless.
    part = null_space_part(C)
    inner = lambda x: push(released(x), lambda y: tuple(3 * v for v in part(y)))  # noqa: E731
    assert worst_ratio(inner, data, relation) <= ODDS


# -------------------------------------------------------------------------------- Examples 3, 4


def test_example_3_the_total_is_free_under_replace_one():
    C = [[1, 1, 1]]
    same_size = [x for x in TABLES if sum(x) == 2]
    whole = extend(inside(C), C)
    assert worst_ratio(whole, same_size, ReplaceOne()) <= ring_bound(2)  # of the release itself


def test_example_4_no_mechanism_that_respects_the_invariant_is_private():
    """C = (1, 0, 1, 0): x = (1, 2, 4) and x′ = (4, 2, 4) have 1 and 0 odd ones."""
    C = [[1, 0, 1, 0]]
    x, y = (1, 1, 0, 1), (0, 1, 0, 2)
    for mechanism in (extend(inside(C), C), lambda t: {tuple(map(Fraction, t)): Fraction(1)}):
        event = lambda law: sum(p for v, p in law.items() if v[0] + v[2] == 1)  # noqa: E731
        assert event(mechanism(x)) == 1
        assert event(mechanism(y)) == 0
        assert worst_ratio(mechanism, [x, y], ReplaceOne()) is None
        # δ < 1 fails at every ε.
        assert smallest_delta(mechanism, [x, y], ReplaceOne(), Fraction(10**9)) == 1
    seen = worst_ratio(seen_in_null_space(extend(inside(C), C), C), [x, y], ReplaceOne())
    assert seen <= ring_bound(2)
