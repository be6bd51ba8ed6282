"""Empirical Bayes for counts with known noise: a fitted prior, posterior means and bands of size.

Every count is taken as drawn from a negative binomial law, within its class of cells with a mean
that grows as a power of what margins tell to expect. The three parameters of a class maximise the
marginal likelihood of the noisy counts under the law of their noise, so that nothing but the
release is used, and everything here is post-processing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.mechanisms.error_laws import SumLaw

FAR = 30.0  # standard deviations up to which tails are tabulated
FINE = 16  # places of a table of tails, and of noisy counts, in a standard deviation
WINDOW = 10.0  # standard deviations around a noisy count in which the true one is looked for
FITTED = 2_000  # cells of a class from which its prior is fitted, at most
ALIKE = 0.05  # steps of log prior means that share posteriors
DISPERSION = (0.02, 100.0)  # of negative binomial priors
LOG_MEANS = (-12.0, 40.0)  # of prior means
AT_ONCE = 1 << 12  # kinds of cells looked at together


@frozen(eq=False, repr=False)
class ErrorTable:
    """P(S within half a unit of y) for the error S of a count, from the tails of its law."""

    deviation: float
    step: float
    upper: FloatArray  # P(S > y), for y = 0, step, 2·step, …; halved where S = y

    @classmethod
    def of(cls, law: SumLaw, deviation: float) -> ErrorTable:
        """From tails between the places of the table, so that atoms at places count half."""
        step = 2.0 ** np.floor(np.log2(deviation / FINE))
        between = (np.arange(int(FAR * deviation / step) + 1) + 0.5) * step
        tails = np.array([law.tail(float(y)) for y in between]) / 2
        upper = np.concatenate([[0.5], (tails[1:] + tails[:-1]) / 2])
        return cls(deviation, float(step), np.minimum.accumulate(upper))

    def near(self, y: FloatArray) -> FloatArray:
        """P(|S − y| ≤ w), w half a unit or, for wide laws, half a step."""
        away, half = np.abs(y), max(0.5, self.step / 2)
        return np.maximum(self._above(away - half) - self._above(away + half), 1e-300)

    def _above(self, y: FloatArray) -> FloatArray:
        place = np.abs(y) / self.step
        low = np.minimum(place.astype(np.int64), self.upper.size - 2)
        share = np.minimum(place - low, 1.0)
        value = self.upper[low] * (1 - share) + self.upper[low + 1] * share
        return np.asarray(np.where(y < 0, 1.0 - value, value))


@frozen(eq=False, repr=False)
class Errors:
    """The laws of the errors of many counts: a few tables, and which one every count has."""

    tables: Sequence[ErrorTable]
    which: Int64Array

    def __getitem__(self, chosen: Any) -> Errors:
        return Errors(self.tables, self.which[chosen])

    @property
    def deviation(self) -> FloatArray:
        """The standard deviation of every error."""
        return np.array([table.deviation for table in self.tables])[self.which]


@frozen(eq=False, repr=False)
class Prior:
    """Negative binomial counts: log mean = level + Σ powerⱼ·predictorⱼ, and a dispersion."""

    level: float
    powers: FloatArray
    dispersion: float

    def log_mean(self, predictors: FloatArray) -> FloatArray:
        """Of cells with these predictors, one column for each."""
        return np.asarray(np.clip(self.level + predictors @ self.powers, *LOG_MEANS))


@frozen(eq=False, repr=False)
class _Candidates:
    """Whole numbers that stand for all: each by itself while small, then ever farther apart."""

    counts: FloatArray
    weights: FloatArray  # how many whole numbers each stands for
    log_factorials: FloatArray

    @classmethod
    def of(cls, noisy: FloatArray, reach: FloatArray | float, deviation: float) -> _Candidates:
        """Those that windows around noisy counts need, whatever the size of the counts."""
        from scipy.special import gammaln

        apart = np.floor(max(1.0, deviation / 8))
        runs, at = [np.arange(24.0)], 24.0
        while np.floor(at / 24) < apart:
            runs.append(np.arange(at, 2 * at, np.floor(at / 24)))
            at = runs[-1][-1] + np.floor(at / 24)
        small = np.concatenate([*runs, [at]])  # from its last on, all are as far apart
        near = np.maximum(noisy, 0.0)
        first = np.maximum(np.floor((near - reach - at) / apart), 1.0).astype(np.int64)
        last = np.floor((near + reach - at) / apart).astype(np.int64) + 1
        counts = np.concatenate([small, at + apart * _covered(first, last)])
        edges = np.concatenate([[-0.5], (small[1:] + small[:-1]) / 2, [at + apart / 2]])
        weights = np.full(counts.size, apart)
        weights[: small.size] = np.diff(edges)
        return cls(counts, weights, gammaln(counts + 1))

    def windows(self, noisy: FloatArray, reach: FloatArray | float) -> tuple[Int64Array, BoolArray]:
        """The numbers of the candidates near each noisy count, as many for each; which are not."""
        first = np.searchsorted(self.counts, noisy - reach)
        end = np.searchsorted(self.counts, np.maximum(noisy, 0) + reach, side="right")
        width = min(int((end - first).max(initial=1)), self.counts.size)
        start = np.minimum(first, self.counts.size - width)
        places = np.asarray(start[:, None] + np.arange(width))
        return places, (places < first[:, None]) | (places >= end[:, None])


def _covered(first: Int64Array, last: Int64Array) -> Int64Array:
    """All whole numbers from a first to its last, without repetition."""
    some = first <= last
    order = np.argsort(first[some], kind="stable")
    first, last = first[some][order], last[some][order]
    reached = np.maximum.accumulate(last)
    first = np.maximum(first, np.concatenate([first[:1], reached[:-1] + 1]))
    sizes = np.maximum(last - first + 1, 0)
    return np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())


def fit_prior(noisy: FloatArray, predictors: FloatArray, errors: Errors) -> Prior:
    """The prior of a class of cells, by marginal likelihood.

    Parameters
    ----------
    noisy
        The noisy counts of the class; of many, every k-th enters.
    predictors
        One column for each. The power of the first, the logarithm of what is to be expected, is
        pulled to 1, and so is the dispersion, by about as much as a few cells tell.
    errors
        The laws of the errors of the noisy counts.
    """
    from scipy.optimize import minimize
    from scipy.special import gammaln, psi

    every = -(-noisy.size // FITTED)
    v, given, errors = noisy[::every], predictors[::every], errors[::every]
    centre = given.mean(axis=0)
    given = given - centre
    deviation = errors.deviation
    candidates = _Candidates.of(v, WINDOW * deviation, float(deviation.min()))
    places, far = candidates.windows(v, WINDOW * deviation)
    x = candidates.counts[places]
    fixed = np.log(candidates.weights)[places] - candidates.log_factorials[places]
    for number, table in enumerate(errors.tables):
        of = errors.which == number
        fixed[of] += np.log(table.near(v[of, None] - x[of]))
    fixed[far] = -np.inf
    first = (np.arange(given.shape[1]) == 0).astype(np.float64)
    usual = np.concatenate([[centre[0]], first, [0.0]])
    spread = np.concatenate([[2.0], np.full(given.shape[1], 0.5), [2.0]])

    def missed(parameters: FloatArray) -> tuple[float, FloatArray]:
        level, powers, log_r = parameters[0], parameters[1:-1], parameters[-1]
        mu = np.exp(np.clip(level + given @ powers, *LOG_MEANS))[:, None]
        r = np.exp(log_r)
        log = fixed + gammaln(candidates.counts + r)[places] + x * (np.log(mu) - np.log(r + mu))
        log += r * (log_r - np.log(r + mu))
        top = log.max(axis=1, keepdims=True)
        weight = np.exp(log - top)
        total = weight.sum(axis=1, keepdims=True)
        weight /= total
        value = float(np.sum(top + np.log(total))) - v.size * float(gammaln(r))
        mean, m = np.sum(weight * x, axis=1), mu[:, 0]
        by_mean = (mean - m) * r / (r + m)
        by_r = np.sum(weight * psi(candidates.counts + r)[places], axis=1) - psi(r)
        by_r = r * (by_r + log_r - np.log(r + m) + (m - mean) / (r + m))
        away = (parameters - usual) / spread
        slopes = np.concatenate([[by_mean.sum()], by_mean @ given, [by_r.sum()]]) - away / spread
        return 0.5 * float(away @ away) - value, -slopes

    bounds = [(None, None), *[(-1.0, 3.0)] * given.shape[1], tuple(np.log(DISPERSION))]
    found = minimize(missed, usual, jac=True, method="L-BFGS-B", bounds=bounds).x
    powers = found[1:-1]
    return Prior(float(found[0] - centre @ powers), powers, float(np.exp(found[-1])))


@frozen(eq=False, repr=False)
class Posterior:
    """What noisy counts and their priors say of the true ones.

    Moments are kept of kinds of cells; every cell lies between two kinds.
    """

    bands: int
    moments: FloatArray  # (kinds, …): mean, variance, of every band probability and partial mean
    lower: Int64Array  # the kind below every cell, and the kind above it
    upper: Int64Array
    share: FloatArray  # how far a cell is on the way from one to the other

    def of_cells(self, of_kinds: FloatArray) -> FloatArray:
        """What every cell has of something known of kinds."""
        return np.asarray(
            of_kinds[self.lower] * (1 - self.share) + of_kinds[self.upper] * self.share
        )

    @property
    def mean(self) -> FloatArray:
        """E[count] of every cell."""
        return self.of_cells(self.moments[:, 0])

    @property
    def variance(self) -> FloatArray:
        """Var[count] of every cell."""
        return self.of_cells(self.moments[:, 1])

    def below(self, band: int) -> tuple[FloatArray, FloatArray]:
        """P(count in a band before this one) and E[count; it is], of every cell."""
        probability, partial = self.moments[:, 2 : 2 + band], self.moments[:, 2 + self.bands :]
        return (
            self.of_cells(probability.sum(axis=1)),
            self.of_cells(partial[:, :band].sum(axis=1)),
        )

    def sums(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of every band E[number of cells], E[Σ values of its cells], E[Σ counts]."""
        kinds = self.moments.shape[0]

        def by_kind(weights: FloatArray) -> FloatArray:
            low = np.bincount(self.lower, weights * (1 - self.share), kinds)
            return np.asarray(low + np.bincount(self.upper, weights * self.share, kinds))

        number = by_kind(np.ones(self.share.size))
        probability, partial = np.split(self.moments[:, 2:], 2, axis=1)
        return number @ probability, by_kind(values) @ probability, number @ partial


def posterior(
    noisy: FloatArray,
    log_mean: FloatArray,
    dispersion: FloatArray,
    errors: Errors,
    bands: Sequence[float],
) -> Posterior:
    """Posterior moments of many cells, once for all that are alike.

    Noisy counts are taken at the places of a grid, a fraction of a standard deviation fine and
    coarser for large counts, with interpolation between them; log prior means are rounded.
    """
    lower, upper = np.zeros(noisy.size, np.int64), np.zeros(noisy.size, np.int64)
    share, moments, kinds = np.zeros(noisy.size), [np.zeros((0, 2 + 2 * len(bands)))], 0
    sizes, size = np.unique(dispersion, return_inverse=True)
    means = np.rint(log_mean / ALIKE).astype(np.int64)
    for number, table in enumerate(errors.tables):
        of = np.flatnonzero(errors.which == number)
        v = noisy[of] / table.step
        stride = 2.0 ** np.floor(np.log2(np.maximum(np.abs(v) / (4 * FINE), 1.0)))
        below = np.floor(v / stride)
        share[of] = v / stride - below
        first = int(means[of].min(initial=0))
        several = (int(means[of].max(initial=0)) - first + 1, sizes.size)
        alike = (means[of] - first) * several[1] + size[of]
        steps, key = np.unique(
            np.concatenate([below * stride, (below + 1) * stride]), return_inverse=True
        )
        keys = key.reshape(-1) * (several[0] * several[1]) + np.tile(alike, 2)
        distinct, place = np.unique(keys, return_inverse=True)
        at, rest = np.divmod(distinct, several[0] * several[1])
        mean, which = np.divmod(rest, several[1])
        log_means = (mean + first) * ALIKE
        moments += _moments(steps[at] * table.step, log_means, sizes, which, table, bands)
        place = place.reshape(-1) + kinds
        lower[of], upper[of] = place[: of.size], place[of.size :]
        kinds += distinct.size
    return Posterior(len(bands), np.concatenate(moments), lower, upper, share)


def _moments(
    noisy: FloatArray,
    log_means: FloatArray,
    sizes: FloatArray,
    which: Int64Array,
    table: ErrorTable,
    bands: Sequence[float],
) -> Iterator[FloatArray]:
    """Mean, variance, and of every band probability and partial mean; in parts, by size.

    Noisy counts are in increasing order, and `which` is the dispersion of every prior in `sizes`.
    """
    from scipy.special import gammaln

    if not noisy.size:
        return
    reach = WINDOW * table.deviation
    candidates = _Candidates.of(noisy, reach, table.deviation)
    band = np.searchsorted(bands, candidates.counts, side="right") - 1
    by_count = np.stack([gammaln(candidates.counts + r) - gammaln(r) for r in sizes])
    by_count += np.log(candidates.weights) - candidates.log_factorials
    for at in range(0, noisy.size, AT_ONCE):
        piece = slice(at, at + AT_ONCE)
        v, r = noisy[piece, None], sizes[which[piece], None]
        places, far = candidates.windows(noisy[piece], reach)
        x, mu = candidates.counts[places], np.exp(log_means[piece, None])
        log = by_count[which[piece, None], places] + x * np.log(mu / (r + mu))
        log += np.log(table.near(v - x))
        log[far] = -np.inf
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        partial = weight * x
        mean = partial.sum(axis=1)
        out = np.zeros((len(v), 2 + 2 * len(bands)))
        out[:, 0] = mean
        out[:, 1] = np.maximum(np.sum(partial * x, axis=1) - mean**2, 0.0)
        inside = band[places]
        for k in range(int(inside.min()), int(inside.max()) + 1):
            of = inside == k
            out[:, 2 + k] = np.sum(weight * of, axis=1)
            out[:, 2 + len(bands) + k] = np.sum(partial * of, axis=1)
        yield out
