"""Held margins: exact values, exact ranks, how families combine, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import dense, strategies

import subspacedp as sdp
from subspacedp.errors import InvariantError
from subspacedp.invariants import Held, HeldMargins


def campus() -> sdp.Domain:
    building = [f"b{i}" for i in range(20)]
    return sdp.Domain(
        [
            sdp.Axis("hour", range(14)),
            sdp.Axis("group", range(24)),
            sdp.Axis("building", building, levels={"site": [f"s{i % 3}" for i in range(20)]}),
        ]
    )


def refused(call) -> str:
    with pytest.raises(InvariantError) as caught:
        call()
    return str(caught.value)


# ------------------------------------------------------------------------------- exact values


@strategies.both_engines
@settings(max_examples=strategies.examples(3))
@given(data=st.data())
def test_values_are_the_dense_product_in_exact_integers(engine, data):
    domain, held = data.draw(strategies.problems())
    table = data.draw(strategies.tables(domain))
    family = held.on(domain)
    with strategies.using(engine):
        values = family.values(table)
    assert [v.dtype for v in values] == [np.int64] * len(values)
    assert [v.shape for v in values] == [m.shape for m in family.margins]
    expected = dense.totals(domain, held, table.counts)
    assert [v.ravel().tolist() for v in values] == [e.tolist() for e in expected]


@strategies.both_engines
@given(data=st.data(), seed=strategies.seeds)
def test_the_residual_is_the_dense_difference(engine, data, seed):
    domain, held = data.draw(strategies.problems())
    table = data.draw(strategies.tables(domain))
    noise = strategies.integers(np.random.default_rng(seed), domain.shape, 2**40)
    family = held.on(domain)
    with strategies.using(engine):
        residual = family.residual(table.counts + noise, family.values(table))
    expected = dense.totals(domain, held, noise)
    assert [r.ravel().tolist() for r in residual] == [e.tolist() for e in expected]


@given(st.data(), strategies.seeds)
def test_totals_of_every_margin_that_the_family_determines(data, seed):
    domain, held = data.draw(strategies.problems(min_margins=1))
    counts = strategies.integers(np.random.default_rng(seed), domain.shape, 10**6)
    family = held.on(domain)
    totals = tuple(m.sum(counts) for m in family.margins)
    for margin in family.expansion:
        assert family.of(totals, margin).tolist() == margin.sum(counts).tolist()


def test_a_margin_that_is_not_determined_is_refused():
    family = sdp.hold("hour").on(campus())
    totals = (np.zeros((14, 1, 1), np.int64),)
    assert refused(lambda: family.of(totals, campus().margin("group"))) == (
        "Margin(group) is not determined by the held margins."
    )


def test_a_table_of_another_shape_is_refused():
    flat = sdp.Domain([sdp.Axis("cell", range(6))])
    table = sdp.Table(np.arange(6), flat)
    assert refused(lambda: sdp.hold().on(campus()).values(table)) == (
        "The table is not on the domain of the held margins."
    )


# ------------------------------------------------------------------------------------- ranks


@settings(max_examples=strategies.examples(6))
@given(strategies.problems())
def test_the_rank_is_that_of_the_dense_matrix_over_the_rationals(problem):
    domain, held = problem
    C = dense.matrix(domain, held)
    family = held.on(domain)
    assert family.rank == dense.rank(C)
    assert family.rows == len(C)
    assert family.only_total == (dense.rank(C) <= 1)


def test_counting_rows_instead_would_be_caught():
    domain = campus()
    held = sdp.hold("hour", "building") & sdp.hold("group", "building")
    C = dense.matrix(domain, held)
    family = held.on(domain)
    assert dense.rank(C) == family.rank == 740
    assert family.rows == len(C) == 760  # a rank that ignored the shared building totals


@settings(max_examples=strategies.examples(3))
@given(strategies.problems(min_margins=1))
def test_essential_margins_span_all_and_the_redundant_add_nothing(problem):
    domain, held = problem
    family = held.on(domain)
    kept = Held(tuple(m.names for m in family.essential))
    assert set(family.essential) | set(family.redundant) == set(family.margins)
    assert not set(family.essential) & set(family.redundant)
    C, B = dense.matrix(domain, held), dense.matrix(domain, kept)
    assert dense.rank(B) == dense.rank(C) == dense.rank(np.concatenate([B, C]))
    for m in family.essential:
        assert not any(o != m and o.determines(m) for o in family.essential)


@settings(max_examples=strategies.examples(2))
@given(strategies.problems(min_margins=1, max_cells=40))
def test_the_expansion_is_the_projector_onto_the_row_space(problem):
    domain, held = problem
    numerators, denominator = dense.row_projector(dense.matrix(domain, held))
    family = held.on(domain)
    common = math.lcm(*(max(int(s), 1) for k in family.expansion for s in k.sizes.flat))
    total = np.zeros((domain.size, domain.size), object)
    for margin, a in family.expansion.items():
        C = dense.margin_matrix(domain, margin.names).astype(object)
        means = np.array([row * (a * common // max(int(row.sum()), 1)) for row in C])
        total = total + C.T @ means  # a · common · P_k
    assert (total * denominator == numerators * common).all()


# -------------------------------------------------------------------------------- combination


def test_and_keeps_the_order_and_drops_repetitions():
    one, two = sdp.hold("hour", "building"), sdp.hold("group")
    assert (one & two).margins == (("hour", "building"), ("group",))
    assert (one & two & one).margins == (one & two).margins
    assert (Held() & one) == one
    assert (one & Held()) == one
    assert len((one & sdp.hold("building", "hour")).on(campus()).margins) == 1


@given(st.data())
def test_and_is_associative_and_its_order_changes_nothing_held(data):
    domain = data.draw(strategies.domains())
    a, b, c = (data.draw(strategies.families(domain, max_margins=2)) for _ in range(3))
    assert (a & b) & c == a & (b & c)
    forward, backward = (a & b & c).on(domain), (c & b & a).on(domain)
    assert forward.expansion == backward.expansion
    assert set(forward.margins) == set(backward.margins)


def test_and_takes_nothing_else():
    with pytest.raises(TypeError, match="unsupported operand"):
        sdp.hold("hour") & "group"


def test_words():
    held = sdp.hold("hour", "building") & sdp.hold()
    assert repr(held) == str(held) == "hold('hour', 'building') & hold()"
    assert repr(Held()) == "Held()"
    family = held.on(campus())
    assert str(family) == "every hour × building total; the grand total"
    assert repr(family) == (
        "HeldMargins(every hour × building total; the grand total; rank 280 of 6720)"
    )
    assert str(Held().on(campus())) == "nothing"


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "near"), [("hours", "hour"), ("bulding", "building"), ("sit", "site")]
)
def test_an_unknown_level_gets_a_suggestion(name, near):
    levels = "`hour`, `group`, `building`, `site`"
    assert refused(lambda: sdp.hold("group", name).on(campus())) == (
        f"The domain has no level `{name}`; did you mean `{near}`? Its levels are {levels}."
    )


def test_an_unknown_level_without_a_near_one():
    with pytest.raises(InvariantError) as caught:
        sdp.hold("zzzz").on(campus())
    assert str(caught.value) == (
        "The domain has no level `zzzz`. Its levels are `hour`, `group`, `building`, `site`."
    )
    assert caught.value.name == "zzzz"


def test_a_name_twice_is_refused():
    assert refused(lambda: sdp.hold("hour", "group", "hour")) == (
        "The level `hour` is named twice in one margin."
    )


def test_two_levels_of_one_axis_are_refused():
    assert refused(lambda: sdp.hold("site", "building").on(campus())) == (
        "The levels `site` and `building` are of the same axis `building`; "
        "one margin takes one level per axis."
    )


@pytest.mark.parametrize(
    ("thing", "kind"), [(3, "int"), (["hour"], "list"), (None, "NoneType"), (Held(), "Held")]
)
def test_hold_takes_names(thing, kind):
    assert refused(lambda: sdp.hold("hour", thing)) == (
        f"`hold` takes names of levels; got a {kind}. Combine margins as hold('a') & hold('b')."
    )


# -------------------------------------------------------------------------------- broken twins


class Doubled(HeldMargins):
    """Counts what two margins share twice: no inclusion-exclusion."""

    @property
    def rank(self) -> int:
        return sum(m.nonempty for m in self.essential)


def test_the_rank_test_catches_a_family_that_counts_shared_totals_twice():
    domain = campus()
    held = sdp.hold("hour") & sdp.hold("group")
    twin = Doubled(domain=domain, margins=held.on(domain).margins)
    assert twin.rank != dense.rank(dense.matrix(domain, held)) == held.on(domain).rank == 37
