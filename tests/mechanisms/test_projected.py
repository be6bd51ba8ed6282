"""The projected mechanism keeps its contract, and twins broken in one small way do not."""

from pathlib import Path

import numpy as np
import pytest
from tests.mechanisms.contract import (
    Family,
    check_mechanism,
    exact_projector,
    functionals,
    stated_variance,
)
from tests.privacy.exhaustion import held_rows, row_space_part
from tests.statistical import ALPHA, kurtosis, mean_p, replicates_for_variance, rescaled

from subspacedp import (
    ZCDP,
    ApproxDP,
    Axis,
    Domain,
    GaussianDP,
    PureDP,
    SubspaceDPError,
    Table,
    design,
    hold,
)
from subspacedp.mechanisms import Projected
from subspacedp.noise import ReleaseKeys, draw
from subspacedp.release import Design

SEX = Axis("sex", ["F", "M"])
AGE = Axis("age", ["young", "middle", "old"])
TOWN = Axis("town", range(5), levels={"county": ["k", "k", "k", "l", "l"], "land": ["x"] * 5})
FAMILIES = [
    Family("nothing held", [AGE], [], np.array([5, 0, 2])),
    Family("a total", [AGE], [()], np.array([5, 0, 2])),
    Family("uneven groups", [TOWN], [("county",)], np.array([1, 2, 3, 4, 0])),
    Family("two margins", [SEX, AGE], [("sex",), ("age",)], np.array([[1, 2, 3], [0, 9, 4]])),
    Family(
        "three margins",
        [SEX, Axis("b", range(2)), Axis("c", range(2))],
        [("sex", "b"), ("sex", "c"), ("b", "c")],
        np.arange(8).reshape(2, 2, 2),
    ),
    Family("nested", [TOWN, SEX], [("county",), ("land", "sex")], np.arange(10).reshape(5, 2)),
]
TOTAL, TWO = FAMILIES[1], FAMILIES[3]
BUDGETS = [PureDP(1.0), ApproxDP(1.0, 1e-6)]


def maker(budget=BUDGETS[0], decimals=None, twin=None, relation=None):
    def make(domain, held):
        made = design(domain, held, budget, decimals=decimals, neighbours=relation)
        return made if twin is None else Design(twin(made.problem))

    return make


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_contract(family, budget, decimals):
    check_mechanism(maker(budget, decimals), family)


def test_the_contract_with_digits_of_noise():
    """A scale beyond one table: noise is put together from digits."""
    check_mechanism(maker(PureDP(0.01), 0), TWO)


# ---------------------------------------------------------------------------------- broken twins


class NotProjected(Projected):
    """Publishes the noisy counts as they are."""

    def reconstruct(self, noisy, exact, dither, *, overwrite=False):
        return noisy.astype(np.float64)


class FloorsTheCorrection(Projected):
    """Rounds every cumulative entry the same way instead of at random."""

    def reconstruct(self, noisy, exact, dither, *, overwrite=False):
        return super().reconstruct(noisy, exact, ConstantDither(), overwrite=overwrite)


class ConstantDither:
    def words(self, start, count, scratch=None):
        return np.zeros(count, np.uint64)


class OtherLaw(Projected):
    """Draws from the design's law with its scale times a factor."""

    factor = 1.0

    def add_noise(self, answers, keys):
        law = rescaled(self.law, self.factor)
        return answers + draw(law, keys, 0, answers.size).reshape(answers.shape)


class VarianceTooLarge(OtherLaw):
    factor = 1.05**0.5


class VarianceTooSmall(OtherLaw):
    factor = 0.95**0.5


class HalfTheSensitivity(OtherLaw):
    factor = 0.5


class SharedWords(Projected):
    """One stream of words for noise and for dither."""

    def add_noise(self, answers, keys):
        class Shared:
            def stream(self, purpose):
                return keys.stream("dither")

        return super().add_noise(answers, Shared())


@pytest.mark.parametrize(
    ("twin", "decimals", "clause"),
    [
        (NotProjected, None, "invariants"),
        (FloorsTheCorrection, 0, "unbiased"),
        (VarianceTooLarge, None, "covariance"),
        (VarianceTooSmall, None, "covariance"),
        (VarianceTooLarge, 0, "covariance"),
        (VarianceTooSmall, 0, "covariance"),
    ],
)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("family", [TOTAL, TWO], ids=str)
def test_a_broken_twin_breaks_its_clause(family, budget, twin, decimals, clause):
    with pytest.raises(AssertionError, match=clause):
        check_mechanism(maker(budget, decimals, twin), family)


def test_digits_off_by_one_in_one_replicate_are_caught():
    class OneOff(Projected):
        def reconstruct(self, noisy, exact, dither, *, overwrite=False):
            out = super().reconstruct(noisy, exact, dither).copy()
            out.flat[7] += 1
            return out

    for decimals in (None, 0):
        with pytest.raises(AssertionError, match="invariants"):
            check_mechanism(maker(decimals=decimals, twin=OneOff), TWO)


# ------------------------------------------------------------------------------- noise and dither


def parts(family, make, number=None, seed=0):
    """Noise, and the rounding part of the error, of many replicates in one seeded release."""
    small = make(*family.single())
    number = number or replicates_for_variance(kurtosis(small.mechanism.law))
    domain, held, table = family.replicated(number)
    large = make(domain, held)
    keys = ReleaseKeys.from_seed(seed, large.mechanism.context)
    noise = (large.mechanism.measure(table, keys) - table.counts).reshape(number, -1)
    values = large.release(table, seed=seed).values
    rounding = (values - table.counts).reshape(number, -1) - noise @ exact_projector(small)
    return small, noise, rounding


def evenly_spread(small):
    """Variances of the rounding part when the fractions are spread evenly, entry by entry.

    An entry of the cumulated correction is Σ aⱼeⱼ with rational aⱼ. With L their common
    denominator its fraction is then uniform on multiples of 1/L, and E f(1 − f) = (1 − 1/L²)/6.
    """
    rounding = small.mechanism.rounding
    assert [b for axis in rounding.axes for b in axis.members] == list(
        range(len(rounding.held.domain.axes))
    )
    lifted = row_space_part(held_rows(small.mechanism.held))
    size, shape = small.mechanism.domain.size, rounding.shape
    entries = np.empty((size, size), object)
    for j, unit in enumerate(np.eye(size, dtype=int).tolist()):
        table = np.array([rounding.step * v for v in lifted(unit)], object).reshape(shape)
        for a in range(table.ndim):
            table = np.cumsum(table, axis=a)
        entries[:, j] = table.ravel()
    common = np.array([np.lcm.reduce([v.denominator for v in row]) for row in entries])
    differences = np.eye(size).reshape(size, *shape)
    for a in range(1, differences.ndim):
        differences = np.diff(differences, axis=a, prepend=0)
    spread = (1 - 1 / common.astype(float) ** 2) / 6 / rounding.step**2
    return [
        float(np.sum((differences.reshape(size, size) @ w) ** 2 * spread))
        for w in functionals(size)
    ]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_real_valued_error_is_the_projected_noise(family):
    small, noise, rounding = parts(family, maker(), 1000)
    assert np.abs(rounding).max() < 1e-9
    variance = small.mechanism.law.variance * np.diag(exact_projector(small))
    assert small.expected_error().per_cell.ravel() == pytest.approx(variance, abs=1e-12)
    for w in functionals(noise.shape[1]):
        inside = exact_projector(small) @ w
        wanted = small.mechanism.law.variance * (inside @ inside)
        assert stated_variance(small, w) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("decimals", [0, 1])
@pytest.mark.parametrize("family", FAMILIES[1:], ids=str)
def test_the_rounding_part_is_unbiased_and_uncorrelated_with_the_noise(family, decimals):
    """At a scale of ten the fractions are spread evenly, and its variance is known exactly."""
    small, noise, rounding = parts(family, maker(ZCDP(0.01), decimals))
    assert np.abs(rounding).max() < 2 ** len(family.axes) / 10**decimals
    variances = np.array(evenly_spread(small))
    answers = rounding @ functionals(noise.shape[1]).T
    free = variances > 1e-12
    assert np.abs(answers[:, ~free]).max(initial=0.0) < 1e-9
    answers, variances = answers[:, free], variances[free]
    assert free.any()
    assert np.all(mean_p(answers, 0.0) > ALPHA)
    assert np.all(mean_p(answers**2, variances) > ALPHA)
    assert np.all(mean_p(answers**2, 1.05 * variances) < ALPHA)
    assert np.all(mean_p(answers**2, 0.95 * variances) < ALPHA)
    for column in noise.T:
        assert np.all(mean_p(answers * column[:, None], 0.0) > ALPHA)


@pytest.mark.parametrize("decimals", [0, 1])
@pytest.mark.parametrize("family", FAMILIES[1:], ids=str)
def test_the_stated_rounding_variance_bounds_that_of_evenly_spread_fractions(family, decimals):
    """And meets it, but where terms of nested margins cancel, which the code does not look for."""
    small = maker(ZCDP(0.01), decimals)(*family.single())
    questions = functionals(family.counts.size)
    stated = [small.mechanism.rounding.variance(w.reshape(family.counts.shape)) for w in questions]
    exact = evenly_spread(small)
    assert all(s >= e * (1 - 1e-12) - 1e-15 for s, e in zip(stated, exact, strict=True))
    if family.name == "nested" and decimals == 0:
        assert stated == pytest.approx(exact, rel=0.4, abs=1e-12)
    else:
        assert stated == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("family", [TOTAL, TWO], ids=str)
def test_with_little_noise_the_stated_rounding_part_is_still_a_bound(family, epsilon):
    small, _, rounding = parts(family, maker(PureDP(epsilon), 0), 200_000)
    questions = functionals(rounding.shape[1])
    stated = np.array(
        [small.mechanism.rounding.variance(w.reshape(family.counts.shape)) for w in questions]
    )
    squares = (rounding @ questions.T) ** 2
    below = squares.mean(axis=0) <= stated + 1e-12
    assert np.all(below | (mean_p(squares, stated) > ALPHA))


def test_dither_that_shares_the_words_of_the_noise_is_caught():
    """The rounding part is then correlated with the noise, and the stated variance is wrong."""
    _, noise, rounding = parts(TOTAL, maker(PureDP(0.2), 0, SharedWords))
    assert any(np.any(mean_p(rounding * column[:, None], 0.0) < ALPHA) for column in noise.T)
    with pytest.raises(AssertionError, match="covariance"):
        check_mechanism(maker(PureDP(2.0), 0, SharedWords), TOTAL)


# ------------------------------------------------------------------------------- floating point


def test_neighbouring_tables_have_the_same_reachable_measurements():
    """Integers: x + z over all z is all integers, for every x. No value gives a table away."""
    from subspacedp.noise.draw import threshold_table

    for budget in BUDGETS:
        law = design(Domain([AGE]), hold(), budget).mechanism.law
        table = threshold_table(law)
        words = np.concatenate([table.thresholds[:-1] + np.uint64(1), table.thresholds[1:-1]])
        noise = np.unique(table.lookup(words)[0])
        assert noise.tolist() == list(range(noise[0], noise[-1] + 1))  # no gaps
        for x, y in ((0, 1), (7, 8), (2**40, 2**40 + 1)):
            window = range(x + noise[0] + 1, x + noise[-1])
            assert set(window) <= {x + int(z) for z in noise}
            assert set(window) <= {y + int(z) for z in noise}


def test_a_naive_floating_point_twin_gives_tables_away():
    """x + (−b ln u) in float32, all u on a grid: one value in many is reachable from one x only."""
    grid = (np.arange(1, 2**14) / 2**14).astype(np.float32)
    noise = -np.float32(2.0) * np.log(grid)
    first, second = (set((np.float32(x) + noise).tolist()) for x in (0, 1))
    shared = {v for v in first | second if 1.0 <= v <= 8.0}
    only_one = {v for v in shared if (v in first) != (v in second)}
    assert len(only_one) > len(shared) // 4


# --------------------------------------------------------------------------------- extreme budgets


@pytest.mark.parametrize(
    "budget",
    [
        PureDP(1e-300),
        PureDP(1e-20),
        PureDP(1e-18),
        PureDP(1e5),
        PureDP(1e300),
        GaussianDP(1e-300),
        GaussianDP(1e3),
        GaussianDP(1e300),
        ZCDP(1e-300),
        ZCDP(1e8),
        ApproxDP(1e-300, 1e-300),
        ApproxDP(1e300, 1e-3),
    ],
    ids=str,
)
@pytest.mark.parametrize("decimals", [None, 0])
def test_extreme_budgets_make_a_release_or_one_sentence(budget, decimals):
    domain = Domain([AGE])
    table = Table(np.array([5, 0, 2]), domain)
    try:
        mechanism = design(domain, hold(), budget, decimals=decimals)
        release = mechanism.release(table, seed=0)
    except SubspaceDPError as error:
        refused = str(error)
    else:
        refused = None
        assert release.verify().ok
        spread = 60 * np.sqrt(mechanism.expected_error().per_cell.max() + 1)
        assert np.abs(release.values - table.counts).max() <= spread
    assert refused is None or refused.endswith(".")


def test_every_proof_that_the_mechanism_names_exists():
    made = design(Domain([AGE]), hold(), PureDP(1.0)).mechanism
    folder = Path(__file__).parents[2] / "docs" / "proofs"
    assert made.proofs
    assert [name for name in made.proofs if not (folder / name).is_file()] == []
