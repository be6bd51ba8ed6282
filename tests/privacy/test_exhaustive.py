"""The guarantees plain, S and G proved by exhaustion on small tables."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.exhaustion import (
    TOP,
    Case,
    DitherWords,
    Q,
    changes,
    distance,
    line,
    neighbours,
    persons,
    tables,
    violations,
    weight,
    window,
)

from subspacedp import AddRemoveOne, Axis, Domain, PureDP, ReplaceOne, design, hold
from subspacedp.noise import DiscreteLaplace, Keystream

SQUARE = Domain([Axis("row", ["r", "s"]), Axis("column", ["t", "u"])])
PAIRS = Domain([Axis("county", ["k", "l", "m"], levels={"state": ["A", "A", "B"]})])
BOTH = hold("row") & hold("column")
HELD = [
    (line(2), hold(), 4),
    (line(3), hold(), 3),
    (line(4), hold(), 2),
    (PAIRS, hold("state"), 3),
    (SQUARE, hold("row"), 2),
    (SQUARE, BOTH, 2),
]


# ---------------------------------------------------------------------------------- the measurement


@pytest.mark.parametrize(
    "relation",
    [
        ReplaceOne(),
        AddRemoveOne(),
        ReplaceOne(records=2),
        AddRemoveOne(records=3, per_cell=2),
        ReplaceOne(records=3, per_cell=1),
    ],
    ids=str,
)
def test_no_neighbouring_change_exceeds_the_sensitivities_and_one_reaches_them(relation):
    moved = changes(6, relation)
    assert max(sum(map(abs, d)) for d in moved) == relation.l1
    assert max(sum(v * v for v in d) for d in moved) == relation.l2_squared


@pytest.mark.parametrize("relation", [ReplaceOne(), AddRemoveOne(records=2)], ids=str)
def test_the_laplace_measurement_keeps_its_ratio_everywhere_and_reaches_it(relation):
    """P(noisy|x)/P(noisy|x') = q^{‖noisy − x‖₁ − ‖noisy − x'‖₁}, exactly, against q^{-Δ₁}."""
    law = design(line(2), hold(), PureDP(0.3), neighbours=relation).mechanism.law
    assert law == DiscreteLaplace(Fraction(3, 10) / relation.l1)  # e^ε = (e^{-rate})^{-Δ₁}
    reached = False
    for x in tables(2, 3):
        for y in neighbours(x, relation):
            for noisy in window(2, -8, 12):
                ratio = weight(noisy, x, Q) / weight(noisy, y, Q)
                assert ratio <= Q**-relation.l1
                reached |= ratio == Q**-relation.l1
    assert reached


# ------------------------------------------------------------------------------------------- plain


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("n", [2, 3])
def test_plain_a_held_total_under_replace_one_costs_nothing(n, decimals):
    """The law of the whole release, dither included, is ε-close for every two neighbours."""
    case = Case(line(n), hold(), ReplaceOne(), decimals)
    assert case.mechanism.guarantee.kind == "plain"
    law = case.laws(window(n, -2, 4))
    for x in tables(n, 3):
        first = law(x)
        for y in neighbours(x, case.relation):
            second = law(y)
            assert set(first) == set(second)
            assert violations(first, second, case.bound) == []
            assert all(sum(atom) == sum(x) for atom in first)


def test_plain_does_not_hold_where_the_relation_can_alter_the_total():
    """The same check fails for add-remove, where the kind is indeed not plain."""
    case = Case(line(2), hold(), AddRemoveOne(), None)
    assert case.mechanism.guarantee.kind == "S"
    seen = window(2, -2, 4)
    first, second = case.law((1, 0), seen), case.law((0, 0), seen)
    assert set(first).isdisjoint(second)


# ----------------------------------------------------------------------------------------------- S


@pytest.mark.parametrize("relation", [AddRemoveOne(), ReplaceOne(), AddRemoveOne(records=2)])
@pytest.mark.parametrize(("domain", "held", "size"), HELD)
def test_s_the_protected_part_is_private_over_all_neighbours(domain, held, size, relation):
    """Every atom of Π_N(release), for every two neighbours, those that change c included."""
    case = Case(domain, held, relation, None)
    law = case.laws(window(case.cells, -size, size), case.protected)
    changed = False
    for x in tables(case.cells, 1):
        first = law(x)
        for y in neighbours(x, relation):
            second = law(y)
            assert set(first) == set(second)
            assert violations(first, second, case.bound) == []
            changed |= case.held(x) != case.held(y)
    assert changed or case.mechanism.guarantee.kind == "plain"


@pytest.mark.parametrize(("domain", "held", "size"), HELD)
def test_the_protected_part_of_the_release_is_that_of_the_measurement(domain, held, size):
    """f = g(noisy) + C⁺c with g(noisy) = Π_N(noisy): the form that makes S hold for any budget."""
    case = Case(domain, held, AddRemoveOne(), None)
    x, y = (0,) * case.cells, (1,) + (0,) * (case.cells - 1)
    for noisy, table in itertools.product(window(case.cells, -size, size), (x, y)):
        ((released, chance),) = case.outcomes(noisy, table)
        assert chance == 1
        assert case.protected(released) == case.protected(noisy)
        assert case.lifted(released) == case.lifted(table)
        assert case.held(released) == case.held(table)


@pytest.mark.parametrize("n", [2, 3])
def test_s_without_a_window(n):
    """The whole infinite sum: Π_N(release) = v for noisy = v + t·1, all t, geometric both ways."""
    case = Case(line(n), hold(), AddRemoveOne(), None)

    def mass(noisy, x):
        far = max(abs(a - b) for a, b in zip(noisy, x, strict=True))
        shifted = (tuple(v + t for v in noisy) for t in range(-far, far + 1))
        middle = sum(weight(s, x, Q) for s in shifted)
        # From |t| ≥ far on, each further step moves every entry away from x: a factor Q^n.
        ends = (tuple(v + t for v in noisy) for t in (-far, far))
        return middle + sum(weight(s, x, Q) for s in ends) * Q**n / (1 - Q**n)

    for x in tables(n, 2):
        for y in neighbours(x, case.relation):
            for tail in window(n - 1, -6, 6):
                noisy = (0, *tail)  # one measurement of every class
                assert mass(noisy, x) <= case.bound * mass(noisy, y)


@pytest.mark.parametrize(
    ("domain", "held", "decimals"), [(line(2), hold(), 1), (SQUARE, hold("row"), 1)]
)
def test_s_holds_with_decimals_that_need_no_rounding(domain, held, decimals):
    case = Case(domain, held, AddRemoveOne(), decimals)
    assert case.mechanism.guarantee.kind == "S"
    law = case.laws(window(case.cells, -2, 2), case.protected)
    for x in tables(case.cells, 1):
        first = law(x)
        for y in neighbours(x, case.relation):
            second = law(y)
            assert set(first) == set(second)
            assert violations(first, second, case.bound) == []


# ----------------------------------------------------------------------------------------------- G


@pytest.mark.parametrize("relation", [ReplaceOne(), AddRemoveOne()], ids=str)
@pytest.mark.parametrize(
    ("domain", "held", "size", "decimals"),
    [
        (line(2), hold(), 4, 0),
        (line(3), hold(), 3, 0),
        (line(3), hold(), 2, 1),
        (PAIRS, hold("state"), 3, 0),
        (SQUARE, hold("row"), 2, 0),
        (SQUARE, BOTH, 2, 0),
    ],
)
def test_g_tables_with_equal_totals_at_distance_k_are_k_epsilon_close(
    domain, held, size, decimals, relation
):
    """Dither enumerated exactly: P(release|x) ≤ q^{-‖x − y‖₁} P(release|y) whenever C x = C y."""
    case = Case(domain, held, relation, decimals)
    law, pairs = case.laws(window(case.cells, -size + 1, size)), 0
    for x, y in itertools.combinations(tables(case.cells, 3 if case.cells < 4 else 2), 2):
        if case.held(x) != case.held(y):
            continue
        # A step of the relation moves Δ₁, so ‖x − y‖₁ = kΔ₁ means k steps.
        first, second = law(x), law(y)
        assert set(first) == set(second)
        assert violations(first, second, Q ** -distance(x, y)) == []
        assert all(case.held(atom) == case.held(x) for atom in first)
        pairs += 1
    assert pairs >= 1


@pytest.mark.parametrize(
    ("domain", "held", "size"), [(line(3), hold(), 3), (SQUARE, BOTH, 2), (PAIRS, hold("state"), 3)]
)
def test_dither_is_unbiased_and_its_chances_add_up(domain, held, size):
    """E[release | noisy, c] = noisy − lift(C·noisy − c), in rationals."""
    case = Case(domain, held, AddRemoveOne(), 0)
    x = (0,) * case.cells
    rounding_seen = False
    for noisy in window(case.cells, -size, size):
        outcomes = case.outcomes(noisy, x)
        assert sum(p for _, p in outcomes) == 1
        mean = tuple(sum(v[i] * p for v, p in outcomes) for i in range(case.cells))
        lift = case.lifted(noisy)
        assert mean == tuple(a - b for a, b in zip(noisy, lift, strict=True))
        rounding_seen |= len(outcomes) > 1
    assert rounding_seen


@pytest.mark.parametrize(("n", "decimals"), [(2, 0), (3, 0), (3, 1)])
def test_an_integer_release_of_a_held_total_is_not_s(n, decimals):
    """The counterexample: the supports of Π_N(release) for two neighbours have nothing in common.

    An integer release has total c, so n·Π_N(release) = n·release − c is −c modulo n (on a grid of
    1/g, −c·g modulo n): the protected part shows c modulo n.
    """
    case = Case(line(n), hold(), AddRemoveOne(), decimals)
    assert case.mechanism.guarantee.kind == "G"
    seen = window(n, -2, 3)
    none, one = (0,) * n, (1,) + (0,) * (n - 1)
    first = case.law(none, seen, part=case.protected)
    second = case.law(one, seen, part=case.protected)
    assert first
    assert set(first).isdisjoint(second)


# --------------------------------------------------------------------------------- dither and code


@pytest.mark.parametrize(
    ("domain", "held", "decimals"), [(line(3), hold(), 0), (line(3), hold(), 2), (SQUARE, BOTH, 0)]
)
def test_a_rounding_falls_with_the_chance_of_the_fraction(domain, held, decimals):
    """The words of one entry that round it up are an end of the range, as long as its fraction."""
    case = Case(domain, held, AddRemoveOne(), decimals)
    zero, noisy = (0,) * case.cells, (1,) + (0,) * (case.cells - 1)
    array, exact = np.array(noisy).reshape(case.shape), case.totals(zero)
    step = case.mechanism.rounding.step
    entries = case.cumulated([step * v for v in case.lifted(noisy)])

    def made(j, word):
        dither = DitherWords([word if i == j else 0 for i in range(case.cells)])
        return tuple(np.asarray(case.mechanism.reconstruct(array, exact, dither)).ravel())

    checked = 0
    for j, value in enumerate(entries):
        if value.denominator == 1:
            assert made(j, 0) == made(j, TOP)
            continue
        low, high = 0, TOP
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if made(j, middle) == made(j, 0) else (low, middle)
        part = value - value.__floor__()
        share = Fraction(high, 2**64)  # of the words that do as word 0 does
        assert min(abs(share - part), abs(1 - share - part)) <= Fraction(1, 2**50)
        checked += 1
    assert checked


@pytest.mark.parametrize(("domain", "held", "size"), HELD)
@pytest.mark.parametrize("decimals", [None, 0, 1])
def test_compiled_code_publishes_the_same(domain, held, size, decimals, monkeypatch):
    """Large tables take compiled code; made to take small ones, its outcomes are the same."""
    case = Case(domain, held, AddRemoveOne(), decimals)
    x, size = (1,) + (0,) * (case.cells - 1), size - 1
    exact, words = case.totals(x), np.array([0, TOP], np.uint64)
    jobs = list(itertools.product(window(case.cells, -size, size), (0, 5)))

    def release(noisy, pattern):
        dither = DitherWords([words[(pattern >> i) & 1] for i in range(case.cells)])
        return case.mechanism.reconstruct(np.array(noisy).reshape(case.shape), exact, dither)

    plain = [release(*job) for job in jobs]
    monkeypatch.setattr("subspacedp.parallel.KERNEL_FROM", 1)
    compiled = [release(*job) for job in jobs]
    if decimals is None:
        # Both round the same fraction to float64, each within one unit in the last place.
        assert np.allclose(compiled, plain, rtol=2.0**-51, atol=2.0**-51)
    else:
        assert np.array_equal(compiled, plain)


def test_the_real_roundings_are_a_keystream():
    """The enumeration above stands in for a keystream; both answer `words(start, count)`."""
    case = Case(line(3), hold(), AddRemoveOne(), 0)
    dither = Keystream(bytes(32))
    for noisy in window(3, -1, 1):
        made = case.mechanism.reconstruct(np.array(noisy), case.totals((0, 0, 0)), dither)
        assert tuple(map(Fraction, made.tolist())) in dict(case.outcomes(noisy, (0, 0, 0)))


def test_persons_are_what_the_relation_says():
    assert set(persons(2, ReplaceOne())) == {(1, 0), (0, 1)}
    assert set(persons(2, AddRemoveOne())) == {(0, 0), (1, 0), (0, 1)}
    assert (1, 1) in persons(2, AddRemoveOne(records=2, per_cell=1))
    assert (2, 0) not in persons(2, AddRemoveOne(records=2, per_cell=1))
