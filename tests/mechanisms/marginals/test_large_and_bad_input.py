"""Workloads of tables that nobody could hold, and requests that are refused in one sentence."""

import itertools
import tracemalloc
from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np
import pytest
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.mechanisms.marginals import MarginalsOptions, measurement, strategy

PLAIN = oracle.plain(2, 3, 4)
ZCDP = sdp.ZCDP(0.5)


def pairs_of(sizes, chosen, records=3000, seed=0):
    """A domain, all pairs of some axes, and their tables counted from records."""
    domain = sdp.Domain([sdp.Axis(f"x{i}", range(n)) for i, n in enumerate(sizes)])
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, n, records) for n in sizes]
    tables = {}
    for i, j in itertools.combinations(chosen, 2):
        flat = np.bincount(codes[i] * sizes[j] + codes[j], minlength=sizes[i] * sizes[j])
        tables[f"x{i}", f"x{j}"] = flat.reshape(sizes[i], sizes[j])
    query = sdp.Margins(domain, [list(names) for names in tables])
    return domain, query, sdp.MarginTables(domain, tables), codes


@pytest.mark.parametrize("decimals", [None, 0])
def test_a_domain_beyond_64_bits(decimals):
    sizes = [40, 35, 30, 25, 20, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 2]
    domain, query, data, codes = pairs_of(sizes, range(6))
    assert domain.size > 2**64
    mechanism = sdp.design(query, sdp.hold("x0") & sdp.hold("x1"), ZCDP, decimals=decimals)
    release = mechanism.release(data, seed=1)
    assert release.verify().ok
    assert np.array_equal(release.margin("x0").value, np.bincount(codes[0], minlength=40))
    assert mechanism.guarantee.covers(np.eye(1, query.size)[0]).share_exposed > 0


@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=["add", "replace"])
def test_sixty_axes(relation):
    sizes = [2, 3] * 30
    _, query, data, _ = pairs_of(sizes, range(0, 60, 6))
    mechanism = sdp.design(query, None, ZCDP, neighbours=relation)
    assert mechanism.release(data, seed=1).verify().ok
    strategy = mechanism.mechanism.strategy
    assert strategy.bound <= strategy.goal <= 1.2 * strategy.bound


def test_twenty_five_axes_replaced_records_of_several():
    """More kinds of pairs than can be listed: a stated bound, which stays near what is possible."""
    _, query, data, _ = pairs_of([2] * 25, range(25))
    mechanism = sdp.design(query, None, ZCDP, neighbours=sdp.ReplaceOne(records=3))
    strategy = mechanism.mechanism.strategy
    assert strategy.bound <= strategy.goal
    release = mechanism.release(data, seed=1)
    assert release.verify().ok


def test_all_190_pairs_of_twenty_questions():
    sizes = [2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30, 35, 38, 40]
    domain, query, data, codes = pairs_of(sizes, range(20))
    held = reduce(and_, (sdp.hold(axis.name) for axis in domain.axes))
    tracemalloc.start()
    mechanism = sdp.design(query, held, ZCDP, decimals=0)
    release = mechanism.release(data, seed=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(query.margins) == 190
    assert peak < 2**28  # far below any table of three questions
    for i, n in enumerate(sizes):
        assert np.array_equal(release.margin(f"x{i}").value, np.bincount(codes[i], minlength=n))


def sentence(function):
    with pytest.raises(SubspaceDPError) as caught:
        function()
    told = str(caught.value)
    assert told.endswith(".")
    assert "\n" not in told
    return told


def test_bad_input_is_told_in_one_sentence():
    query = sdp.Margins(PLAIN, [["a", "b"]])

    def designed(*given, **options):
        return sentence(lambda: sdp.design(*given, **options))

    assert designed(query, sdp.hold("a", "b"), ZCDP) == (
        "What is held fixes every answer: nothing is left to protect."
    )
    assert designed(query, sdp.hold("zzz"), ZCDP).startswith("The domain has no level `zzz`.")
    assert "hold margins alone" in designed(query, sdp.LinearInvariants(np.ones((1, 6))), ZCDP)
    contrasts = MarginalsOptions(measured="contrasts")
    assert "Gaussian noise" in designed(query, None, sdp.PureDP(1.0), mechanism=contrasts)
    for name in ("extended", "optimal", "projected"):
        assert "not for workloads" in designed(query, None, ZCDP, mechanism=name)
    assert "too small" in designed(query, None, sdp.GaussianDP(1e-13))
    assert "no noise would be left" in designed(query, None, sdp.GaussianDP(1e6))
    by_importance = sdp.Optimal(importance=np.ones(6))
    assert "not for workloads" in designed(query, None, ZCDP, mechanism=by_importance)
    assert "`objective` must be" in designed(
        query, None, ZCDP, mechanism=MarginalsOptions(objective="least")
    )
    assert "`measured` must be" in designed(
        query, None, ZCDP, mechanism=MarginalsOptions(measured="cells")
    )
    assert "has its margins" in designed(
        query, None, ZCDP, mechanism=MarginalsOptions(margins=[["a"]])
    )
    assert "for the cells of a table" in designed(
        sdp.LinearQuery(np.eye(3)), None, ZCDP, mechanism=MarginalsOptions()
    )


@pytest.mark.parametrize("weight", [0.0, float("inf"), float("nan"), -1.0, 1e13])
def test_weights_that_say_nothing_are_refused(weight):
    told = sentence(lambda: sdp.Margins(PLAIN, [["a"], ["b"]], [1.0, weight]))
    assert told.startswith("`weights` must have one number")
    options = MarginalsOptions(margins=[["a"]], weights=[1.0, weight])
    assert "weights" in sentence(lambda: sdp.design(PLAIN, None, ZCDP, mechanism=options))


def test_two_trees_of_unequal_groups():
    """One of them is treated exactly, and plan and certificate say what the other costs."""
    first = sdp.Axis("p", range(6), levels={"q": [0, 0, 0, 0, 1, 2]})
    second = sdp.Axis("n", range(4), levels={"h": [0, 0, 0, 1]})
    query = sdp.Margins(sdp.Domain([first, second]), [["p", "n"], ["q", "h"]])
    for budget in (sdp.PureDP(1.0), ZCDP):
        design = sdp.design(query, None, budget)
        mechanism = design.mechanism
        assert mechanism.interactions.tree.axis.name == "p"
        assert mechanism.interactions.uneven_axes == ("n",)
        told = (
            "the unequal groups of `p` are treated exactly, those of `n` by nested contrasts, at "
        )
        assert told in mechanism.gap_in_words()
        release = design.release(sdp.Table(np.ones((6, 4), int), query.domain), seed=1)
        assert told in release.certificate()["noise"]["on"]


def test_a_workload_that_nobody_can_change():
    query = sdp.Margins(PLAIN, [[]])
    for budget in (sdp.PureDP(1.0), ZCDP):
        told = sentence(lambda b=budget: sdp.design(query, None, b))
        assert told == (
            "No person can change what would be measured: publish these margins as they are, or "
            "ask for finer ones."
        )


def test_tables_that_are_not_of_the_design():
    mechanism = sdp.design(sdp.Margins(PLAIN, [["a", "b"]]), None, ZCDP)
    other = oracle.plain(2, 3, 5)
    zeros = np.zeros(other.shape, np.int64)
    assert "not on the domain" in sentence(lambda: mechanism.release(sdp.Table(zeros, other)))
    assert "Expected a `Table`" in sentence(lambda: mechanism.release([1, 2]))
    huge = np.zeros(PLAIN.shape, np.int64)
    huge[0, 0, 0] = 2**44
    assert "2**43" in sentence(lambda: mechanism.release(sdp.Table(huge, PLAIN)))


def test_contrasts_that_leave_64_bits_are_refused_before_noise_is_drawn(monkeypatch):
    """Denominators of large axes times large totals."""
    sizes = [1000, 1000]
    domain = sdp.Domain([sdp.Axis(f"x{i}", range(n)) for i, n in enumerate(sizes)])
    mechanism = sdp.design(sdp.Margins(domain, [["x0", "x1"]]), None, sdp.GaussianDP(0.001))
    table = np.zeros(domain.shape, np.int64)
    table[0, 0] = 2**42
    monkeypatch.setattr(measurement, "add_noise", None)  # nobody calls it
    assert "64 bits" in sentence(lambda: mechanism.release(sdp.Table(table, domain)))


def test_a_workload_that_does_not_fit_is_refused_at_design(monkeypatch):
    monkeypatch.setattr("subspacedp.release.designs.available_memory", lambda: 1_000_000_000)
    domain = sdp.Domain([sdp.Axis(name, list(range(300))) for name in "abc"])
    with pytest.raises(ReleaseError, match=r"27,000,000 figures takes about 1 GB.*, and 1 GB are"):
        sdp.design(sdp.Margins(domain, [["a", "b", "c"]]), sdp.hold(), sdp.ZCDP(0.1))
    assert sdp.design(sdp.Margins(domain, [["a", "b"]]), sdp.hold(), sdp.ZCDP(0.1))


@pytest.mark.parametrize("relation", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=["add", "replace"])
@pytest.mark.parametrize("above", [[0] * 6, ["x", "x", "x", "y", "y", "z"]], ids=["one", "same"])
def test_shares_of_levels_with_the_same_groups_are_read_as_in_earlier_versions(
    above, relation, monkeypatch, tmp_path
):
    """These counted such levels apart, also where what is held tells them."""
    axis = sdp.Axis("p", range(6), levels={"l": [0, 0, 0, 1, 1, 2], "m": above})
    domain = sdp.Domain([axis, sdp.Axis("s", range(2))])
    held = sdp.hold() if above[-1] == 0 else sdp.hold("l") & sdp.hold("m", "s")
    table = sdp.Table(np.arange(5, 17).reshape(6, 2), domain)
    now = strategy.interactions_of

    def earlier(*given, **options):
        return replace(now(*given, **options), alike=False)

    def made():
        options = MarginalsOptions(margins=[["l"], ["m"]])
        return sdp.design(domain, held, ZCDP, neighbours=relation, mechanism=options, decimals=0)

    with monkeypatch.context() as patch:
        patch.setattr(strategy, "interactions_of", earlier)
        old = made()
        release = old.release(table)
        release.save(tmp_path / "old")
    assert len(old.mechanism.strategy.shares) > len(made().mechanism.strategy.shares)
    read = sdp.load(tmp_path / "old")
    assert read.verify().ok
    assert np.array_equal(read.margin("l").stderr, release.margin("l").stderr)
    stated = old.mechanism.fitted()["marginals"]
    stated["shares"].append(0.0)
    with pytest.raises(ReleaseError, match="not one for every interaction and level"):
        strategy.MarginalsStrategy.from_dict(stated, old.mechanism.problem)
