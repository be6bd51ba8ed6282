"""Workloads of margins and tables of margins: answers, names, errors, secrecy."""

import numpy as np
import pytest
from tests import margin_oracle as oracle

from subspacedp.errors import DataError, DomainError, SubspaceDPError
from subspacedp.tables import AddRemoveOne, Axis, Domain, Margins, MarginTables, ReplaceOne, Table

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
    assert "one level an axis" in sentence(lambda: Margins(DOMAIN, [["l", "g"]]))
    assert "empty level name" in sentence(lambda: Margins(DOMAIN, [["l", ""]]))
    assert "a list of lists" in sentence(lambda: Margins(DOMAIN, "l"))
    assert "a level name or a list" in sentence(lambda: Margins(DOMAIN, [3]))
    assert "`weights` must be 1 numbers" in sentence(lambda: Margins(DOMAIN, ["l"], [0]))
    assert "`weights` must be 1 numbers" in sentence(lambda: Margins(DOMAIN, ["l"], [1, 2]))
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
