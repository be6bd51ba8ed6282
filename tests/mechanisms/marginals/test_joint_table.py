"""A pure budget for margins alone: noise on one table that tells them all may be better."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.errors import DataError

TREE = sdp.Axis("l", range(7), levels={"g": [2, 0, 0, 1, 0, 1, 0]})
CASES = {
    "three pairs": (oracle.plain(2, 3, 2), [["a", "b"], ["b", "c"], ["a", "c"]]),
    "six pairs": (oracle.plain(2, 2, 2, 2), [list(p) for p in itertools.combinations("abcd", 2)]),
    "a tree": (sdp.Domain([TREE, sdp.Axis("s", range(2))]), [["l"], ["g", "s"], ["s"]]),
    "large": (oracle.plain(40, 30, 20), [["a", "b"], ["b", "c"], ["a", "c"]]),
    "published": (oracle.plain(3, 2), [["a", "b"], ["a"], ["b"]]),
}


def _cells_alone(query, budget, neighbours, held):
    """Squared errors of every margin from noise on the cells, projected onto what is held."""
    design = sdp.design(query.domain, held, budget, neighbours=neighbours, mechanism="projected")
    each = [design.margin_accuracy(*m.names).stderr for m in query.margins]
    return np.array([float(np.mean(np.square(e))) for e in each])


@pytest.mark.parametrize("neighbours", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=str)
@pytest.mark.parametrize("held", [None, sdp.hold()], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_never_worse_than_sums_of_noisy_cells(case, held, neighbours) -> None:
    domain, margins = case
    query, budget = sdp.Margins(domain, margins), sdp.PureDP(1.0)
    kind = sdp.Marginals(objective="sum")
    design = sdp.design(query, held, budget, neighbours=neighbours, mechanism=kind)
    each = [design.margin_accuracy(*m.names).stderr for m in query.margins]
    sizes = np.array([np.prod(m.shape) for m in query.margins])
    ours = np.array([float(np.mean(np.square(e))) for e in each]) @ sizes
    assert ours <= _cells_alone(query, budget, neighbours, held) @ sizes * (1 + 1e-6)
    strategy = design.mechanism.strategy
    assert strategy.bound <= strategy.goal


def test_splitting_among_margins_alone_was_worse() -> None:
    """The twin that looks at the published tables only, on request."""
    for name, least in (("three pairs", 2.0), ("six pairs", 4.0), ("a tree", 1.15)):
        domain, margins = CASES[name]
        query = sdp.Margins(domain, margins)
        goals = [
            sdp.design(
                query,
                None,
                sdp.PureDP(1.0),
                neighbours=sdp.AddRemoveOne(),
                mechanism=sdp.Marginals(measured=measured),
            ).mechanism.strategy.goal
            for measured in ("tables", None)
        ]
        assert goals[0] > least * goals[1]


@pytest.mark.parametrize("decimals", [None, 0])
def test_the_joint_table_is_counted_and_stated(decimals, tmp_path) -> None:
    domain, margins = CASES["three pairs"]
    query = sdp.Margins(domain, margins)
    design = sdp.design(query, sdp.hold("a"), sdp.PureDP(1.0), decimals=decimals)
    assert design.mechanism.measured_beside == (("a", "b", "c"),)
    assert "`a × b × c`, which is not published" in design.mechanism.measured
    counts = np.arange(12).reshape(2, 3, 2)
    release = design.release(sdp.Table(counts, domain), seed=1)
    assert release.verify().ok
    release.save(tmp_path / "release")
    assert sdp.Release.load(tmp_path / "release").verify().ok
    alone = sdp.MarginTables(
        domain,
        {
            tuple(names): m.sum(counts).squeeze()
            for names, m in zip(margins, query.margins, strict=True)
        },
    )
    with pytest.raises(DataError, match="No table was counted from which `a × b × c` follows"):
        design.release(alone, seed=1)
    kind = sdp.Marginals(measured="tables")
    sdp.design(query, sdp.hold("a"), sdp.PureDP(1.0), mechanism=kind).release(alone, seed=1)
