"""What the cells may lose for margins beside them."""

from __future__ import annotations

import numpy as np
import pytest

import subspacedp as sdp
from subspacedp.mechanisms.marginals import mechanism

FLAT = sdp.Domain(
    [
        sdp.Axis("region", range(16)),
        sdp.Axis("age", range(5)),
        sdp.Axis("sex", range(2)),
        sdp.Axis("income", range(2)),
    ]
)
TREE = sdp.Domain(
    [sdp.Axis("l", range(7), levels={"g": [2, 0, 0, 1, 0, 1, 0]}), sdp.Axis("s", range(2))]
)
CASES = [(FLAT, [["sex", "income"]], None), (TREE, [["g", "s"], ["s"]], sdp.hold("g"))]


def _ratio(case, most, neighbours, **more):
    domain, margins, held = case
    design, least = (
        sdp.design(
            domain, held, sdp.ZCDP(0.1), neighbours=neighbours, mechanism=sdp.Marginals(**asked)
        )
        for asked in ({"margins": margins, "cells_at_most": most, **more}, {"margins": []})
    )
    return design, design.expected_error().total / least.expected_error().total


@pytest.mark.parametrize("most", [1.01, 1.05, 1.2])
@pytest.mark.parametrize("neighbours", [sdp.AddRemoveOne(), sdp.ReplaceOne()], ids=str)
@pytest.mark.parametrize("case", CASES, ids=["flat", "tree"])
def test_the_limit_is_met_and_not_exceeded(case, neighbours, most) -> None:
    ratio = _ratio(case, most, neighbours)[1]
    assert most * (1 - 1e-3) <= ratio <= most
    assert ratio - 1 >= 0.99 * (most - 1)


def test_a_few_steps_were_not_enough(monkeypatch) -> None:
    monkeypatch.setattr(mechanism, "WEIGHT_STEPS", 0)
    assert _ratio(CASES[0], 1.05, sdp.AddRemoveOne())[1] < 1.05 * (1 - 1e-3)


def test_no_split_does_better_on_even_axes() -> None:
    """4 of 320 contrasts with k times their part: what the cells then have, in closed form."""
    design, ratio = _ratio(CASES[0], 1.05, sdp.AddRemoveOne())
    free = sdp.design(
        FLAT,
        None,
        sdp.ZCDP(0.1),
        neighbours=sdp.AddRemoveOne(),
        mechanism=sdp.Marginals(margins=[]),
    )
    margin, alone = (
        float(np.mean(np.square(d.margin_accuracy("sex", "income").stderr))) for d in (design, free)
    )
    k = alone / margin
    np.testing.assert_allclose(ratio, (4 / k + 316**2 / (320 - 4 * k)) / 320, rtol=1e-4)
    assert 5.5 < k < 5.8
