"""Neighbour relations: the stated sensitivities against every change that is possible."""

import itertools

import pytest

from subspacedp.errors import BudgetError
from subspacedp.privacy import AddRemoveOne, Neighbours, ReplaceOne

CASES = [(m, k) for m in range(1, 7) for k in (None, *range(1, m + 1))]


def contributions(records: int, per_cell: int | None, cells: int, *, exactly: bool):
    """Every table that one person's records can make."""
    for u in itertools.product(range((per_cell or records) + 1), repeat=cells):
        if sum(u) == records or (sum(u) < records and not exactly):
            yield u


def worst(changes) -> tuple[int, int]:
    """The largest ℓ₁ norm and squared ℓ₂ norm of some changes."""
    l1, l2 = 0, 0
    for change in changes:
        l1 = max(l1, sum(map(abs, change)))
        l2 = max(l2, sum(v * v for v in change))
    return l1, l2


@pytest.mark.parametrize(("m", "k"), CASES)
def test_add_remove_is_the_worst_contribution(m, k):
    cells = -(-m // (k or m))  # enough cells for the worst person
    changes = contributions(m, k, cells, exactly=False)
    relation = AddRemoveOne(records=m, per_cell=k)
    assert worst(changes) == (relation.l1, relation.l2_squared)


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize(("m", "k"), CASES)
def test_replace_is_the_worst_difference(m, k, exactly):
    cells = 2 * -(-m // (k or m))  # room for two persons who share no cell
    persons = sorted(set(contributions(m, k, cells, exactly=exactly)))
    if len(persons) > 300:  # cells can be relabelled: one of the two may be taken sorted
        first = [u for u in persons if list(u) == sorted(u, reverse=True)]
    else:
        first = persons
    changes = (tuple(a - b for a, b in zip(u, v, strict=True)) for u in first for v in persons)
    relation = ReplaceOne(records=m, per_cell=k, exactly=exactly)
    assert worst(changes) == (relation.l1, relation.l2_squared)


@pytest.mark.parametrize(
    ("relation", "keeps"),
    [
        (ReplaceOne(), True),
        (ReplaceOne(exactly=False), False),
        (ReplaceOne(records=3), False),
        (ReplaceOne(records=3, exactly=True), True),
        (AddRemoveOne(), False),
    ],
)
def test_the_grand_total_is_kept_only_when_no_change_can_alter_it(relation, keeps):
    assert relation.keeps_total is keeps
    exactly = relation.keeps_total
    persons = list(contributions(relation.records, relation.per_cell, 2, exactly=exactly))
    others = persons if relation.persons == 2 else [(0, 0)]
    altered = any(sum(u) != sum(v) for u in persons for v in others)
    assert altered is not keeps


def test_words_for_a_review_board():
    assert str(ReplaceOne()) == "one person's record replaced by another"
    assert str(AddRemoveOne()) == "one person's record added or removed"
    assert str(ReplaceOne(records=5)) == "one person's records (at most 5) replaced by others"
    assert str(AddRemoveOne(records=5, per_cell=2)) == (
        "one person's records (at most 5, at most 2 in a cell) added or removed"
    )


@pytest.mark.parametrize("relation", [ReplaceOne, AddRemoveOne])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2", None])
def test_records_are_a_positive_whole_number(relation, value):
    with pytest.raises(BudgetError) as caught:
        relation(records=value)
    assert str(caught.value) == (f"`records` must be a whole number of at least 1; got {value!r}.")


@pytest.mark.parametrize("relation", [ReplaceOne, AddRemoveOne])
def test_per_cell_is_at_most_records(relation):
    with pytest.raises(BudgetError) as caught:
        relation(records=2, per_cell=3)
    assert str(caught.value) == "`per_cell` must be at most `records`; got 3 > 2."
    with pytest.raises(BudgetError, match=r"^`per_cell` must be a whole number of at least 1;"):
        relation(records=2, per_cell=0)


def test_the_brute_force_catches_a_wrong_formula():
    class Forgetful(Neighbours):
        """Ignores that records can pile up in one cell."""

        @property
        def l2_squared(self) -> int:
            return self.persons * self.records

    changes = contributions(3, None, 1, exactly=False)
    assert worst(changes) != (3, Forgetful(records=3).l2_squared)
