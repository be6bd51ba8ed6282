"""Which guarantee holds, decided again from the definitions on small tables; and how it is said."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.exhaustion import changes, held_rows, row_space_part

from subspacedp import (
    ZCDP,
    AddRemoveOne,
    ApproxDP,
    Axis,
    Domain,
    GaussianDP,
    PureDP,
    ReplaceOne,
    Table,
    design,
    hold,
)
from subspacedp.errors import InvariantError


def line(n):
    return Domain([Axis("a", range(n))])


GRID = Domain([Axis("age", ["young", "old"]), Axis("sex", ["F", "M"])])
UNEVEN = Domain(
    [Axis("county", ["k", "l", "m", "n", "o"], levels={"state": ["A", "A", "B", "B", "C"]})]
)
ONE_GROUP = Domain(
    [Axis("a", range(3), levels={"g": ["all"] * 3}, groups={"g": ["none", "all", "nobody"]})]
)
DEEP = Domain(
    [
        Axis("c", range(4), levels={"s": [0, 0, 1, 1], "r": [0, 0, 0, 0]}),
        Axis("sex", ["F", "M"]),
    ]
)

SITUATIONS = [
    (line(2), hold()),
    (line(3), hold()),
    (line(4), hold()),
    (line(5), hold()),
    (line(3), None),
    (GRID, hold()),
    (GRID, hold("age")),
    (GRID, hold("age") & hold("sex")),
    (GRID, hold("age") & hold()),
    (UNEVEN, hold("state")),
    (UNEVEN, hold("state") & hold()),
    (ONE_GROUP, hold("g")),
    (DEEP, hold("s")),
    (DEEP, hold("r")),
    (DEEP, hold("s", "sex")),
    (DEEP, hold("s") & hold("r", "sex")),
]
RELATIONS = [
    ReplaceOne(),
    ReplaceOne(exactly=False),
    ReplaceOne(records=2),
    ReplaceOne(records=2, per_cell=1),
    ReplaceOne(records=2, exactly=True),
    AddRemoveOne(),
    AddRemoveOne(records=2),
]


def kind_by_definition(domain, held, relation, decimals):
    """plain, S or G from the definitions: every neighbouring change, exact geometry, no formula."""
    rows = held_rows(design(domain, held, PureDP(1.0)).mechanism.held)
    moved = changes(domain.size, relation)
    if all(sum(r * d for r, d in zip(row, change, strict=True)) == 0
           for row in rows for change in moved):  # fmt: skip
        return "plain"
    if decimals is None:
        return "S"
    # On a grid the release is g(noisy) + C⁺c only if no rounding is ever needed: C⁺C e on the grid
    # for every integer e.
    part, step = row_space_part(rows), 10**decimals
    units = np.eye(domain.size, dtype=int).tolist()
    whole = all((step * v).denominator == 1 for unit in units for v in part(unit))
    return "S" if whole else "G"


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize(("domain", "held"), SITUATIONS, ids=repr)
def test_the_kind_is_what_the_definitions_give(domain, held, relation):
    for decimals in (None, 0, 1, 2, 3):
        mechanism = design(domain, held, PureDP(1.0), neighbours=relation, decimals=decimals)
        wanted = kind_by_definition(domain, held, relation, decimals)
        assert mechanism.guarantee.kind == wanted, (decimals, wanted)


@pytest.mark.parametrize(
    ("domain", "held", "relation", "decimals", "kind"),
    [
        (line(3), hold(), ReplaceOne(), None, "plain"),
        (line(3), hold(), ReplaceOne(), 0, "plain"),
        (line(3), hold(), ReplaceOne(records=3), None, "S"),
        (line(3), hold(), ReplaceOne(records=3), 0, "G"),
        (line(3), hold(), ReplaceOne(records=3, exactly=True), 0, "plain"),
        (line(3), hold(), AddRemoveOne(), None, "S"),
        (line(3), hold(), AddRemoveOne(), 0, "G"),
        (line(3), hold(), AddRemoveOne(), 9, "G"),  # thirds never end
        (line(2), hold(), AddRemoveOne(), 0, "G"),
        (line(2), hold(), AddRemoveOne(), 1, "S"),  # halves do
        (line(4), hold(), AddRemoveOne(), 1, "G"),
        (line(4), hold(), AddRemoveOne(), 2, "S"),
        (GRID, hold("age"), ReplaceOne(), 0, "G"),
        (GRID, hold("age"), ReplaceOne(), 1, "S"),
        (GRID, hold("age") & hold("sex"), ReplaceOne(), 1, "G"),
        (GRID, hold("age") & hold("sex"), ReplaceOne(), 2, "S"),
        (GRID, None, AddRemoveOne(), 0, "plain"),
        (ONE_GROUP, hold("g"), ReplaceOne(), 0, "plain"),
    ],
)
def test_known_situations(domain, held, relation, decimals, kind):
    for budget in (PureDP(0.5), ApproxDP(1.0, 1e-6), ZCDP(0.1), GaussianDP(1.0)):
        mechanism = design(domain, held, budget, neighbours=relation, decimals=decimals)
        assert mechanism.guarantee.kind == kind


# ---------------------------------------------------------------------------------------- coverage


def exact_share(domain, held, weights):
    rows = held_rows(design(domain, held, PureDP(1.0)).mechanism.held)
    inside = row_space_part(rows)(weights)
    return sum(v * v for v in inside) / Fraction(sum(w * w for w in weights))


@pytest.mark.parametrize(("domain", "held"), SITUATIONS, ids=repr)
def test_the_exposed_share_against_exact_geometry(domain, held):
    guarantee = design(domain, held, PureDP(1.0), neighbours=AddRemoveOne()).guarantee
    rng = np.random.default_rng(0)
    questions = [
        *np.eye(domain.size, dtype=int).tolist(),
        [1] * domain.size,
        *rng.integers(-3, 4, (20, domain.size)).tolist(),
    ]
    for weights in filter(any, questions):
        share = exact_share(domain, held, weights)
        got = guarantee.covers(weights).share_exposed
        assert got == pytest.approx(float(share), abs=1e-12)
        assert (got == 0.0) is (share == 0)
        assert (got == 1.0) is (share == 1)
        shaped = np.array(weights).reshape(domain.shape)
        assert guarantee.covers(shaped).share_exposed == got


def test_coverage_in_words():
    mechanism = design(GRID, hold("age"), PureDP(1.0))
    exposed = mechanism.guarantee.covers([[1, 1], [0, 0]])
    assert str(exposed) == "Exposed: the invariants fix the answer; it is published exactly."
    inside = mechanism.guarantee.covers([[1, -1], [0, 0]])
    assert str(inside) == "Protected by differential privacy over all neighbours."
    mixed = mechanism.guarantee.covers([[1, 0], [0, 0]])
    assert "50.0% of the question" in str(mixed)
    assert "over all neighbours" in str(mixed)


def test_coverage_under_digits_is_said_to_be_given_the_held_values():
    guarantee = design(GRID, hold("age"), PureDP(1.0), decimals=0).guarantee
    assert str(guarantee.covers([[1, -1], [0, 0]])) == (
        "Protected given the held values, and only given them."
    )
    assert "only given them" in str(guarantee.covers([[1, 0], [0, 0]]))
    assert "Exposed" in str(guarantee.covers([[1, 1], [0, 0]]))


def test_a_plain_guarantee_protects_every_question():
    guarantee = design(GRID, hold(), PureDP(1.0)).guarantee
    for weights in ([[1, 1], [1, 1]], [[1, 0], [0, 0]]):
        assert str(guarantee.covers(weights)).startswith("Protected")


@pytest.mark.parametrize("weights", [np.zeros((2, 2)), [1, 2, 3], np.ones((3, 3))])
def test_a_question_must_fit_and_must_ask_something(weights):
    with pytest.raises(InvariantError):
        design(GRID, hold("age"), PureDP(1.0)).guarantee.covers(weights)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_question_with_weights_that_are_no_numbers_is_refused(bad):
    with pytest.raises(InvariantError):
        design(GRID, hold("age"), PureDP(1.0)).guarantee.covers([[bad, 1], [0, 0]])


# ----------------------------------------------------------------------------------------- wording


def words(mechanism):
    return " ".join(str(mechanism.guarantee).split())


@pytest.mark.parametrize(
    ("relation", "change"),
    [
        (ReplaceOne(), "one person's record replaced by another"),
        (AddRemoveOne(), "one person's record added or removed"),
        (ReplaceOne(records=3), "one person's records (at most 3) replaced by others"),
        (
            AddRemoveOne(records=3, per_cell=2),
            "one person's records (at most 3, at most 2 in a cell) added or removed",
        ),
    ],
)
@pytest.mark.parametrize("budget", [PureDP(0.192), ApproxDP(1.0, 1e-6), ZCDP(0.5), GaussianDP(2.0)])
def test_every_statement_names_its_budget_and_its_neighbours(relation, change, budget):
    for decimals, held in itertools.product((None, 0), (None, hold(), hold("age"))):
        text = words(design(GRID, held, budget, neighbours=relation, decimals=decimals))
        assert f"with {budget}" in text
        assert change in text


def test_a_plain_claim_that_rests_on_an_exact_number_of_records_says_so():
    """With "at most 2" records a replacement can alter the total, and the claim would be false."""
    text = words(design(GRID, hold(), PureDP(1.0), neighbours=ReplaceOne(records=2, exactly=True)))
    assert "exactly 2" in text
    assert "at most 2" not in text


def test_the_statement_of_a_real_valued_release():
    text = words(design(UNEVEN, hold("state"), PureDP(0.5)))
    assert "induced subspace differential privacy" in text
    assert "published without any protection: every state total (3 independent" in text
    assert "remaining 2 dimensions" in text
    assert "over all neighbours, those that change a held figure included" in text
    assert "protected in its orthogonal part only" in text


def test_the_statement_of_a_release_with_digits():
    text = words(design(UNEVEN, hold("state"), PureDP(0.5), decimals=0))
    assert "differential privacy given the invariants" in text
    assert "published without any protection" in text
    assert "2 dimensions are protected given the held figures" in text
    assert "even figures orthogonal to the held ones are protected only given the held ones" in text
    assert "over all neighbours" not in text


def test_the_statement_of_a_plain_release():
    text = words(design(UNEVEN, hold(), PureDP(0.5), decimals=0))
    assert "plain differential privacy" in text
    assert "the grand total" in text
    assert "without any protection" not in text
    assert "No neighbouring change can alter these figures" in text
    nothing = words(design(UNEVEN, None, PureDP(0.5)))
    assert "Nothing is held exact: all 5 dimensions are protected" in nothing


def test_what_is_not_protected_is_listed():
    held = design(UNEVEN, hold("state"), PureDP(0.5)).guarantee.not_protected()
    assert any("every state total" in s and "are not protected" in s for s in held)
    assert any("several releases" in s for s in held)
    for fixed in (hold(), None):
        (only,) = design(UNEVEN, fixed, PureDP(0.5)).guarantee.not_protected()
        assert (
            only == "A person with more than 1 record in the table is not protected at this budget."
        )


def test_the_held_figures_are_told_of_only_where_there_are_any():
    two = ReplaceOne(records=2)
    moved, nothing = (
        design(UNEVEN, held, PureDP(0.5), neighbours=two, capped=True).guarantee
        for held in (hold("state"), None)
    )
    assert "moved to agree" in " ".join(moved.not_protected())
    assert nothing.not_protected() == [
        "At most 2 records per person take part in what noise protects."
    ]
    for guarantee in (moved, nothing):
        assert guarantee.sentences()[0].endswith(
            "differ by one person's records, of which at most 2 count, replaced by others."
        )


def test_axes_whose_labels_come_from_the_data_are_reported():
    domain = Domain([Axis("town", ["a", "b"], from_data=True), Axis("sex", ["F", "M"])])
    for held in (None, hold(), hold("sex")):
        mechanism = design(domain, held, PureDP(0.5))
        listed = [s for s in mechanism.guarantee.not_protected() if "read off the data" in s]
        assert len(listed) == 1
        assert "`town`" in listed[0]
        release = mechanism.release(Table(np.ones((2, 2), int), domain), seed=0)
        assert listed[0] in release.certificate()["guarantee"]["not_protected"]


def test_the_domain_read_off_a_frame_is_reported():
    pd = pytest.importorskip("pandas")
    domain = Domain.from_data(pd.DataFrame({"town": ["b", "a"], "sex": ["F", "F"]}), ["town"])
    sentences = design(domain, hold(), PureDP(1.0)).guarantee.not_protected()
    assert [s for s in sentences if "`town`" in s and "not protected" in s]


def test_the_repr_is_short_and_shows_no_counts():
    assert repr(design(GRID, hold("age"), PureDP(1.0)).guarantee) == (
        "Guarantee('S', ε = 1, replace-one)"
    )
