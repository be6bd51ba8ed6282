"""Margins of error of published totals: never too short, and hardly wider than normal ones."""

import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm
from tests import margin_oracle as oracle

import subspacedp as sdp
from subspacedp.mechanisms.error_laws import Rounding
from subspacedp.mechanisms.error_laws.sums import NormalAndBounded, WeightedSum, largest_tail
from subspacedp.mechanisms.marginals import MarginalsOptions
from subspacedp.publication.planning import error_line

hold = sdp.hold
PLAIN = oracle.plain(2, 3, 4)
UNEQUAL, THREE = oracle.unequal_levels(), oracle.three_levels()
CASES = {
    "nothing held": (PLAIN, [["a", "b"], ["b", "c"]], None),
    "one-way held": (PLAIN, oracle.all_of_order(PLAIN, 2), hold("a") & hold("c")),
    "tree": (UNEQUAL, [["l", "b"], ["g", "b"], ["b"]], None),
    "tree, groups held": (UNEQUAL, [["l", "b"], ["g", "b"], ["b"]], hold("g")),
    "three levels": (THREE, [["l", "b"], ["g"], ["r", "b"]], hold("r")),
    "cells": (PLAIN, None, hold("a")),
    "cells of a tree": (THREE, None, hold("g")),
}
ADD, REPLACE = sdp.AddRemoveOne(), sdp.ReplaceOne()
KINDS = {
    "contrasts": (sdp.ZCDP(0.05), ADD, None),
    "approximate": (sdp.ApproxDP(0.5, 1e-6), REPLACE, None),
    "tables": (sdp.GaussianDP(0.3), ADD, "tables"),
    "pure": (sdp.PureDP(0.4), REPLACE, None),
}
Z = float(-ndtri(0.025))
WIDTHS = {1: 1.004, 2: 1.02, 4: 1.026, 8: 1.03}  # of the normal width, by most roundings; else MOST
MOST = 1.036


def made(case, kind, decimals):
    domain, margins, held = case
    budget, relation, what = KINDS[kind]
    query = domain if margins is None else sdp.Margins(domain, margins)
    return sdp.design(
        query, held, budget, neighbours=relation, decimals=decimals,
        mechanism=MarginalsOptions(measured=what),
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_range_of_a_table_is_that_of_all_its_laws(case, kind):
    # Only the narrowest and the widest law of each kind of noise are worked out for it.
    design = made(case, kind, 0)
    for margin in design.mechanism.noise.workload.margins:
        figures = design.margin_accuracy(*margin.names).figures
        (kinds,) = figures.kinds()
        loose = np.flatnonzero(kinds.variance > 0)
        every = [figures.law(law).margin_of_error(0.05) for law in kinds.law[loose].tolist()]
        line = error_line("", design.margin_accuracy(*margin.names))
        assert line.margin_of_error == ((min(every), max(every)) if every else (0.0, 0.0))


def published(mechanism):
    noise = mechanism.mechanism.noise
    return noise, noise.workload.margins


# ------------------------------------------------------------------------------------- width


def allowed(roundings):
    return next((ratio for most, ratio in WIDTHS.items() if roundings <= most), MOST)


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_margins_of_error_are_hardly_wider_than_normal_ones(case, kind, decimals):
    """Of totals with a standard error of two digits or more; whole margins are the nearest.

    Noise on tables is on a lattice, and pure noise is not normal: there the next point after the
    quantile of the noise itself stands for a normal one.
    """
    noise, margins = published(made(case, kind, decimals))
    digit = 1.0 if decimals is None else 10.0**-decimals
    looked_at = 0
    for margin in margins:
        alike = noise.alike(margin)
        for number, (variance, roundings) in enumerate(
            zip(alike.variance, alike.draws, strict=True)
        ):
            if math.sqrt(variance) < 2 * digit:
                continue
            law = noise.total_law(margin, number)
            factor = Z
            if kind in ("pure", "tables"):
                alone = WeightedSum(parts=law.parts)
                quantile = alone.margin_of_error(0.05) + (alone.lattice or 0.0)
                factor = max(Z, quantile / math.sqrt(alone.variance))
            most = 1.02 if decimals is None else allowed(roundings)
            width = most * factor * math.sqrt(variance)
            if decimals is not None:
                # On digits the least q with P(|S| ≥ q + digit) ≤ α has q + digit/2 ≥ the quantile.
                width = math.ceil(width / digit - 0.5) * digit
            assert law.margin_of_error(0.05) <= width * (1 + 1e-6), (margin.steps, roundings)
            looked_at += 1
    assert looked_at


@pytest.mark.parametrize("roundings", [1, 2, 3, 4, 8, 16, 40, 100])
def test_the_stated_widths_hold_for_normal_noise(roundings):
    """The quantile less half a digit, over 1.96 stated standard errors of two digits or more."""
    for sigma in np.geomspace(2.0, 60.0, 30):
        noise = sigma**2 - roundings / 4
        if noise <= 0.1:
            continue
        law = NormalAndBounded(
            math.sqrt(noise), noise / 1024**2, Rounding.of(np.ones(roundings)), None
        )
        assert law.margin_of_error(0.05) - 0.5 <= allowed(roundings) * Z * sigma


# ------------------------------------------------------------------------------ never too short


def worst_probability(deviation, roundings, margin):
    """P(|S| > margin) where the fractions that are rounded follow the noise in the worst way."""
    y, h = np.linspace(-9 * deviation, 9 * deviation, 40_001, retstep=True)
    return 2 * h * float(norm.pdf(y, scale=deviation) @ largest_tail(roundings, margin + 1 - y))


@pytest.mark.parametrize("roundings", [1, 2, 4, 9, 40])
@pytest.mark.parametrize("deviation", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-4])
def test_the_worst_fractions_are_covered_and_the_margin_is_the_least(roundings, deviation, alpha):
    law = NormalAndBounded(deviation, (deviation / 1024) ** 2, Rounding.of(np.ones(roundings)), 1.0)
    q = law.margin_of_error(alpha)
    assert q == round(q)
    assert worst_probability(deviation, roundings, q) <= alpha
    slack = 0.05 * math.sqrt(deviation**2 + roundings / 4)
    assert q == 0 or worst_probability(deviation, roundings, q - 1 - slack) > alpha
    assert law.tail(q + 1) <= alpha * (1 + 1e-9) + 2e-6


def test_a_twin_with_roundings_independent_of_the_noise_is_caught():
    """Fractions spread evenly have a variance of 1/6: too little where they follow the noise."""
    roundings, alpha = 8, 0.05
    caught = 0
    for deviation in np.arange(1.5, 6.0, 0.25):
        right = NormalAndBounded(deviation, 0.0, Rounding.of(np.ones(roundings)), 1.0)
        twin = math.ceil(Z * math.sqrt(deviation**2 + roundings / 6) - 0.5)
        assert worst_probability(deviation, roundings, right.margin_of_error(alpha)) <= alpha
        caught += worst_probability(deviation, roundings, twin) > alpha
    assert caught


# --------------------------------------------------------------------------- laws by kind


def counted(parts):
    """(scale, weight, number) of all noise, in order."""
    rows = [
        (p.law.scale, float(w), float(c))
        for p in parts
        for w, c in zip(p.weights, p.counts, strict=True)
    ]
    return np.array(sorted(rows))


@pytest.mark.parametrize("kind", ["tables", "pure"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_noise_of_a_kind_is_that_of_each_of_its_totals(case, kind):
    """Counted products against the vector of all that is measured, total by total."""
    noise, margins = published(made(case, kind, None))
    for margin in margins:
        alike = noise.alike(margin)
        laws = [noise.total_law(margin, number) for number in range(len(alike.noise))]
        for place in np.ndindex(*margin.shape):
            law = laws[int(alike.kind[place])]
            weights = noise.indicator(margin, place)
            if noise.is_fixed(weights):
                assert float(alike.variance[alike.kind[place]]) == 0
                continue
            dense = counted(noise.parts(noise.inside(weights)))
            product = counted(law.parts)
            assert dense.shape == product.shape
            assert np.allclose(dense, product, rtol=1e-9)


def test_numbers_of_kinds_add_up_to_all_totals():
    for case in CASES.values():
        noise, margins = published(made(case, "contrasts", 0))
        for margin in margins:
            alike = noise.alike(margin)
            assert np.array_equal(np.bincount(alike.kind.reshape(-1)), alike.number)
            assert np.array_equal(alike.draws[alike.kind], noise.draws(margin))
