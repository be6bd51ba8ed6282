"""Differencing attacks by brute force, against what the audit says of them."""

from itertools import product

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.disclosure import audit_invariants
from subspacedp.invariants import as_held, bind

HELD = sdp.hold("county") & sdp.hold("grid")


def random_place(rng, n, holes):
    county = rng.integers(0, 3, n).tolist()
    grid = [None if rng.random() < holes else int(g) for g in rng.integers(0, 3, n)]
    grid[0] = 0
    return sdp.Axis("block", range(n), groupings={"county": county, "grid": grid})


def indicators(axis, name):
    level = axis.level(name)
    return [(level.codes == g).astype(int) for g in range(level.groups)]


def attacks(axis):
    """Every set of labels whose total is one of groups of one kind less groups of the other."""
    one, other = indicators(axis, "county"), indicators(axis, "grid")
    for signs in product((0, 1), repeat=len(one) + len(other)):
        added = sum(s * v for s, v in zip(signs, one, strict=False))
        taken = sum(s * v for s, v in zip(signs[len(one) :], other, strict=True))
        for difference in (added - taken, taken - added):
            if np.all(difference >= 0) and np.any(difference > 0) and np.all(difference <= 1):
                yield frozenset(np.flatnonzero(difference).tolist())


def atoms_of(axis):
    codes = list(
        zip(*(axis.level(name).codes.tolist() for name in ("county", "grid")), strict=True)
    )
    return {code: frozenset(i for i, c in enumerate(codes) if c == code) for code in set(codes)}


def told(audit):
    """The sets of labels that the audit's findings of atoms are of."""
    axis = audit.domain.axes[0]
    out = set()
    for finding in audit.differencing.findings:
        if finding.without:
            continue
        inside = np.ones(len(axis), bool)
        for text in finding.whole:
            name, _, label = text.partition(" ")
            level = axis.level(name)
            known = [str(other) for other in level.labels]
            inside &= level.codes == (known.index(label) if label in known else level.groups)
        out.add(frozenset(np.flatnonzero(inside).tolist()))
    return out


@pytest.mark.parametrize("seed", range(60))
def test_every_atom_that_a_difference_isolates_is_told(seed):
    rng = np.random.default_rng(seed)
    axis = random_place(rng, int(rng.integers(3, 10)), 0.3 * (seed % 2))
    domain = sdp.Domain([axis])
    audit = audit_invariants(domain, HELD, neighbours=sdp.ReplaceOne(), smallest_group=10)
    groups = {
        frozenset(np.flatnonzero(v).tolist())
        for name in ("county", "grid")
        for v in indicators(axis, name)
    }
    atoms = set(atoms_of(axis).values())
    found = told(audit) if audit.differencing is not None else set()
    assert found == (set(attacks(axis)) & atoms) - groups
    if audit.differencing is not None:
        assert audit.differencing.isolated == len(found)
        assert audit.differencing.atoms == len(atoms)
        assert audit.differencing.single == sum(len(atom) == 1 for atom in atoms)


@pytest.mark.parametrize("seed", range(20))
def test_their_totals_are_those_of_every_table_and_small_ones_are_named(seed):
    rng = np.random.default_rng(seed)
    axis = random_place(rng, 9, 0.2)
    domain = sdp.Domain([axis, sdp.Axis("sex", ["F", "M"])])
    held = sdp.hold("county", "sex") & sdp.hold("grid", "sex")
    counts = rng.integers(0, 3, domain.shape)
    bound = bind(as_held(held), sdp.Cells(domain))
    audit = audit_invariants(
        domain, held, bound.sums(counts), neighbours=sdp.ReplaceOne(), smallest_group=3, programs=0
    )
    if audit.differencing is None:
        return
    exact = 0
    for (county, grid), atom in atoms_of(axis).items():
        w = np.zeros(domain.shape)
        w[sorted(atom), 0] = 1
        whole = any(np.array_equal(w[:, 0], v) for n in ("county", "grid")
                    for v in indicators(axis, n))  # fmt: skip
        if bound.space.share_exposed(w) == 1.0 and not whole:
            exact += 1
            for sex in (0, 1):
                total = int(counts[sorted(atom), sex].sum())
                places = (
                    f"county {axis.level('county').labels[county]}",
                    f"grid {(*axis.level('grid').labels, 'in none')[grid]}",
                )
                matching = [
                    f for f in audit.differencing.findings
                    if f.whole == places and f.beside == (f"sex {'FM'[sex]}",) and not f.without
                ]  # fmt: skip
                assert [f.total for f in matching] == ([total] if total <= 3 else [])
    assert audit.differencing.isolated == 2 * exact
    assert (
        audit.differencing.small
        == sum(finding.total is not None for finding in audit.differencing.findings)
        or len(audit.differencing.findings) == 20
    )


def test_the_audit_leads_with_it_and_says_what_to_do():
    axis = sdp.Axis(
        "block", list("abcdefg"), {"county": list("xxxyyyy")},
        groupings={"school": ["N", "N", "M", "M", "M", None, "S"]},
    )  # fmt: skip
    domain = sdp.Domain([axis])
    held = sdp.hold("county") & sdp.hold("school")
    counts = np.array([7, 8, 1, 9, 8, 2, 5])
    values = [domain.margin(name).sum(counts) for name in ("county", "school")]
    audit = audit_invariants(domain, held, values, neighbours=sdp.ReplaceOne())
    text = str(audit)
    assert text.startswith("Differencing: `county` and `school` cross on `block`")
    assert "county x and school M (1 label): exactly 1" in text
    assert "county y and school in none (1 label): exactly 2" in text
    assert "Publish `school` instead of holding it" in " ".join(text.split())
    assert audit.differencing.remainders == 1  # of county y without school S
    assert audit.as_dict()["differencing"]["small"] == 2
    without = audit_invariants(domain, held, neighbours=sdp.ReplaceOne())
    assert without.differencing.small is None
    assert "exactly" not in str(without).split("\n\n")[0].split("follow exactly")[1]
    nested = audit_invariants(domain, sdp.hold("county"), neighbours=sdp.ReplaceOne())
    assert nested.differencing is None


def test_one_twin_that_looks_at_single_groups_alone_would_miss_an_attack():
    """A difference of several groups on each side: county 0 and 1 less grid 0 and 1."""
    axis = sdp.Axis(
        "block", range(6),
        groupings={"county": [0, 0, 1, 1, 1, 2], "grid": [0, 1, 0, 1, 2, 2]},
    )  # fmt: skip
    audit = audit_invariants(
        sdp.Domain([axis]), HELD, neighbours=sdp.ReplaceOne(), smallest_group=10
    )
    assert told(audit) == {frozenset({4})}


def test_the_smallest_move_keeps_what_is_held():
    axis = random_place(np.random.default_rng(3), 8, 0.0)
    domain = sdp.Domain([axis, sdp.Axis("sex", ["F", "M"])])
    for held in (HELD, sdp.hold("county", "sex") & sdp.hold("grid", "sex")):
        bound = bind(as_held(held), sdp.Cells(domain))
        for neighbours in (sdp.ReplaceOne(), sdp.AddRemoveOne()):
            move = audit_invariants(domain, held, neighbours=neighbours).move
            change = np.zeros(domain.shape, np.int64)
            for labels, by in move.cells:
                change[labels[0], ["F", "M"].index(labels[1])] = by
            assert np.any(change)
            assert not bound.sums(change)[0].any()


def test_small_tables_have_safe_ranges_where_classifications_cross():
    rng = np.random.default_rng(7)
    for seed in range(6):
        axis = random_place(np.random.default_rng(seed), 5, 0.3)
        domain = sdp.Domain([axis])
        counts = rng.integers(0, 3, 5)
        bound = bind(as_held(HELD), sdp.Cells(domain))
        audit = audit_invariants(domain, HELD, bound.sums(counts), neighbours=sdp.ReplaceOne())
        wanted = bound.sums(counts)[0]
        tables = [
            np.array(t) for t in product(range(7), repeat=5)
            if np.array_equal(bound.sums(np.array(t))[0], wanted)
        ]  # fmt: skip
        held_somewhere = np.asarray(abs(bound.matrix).sum(axis=0)).reshape(-1) > 0
        for cell in np.flatnonzero(held_somewhere):
            seen = {int(t[cell]) for t in tables}
            assert audit.bounds.lower[cell] <= min(seen)
            assert audit.bounds.upper[cell] >= max(seen)
