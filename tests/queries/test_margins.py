"""Workloads of margins and tables of margins: answers, names, errors, secrecy."""

import numpy as np
import pytest
from tests import margin_oracle as oracle

from subspacedp.errors import DataError, DomainError, SubspaceDPError
from subspacedp.privacy import AddRemoveOne, ReplaceOne
from subspacedp.queries import Margins
from subspacedp.tables import Axis, Domain, MarginTables, Table
from subspacedp.tables.table import all_meets, meets_with, steps_of

DOMAIN = oracle.unequal_levels()
QUERY = Margins(DOMAIN, ["l", ["g", "b"], []], [1, 2, 0.5])
COUNTS = np.random.default_rng(0).integers(0, 9, DOMAIN.shape)


def sentence(function):
    with pytest.raises(SubspaceDPError) as caught:
        function()
    return str(caught.value)


def test_answers_are_all_totals_in_order():
    table = Table(COUNTS, DOMAIN)
    answers = QUERY.answers(table)
    assert answers.dtype == np.int64
    assert np.array_equal(answers[QUERY.slice_of("l")], COUNTS.sum(axis=1))
    both = answers[QUERY.slice_of("b", "g")].reshape(4, 3)
    assert np.array_equal(both, DOMAIN.margin("g", "b").sum(COUNTS))
    assert answers[QUERY.slice_of()] == [COUNTS.sum()]
    assert QUERY.blocks == {"l": slice(0, 7), "g × b": slice(7, 19), "total": slice(19, 20)}
    assert repr(QUERY) == "Margins(3 margins of 2 axes, 20 answers)"


def test_totals_and_indicators_of_what_follows():
    answers = QUERY.answers(Table(COUNTS, DOMAIN))
    for names in ((), ("g",), ("b",), ("l",), ("g", "b")):
        margin = DOMAIN.margin(*names)
        totals = margin.sum(COUNTS)
        assert np.array_equal(QUERY.totals(answers, margin), totals)
        for i in range(totals.size):
            if margin.empty.ravel()[i]:
                continue
            one = np.zeros(totals.size)
            one[i] = 1
            assert QUERY.indicator(margin, one) @ answers == totals.ravel()[i]
    assert sentence(lambda: QUERY.totals(answers, DOMAIN.cells)) == (
        "The margin `l × b` does not follow from the margins of the workload."
    )


def test_columns_are_long_and_empty_where_a_margin_sums():
    columns = QUERY.columns()
    assert list(columns) == ["margin", "l", "g", "b"]
    assert columns["margin"][[0, 7, 19]].tolist() == ["l", "g × b", "total"]
    assert columns["l"][:8].tolist() == ["0", "1", "2", "3", "4", "5", "6", ""]
    assert columns["g"][6:11].tolist() == ["", "g0", "g0", "g0", "none"]
    assert columns["b"][19] == ""


def test_sensitivity_counts_every_margin_and_every_record():
    assert QUERY.sensitivity(AddRemoveOne()).l1 == 3
    assert QUERY.sensitivity(ReplaceOne(records=2)).l2_squared == 3 * 2 * 4
    A = oracle.matrix(DOMAIN, QUERY.margins)
    pairs = ((A[:, :, None] - A[:, None]) ** 2).sum(axis=0)
    assert pairs.max() <= QUERY.sensitivity(ReplaceOne()).l2_squared


def test_bad_workloads_are_told_in_one_sentence():
    assert sentence(lambda: Margins(DOMAIN, [["l"], ["gg"]])).startswith(
        "The domain has no level `gg`; did you mean `g`?"
    )
    assert sentence(lambda: Margins(DOMAIN, [])) == (
        "A workload needs at least one margin; the list is empty."
    )
    assert sentence(lambda: Margins(DOMAIN, [["b", "l"], ["l", "b"]])) == (
        "The margin `l × b` is asked for twice."
    )
    assert "one level per axis" in sentence(lambda: Margins(DOMAIN, [["l", "g"]]))
    assert "empty level name" in sentence(lambda: Margins(DOMAIN, [["l", ""]]))
    assert "a list of lists" in sentence(lambda: Margins(DOMAIN, "l"))
    assert "a level name or a list" in sentence(lambda: Margins(DOMAIN, [3]))
    for weights in ([0], [1, 2]):
        assert sentence(lambda w=weights: Margins(DOMAIN, ["l"], w)) == (
            "`weights` must have one number from 1e-12 to 1e12 for each margin: 1 in all."
        )
    assert "needs a `Domain`" in sentence(lambda: Margins([Axis("a", [1])], ["a"]))
    assert "at most 60 axes" in sentence(
        lambda: Margins(Domain([Axis(f"x{i}", range(2)) for i in range(61)]), ["x0"])
    )
    named = Domain([Axis("margin", range(2))])
    assert "give the axis or level another name" in sentence(lambda: Margins(named, ["margin"]))
    big = Domain([Axis(f"x{i}", range(2**11)) for i in range(3)])
    assert "2**31 answers" in sentence(lambda: Margins(big, [["x0", "x1", "x2"]]))


def test_tables_of_margins_answer_what_follows_from_them():
    tables = MarginTables(
        DOMAIN,
        {("l",): COUNTS.sum(axis=1), ("g", "b"): DOMAIN.margin("g", "b").sum(COUNTS)},
    )
    assert np.array_equal(QUERY.answers(tables), QUERY.answers(Table(COUNTS, DOMAIN)))
    assert "counts hidden" in repr(tables)
    assert str(int(COUNTS.sum())) not in repr(tables)
    with pytest.raises(DataError, match="No table was counted from which `l × b` follows"):
        tables.of(DOMAIN.cells)


def test_tables_that_contradict_each_other_are_refused_without_a_count():
    wrong = COUNTS.sum(axis=1)
    wrong[0] += 123456
    told = sentence(lambda: MarginTables(DOMAIN, {"l": wrong, "b": COUNTS.sum(axis=0)}))
    assert told == (
        "Two tables of margins disagree on the grand total; they must count the same records."
    )
    assert "whole numbers from 0" in sentence(lambda: MarginTables(DOMAIN, {"b": [1, -2, 3]}))
    assert "whole numbers from 0" in sentence(lambda: MarginTables(DOMAIN, {"b": [1, 2.5, 3]}))
    assert "must have the shape (3,)" in sentence(lambda: MarginTables(DOMAIN, {"b": [1, 2]}))
    assert "without labels" in sentence(lambda: MarginTables(DOMAIN, {"g": [1, 1, 1, 1]}))
    assert "did you mean" not in sentence(lambda: MarginTables(DOMAIN, {}))
    with pytest.raises(DomainError):
        MarginTables(DOMAIN, {"zzz": [1]})


def test_margins_that_would_have_one_name_are_refused():
    named = Domain([Axis("total", range(3)), Axis("b", range(2)), Axis("total × b", range(2))])
    for margins, name in (([[], "total"], "total"), ([["total", "b"], "total × b"], "total × b")):
        assert f"both be called `{name}`" in sentence(lambda m=margins: Margins(named, m))


def test_tables_go_by_names_in_the_order_of_the_axes_once_each():
    square = Domain([Axis("a", range(2)), Axis("b", range(2))])
    told = sentence(lambda: MarginTables(square, {("b", "a"): [[1, 2], [3, 4]]}))
    assert told.startswith("The levels `b × a` must be named in the order of the axes, `a × b`")
    twice = {"a": [1, 2], ("a",): [1, 2]}
    assert sentence(lambda: MarginTables(square, twice)) == "The margin `a` is counted twice."


def test_tables_must_agree_wherever_two_of_them_know_a_total():
    """They agree at every single level, and not where two levels meet."""
    cube = Domain([Axis(name, range(2)) for name in "abcd"])
    even, odd = np.array([[2, 0], [0, 2]]), np.array([[1, 1], [1, 1]])
    halves = [np.stack([t, t], axis=-1) for t in (even, odd)]
    told = sentence(
        lambda: MarginTables(cube, {("a", "b", "c"): halves[0], ("a", "b", "d"): halves[1]})
    )
    assert "disagree on every a × b total" in told
    MarginTables(cube, {("a", "b", "c"): halves[0], ("a", "b", "d"): halves[0]})


def test_meets_are_those_of_all_subsets():
    three = Domain([Axis("l", range(4), levels={"g": [0, 0, 1, 1]}), Axis("b", range(2))])
    given = [three.margin("l"), three.margin("g", "b"), three.margin("b")]
    wanted = {*given, three.margin("g"), three.margin()}
    assert set(all_meets(given)) == wanted
    assert len(all_meets(given)) == len(wanted)
    assert set(meets_with(given[0], steps_of(given[1:]))) == {three.margin("g"), three.margin()}
    assert meets_with(given[0], steps_of(given)[:0]) == []
