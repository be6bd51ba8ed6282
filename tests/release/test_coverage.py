"""Intervals cover as often as they say: every mechanism, kind of figure, law, scale and digits.

Thousands of releases of one small table, side by side along an axis `replicate` where margins are
held, one by one elsewhere. Coverage is binomial. Too low is an error everywhere; too high only
where the method is near-exact, because bounds (rounded digits, Chebyshev) and coarse lattices cover
more. `ALPHA` is shared by all checks of this file. The twin computes its intervals for noise five
percent smaller, and the sample size is such that it passes with probability at most `ALPHA`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from tests.statistical import ALPHA, rescaled

import subspacedp as sdp
from subspacedp.mechanisms import Mechanism

AXES = [
    sdp.Axis("a", ["x", "y", "z"], levels={"level": ["p", "p", "q"]}),
    sdp.Axis("b", ["u", "v", "w"]),
]
DOMAIN = sdp.Domain(AXES)
COUNTS = np.array([[5, 7, 30], [40, 9, 3], [0, 1, 25]])
TABLE = sdp.Table(COUNTS, DOMAIN)
MARGINS = (("level",), ("b",))
ROWS = sdp.LinearInvariants([[1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 2, 0, 1, -1, 0, 0, 0, 3]])

LEVELS = (0.9, 0.95, 0.99)
CHECKS = 500  # more than this file has
FEWEST = 2000

WEIGHTED = np.random.default_rng(7).normal(size=(3, 3))
PART, WHOLE = np.zeros((3, 3)), np.zeros((3, 3))
PART[0], WHOLE[:2] = 1, [[1, 1, 1], [1, 1, 0]]
TRUE = float(np.vdot(PART, COUNTS) / np.vdot(WHOLE, COUNTS))
KINDS = ("cell", "margin", "weighted sum", "ratio")


@dataclass(frozen=True)
class Case:
    """A mechanism on the small table, and how it is repeated."""

    name: str
    make: Callable[[sdp.Domain, object], Mechanism]
    general: bool = False
    near: bool = False  # near-exact: coverage is not above nominal either

    def __str__(self) -> str:
        return self.name


def designed(budget, **options):
    return lambda domain, held: sdp.design(domain, held, budget, **options)


def declared(domain, held):
    rng = np.random.default_rng(3)
    return sdp.impose_on(
        domain, held, lambda x: x + rng.laplace(0, 2.0, x.shape), budget=sdp.PureDP(1.0),
        variance=8.0,
    )  # fmt: skip


SCALES = {
    "Laplace, small": sdp.PureDP(5.0),
    "Laplace, large": sdp.PureDP(0.02),
    "Gaussian, small": sdp.GaussianDP(2.5),
    "Gaussian, large": sdp.GaussianDP(0.02),
}
CASES = [
    Case("declared", declared),
    Case("declared, general C", declared, general=True),
]
for _name, _budget in SCALES.items():
    _near = "large" in _name
    CASES += [
        Case(f"projected, {_name}", designed(_budget), near=_near),
        Case(f"projected, {_name}, digits", designed(_budget, decimals=0)),
        Case(f"projected, {_name}, a decimal", designed(_budget, decimals=1)),
        Case(f"projected, {_name}, general C", designed(_budget), general=True, near=_near),
        Case(f"projected, {_name}, general C, digits", designed(_budget, decimals=0), general=True),
        Case(
            f"extended, {_name}, general C",
            designed(_budget, mechanism="extended"),
            general=True,
            near=True,
        ),
    ]
    if "Gaussian" in _name:
        CASES.append(
            Case(f"extended, {_name}, margins", designed(_budget, mechanism="extended"), near=_near)
        )
# One half is always run, of every mechanism, law and way to publish; the other one in soak.
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[pytest.mark.soak] if number % 2 else [])
        for number, case in enumerate(CASES)
    ],
)
near_cases = [case for case in CASES if case.near and not case.general]


def single(case: Case) -> Mechanism:
    held = ROWS if case.general else sdp.hold(*MARGINS[0]) & sdp.hold(*MARGINS[1])
    return case.make(DOMAIN, held)


@cache
def errors_of(case: Case, number: int, seed: int = 0) -> np.ndarray:
    """Release minus truth of so many releases, one a row."""
    if case.general:
        mechanism = single(case)
        if mechanism.mechanism.name == "imposed":
            runs = [mechanism.release(TABLE).values for _ in range(number)]
        else:
            runs = [mechanism.release(TABLE, seed=seed + i).values for i in range(number)]
        return (np.stack(runs) - COUNTS).reshape(number, -1)
    domain = sdp.Domain([sdp.Axis("replicate", range(number)), *AXES])
    held = sdp.hold("replicate", *MARGINS[0]) & sdp.hold("replicate", *MARGINS[1])
    mechanism = case.make(domain, held)
    table = sdp.Table(np.broadcast_to(COUNTS, domain.shape), domain)
    made = mechanism.mechanism.name == "imposed"
    release = mechanism.release(table) if made else mechanism.release(table, seed=seed)
    return (np.asarray(release.values) - COUNTS).reshape(number, -1)


def figure(kind: str, mechanism: Mechanism, errors: np.ndarray):
    """The errors of one figure of a kind in every release, and its margin of error by level."""
    if kind == "cell":
        margin = lambda level: float(mechanism.accuracy().margin_of_error(level)[0, 1])  # noqa: E731
        return errors[:, 1], margin
    if kind == "margin":
        margin = lambda level: float(  # noqa: E731
            np.ravel(mechanism.margin_accuracy("a").margin_of_error(level))[1]
        )
        return errors.reshape(-1, 3, 3).sum(axis=2)[:, 1], margin
    w = WEIGHTED if kind == "weighted sum" else PART - TRUE * WHOLE  # Fieller, at the true ratio
    return errors @ w.ravel(), mechanism.accuracy(w).margin_of_error


def check(hits: int, number: int, level: float, *, near: bool, slack: float = 0.0) -> None:
    """Within the band; above it only where that is no sign of an error."""
    assert stats.binom.cdf(hits, number, level) > ALPHA / CHECKS, "coverage is too low"
    if near:
        high = min(1.0, level + slack)
        assert stats.binom.sf(hits - 1, number, high) > ALPHA / CHECKS, "coverage is too high"


@each_case
def test_coverage(case):
    number = FEWEST if case.general else 10 * FEWEST
    mechanism, errors = single(case), errors_of(case, number)
    for kind in KINDS:
        off, margin = figure(kind, mechanism, errors)
        assert np.any(off)
        for level in LEVELS:
            hits = int(np.count_nonzero(np.abs(off) <= margin(level)))
            # Up to 0.4 % of a standard error in width is a thousandth of coverage.
            check(hits, number, level, near=case.near, slack=1e-3)


@each_case
def test_simultaneous_coverage(case):
    number = FEWEST if case.general else 10 * FEWEST
    mechanism, errors = single(case), errors_of(case, number)
    for level in LEVELS:
        margins = mechanism.accuracy().margin_of_error(level, simultaneous=True).ravel()
        hits = int(np.count_nonzero(np.all(np.abs(errors) <= margins + 1e-9, axis=1)))
        check(hits, number, level, near=False)


def test_pointwise_intervals_do_not_cover_at_once():
    """The twin of the simultaneous ones."""
    case = near_cases[0]
    mechanism, errors = single(case), errors_of(case, 10 * FEWEST)
    margins = mechanism.accuracy().margin_of_error(0.9).ravel()
    hits = int(np.count_nonzero(np.all(np.abs(errors) <= margins + 1e-9, axis=1)))
    with pytest.raises(AssertionError, match="too low"):
        check(hits, 10 * FEWEST, 0.9, near=False)


CROSSED = [
    sdp.Axis(
        "block",
        list("abcdefg"),
        levels={"county": list("xxxyyyy")},
        groupings={
            "school": ["N", "N", "M", "M", "M", None, "S"],
            "grid": [1, 2, 1, 2, 1, 2, 1],
        },
    ),
    sdp.Axis("sex", ["F", "M"]),
]
ASKED = (["block", "sex"], ["grid"], ["school", "sex"], ["grid", "sex"])


def covered_at_once(held, budget, decimals, *, together=True):
    """For families of figures of levels that cross, in how many of `FEWEST` releases all hold."""
    once, each = sdp.hold(held[0]), sdp.hold("replicate", held[0])
    for name in held[1:]:
        once, each = once & sdp.hold(name), each & sdp.hold("replicate", name)
    stated = sdp.design(sdp.Domain(CROSSED), once, budget, decimals=decimals)
    domain = sdp.Domain([sdp.Axis("replicate", range(FEWEST)), *CROSSED])
    counts = np.arange(14).reshape(7, 2) * 3 % 17
    table = sdp.Table(np.broadcast_to(counts, domain.shape), domain)
    release = sdp.design(domain, each, budget, decimals=decimals).release(table, seed=1)
    for names in ASKED:
        margin = domain.margin("replicate", *names)
        errors = margin.sum(np.asarray(release.values)) - margin.sum(table.counts)
        accuracy = stated.margin_accuracy(*names)
        margins = np.ravel(accuracy.margin_of_error(0.95, simultaneous=together)) + 1e-7
        inside = np.abs(errors.reshape(FEWEST, -1)) <= margins
        yield int(np.count_nonzero(np.all(inside, axis=1)))


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("budget", [sdp.PureDP(4.0), sdp.PureDP(0.1), sdp.GaussianDP(2.5)], ids=str)
@pytest.mark.parametrize("held", [["county"], ["county", "school"]], ids=str)
def test_simultaneous_coverage_where_classifications_cross(held, budget, decimals):
    for hits in covered_at_once(held, budget, decimals):
        check(hits, FEWEST, 0.95, near=False)


def test_pointwise_intervals_of_classifications_that_cross_do_not_cover_at_once():
    hits = next(covered_at_once(["county", "school"], sdp.PureDP(0.1), 0, together=False))
    with pytest.raises(AssertionError, match="too low"):
        check(hits, FEWEST, 0.95, near=False)


# -------------------------------------------------------------------------------------- the twin


def replicates(level: float, twin: float) -> int:
    """Releases after which `level` is accepted and a coverage of `twin` rejected, both at ALPHA."""
    z, y = stats.norm.isf(ALPHA / CHECKS), stats.norm.isf(ALPHA)
    spread = z * math.sqrt(level * (1 - level)) + y * math.sqrt(twin * (1 - twin))
    return math.ceil(1.1 * (spread / (level - twin)) ** 2)


def smaller(mechanism: Mechanism) -> Mechanism:
    """The same design for noise five percent smaller than what is drawn."""
    twin = replace(mechanism.mechanism)
    twin.__dict__["law"] = rescaled(mechanism.mechanism.law, 1 / 1.05)
    return type(mechanism)(twin)


@pytest.mark.parametrize("case", near_cases, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_noise_five_percent_larger_than_stated_is_caught(case, kind):
    mechanism, level = single(case), 0.9
    twin = smaller(mechanism)
    assert twin.mechanism.noise.each == pytest.approx(
        mechanism.mechanism.noise.each / 1.05**2, rel=1e-3
    )
    # What a margin for smaller noise covers of the stated law, by that law itself.
    _, margin = figure(kind, mechanism, np.zeros((1, 9)))
    _, short = figure(kind, twin, np.zeros((1, 9)))
    w = {"cell": np.eye(9)[1], "margin": np.kron([0, 1, 0], [1, 1, 1]),
         "weighted sum": WEIGHTED, "ratio": PART - TRUE * WHOLE}[kind]  # fmt: skip
    law = mechanism.mechanism.noise.law_of(np.reshape(w, (3, 3)).astype(float))
    covers = 1 - law.tail(short(level) * 1.005)
    number = replicates(level, covers)
    assert FEWEST < number < 200_000
    errors = errors_of(case, 200_000, seed=1)[:number]
    off, _ = figure(kind, mechanism, errors)
    check(int(np.count_nonzero(np.abs(off) <= margin(level))), number, level, near=True, slack=1e-3)
    with pytest.raises(AssertionError, match="too low"):
        check(int(np.count_nonzero(np.abs(off) <= short(level))), number, level, near=False)


# ------------------------------------------------------------------------------------ long versions


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=str)
def test_coverage_of_many_releases(case):
    """Ten times as many, new ones, and every cell of the table."""
    number = 10 * FEWEST if case.general else 200 * FEWEST
    mechanism, errors = single(case), errors_of(case, number, seed=10**6)
    for level in LEVELS:
        margins = mechanism.accuracy().margin_of_error(level).ravel()
        for cell in np.flatnonzero(margins):
            hits = int(np.count_nonzero(np.abs(errors[:, cell]) <= margins[cell]))
            check(hits, number, level, near=case.near, slack=1e-3)
        fixed = np.flatnonzero(margins == 0)
        assert np.abs(errors[:, fixed]).max(initial=0.0) < 1e-6
