"""What neighbouring changes spend of shares, against all pairs of records one by one."""

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.invariants import as_held, bind
from subspacedp.mechanisms.marginals import spending
from subspacedp.mechanisms.marginals.interactions import Interactions
from subspacedp.mechanisms.marginals.plan import Regions, TableErrors
from subspacedp.mechanisms.marginals.spending import spending_of

TREE = sdp.Axis("l", range(6), levels={"g": [0, 0, 0, 1, 1, 2], "r": [0, 0, 0, 1, 1, 1]})
EVEN = sdp.Axis("n", range(6), levels={"h": [0, 0, 1, 1, 2, 2]})
UNEVEN = sdp.Axis("n", range(5), levels={"h": [0, 0, 0, 1, 1], "q": [0] * 5})
C, D = sdp.Axis("c", range(3)), sdp.Axis("d", range(2))
CASES = {
    "held groups": ([TREE, C], [["l", "c"], ["g"]], sdp.hold("g")),
    "held regions": ([TREE, C, D], [["l", "c"], ["g", "d"]], sdp.hold("r")),
    "tree": ([TREE], [["l"], ["g"], ["r"]], None),
    "tree and axes": ([TREE, C, D], [["l", "c"], ["g", "d"], ["r", "c", "d"], []], None),
    "even second axis": ([TREE, EVEN], [["l", "h"], ["g", "n"]], None),
    "flat": ([C, D], [["c", "d"], ["c"]], None),
    "even alone": ([EVEN, D], [["n", "d"], ["h"]], None),
}
BOUNDED = {
    "uneven second axis": ([TREE, UNEVEN], [["l", "n"], ["g", "h"]], None),
    "uneven and held": ([TREE, UNEVEN, D], [["l", "n"], ["g", "h", "d"]], sdp.hold("g")),
}


def errors_of(case, relation, *, regions=True):
    axes, margins, held = case
    query = sdp.Margins(sdp.Domain(axes), margins)
    bound = bind(as_held(held), query)
    inter = Interactions(domain=query.domain, workload=tuple(query.margins), held=bound.essential)
    return TableErrors(
        interactions=inter,
        regions=Regions.of(inter) if regions else Regions(inter, None),
        constrained=False,
        total_known=relation.persons == 2 and relation.keeps_total,
    )


def vectors(errors, shares):
    """For every cell what one record adds, in standard deviations: contrasts/√(∏(1 − 1/k)/b)."""
    inter = errors.interactions
    rows = []
    for own in errors.measured:
        for level, where in errors.places(own):
            margin = inter.margin(level, own.steps)
            region = inter.tree.orbits.spread(errors.regions.of_orbits(level), level)
            root = np.sqrt(inter.shares(own.steps))
            scale = np.sqrt(shares[where])[region].reshape(-1, *(1,) * len(inter.axes))
            columns = []
            for place in np.ndindex(inter.domain.shape):
                one = np.zeros(inter.domain.shape)
                one[place] = 1
                c = inter.contrasts(inter.to_nodes(margin.sum(one), level), own.steps)
                columns.append(
                    (np.where(root > 0, c / np.where(root > 0, root, 1), 0) * scale).ravel()
                )
            rows.append(np.array(columns))
    return np.concatenate(rows, axis=1)


def brute(errors, shares, relation):
    """The most that any neighbouring change of one record spends."""
    v = vectors(errors, shares)
    single = (v**2).sum(axis=1)
    if relation.persons == 1:
        return single.max()
    gram = v @ v.T
    pairs = (single[:, None] + single - 2 * gram).max()
    return pairs if relation.keeps_total else max(pairs, single.max())


RELATIONS = [sdp.AddRemoveOne(), sdp.ReplaceOne()]


def shares_at_random(errors, number=6):
    rng = np.random.default_rng(0)
    for _ in range(number):
        yield rng.exponential(size=len(errors.slots)) ** 3


@pytest.mark.parametrize("relation", RELATIONS, ids=["add", "replace"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_spending_is_the_largest_change(case, relation):
    errors = errors_of(case, relation)
    for shares in shares_at_random(errors):
        rows, most = spending_of(errors, relation).sticking_out(shares)
        wanted = brute(errors, shares, relation)
        assert wanted <= most * (1 + 1e-12)
        assert most == pytest.approx(wanted, rel=1e-9)
        assert (rows @ shares).max() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS, ids=["add", "replace"])
@pytest.mark.parametrize("case", BOUNDED.values(), ids=BOUNDED)
def test_spending_is_never_below_the_largest_change(case, relation):
    """Some kinds of pairs that are counted need not occur: a bound, and not a loose one."""
    errors = errors_of(case, relation)
    for shares in shares_at_random(errors):
        most = spending_of(errors, relation).sticking_out(shares)[1]
        wanted = brute(errors, shares, relation)
        assert wanted <= most <= 1.5 * wanted


def test_regions_have_shares_of_their_own():
    relation = sdp.AddRemoveOne()
    errors = errors_of(CASES["held groups"], relation)
    assert errors.regions.number == 3
    assert len(errors.slots) > len(errors_of(CASES["held groups"], relation, regions=False).slots)
    rows = errors.spent()
    finest = [j for j, (own, level, _) in enumerate(errors.slots) if level == 0]
    assert np.all(rows[:, finest].sum(axis=0) == 1)  # a record is in one region


@pytest.mark.parametrize("case", [*CASES.values(), *BOUNDED.values()])
def test_a_bound_where_kinds_cannot_be_listed(case, monkeypatch):
    """With too many kinds of pairs every interaction is bounded by itself: safe, and larger."""
    relation = sdp.ReplaceOne()
    errors = errors_of(case, relation)
    shares = next(shares_at_random(errors))
    exact = spending_of(errors, relation).sticking_out(shares)[1]
    monkeypatch.setattr(spending, "MAX_PAIR_KINDS", 0)
    bounded = spending_of(errors_of(case, relation), relation)
    assert bounded.sticking_out(shares)[1] >= exact * (1 - 1e-12)
    possible = bounded.possible()
    assert np.all(possible @ shares <= exact * (1 + 1e-9))  # means over pairs that exist


def test_a_person_without_a_record_is_a_neighbour():
    """Where the total is not kept one record against nothing counts as well."""
    replaced, dropped = sdp.ReplaceOne(), sdp.ReplaceOne(records=2, per_cell=1)
    assert replaced.keeps_total
    assert not dropped.keeps_total
    errors = errors_of(CASES["tree"], dropped)
    root = errors.interactions.tree.root
    shares = np.array([float(level == root) for _, level, _ in errors.slots])
    assert shares.sum() == 1  # all on the grand total, which no exchange alters
    assert spending_of(errors, dropped).sticking_out(shares)[1] == pytest.approx(1.0)
