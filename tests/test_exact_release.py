"""Whole releases: held totals are kept exactly, and `verify` notices when they are not."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import subspacedp as sdp
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.invariants import Held, Mixed
from subspacedp.mechanisms.base import REAL_LIMIT, STEP_LIMIT
from subspacedp.noise import ReleaseKeys
from subspacedp.release import Release
from subspacedp.release.designs import Design
from tests import dense, strategies

BUDGETS = [sdp.PureDP(1.0), sdp.PureDP(0.1), sdp.ApproxDP(1.0, 1e-6)]
AGREE, KEPT = "held totals agree with each other", "held totals are kept"


@st.composite
def designs(draw, *, min_margins: int = 0, max_cells: int = 200, decimals=(None, 0, 2)):
    """A mechanism that leaves something to protect, with what it was designed from."""
    domain, held = draw(strategies.problems(min_margins=min_margins, max_cells=max_cells))
    assume(held.on(domain).rank < domain.size)
    mechanism = sdp.design(
        domain,
        held,
        draw(st.sampled_from(BUDGETS)),
        decimals=draw(st.sampled_from(decimals)),
        neighbours=draw(st.sampled_from([sdp.ReplaceOne(), sdp.AddRemoveOne()])),
    )
    return domain, held, mechanism


def carried(mechanism: Design) -> int:
    """The largest count whose release float64 can carry, noise included; or a whole table's."""
    decimals, room = mechanism.mechanism.decimals, math.ceil(64 * mechanism.mechanism.law.scale) + 1
    if decimals == 0:
        return strategies.MAX_TOTAL
    return REAL_LIMIT - 1 if decimals is None else STEP_LIMIT // 10**decimals - room


def steps_of(release: Release) -> np.ndarray:
    """A release with digits as whole numbers of steps; each value is the float nearest to one."""
    if release.mechanism.decimals == 0:
        return release.values.ravel().astype(object)
    step = 10**release.mechanism.decimals
    steps = np.array([round(Fraction(v) * step) for v in release.values.ravel().tolist()], object)
    assert [s / step for s in steps] == release.values.ravel().tolist()
    return steps


def integers_of(values: Mixed) -> tuple[np.ndarray, int]:
    """Exact fractions as whole numbers over one denominator."""
    d = np.broadcast_to(values.denominator, values.whole.shape).astype(object)
    common = int(np.lcm.reduce(d.ravel()))
    return (values.whole.astype(object) * common + values.numerator * (common // d)).ravel(), common


def measured(mechanism: Design, table: sdp.Table, seed: int):
    """The measurement and the dither behind `release(table, seed=seed)`."""
    keys = ReleaseKeys.from_seed(seed, mechanism.mechanism.context)
    return mechanism.mechanism.measure(table, keys), keys.stream("dither")


def exact_release(mechanism: Design, table: sdp.Table, seed: int) -> Mixed:
    """The real-valued release before it is rounded to float64."""
    held = mechanism.mechanism.held
    noisy, _ = measured(mechanism, table, seed)
    residual = held.residual(noisy, held.values(table))
    return mechanism.mechanism.space.lift_exact(residual).rsub(noisy)


# ---------------------------------------------------------------------------- exact everywhere


@strategies.both_engines
@settings(max_examples=strategies.examples(6))
@given(data=st.data(), seed=strategies.seeds)
def test_digits_add_up_to_the_held_totals_as_integers(engine, data, seed):
    domain, held, mechanism = data.draw(designs(decimals=(0, 2)))
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    decimals = mechanism.mechanism.decimals
    with strategies.using(engine):
        release = mechanism.release(table, seed=seed)
    assert release.values.dtype == (np.int64 if decimals == 0 else np.float64)
    C = dense.matrix(domain, held).astype(object)
    truth = table.counts.ravel().astype(object)
    assert (C @ steps_of(release) == 10**decimals * (C @ truth)).all()
    exact = [value for part in release.exact for value in part.ravel().tolist()]
    assert exact == (C @ truth).tolist()
    assert release.verify().ok


@settings(max_examples=strategies.examples(6))
@given(data=st.data(), seed=strategies.seeds)
def test_real_values_add_up_to_the_held_totals_as_fractions(data, seed):
    domain, held, mechanism = data.draw(designs(decimals=(None,)))
    table = data.draw(strategies.tables(domain))
    values, common = integers_of(exact_release(mechanism, table, seed))
    C = dense.matrix(domain, held).astype(object)
    assert (C @ values == common * (C @ table.counts.ravel().astype(object))).all()


@strategies.both_engines
@settings(max_examples=strategies.examples(3))
@given(data=st.data(), seed=strategies.seeds)
def test_real_values_are_verified(engine, data, seed):
    domain, held, mechanism = data.draw(designs(decimals=(None,)))
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    with strategies.using(engine):
        release = mechanism.release(table, seed=seed)
    assert release.values.dtype == np.float64
    exact = [value for part in release.exact for value in part.ravel().tolist()]
    assert exact == (dense.matrix(domain, held) @ table.counts.ravel()).tolist()
    assert release.verify().ok


@settings(max_examples=strategies.examples(2))
@given(data=st.data(), seed=strategies.seeds)
def test_real_values_are_the_truth_plus_projected_noise(data, seed):
    domain, held, mechanism = data.draw(designs(max_cells=60, decimals=(None,)))
    table = data.draw(strategies.tables(domain))
    noisy, _ = measured(mechanism, table, seed)
    noise = (noisy - table.counts).ravel().astype(object)
    numerators, q = dense.row_projector(dense.matrix(domain, held))
    expected = dense.fractions(q * (noise + table.counts.ravel()) - numerators @ noise, q)
    assert exact_release(mechanism, table, seed).fractions().ravel().tolist() == expected.tolist()


@settings(max_examples=strategies.examples(3))
@given(data=st.data(), seed=strategies.seeds)
def test_real_values_are_within_one_unit_in_the_last_place(data, seed):
    domain, _, mechanism = data.draw(designs(min_margins=1, decimals=(None,)))
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    release = mechanism.release(table, seed=seed)
    exact = exact_release(mechanism, table, seed).fractions()
    pairs = zip(release.values.ravel().tolist(), exact.flat, strict=True)
    assert max(dense.ulps(computed, value) for computed, value in pairs) <= 1


@settings(max_examples=strategies.examples(2))
@given(data=st.data(), seed=strategies.seeds)
def test_digits_are_near_the_real_value(data, seed):
    domain, _, mechanism = data.draw(designs(max_cells=60, decimals=(0, 2)))
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    decimals = mechanism.mechanism.decimals
    steps = steps_of(mechanism.release(table, seed=seed))
    exact = exact_release(mechanism, table, seed).fractions().ravel()
    reach = 2 ** len(mechanism.mechanism.rounding.axes)
    assert all(abs(s - 10**decimals * v) < reach for s, v in zip(steps, exact, strict=True))


@strategies.both_engines
@settings(max_examples=strategies.examples(3))
@given(data=st.data(), seed=strategies.seeds)
def test_a_release_is_its_measurement_reconstructed(engine, data, seed):
    domain, held, mechanism = data.draw(designs())
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    noisy, dither = measured(mechanism, table, seed)
    kept = noisy.copy()
    exact = dense.residual(domain, held, table.counts)
    with strategies.using(engine):
        rebuilt = mechanism.mechanism.reconstruct(noisy, exact, dither)
        release = mechanism.release(table, seed=seed)
    assert rebuilt.dtype == release.values.dtype
    assert rebuilt.tolist() == release.values.tolist()
    assert noisy.tolist() == kept.tolist()  # and a measurement can be used again


@settings(max_examples=strategies.examples(3))
@given(data=st.data(), seed=strategies.seeds)
def test_both_engines_make_the_same_release(data, seed):
    domain, _, mechanism = data.draw(designs())
    table = data.draw(strategies.tables(domain, carried(mechanism)))
    found = []
    for engine in strategies.ENGINES:
        with strategies.using(engine):
            found.append(mechanism.release(table, seed=seed))
    one, other = found
    if mechanism.mechanism.decimals is None:
        # Fractions are added in another order: the last digit may differ.
        scale = 1 + np.abs(one.values)
        assert (np.abs(one.values - other.values) <= 2.0**-48 * scale).all()
    else:
        assert one.values.tolist() == other.values.tolist()
    assert [t.tolist() for t in one.exact] == [t.tolist() for t in other.exact]


# ------------------------------------------------------------------------------ special tables

COUNTY = sdp.Axis(
    "county",
    ["Kent", "Cook", "Sussex", "Lake", "Polk"],
    levels={"state": ["DE", "IL", "DE", "IL", "IA"]},
    groups={"state": ["AK", "DE", "IA", "IL"]},  # no county of Alaska in the table
)
SEX, YEAR = sdp.Axis("sex", ["F", "M"]), sdp.Axis("year", [2020])
DOMAIN = sdp.Domain([COUNTY, SEX, YEAR])
FAMILIES = {
    "nothing": Held(),
    "total": sdp.hold(),
    "states": sdp.hold("state"),
    "the only year": sdp.hold("year"),
    "states and sexes": sdp.hold("state") & sdp.hold("sex"),
    "redundant": sdp.hold("state", "sex") & sdp.hold("sex") & sdp.hold() & sdp.hold("county"),
}
FULL = np.zeros(DOMAIN.shape, np.int64)
FULL.flat[:4] = [2**62 - 2**61 - 7, 2**61, 4, 3]
TABLES = {"zeros": np.zeros(DOMAIN.shape, np.int64), "full": FULL}


@strategies.both_engines
@pytest.mark.parametrize("decimals", [None, 0, 2])
@pytest.mark.parametrize("held", FAMILIES)
@pytest.mark.parametrize("counts", TABLES)
def test_zeros_full_tables_single_labels_and_empty_groups(engine, counts, held, decimals):
    table = sdp.Table(TABLES[counts], DOMAIN)
    mechanism = sdp.design(DOMAIN, FAMILIES[held], sdp.PureDP(1.0), decimals=decimals)
    with strategies.using(engine):
        if counts == "full" and decimals != 0:
            with pytest.raises(ReleaseError, match=r"^The (counts|answers) are too large to "):
                mechanism.release(table, seed=3)
            return
        release = mechanism.release(table, seed=3)
    assert release.verify().ok
    C = dense.matrix(DOMAIN, FAMILIES[held]).astype(object)
    if decimals is None:
        values, common = integers_of(exact_release(mechanism, table, 3))
    else:
        values, common = steps_of(release), 10**decimals
    assert (C @ values == common * (C @ table.counts.ravel().astype(object))).all()


def test_a_total_of_exactly_2_to_the_62_is_published_as_such():
    table = sdp.Table(FULL, DOMAIN)
    release = sdp.design(DOMAIN, sdp.hold(), sdp.PureDP(1.0), decimals=0).release(table, seed=1)
    assert release.exact[0].item() == sum(release.values.ravel().tolist()) == 2**62


@pytest.mark.parametrize("decimals", [None, 0, 2])
def test_nothing_held_publishes_the_measurement(decimals):
    table = sdp.Table(np.arange(10).reshape(DOMAIN.shape), DOMAIN)
    mechanism = sdp.design(DOMAIN, None, sdp.PureDP(0.5), decimals=decimals)
    noisy, _ = measured(mechanism, table, 7)
    assert (noisy != table.counts).any()
    assert mechanism.release(table, seed=7).values.tolist() == noisy.tolist()


@settings(max_examples=strategies.examples(5))
@given(strategies.problems(min_margins=1, max_labels=4))
def test_a_design_that_leaves_nothing_to_protect_is_refused(problem):
    domain, held = problem
    if dense.rank(dense.matrix(domain, held)) < domain.size:
        sdp.design(domain, held, sdp.PureDP(1.0))
        return
    with pytest.raises(InvariantError) as caught:
        sdp.design(domain, held, sdp.PureDP(1.0))
    assert str(caught.value) == "What is held fixes every answer: nothing is left to protect."
    assert caught.value.rank == domain.size


@pytest.mark.parametrize("decimals", [None, 1, 2, 6, 12])
def test_the_largest_counts_that_float64_carries_are_published_and_verified(decimals):
    domain = sdp.Domain([sdp.Axis("a", range(10)), sdp.Axis("b", range(300))])
    mechanism = sdp.design(domain, sdp.hold("a"), sdp.PureDP(2.0), decimals=decimals)
    most = carried(mechanism)
    counts = np.random.default_rng(1).integers(most // 2, most, domain.shape, endpoint=True)
    counts[3, 7] = most
    release = mechanism.release(sdp.Table(counts, domain), seed=1)
    assert release.verify().ok
    if decimals is not None:
        steps = steps_of(release).reshape(domain.shape)
        assert (steps.sum(axis=1) == 10**decimals * counts.sum(axis=1)).all()


@pytest.mark.parametrize(
    ("decimals", "sentence"),
    [
        (None, r"too large to publish as real numbers in float64.*; ask for decimals=0\.$"),
        (2, r"too large to carry 2 decimals in float64; ask for fewer\.$"),
    ],
)
def test_larger_counts_are_refused_before_any_noise_is_drawn(decimals, sentence, monkeypatch):
    mechanism = sdp.design(DOMAIN, sdp.hold(), sdp.PureDP(2.0), decimals=decimals)
    counts = np.zeros(DOMAIN.shape, np.int64)
    counts[0, 0, 0] = carried(mechanism) + 2
    monkeypatch.setattr(ReleaseKeys, "stream", None)  # a draw would fail in another way
    with pytest.raises(ReleaseError, match=sentence):
        mechanism.release(sdp.Table(counts, DOMAIN))


# --------------------------------------------------------------------------- verify catches it


def altered(release: Release, values=None, exact=None) -> Release:
    """The release with other values or totals."""
    return dataclasses.replace(
        release,
        values=release.values.copy() if values is None else values,
        exact=release.exact if exact is None else exact,
    )


def failed(release: Release) -> set[str]:
    return {check.name for check in release.verify().checks if not check.ok}


def released(data, seed: int, min_margins: int = 1) -> Release:
    domain, _, mechanism = data.draw(designs(min_margins=min_margins))
    counts = np.random.default_rng(seed).integers(0, 1000, domain.shape)
    return mechanism.release(sdp.Table(counts, domain), seed=seed)


@settings(max_examples=strategies.examples(3))
@given(data=st.data(), seed=strategies.seeds, sign=st.sampled_from([-1, 1]))
def test_a_value_altered_by_one_step_is_caught(data, seed, sign):
    release = released(data, seed)
    assert failed(altered(release)) == set()
    cell = data.draw(st.integers(0, release.values.size - 1))
    values, decimals = release.values.copy(), release.mechanism.decimals
    if decimals is None:
        d = release.mechanism.space.denominators
        values.flat[cell] += sign / int(np.broadcast_to(d, values.shape).flat[cell])
    else:
        values.flat[cell] = (steps_of(release)[cell] + sign) / 10**decimals
    assert failed(altered(release, values=values)) == {KEPT}


@settings(max_examples=strategies.examples(2))
@given(data=st.data(), seed=strategies.seeds)
def test_a_value_between_two_steps_is_caught(data, seed):
    release = released(data, seed)
    cell = data.draw(st.integers(0, release.values.size - 1))
    values, decimals = release.values.astype(float), release.mechanism.decimals
    if decimals is None:
        d = release.mechanism.space.denominators
        grid = float(np.broadcast_to(d, values.shape).flat[cell])
    else:
        grid = 10.0**decimals
    values.flat[cell] += 0.3 / grid
    assert KEPT in failed(altered(release, values=values))


@settings(max_examples=strategies.examples(2))
@given(data=st.data(), seed=strategies.seeds, sign=st.sampled_from([-1, 1]))
def test_a_held_total_altered_is_caught(data, seed, sign):
    release = released(data, seed)
    number = data.draw(st.integers(0, len(release.exact) - 1))
    exact = [total.copy() for total in release.exact]
    exact[number].flat[data.draw(st.integers(0, exact[number].size - 1))] += sign
    assert failed(altered(release, exact=tuple(exact))) & {AGREE, KEPT}


@settings(max_examples=strategies.examples(2))
@given(data=st.data(), seed=strategies.seeds)
def test_contradictory_totals_are_caught(data, seed):
    release = released(data, seed, min_margins=2)
    assume(len(release.exact) > 1)
    number = data.draw(st.integers(0, len(release.exact) - 1))
    exact = [total.copy() for total in release.exact]
    margin = release.mechanism.held.margins[number]
    group = data.draw(st.sampled_from(np.flatnonzero(margin.sizes.ravel()).tolist()))
    exact[number].flat[group] += 1
    assert AGREE in failed(altered(release, exact=tuple(exact)))  # values are then not looked at


def test_impossible_totals_are_caught():
    mechanism = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0), decimals=0)
    release = mechanism.release(sdp.Table(np.zeros(DOMAIN.shape, int), DOMAIN), seed=1)
    nobody = release.exact[0].copy()
    nobody[0] = 1  # Alaska has no county in the table
    assert AGREE in failed(altered(release, exact=(nobody,)))
    values, negative = release.values.copy(), release.exact[0].copy()
    values[0, 0, 0] -= 1
    negative[1] -= 1  # kept by the values, and still no possible count
    assert failed(altered(release, values=values, exact=(negative,))) == {AGREE}


def test_values_that_are_not_finite_are_caught():
    mechanism = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0))
    release = mechanism.release(sdp.Table(np.zeros(DOMAIN.shape, int), DOMAIN), seed=1)
    for bad in (np.nan, np.inf):
        values = release.values.copy()
        values[0, 0, 0] = bad
        assert failed(altered(release, values=values)) == {"values", KEPT}


def test_rounding_a_release_cell_by_cell_is_caught():
    real = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0))
    whole = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0), decimals=0)
    table = sdp.Table(np.arange(10).reshape(DOMAIN.shape), DOMAIN)
    values = real.release(table, seed=1).values
    release = whole.release(table, seed=1)
    assert failed(release) == set()
    rounded = np.rint(values).astype(np.int64)
    assert failed(altered(release, values=rounded)) == {KEPT}


def test_reconstructing_in_plain_floats_is_not_within_one_unit():
    counts = np.full(DOMAIN.shape, 3)
    counts[0, 0, 0] = 2**52 + 1
    table = sdp.Table(counts, DOMAIN)
    mechanism = sdp.design(DOMAIN, sdp.hold(), sdp.PureDP(1.0))
    held, space = mechanism.mechanism.held, mechanism.mechanism.space
    noisy, _ = measured(mechanism, table, 1)
    in_floats = space.project(noisy) + space.lift(held.values(table))
    exact = exact_release(mechanism, table, 1).fractions().ravel()
    wrong = [dense.ulps(v, w) for v, w in zip(in_floats.ravel().tolist(), exact, strict=True)]
    assert max(wrong) > 1
