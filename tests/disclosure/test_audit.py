"""The audit as a whole: coverage, linkage, small totals, words, errors, a table of real size."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from tests import dense
from tests.disclosure import brute
from tests.strategies import problems, seeds

import subspacedp as sdp
from subspacedp.disclosure import audit_invariants, audit_releases, covers, stack

AGE = sdp.Axis("age", ["young", "middle", "old"])
ZIP = sdp.Axis("zip", ["02138", "02139"])
DOMAIN = sdp.Domain([AGE, ZIP])
COUNTS = np.array([[4, 0], [2, 0], [1, 0]])
COUNTY = sdp.Axis("county", ["Kent", "Sussex", "Cook"], levels={"state": ["DE", "DE", "IL"]})
PLACES = sdp.Domain([COUNTY, sdp.Axis("sex", ["F", "M"])])


def exact(domain, held, counts):
    return list(brute.values(domain, held, counts))


# ---------------------------------------------------------------------------------------- coverage


@given(problem=problems(max_axes=3, max_cells=40, max_labels=5), seed=seeds)
def test_shares_are_those_of_dense_linear_algebra(problem, seed):
    domain, held = problem
    w = np.random.default_rng(seed).integers(-3, 4, domain.size)
    if not w.any():
        w[0] = 1
    projector = dense.float_projector(dense.matrix(domain, held))
    share = 1 - np.sum((projector @ w) ** 2) / np.sum(w**2)
    found = covers(domain, held, w, neighbours=sdp.ReplaceOne())
    assert found.share_exposed == pytest.approx(share, abs=1e-9)


@given(problem=problems(max_axes=3, max_cells=30, max_labels=4, min_margins=2), seed=seeds)
@settings(max_examples=60)
def test_several_releases_expose_what_their_rows_span_together(problem, seed):
    domain, held = problem
    helds = [type(held)((names,)) for names in held.margins]
    w = np.random.default_rng(seed).normal(size=domain.size)
    projector = dense.float_projector(dense.matrix(domain, held))
    share = 1 - np.sum((projector @ w) ** 2) / np.sum(w**2)
    found = covers(domain, helds, w, neighbours=sdp.AddRemoveOne())
    assert found.share_exposed == pytest.approx(share, abs=1e-9)
    assert len(found.alone) == len(helds)
    assert max(found.alone) <= found.share_exposed + 1e-9
    audit = audit_invariants(domain, helds, neighbours=sdp.AddRemoveOne())
    assert audit.rank == dense.rank(dense.matrix(domain, held))
    if len(helds) > 1:
        assert audit.linkage.rank == audit.rank
        ranks = [dense.rank(dense.matrix(domain, one)) for one in helds]
        assert list(audit.linkage.ranks) == ranks
        assert audit.linkage.shared == sum(ranks) - audit.rank


def test_coverage_speaks_in_labels_and_in_the_right_sense():
    held = sdp.hold("state", "sex")
    ask = {"domain": PLACES, "helds": held, "neighbours": sdp.ReplaceOne()}
    assert str(covers(**ask, sex="M", county="Kent")).startswith(
        "The number with sex M, county Kent is partly exposed: 50.0% of it"
    )
    assert str(covers(**ask, sex="M", county="Cook")) == (
        "The number with sex M, county Cook is fixed by the invariants: published exactly."
    )
    assert str(covers(**ask)) == (
        "The number of people is fixed by the invariants: published exactly, and no neighbouring "
        "change can alter it."
    )
    assert "over all neighbours" in str(covers(**ask, county="Kent"))
    assert "only given them" in str(covers(**ask, county="Kent", decimals=0))
    apart = np.array([[1, 0], [-1, 0], [0, 0]])
    assert str(covers(**ask, weights=apart)) == (
        "The weighted sum is protected by differential privacy over all neighbours."
    )
    total = covers(PLACES, sdp.hold(), sex="M", neighbours=sdp.ReplaceOne())
    assert str(total) == "The number with sex M is protected by ordinary differential privacy."
    assert covers(**ask, county=["Kent", "Sussex"], sex="F").fixed


def test_a_question_that_two_releases_answer_only_together():
    domain = sdp.Domain([sdp.Axis("a", range(4))])
    first = sdp.LinearInvariants([[1, 1, 0, 0]])
    second = sdp.LinearInvariants([[0, 1, 0, 0], [0, 0, 1, 1]])
    found = covers(domain, [first, second], a=0, neighbours=sdp.ReplaceOne())
    assert found.only_jointly
    assert "by several releases together and by none alone" in str(found)
    audit = audit_invariants(
        domain, [first, second], [[5], [2, 4]], neighbours=sdp.ReplaceOne(), narrow=1
    )
    assert audit.linkage.new_fixed == 1
    assert audit.linkage.pinned == 1
    assert str(audit.linkage.examples[0]) == "0: exactly 3"


# ----------------------------------------------------------------------------------------- linkage


def test_age_held_in_one_release_and_zip_in_another():
    """The paper's example of a linkage: neither margin pins a cell, both together do."""
    releases = [sdp.hold("age"), sdp.hold("zip")]
    values = [exact(DOMAIN, held, COUNTS) for held in releases]
    audit = audit_invariants(DOMAIN, releases, values, neighbours=sdp.ReplaceOne(), narrow=0)
    link = audit.linkage
    assert link.ranks == (3, 2)
    assert link.rank == 4
    assert link.shared == 1  # the total
    assert link.pinned == 3  # zip 02139 is empty: those are pinned by zip alone
    assert [str(cell) for cell in link.examples] == [
        "old × 02138: exactly 1",
        "middle × 02138: exactly 2",
        "young × 02138: exactly 4",
    ]
    assert "Pinned by all together and by none alone: 3 cells" in str(audit)
    single = audit_invariants(DOMAIN, releases[0], values[0], neighbours=sdp.ReplaceOne())
    assert single.pinned == 0
    assert single.linkage is None


@given(seed=seeds)
@settings(max_examples=60)
def test_cells_pinned_only_jointly_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, (3, 2)) * (rng.random((3, 2)) < 0.5)
    releases = [sdp.hold("age"), sdp.hold("zip")]
    values = [exact(DOMAIN, held, counts) for held in releases]
    audit = audit_invariants(DOMAIN, releases, values, neighbours=sdp.ReplaceOne())

    def pinned(held):
        every = brute.like(dense.matrix(DOMAIN, held), counts)
        return every.min(axis=0) == every.max(axis=0)

    jointly = pinned(stack(releases)) & ~pinned(releases[0]) & ~pinned(releases[1])
    assert audit.linkage.pinned == jointly.sum()
    assert audit.pinned == pinned(stack(releases)).sum()


def test_the_same_margin_in_two_releases_must_have_the_same_totals():
    releases = [sdp.hold("age"), sdp.hold("age") & sdp.hold("zip")]
    values = [exact(DOMAIN, held, COUNTS) for held in releases]
    audit = audit_invariants(DOMAIN, releases, values, neighbours=sdp.ReplaceOne())
    assert audit.linkage.shared == 3
    values[1][0] = values[1][0] + np.array([[1], [-1], [0]])
    with pytest.raises(sdp.SubspaceDPError, match="contradict each other"):
        audit_invariants(DOMAIN, releases, values, neighbours=sdp.ReplaceOne())


def test_releases_of_other_kinds_are_stacked_with_their_values():
    """Margins, equalities and empty cells of three releases, in any order."""
    empty = np.zeros(DOMAIN.shape, bool)
    empty[2, 1] = True
    row = np.array([[1, 1, 1, 0, 0, 0]])
    releases = [
        sdp.LinearInvariants(row) & sdp.hold("zip"),
        sdp.zeros(empty),
        sdp.hold("age"),
    ]
    flat = COUNTS.ravel()
    zips = COUNTS.sum(axis=0)
    values = [np.concatenate([zips, row @ flat]), [], exact(DOMAIN, sdp.hold("age"), COUNTS)]
    audit = audit_invariants(
        DOMAIN, releases, values, neighbours=sdp.ReplaceOne(), narrow=100, programs=100
    )
    C = np.vstack([dense.matrix(DOMAIN, sdp.hold("age") & sdp.hold("zip")), row,
                   empty.reshape(1, -1).astype(int)])  # fmt: skip
    every = brute.like(C, COUNTS)
    assert np.array_equal(audit.bounds.lower.ravel(), every.min(axis=0))
    assert np.array_equal(audit.bounds.upper.ravel(), every.max(axis=0))


# -------------------------------------------------------------------------------------- the report


def test_the_report_lists_the_worst_first_and_is_plain_data():
    held = sdp.hold("age") & sdp.hold("zip")
    audit = audit_invariants(
        DOMAIN, held, exact(DOMAIN, held, COUNTS),
        neighbours=sdp.ReplaceOne(), budget=sdp.PureDP(0.5), narrow=1,
    )  # fmt: skip
    assert audit.pinned == 6
    assert audit.pinned_people == 3
    assert [cell.lower for cell in audit.worst] == [1, 2, 4, 0, 0, 0]
    assert audit.small_count == 3
    assert [str(small) for small in audit.small] == [
        "old: 1 person, in 2 cells",
        "middle: 2 people, in 2 cells",
        "02139: nobody, so each of its 3 cells is 0",
    ]
    assert audit.free == ("the grand total",)
    assert audit.move.people == 2
    assert audit.loss.amount == pytest.approx(1.0)
    text = str(audit)
    for words in (
        "every age total; every zip total (4 independent figures of 6)",
        "No neighbouring change can alter the grand total",
        "6 cells are pinned to one count, 3 of them with somebody inside",
        "old × 02138: exactly 1",
        "2 people must change together",
    ):
        assert words in text.replace("\n", " ")
    data = json.loads(json.dumps(audit.as_dict()))
    assert data["pinned"] == 6
    assert data["worst"][0] == {
        "labels": ["old", "02138"], "lower": 1, "upper": 1, "pinned": True, "sharp": True,
    }  # fmt: skip
    assert data["loss_of_move"]["people"] == 2


def test_without_values_the_structure_alone_is_audited():
    audit = audit_invariants(PLACES, sdp.hold("state", "sex"), neighbours=sdp.ReplaceOne())
    assert audit.bounds is None
    assert audit.pinned == audit.fixed_cells == 2  # one county is a state by itself
    assert "these were not given" in str(audit).replace("\n", " ")
    json.dumps(audit.as_dict())
    with pytest.raises(sdp.SubspaceDPError, match="needs the held values"):
        audit.range_of(sex="M")


def test_held_values_of_a_release_are_what_the_audit_takes():
    held = sdp.hold("county") & sdp.hold("sex")
    table = sdp.Table([[3, 1], [0, 2], [5, 5]], PLACES)
    release = sdp.design(PLACES, held, sdp.PureDP(1.0)).release(table, seed=1)
    audit = audit_invariants(
        PLACES, held, release.exact, neighbours=sdp.ReplaceOne(), smallest_group=2
    )
    assert [str(small) for small in audit.small] == ["Sussex: 2 people, in 2 cells"]
    assert audit.range_of(sex="M", state="DE") == (0.0, 6.0)


def test_an_account_of_nothing():
    audit = audit_invariants(DOMAIN, sdp.zeros(np.zeros(DOMAIN.shape, bool)),
                             neighbours=sdp.AddRemoveOne())  # fmt: skip
    assert audit.rank == 0
    assert audit.move.people == 1


def test_finished_releases_are_audited_with_what_they_published():
    empty = np.zeros(DOMAIN.shape, bool)
    empty[0, 1] = True
    other = sdp.hold("zip") & sdp.LinearInvariants([[1, 0, 1, 0, 0, 0]]) & sdp.zeros(empty)
    table = sdp.Table(COUNTS, DOMAIN)
    first, second = (
        sdp.design(DOMAIN, held, sdp.PureDP(1.0), decimals=decimals).release(table, seed=1)
        for held, decimals in ((sdp.hold("age"), 0), (other, None))
    )
    audit = audit_releases(first, second, narrow=0)
    assert audit.kind == "G"
    C = np.vstack([dense.matrix(DOMAIN, sdp.hold("age") & sdp.hold("zip")), [[1, 0, 1, 0, 0, 0]]])
    assert audit.rank == dense.rank(np.vstack([C, empty.reshape(1, -1).astype(int)]))
    every = brute.like(C, COUNTS)
    assert np.array_equal(audit.bounds.lower.ravel(), every.min(axis=0))
    assert np.array_equal(audit.bounds.upper.ravel(), every.max(axis=0))
    alone = audit_releases(first)
    assert alone.loss.amount == 1.0
    assert alone.linkage is None
    elsewhere = sdp.Domain([sdp.Axis("age", range(3)), ZIP])
    third = sdp.design(elsewhere, sdp.hold("age"), sdp.PureDP(1.0)).release(
        sdp.Table(COUNTS, elsewhere), seed=1
    )
    with pytest.raises(sdp.SubspaceDPError, match="different domains cannot be stacked"):
        audit_releases(first, third)
    fourth = sdp.design(
        DOMAIN, sdp.hold("age"), sdp.PureDP(1.0), neighbours=sdp.AddRemoveOne()
    ).release(table, seed=1)
    with pytest.raises(sdp.SubspaceDPError, match="different neighbour relations"):
        audit_releases(first, fourth)
    with pytest.raises(sdp.SubspaceDPError, match="at least one release"):
        audit_releases()


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([[4, 2, 1]], "Held values are needed for 2 held margins, one array each; got 1."),
        ([[4, 2], [7, 0]], "Held values must have the shape (3, 1); got (2,)."),
        ([[4, 2, -1], [5, 0]], "Held totals of counts cannot be negative; got 1 that is."),
        ([[4, 2, 0.5], [6.5, 0]], "Held totals of counts must be whole numbers."),
        ([[4, 2, np.nan], [6, 0]], "The held values must be finite numbers."),
        ([["x", "y", "z"], [1, 1]], "The held values must be numbers, one array per held margin."),
        ([[4, 2, 2**60], [4, 2]], "Held totals above 2**56 cannot be audited."),
        (
            [[4, 2, 1], [5, 0]],
            "The held values contradict each other: Margin(zip) and Margin(age) disagree on a "
            "total that both determine.",
        ),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(sdp.SubspaceDPError) as error:
        audit_invariants(
            DOMAIN, sdp.hold("age") & sdp.hold("zip"), values, neighbours=sdp.ReplaceOne()
        )
    assert str(error.value) == sentence


def test_totals_that_agree_pairwise_and_belong_to_no_table():
    domain = sdp.Domain([sdp.Axis(name, range(2)) for name in "abc"])
    held = sdp.hold("a", "b") & sdp.hold("b", "c") & sdp.hold("a", "c")
    same, other = np.eye(2, dtype=int), 1 - np.eye(2, dtype=int)
    values = [same.reshape(2, 2, 1), same.reshape(1, 2, 2), other.reshape(2, 1, 2)]
    with pytest.raises(sdp.SubspaceDPError, match="no table of counts has them all"):
        audit_invariants(domain, held, values, neighbours=sdp.ReplaceOne())


def test_other_wrong_arguments():
    relation = sdp.ReplaceOne()
    table = sdp.Table(COUNTS, DOMAIN)
    other = sdp.Domain([AGE, sdp.Axis("zip", ["02138", "02140"])])
    cases = [
        (lambda: audit_invariants(DOMAIN, sdp.hold("age"), table, neighbours=relation),
         "never a table"),
        (lambda: audit_invariants(DOMAIN, sdp.hold("age"), neighbours=None), "`neighbours`"),
        (lambda: audit_invariants(DOMAIN, [], neighbours=relation), "at least one release"),
        (lambda: audit_invariants(DOMAIN, [sdp.hold("age")], [1, 2], neighbours=relation),
         "one for each"),
        (lambda: audit_invariants(DOMAIN, sdp.hold("age"), neighbours=relation, narrow=-1),
         "`narrow` must be a whole number of at least 0; got -1."),
        (lambda: audit_invariants(sdp.LinearQuery(np.eye(6)), None, neighbours=relation),
         "a query of another kind"),
        (lambda: audit_invariants(DOMAIN, sdp.hold("town"), neighbours=relation), "no level"),
        (lambda: stack([sdp.hold("age"), sdp.hold("zip")], [DOMAIN, other]),
         "different domains cannot be stacked"),
        (lambda: stack([sdp.hold("age")], [DOMAIN, DOMAIN]), "each of the 1 releases"),
        (lambda: covers(DOMAIN, sdp.hold(), np.ones(6), age="old", neighbours=relation),
         "not by both"),
        (lambda: covers(DOMAIN, sdp.hold(), np.ones(5), neighbours=relation), "shape"),
        (lambda: covers(DOMAIN, sdp.hold(), np.zeros(6), neighbours=relation), "not zero"),
        (lambda: covers(DOMAIN, sdp.hold(), age="ancient", neighbours=relation), "no label"),
    ]  # fmt: skip
    for call, words in cases:
        with pytest.raises(sdp.SubspaceDPError) as error:
            call()
        assert words in str(error.value)
        assert str(error.value).endswith(".")
    with pytest.raises(sdp.SubspaceDPError, match="known to be empty"):
        audit_invariants(DOMAIN, sdp.zeros(COUNTS == 0), [0, 0, 1], neighbours=relation)


# --------------------------------------------------------------------------------- a table of size


def texas():
    """254 counties by 16 combinations of race and age, with sizes like those of real counties."""
    rng = np.random.default_rng(0)
    domain = sdp.Domain(
        [sdp.Axis("county", range(254)), sdp.Axis("race", range(4)), sdp.Axis("age", range(4))]
    )
    people = np.exp(rng.normal(9.5, 1.6, (254, 1, 1)))
    shares = np.array([0.70, 0.12, 0.15, 0.03])[:, None] * np.array([0.25, 0.35, 0.25, 0.15])
    counts = rng.poisson(people * shares * rng.gamma(2.0, 0.5, (254, 4, 4)))
    counts[:20] = rng.poisson(0.4, (20, 4, 4))  # a few counties with hardly anyone
    return domain, counts


@pytest.mark.parametrize(
    "held",
    [
        sdp.hold("county") & sdp.hold("race", "age"),
        sdp.hold("county", "race") & sdp.hold("county", "age"),
    ],
    ids=str,
)
def test_a_state_of_254_counties_with_both_margins_held(held):
    domain, counts = texas()
    audit = audit_invariants(
        domain, held, exact(domain, held, counts),
        neighbours=sdp.ReplaceOne(), budget=sdp.PureDP(1.0),
    )  # fmt: skip
    assert audit.bounds.method == "closed form (decomposable margins)"
    assert audit.not_examined == 0
    assert np.all((audit.bounds.lower <= counts) & (counts <= audit.bounds.upper))
    assert audit.move.people == 2
    rng = np.random.default_rng(1)
    for cell in rng.integers(0, domain.size, 3).tolist():  # the same by linear programs
        unit = np.zeros(domain.size)
        unit[cell] = 1.0
        place = np.unravel_index(cell, domain.shape)
        assert audit.range_of(unit) == (audit.bounds.lower[place], audit.bounds.upper[place])


def test_all_pairs_of_a_state_go_through_programs():
    domain, counts = texas()
    held = sdp.hold("county", "race") & sdp.hold("county", "age") & sdp.hold("race", "age")
    audit = audit_invariants(
        domain, held, exact(domain, held, counts), neighbours=sdp.ReplaceOne(), programs=3
    )
    assert audit.bounds.method == "linear programs"
    assert np.all((audit.bounds.lower <= counts) & (counts <= audit.bounds.upper))
    assert audit.move.people == 4
    assert audit.not_examined > 0
    assert "not examined" in str(audit)


@pytest.mark.soak
def test_all_pairs_of_a_state_to_the_end():
    domain, counts = texas()
    held = sdp.hold("county", "race") & sdp.hold("county", "age") & sdp.hold("race", "age")
    audit = audit_invariants(
        domain, held, exact(domain, held, counts), neighbours=sdp.ReplaceOne(), programs=10**6
    )
    assert audit.not_examined == 0
    assert audit.bounds.programs < 200  # small moves show nearly all cells to be wide
    assert np.all((audit.bounds.lower <= counts) & (counts <= audit.bounds.upper))
