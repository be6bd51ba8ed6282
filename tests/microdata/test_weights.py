"""Calibration weights against dense least squares, and what is said where totals cannot be met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

import subspacedp as sdp
from subspacedp.microdata import calibrate

DOMAIN = sdp.Domain(
    [
        sdp.Axis("county", list("abcd"), levels={"state": ["X", "X", "Y", "Y"]}),
        sdp.Axis("sex", ["F", "M"]),
        sdp.Axis("age", ["young", "old", "older"]),
    ]
)
MARGINS = [
    [("sex",)],
    [("county",), ("sex", "age")],
    [("state", "sex"), ("county",), ()],
    [("county", "sex", "age")],
]


def made(seed: int, *, decimals: int | None = 0) -> tuple[sdp.Release, npt.NDArray[np.int64]]:
    """A release, and a table with its held totals: another draw that is not negative."""
    counts = np.random.default_rng(seed).poisson(8, DOMAIN.shape)
    design = sdp.design(DOMAIN, sdp.hold("state"), sdp.PureDP(1.0), decimals=decimals)
    return design.release(sdp.Table(counts, DOMAIN), seed=seed), counts


def dense(
    release: sdp.Release, table: npt.NDArray[np.int64], margins: list[tuple[str, ...]]
) -> npt.NDArray[np.float64]:
    """The same weights by a dense matrix: least squares of the least norm."""
    rows, wanted = [], []
    for names in [("state",), *margins]:
        margin = DOMAIN.margin(*names)
        value = np.reshape(release.margin(*names).value, -1)
        group = np.broadcast_to(
            margin.spread(np.arange(value.size).reshape(margin.shape)), DOMAIN.shape
        ).reshape(-1)
        for g, total in enumerate(value):
            n = table.reshape(-1)[group == g].sum()
            if n:
                unit = (1e4 if names == ("state",) else 1.0) / np.sqrt(n)
                rows.append((group == g) * np.sqrt(table.reshape(-1)) * unit)
                wanted.append((total - n) * unit)
    u = np.linalg.lstsq(np.array(rows), np.array(wanted), rcond=1e-12)[0]
    root = np.sqrt(table.reshape(-1))
    return 1 + np.divide(u, root, out=np.zeros(u.size), where=root > 0).reshape(table.shape)


@pytest.mark.parametrize("margins", MARGINS, ids=str)
@pytest.mark.parametrize("decimals", [0, None])
def test_nearest_weights(margins: list[tuple[str, ...]], decimals: int | None) -> None:
    """They meet every total, and are those of dense least squares."""
    for seed in range(3):
        release, table = made(seed, decimals=decimals)
        weights = calibrate(release, table, margins)
        assert np.allclose(weights.values, dense(release, table, margins), atol=1e-8)
        for names, said in zip(margins, weights.margins, strict=True):
            margin = DOMAIN.margin(*names)
            weighted = margin.sum(table * weights.values).reshape(-1)
            assert np.allclose(weighted, np.reshape(release.margin(*names).value, -1), atol=1e-6)
            assert (said.names, said.met, said.farthest) == (names, said.groups, 0.0)
        held = DOMAIN.margin("state")
        assert np.allclose(held.sum(table * weights.values), held.sum(table), atol=1e-6)


def test_empty_groups_are_told() -> None:
    """A group without records has no weighted total; held totals stay, and others come near."""
    release, table = made(1)
    held_before = DOMAIN.margin("state").sum(table).reshape(-1)
    table[:, 0, :2] = 0
    table[[0, 2], 1, 0] += held_before - DOMAIN.margin("state").sum(table).reshape(-1)
    margins = [("sex", "age"), ("sex",)]
    weights = calibrate(release, table, margins)
    assert np.allclose(weights.values, dense(release, table, margins), atol=1e-7)
    held = DOMAIN.margin("state")
    assert np.allclose(held.sum(table * weights.values), held.sum(table), atol=1e-6)
    by_both, _ = weights.margins
    assert by_both.met < by_both.groups
    assert by_both.without_records == 2
    assert by_both.farthest > 1
    assert weights.as_dict()["calibrated_to"][0]["met"] == by_both.met


def test_negative_weights_are_counted() -> None:
    """A margin below zero needs negative weights, and they are said."""
    release, table = made(2)
    value = release.values.copy()
    value[0, 0, 0] -= 5 + value[0].sum()
    value[1, 0, 0] += release.values.sum() - value.sum()
    lowered = replace(release, values=value)
    weights = calibrate(lowered, table, [("county",)])
    assert release.margin("county").value[0] > 0 > lowered.margin("county").value[0]
    assert weights.negative == table[0].sum()
    assert weights.least < 0
    assert weights.margins[0].met == 4


def test_nothing_to_calibrate_to() -> None:
    """Held totals are met by the table itself."""
    release, _ = made(3)
    table = np.zeros(DOMAIN.shape, np.int64)
    table[0, 0, 0], table[2, 1, 1] = np.ravel(release.margin("state").value)
    weights = calibrate(release, table)
    assert np.array_equal(weights.values, np.ones(DOMAIN.shape))
    assert (weights.negative, weights.least, weights.most) == (0, 1.0, 1.0)
