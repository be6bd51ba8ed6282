"""Intervals that use inequalities: exact coverage, never empty, never wider than clipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.mechanisms import estimates
from subspacedp.noise import DiscreteLaplace

FloatArray = npt.NDArray[np.float64]
KNOWN = sdp.Inequalities()
TRACT_RACE = sdp.hold("tract", "race")
CROSSED = TRACT_RACE & sdp.hold("tract", "age")


def projected_errors(size: int, scale: float, reach: int) -> tuple[FloatArray, FloatArray]:
    """All errors e₁ − mean(e) of the first of `size` cells that share a held total, with masses."""
    e = np.arange(-reach, reach + 1)
    mass = np.exp(-np.abs(e) / scale) * np.tanh(0.5 / scale)
    own = np.zeros((size - 1 or 1) * (e.size - 1) + 1)  # (size − 1)·e₁ in steps of one
    own[:: size - 1 or 1] = mass
    for _ in range(size - 1):
        own = np.convolve(own, mass)
    return (np.arange(own.size) - own.size // 2) / size, own


def group_release(size: int, total: int, groups: int, epsilon: float) -> sdp.Release:
    """Many groups of equal size with the same held total; for size 1 nothing is held."""
    cells = [f"cell {i}" for i in range(size)]
    domain = sdp.Domain([sdp.Axis("group", list(range(groups))), sdp.Axis("cell", cells)])
    held = sdp.hold("group") if size > 1 else None
    mechanism = sdp.design(domain, held, sdp.PureDP(epsilon), mechanism="projected")
    counts = np.zeros((groups, size), np.int64)
    counts[:, -1] = total
    return mechanism.release(sdp.Table(counts, domain), seed=1)


def coverage(
    size: int,
    total: int,
    epsilon: float,
    known: sdp.Inequalities = KNOWN,
    truths: Sequence[int] | None = None,
) -> tuple[float, float, float]:
    """The least coverage over all true cells, and mean widths there: within limits, and clipped.

    `truths` are those that the inequalities allow, where these are not all up to the total.
    """
    scale = 2 / epsilon
    errors, masses = projected_errors(size, scale, reach=round(16 * scale) + 4)
    release = group_release(size, total, errors.size, epsilon)
    assert isinstance(release.mechanism.law, DiscreteLaplace)
    least, within, clipped = 1.0, [], []
    for truth in range(total + 1) if truths is None else truths:
        values = np.tile((total - truth - errors)[:, None] / max(size - 1, 1), (1, size))
        values[:, 0] = truth + errors
        given = replace(release, values=values)
        low, high = (end[:, 0] for end in given.interval(0.95, inequalities=known))
        ends = [end[:, 0] for end in given.interval(0.95)]
        lower, upper = (np.maximum(end, 0.0) for end in ends)
        most = np.inf if size == 1 and not known.at_most else total
        assert np.all(low <= high)
        assert np.all(high - low <= upper - lower)
        if truths is None:  # declared limits of parts are narrower than those of totals
            inside = (np.clip(ends[0], 0, most) <= low) & (high <= np.clip(ends[1], 0, most))
            assert np.all(inside)
        missed = float(masses[(truth < low) | (truth > high)].sum()) + 1 - float(masses.sum())
        least = min(least, 1 - missed)
        within.append(float(masses @ (high - low)))
        clipped.append(float(masses @ (upper - lower)))
    return least, float(np.mean(within)), float(np.mean(clipped))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("total", [0, 1, 2, 7, 25])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_coverage_of_every_table(size: int, total: int, epsilon: float) -> None:
    """Held groups of every total: coverage of every possible cell, computed exactly."""
    least, within, clipped = coverage(size, total, epsilon)
    assert least >= 0.95
    assert within < clipped


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("known", [KNOWN, sdp.Inequalities(at_most={("group", "cell"): 12})])
def test_coverage_without_held_totals(epsilon: float, known: sdp.Inequalities) -> None:
    """Counts up to twelve, with and without a public limit."""
    least, within, clipped = coverage(1, 12, epsilon, known)
    assert least >= 0.95
    assert within < clipped


PART = sdp.Inequalities(part_of=[("cell 0", "cell 1")])
WHOLE = sdp.Inequalities(part_of=[("cell 1", "cell 0")])
BEDS = sdp.Inequalities(at_most={("group", "cell"): 9}, part_of=[("cell 0", "cell 1")])


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("total", [1, 4, 9, 16])
def test_coverage_of_parts_and_wholes(total: int, epsilon: float) -> None:
    """Every part that is at most its whole, and every whole; with a third cell, and with limits."""
    parts = range(total // 2 + 1)
    for size, known, truths in (
        (2, PART, parts),
        (2, WHOLE, range((total + 1) // 2, total + 1)),
        (3, PART, parts),
        (2, BEDS, range(max(total - 9, 0), total // 2 + 1)),
    ):
        least, within, clipped = coverage(size, total, epsilon, known, truths)
        assert least >= 0.95
        assert within < clipped
        plain = coverage(size, total, epsilon, KNOWN, truths)[1]
        assert within <= plain


def test_a_false_declaration_is_seen() -> None:
    """The same computation finds a limit that is one too small."""
    tight = sdp.Inequalities(at_most={("group", "cell"): 5}, part_of=[("cell 0", "cell 1")])
    assert coverage(2, 9, 1.0, tight, range(4, 5))[0] >= 0.95
    assert coverage(2, 9, 1.0, tight, range(3, 5))[0] < 0.95


def one_sided_everywhere(
    ends: object, beyond: tuple[FloatArray, FloatArray], limits: object
) -> tuple[FloatArray, FloatArray]:
    """Wrong: all of alpha on the side that happens to be left."""
    del ends
    return WITHIN(beyond, beyond, limits)  # type: ignore[arg-type]


def one_too_many(
    ends: tuple[FloatArray, FloatArray], beyond: tuple[FloatArray, FloatArray], limits: object
) -> tuple[FloatArray, FloatArray]:
    """Wrong: the figure next to a limit is tested as the limit is."""
    low, high = WITHIN(ends, beyond, limits)  # type: ignore[arg-type]
    return np.where(beyond[0] > 0, np.maximum(low, np.minimum(2.0, high)), low), high


WITHIN = estimates._within


@pytest.mark.parametrize("twin", [one_sided_everywhere, one_too_many])
def test_broken_twins_are_seen(
    monkeypatch: pytest.MonkeyPatch, twin: Callable[..., object]
) -> None:
    """The same computation finds that near misses do not cover."""
    monkeypatch.setattr(estimates, "_within", twin)
    assert coverage(3, 25, 1.0)[0] < 0.95


def dallas_misses(
    runs: int, held: sdp.Held = TRACT_RACE, epsilon: float = 0.192
) -> tuple[int, int, float, float]:
    """Intervals of one of the two cells of every tract and race that miss, of how many; widths.

    Where tract × race is held, both cells share their noise, and those of different groups are
    independent.
    """
    table = sdp.datasets.dallas2010()
    mechanism = sdp.design(table.domain, held, sdp.PureDP(epsilon), mechanism="projected")
    missed, number, within, clipped = 0, 0, 0.0, 0.0
    for seed in range(runs):
        release = mechanism.release(table, seed=seed)
        low, high = release.interval(0.95, inequalities=KNOWN)
        lower, upper = (np.maximum(end, 0.0) for end in release.interval(0.95))
        missed += int(np.count_nonzero(((table.counts < low) | (table.counts > high))[..., 0]))
        number += low[..., 0].size
        within, clipped = (
            within + float((high - low).mean()),
            clipped + float((upper - lower).mean()),
        )
    return missed, number, within, clipped


def test_coverage_on_dallas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Age within every tract and race: 95 % are covered, in three quarters of the width."""
    missed, number, within, clipped = dallas_misses(20)
    assert stats.binom.sf(missed - 1, number, 0.05) > ALPHA
    assert within < 0.76 * clipped
    monkeypatch.setattr(estimates, "_within", one_sided_everywhere)
    missed, number, *_ = dallas_misses(20)
    assert stats.binom.sf(missed - 1, number, 0.05) < ALPHA


@pytest.mark.soak
@pytest.mark.parametrize("epsilon", [0.192, 1.0])
@pytest.mark.parametrize("held", [sdp.hold(), sdp.hold("tract"), TRACT_RACE, CROSSED], ids=str)
def test_coverage_on_dallas_whatever_is_held(held: sdp.Held, epsilon: float) -> None:
    """Two hundred releases each: 95 % covered, never wider than clipped, in mean well below."""
    missed, number, within, clipped = dallas_misses(200, held, epsilon)
    # Errors are dependent within a release; with half as many independent ones the bound holds too.
    assert stats.binom.sf(missed // 2 - 1, number // 2, 0.05) > ALPHA
    assert within < clipped


def test_all_at_once() -> None:
    """Figures that limits fix take no part of the error probability of the others."""
    domain = sdp.Domain([sdp.Axis("group", ["a", "b"]), sdp.Axis("cell", ["x", "y"])])
    mechanism = sdp.design(domain, sdp.hold("group"), sdp.PureDP(0.5), mechanism="projected")
    release = mechanism.release(sdp.Table([[0, 0], [300, 200]], domain), seed=1)
    lower, upper = release.interval(0.95, simultaneous=True, inequalities=KNOWN)
    assert (lower[0].tolist(), upper[0].tolist()) == ([0, 0], [0, 0])
    two = release.cells().margin_of_error(0.975)[1]  # both open cells have half of 5 %
    assert np.all(upper[1] - lower[1] <= 2 * two)
    plain = release.interval(0.95, simultaneous=True)
    assert np.all(upper[1] - lower[1] < plain[1][1] - plain[0][1])


@pytest.mark.parametrize(
    ("mechanism", "decimals"),
    [("projected", None), ("projected", 0), ("extended", None), ("marginals", 0)],
)
@pytest.mark.parametrize("budget", [sdp.PureDP(0.7), sdp.ZCDP(0.1)])
def test_every_kind_of_release(
    mechanism: str, budget: sdp.PureDP | sdp.ZCDP, decimals: int | None
) -> None:
    """Cells, margins, weighted sums and combinations: subsets of clipping, and never empty."""
    domain = sdp.Domain(
        [
            sdp.Axis("county", ["a", "b", "c"], levels={"state": ["X", "X", "Y"]}),
            sdp.Axis("sex", ["F", "M"]),
        ]
    )
    counts = np.array([[0, 3], [9, 14], [1, 0]])
    design = sdp.design(domain, sdp.hold("state"), budget, mechanism=mechanism, decimals=decimals)
    releases = [design.release(sdp.Table(counts, domain), seed=seed) for seed in range(6)]
    known = sdp.Inequalities(at_most={"sex": 20})
    weights = np.stack([releases[0].where(sex="F"), 0.3 * releases[0].where(state="X")])
    pooled = sdp.inference.combine(releases)
    for release in (*releases, pooled):
        for estimate in (
            release.cells(),
            release.margin("county"),
            release.margin("sex"),
            release.estimate(weights),
        ):
            for together in (False, True):
                low, high = estimate.interval(0.9, simultaneous=together, inequalities=known)
                lower, upper = estimate.interval(0.9, simultaneous=together)
                assert np.all(low <= high)
                assert np.all(high - low <= np.maximum(upper, 0) - np.maximum(lower, 0) + 1e-9)
                assert np.all((low >= 0) & (high <= 27))


def test_refusals() -> None:
    """Noise of which nothing is known, and answers that are no counts: one sentence."""
    domain = sdp.Domain([sdp.Axis("sex", ["F", "M"])])
    existing = sdp.impose_on(domain, sdp.hold(), lambda x: x + 1.0, budget=sdp.PureDP(1.0))
    table = sdp.Table([4, 7], domain)
    with pytest.raises(ReleaseError, match="declared without a variance"):
        existing.release(table).interval(0.95, inequalities=KNOWN)
    release = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)).release(table, seed=1)
    with pytest.raises(ReleaseError, match=r"must be `Inequalities\(...\)`; got a bool"):
        release.interval(0.95, inequalities=True)  # type: ignore[arg-type]
    query = sdp.LinearQuery([[1, 0], [1, 1]])
    other = sdp.design(query, None, sdp.PureDP(1.0)).release(table, seed=1)
    with pytest.raises(InvariantError, match="for tables of counts"):
        other.interval(0.95, inequalities=KNOWN)


def test_a_release_knows_its_inequalities(tmp_path: Path) -> None:
    """Declared at design, stated in the certificate, used by default after loading."""
    domain = sdp.Domain([sdp.Axis("hall", ["A", "B"]), sdp.Axis("sex", ["F", "M"])])
    known = sdp.Inequalities(at_most={"sex": {"F": 50}}, part_of=[("M", "F")])
    design = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(0.2), inequalities=known)
    release = design.release(sdp.Table([[3, 0], [40, 35]], domain), seed=1)
    release.save(tmp_path / "release")
    again = sdp.load(tmp_path / "release")
    assert again.verify().ok
    assert again.mechanism.as_dict()["inequalities"] == known.as_dict()
    plain = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(0.2))
    bare = replace(release, mechanism=plain.mechanism)
    for given in (release, again):
        assert np.array_equal(given.interval(0.95), bare.interval(0.95, inequalities=known))
        assert not np.array_equal(given.interval(0.95), bare.interval(0.95))
    assert str(release.cells()) != str(bare.cells())


def test_contradictions_are_refused_before_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is held, which is published exactly; other counts are never looked at."""
    domain = sdp.Domain([sdp.Axis("hall", ["A", "B"]), sdp.Axis("sex", ["F", "M"])])
    table = sdp.Table([[3, 0], [41, 36]], domain)
    known = sdp.Inequalities(at_most={"hall": 60})
    held = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(1.0), inequalities=known)
    drawn = []
    monkeypatch.setattr(type(held.mechanism), "add_noise", lambda *_: drawn.append(1))
    with pytest.raises(InvariantError, match="contradict the held figures") as caught:
        held.release(table, seed=1)
    assert not drawn
    assert not any(digit in str(caught.value) for digit in "0123456789")
    coarser = sdp.Inequalities(at_most={(): 79})  # of the sum of what is held, which is 80
    held = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(1.0), inequalities=coarser)
    with pytest.raises(InvariantError, match="contradict the held figures"):
        held.release(table, seed=1)
    assert not drawn
    monkeypatch.undo()
    sdp.design(domain, None, sdp.PureDP(1.0), inequalities=known).release(table, seed=1)
    wrong = sdp.Inequalities(at_most={"room": 2})
    with pytest.raises(InvariantError, match="no level `room`"):
        sdp.design(domain, sdp.hold("hall"), sdp.PureDP(1.0), inequalities=wrong)
    with pytest.raises(InvariantError, match="got a dict"):
        sdp.design(domain, None, sdp.PureDP(1.0), inequalities={})  # type: ignore[arg-type]
