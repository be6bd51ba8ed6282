"""Ratios of two figures: Fieller's sets, the whole line, and the delta method."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.statistical import ALPHA

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.error_laws import NoiseModel
from subspacedp.release.release import Ratio

DOMAIN = sdp.Domain([sdp.Axis("a", ["x", "y"]), sdp.Axis("b", ["u", "v", "w"])])
COUNTS = np.array([[5, 7, 30], [40, 9, 3]])
TABLE = sdp.Table(COUNTS, DOMAIN)
PART, WHOLE = np.zeros((2, 3)), np.zeros((2, 3))
PART[:, 0], WHOLE[:, :2] = 1, 1  # b = u, out of b = u or v; rows of the table are held


def design(epsilon=1.0, decimals=None, budget=None, held=None):
    budget = sdp.PureDP(epsilon) if budget is None else budget
    return sdp.design(DOMAIN, sdp.hold("a") if held is None else held, budget, decimals=decimals)


def ratio_of(mechanism, numerator, denominator, errors=(0.0, 0.0), counts=COUNTS):
    """A ratio as a release with these errors of numerator and denominator would have it."""
    return Ratio(
        noise=mechanism.mechanism.noise,
        numerator_weights=numerator,
        denominator_weights=denominator,
        numerator=float(np.vdot(numerator, counts)) + errors[0],
        denominator=float(np.vdot(denominator, counts)) + errors[1],
    )


def errors_of(mechanism, weights, number):
    """Errors of some figures in so many releases: noise and roundings of one large table."""
    domain = sdp.Domain([sdp.Axis("replicate", range(number)), *DOMAIN.axes])
    large = sdp.design(
        domain, sdp.hold("replicate", "a"), mechanism.mechanism.budget,
        decimals=mechanism.mechanism.decimals,
    )  # fmt: skip
    release = large.release(sdp.Table(np.broadcast_to(COUNTS, domain.shape), domain), seed=11)
    off = (release.values - COUNTS).reshape(number, -1)
    return off @ np.stack([w.ravel() for w in weights]).T


def test_value_and_standard_error():
    release = design().release(TABLE, seed=2)
    ratio = release.ratio(PART, WHOLE)
    n, d = release.estimate(PART).value, release.estimate(WHOLE).value
    assert ratio.value == n / d
    C = release.covariance(np.stack([PART, WHOLE]))
    r = n / d
    delta = math.sqrt(C[0, 0] - 2 * r * C[0, 1] + r * r * C[1, 1]) / abs(d)
    assert ratio.stderr == pytest.approx(delta, rel=1e-9)
    low, high = ratio.interval(0.9, method="normal")
    assert (low + high) / 2 == pytest.approx(r)
    assert (high - low) / 2 == pytest.approx(1.6448536 * delta, rel=1e-6)
    assert repr(ratio).startswith("Ratio(")


def test_a_fixed_denominator_divides_the_interval_of_the_numerator():
    release = design(0.7).release(TABLE, seed=2)
    for level in (0.8, 0.95, 0.99):
        low, high = release.ratio(PART, np.ones((2, 3))).interval(level)
        one, two = release.estimate(PART).interval(level)
        assert low <= one / 94
        assert two / 94 <= high
        assert high - low == pytest.approx((two - one) / 94, rel=0.01)


def test_two_fixed_figures_have_a_ratio_without_error():
    release = design().release(TABLE, seed=2)
    row = np.zeros((2, 3))
    row[0] = 1
    ratio = release.ratio(row, np.ones((2, 3)))
    low, high = ratio.interval()
    assert ratio.value == pytest.approx(42 / 94)
    assert ratio.stderr == 0.0
    assert low == pytest.approx(42 / 94, abs=1e-9)
    assert high == pytest.approx(42 / 94, abs=1e-9)
    assert low <= high


def test_a_figure_over_itself_is_one():
    release = design().release(TABLE, seed=2)
    ratio = release.ratio(WHOLE, WHOLE)
    assert ratio.value == 1.0
    assert ratio.stderr == pytest.approx(0.0, abs=1e-9)
    low, high = ratio.interval()
    assert low == pytest.approx(1.0, abs=1e-6)
    assert high == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize("decimals", [None, 0])
def test_the_whole_line_where_the_denominator_may_be_zero(decimals, level):
    mechanism = design(1.0, decimals)
    margin = mechanism.accuracy(WHOLE).margin_of_error(level)
    true = float(np.vdot(WHOLE, COUNTS))
    for denominator in (0.0, 0.99 * margin, -0.99 * margin):
        ratio = ratio_of(mechanism, PART, WHOLE, (0.0, denominator - true))
        assert ratio.interval(level) == (-math.inf, math.inf)
    assert math.isnan(ratio_of(mechanism, PART, WHOLE, (0.0, -true)).value)
    assert ratio_of(mechanism, PART, WHOLE, (0.0, -true)).stderr == math.inf
    low, high = ratio_of(mechanism, PART, WHOLE, (0.0, 3 * margin - true)).interval(level)
    assert math.isfinite(low)
    assert math.isfinite(high)


@pytest.mark.parametrize(
    ("epsilon", "decimals", "far"),
    [(1.0, None, 1.05), (1.0, None, 2.0), (4.0, None, 1.3), (8.0, None, 2.0), (2.0, 0, 1.3)],
)
def test_every_compatible_ratio_is_in_the_interval(epsilon, decimals, far):
    """On a fine grid around and far beyond the ends, for denominators down to barely not zero."""
    mechanism, level = design(epsilon, decimals), 0.9
    true = float(np.vdot(WHOLE, COUNTS))
    margin = mechanism.accuracy(WHOLE).margin_of_error(level)
    ratio = ratio_of(mechanism, PART, WHOLE, (0.0, far * margin - true))
    low, high = ratio.interval(level)
    width = min(high, 1e6) - max(low, -1e6)
    outside = np.geomspace(1e-4, 3.0, 6) * width
    for r in [*(high + outside), *(low - outside)]:
        if math.isfinite(r):
            off = abs(ratio.numerator - r * ratio.denominator)
            assert off > mechanism.accuracy(PART - r * WHOLE).margin_of_error(level)
    # And it is not much wider than it has to be: a point a tenth inside each end is compatible.
    if math.isfinite(width):
        for r in (high - 0.1 * (high - ratio.value), low + 0.1 * (ratio.value - low)):
            off = abs(ratio.numerator - r * ratio.denominator)
            assert off <= mechanism.accuracy(PART - r * WHOLE).margin_of_error(level) * 1.05


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize(
    ("epsilon", "decimals"), [(0.1, None), (0.4, None), (3.0, None), (0.4, 0), (3.0, 0)]
)
def test_coverage_at_small_denominators(epsilon, decimals, level):
    """Numerator − r·denominator at the true r is compatible with zero as often as stated.

    ε = 0.1 leaves a denominator of 61 with a standard error of 33.
    """
    mechanism, number = design(epsilon, decimals), 4000
    true = float(np.vdot(PART, COUNTS) / np.vdot(WHOLE, COUNTS))
    errors = errors_of(mechanism, [PART, WHOLE], number)
    margin = mechanism.accuracy(PART - true * WHOLE).margin_of_error(level)
    covered = int(np.count_nonzero(np.abs(errors[:, 0] - true * errors[:, 1]) <= margin))
    assert stats.binom.cdf(covered, number, level) > ALPHA
    if decimals is None and epsilon < 1:  # near-exact: not far above either
        assert stats.binom.sf(covered - 1, number, level) > ALPHA
    # The interval holds the true ratio whenever it is compatible: at the hardest draws.
    off = np.abs(errors[:, 0] - true * errors[:, 1])
    hardest = np.argsort(np.where(off <= margin, off, -1.0))[-2:]
    for e in errors[hardest]:
        low, high = ratio_of(mechanism, PART, WHOLE, e).interval(level)
        assert low <= true <= high


def test_a_twin_with_noise_five_percent_smaller_is_caught():
    """400 000 draws: a coverage of 90 % for 1.05 times the scale is below 88.9 %, 23 deviations."""
    mechanism, level, number = design(0.4), 0.9, 400_000
    twin = design(0.4 * 1.05)
    true = float(np.vdot(PART, COUNTS) / np.vdot(WHOLE, COUNTS))
    errors = errors_of(mechanism, [PART, WHOLE], number)
    off = np.abs(errors[:, 0] - true * errors[:, 1])
    for made, right in ((mechanism, True), (twin, False)):
        margin = made.accuracy(PART - true * WHOLE).margin_of_error(level)
        covered = int(np.count_nonzero(off <= margin))
        assert (stats.binom.cdf(covered, number, level) > ALPHA) == right


def test_refusals():
    release = design().release(TABLE, seed=2)
    with pytest.raises(ReleaseError, match="one numerator and one denominator"):
        release.ratio(np.ones((2, 2, 3)), WHOLE)
    with pytest.raises(ReleaseError, match="must have the shape"):
        release.ratio(np.ones(4), WHOLE)
    with pytest.raises(ReleaseError, match="`method` must be"):
        release.ratio(PART, WHOLE).interval(method="bootstrap")
    with pytest.raises(ReleaseError, match="`level` must be"):
        release.ratio(PART, WHOLE).interval(1.0)


def test_declared_noise_has_ratios_by_chebyshev():
    rng = np.random.default_rng(4)
    wrapped = sdp.impose_on(
        DOMAIN, sdp.hold("a"), lambda x: x + rng.normal(0, 1.0, x.shape), budget=sdp.PureDP(1.0),
        variance=1.0,
    )  # fmt: skip
    low, high = wrapped.release(TABLE).ratio(PART, WHOLE).interval(0.9)
    assert low < 45 / 61 < high


def test_an_interval_needs_few_laws(monkeypatch):
    domain = sdp.Domain([sdp.Axis("a", range(4)), sdp.Axis("b", range(4))])
    mechanism = sdp.design(domain, sdp.hold("a"), sdp.PureDP(0.3))
    release = mechanism.release(sdp.Table(np.full((4, 4), 300), domain), seed=1)
    asked = []
    law_of = NoiseModel.law_of
    monkeypatch.setattr(NoiseModel, "law_of", lambda self, w: asked.append(1) or law_of(self, w))
    rng = np.random.default_rng(0)
    for _ in range(5):
        asked.clear()
        ratio = release.ratio(rng.normal(size=(4, 4)), rng.uniform(1, 2, size=(4, 4)))
        lower, upper = ratio.interval()
        assert len(asked) <= 7  # it was eleven and more
        # The ends are where compatibility ends: a per cent inside, the ratio is compatible.
        for end in (lower, upper):
            inner = end + 0.01 * (ratio.value - end)
            w = ratio.numerator_weights - inner * ratio.denominator_weights
            margin = law_of(release.mechanism.noise, w).margin_of_error(0.05)
            assert abs(ratio.numerator - inner * ratio.denominator) <= margin
