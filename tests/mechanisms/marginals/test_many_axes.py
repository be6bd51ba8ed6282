"""All pairs of twenty axes, among them axes of two labels: designed, proved and read back."""

import itertools

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.mechanisms.marginals.shares import covering_weights
from subspacedp.mechanisms.registry import mechanism_from

MIXED = [10, 8, 7, 4, 5, 2, 2, 2, 3, 10, 8, 11, 7, 8, 11, 9, 8, 7, 7, 11]
OTHER = [4, 10, 8, 2, 5, 10, 7, 2, 9, 9, 10, 3, 2, 10, 2, 7, 2, 4, 6, 6]


@pytest.mark.parametrize(
    ("sizes", "held"), [(MIXED, ["a5"]), (OTHER, ["a0", "a1", "a2"]), ([2] * 12, [])]
)
@pytest.mark.parametrize("neighbours", [sdp.ReplaceOne(), sdp.AddRemoveOne()])
def test_a_bound_is_proved_for_all_pairs(sizes, held, neighbours):
    """Pairs that differ on two axes of two labels spend nothing of what both share."""
    domain = sdp.Domain([sdp.Axis(f"a{i}", list(range(n))) for i, n in enumerate(sizes)])
    names = [axis.name for axis in domain.axes]
    workload = sdp.Margins(domain, list(itertools.combinations(names, 2)))
    kept = None
    for name in held:
        kept = sdp.hold(name) if kept is None else kept & sdp.hold(name)
    design = sdp.design(workload, kept, sdp.ZCDP(0.1), neighbours=neighbours)
    strategy = design.mechanism.strategy
    assert 0 < strategy.bound <= strategy.goal <= strategy.bound * 1.003
    read = mechanism_from(design.mechanism.as_dict())
    assert read.strategy.bound == strategy.bound


def test_what_a_tableau_loses_goes_to_another_solver(monkeypatch):
    rows, needed = np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([1.0, 0.5])
    by_tableau = covering_weights(rows, needed)
    monkeypatch.setattr("subspacedp.mechanisms.marginals.shares.EXACT", -1.0)  # proves nothing
    assert np.allclose(covering_weights(rows, needed), by_tableau)
