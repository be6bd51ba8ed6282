"""Tests that know the noise: their level counts what privacy added to the data.

Two kinds of null hypothesis. About the *confidential figures* themselves the only randomness is the
noise, whose law is public: p-values are exact, or proven bounds. About the *population* behind the
counts there is sampling too: p-values are asymptotic, with the noise covariance in the variance, or
from replicates that draw counts and noise anew. Derivations: `docs/proofs/inference-tests.md`.
"""

# ruff: noqa: PT028 - functions named test_* of a library, with defaults; not tests of pytest

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, BoolArray, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.inference.replicates import check_draws, replicates
from subspacedp.mechanisms.error_laws import JointNoise, SumLaw
from subspacedp.mechanisms.error_laws.sums import check_variance
from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import checked_weights
from subspacedp.queries import Query
from subspacedp.release import PublishedValues, Release
from subspacedp.tables import Domain

Function = TypeVar("Function", bound=Callable[..., object])


@frozen
class TestResult:
    """The result of a test.

    Parameters
    ----------
    statistic
        The test statistic; (estimate − value)/standard error, or a quadratic form.
    df
        Degrees of freedom of a chi-square statistic; None otherwise.
    pvalue
        The probability, under the null, of a statistic at least as extreme; at least.
    null
        The null hypothesis in a sentence.
    method
        Where the p-value comes from.
    """

    __test__: ClassVar[bool] = False  # not a test class, whatever its name says to pytest

    statistic: float
    df: int | None
    pvalue: float
    null: str
    method: str

    def __repr__(self) -> str:
        df = "" if self.df is None else f", df {self.df}"
        return (
            f"TestResult(statistic {self.statistic:.4g}{df}, p-value {self.pvalue:.4g}; "
            f"null: {self.null}; by {self.method})"
        )


def no_test(function: Function) -> Function:
    """Keep pytest from collecting a function for its name."""
    function.__dict__["__test__"] = False
    return function


def sum_excess(noise: JointNoise, weights: FloatArray) -> float:
    """The excess kurtosis of Σ wᵢ·answerᵢ, without rounding."""
    variance = noise.variance(weights)
    roots = noise.fourth_roots(weights)
    return float(np.sum(roots**4)) / variance**2 if variance > 0 else 0.0


def scaled_tail(statistic: float, df: int, fourth: float) -> tuple[float, str]:
    """The tail of a quadratic form with mean df and variance 2·df + fourth, and its origin.

    It is that of a multiple of a chi-square variable with the same mean and variance.
    """
    from scipy.special import chdtrc

    if fourth <= 0:
        return float(chdtrc(df, statistic)), "the chi-square approximation"
    effective = 2 * df**2 / (2 * df + fourth)
    how = "the chi-square approximation, matched to the fourth moment of Laplace noise "
    how += f"({effective:.3g} effective degrees of freedom)"
    return float(chdtrc(effective, statistic * effective / df)), how


def noise_without_rounding(release: PublishedValues) -> JointNoise:
    """The noise without controlled rounding, for which there are only bounds."""
    plain = tuple(mechanism.noise_before_rounding() for mechanism in release.designs)
    return release.noise.without_rounding(plain)


def check_estimates(release: object, what: str) -> None:
    """Refuse what is neither a release nor several combined."""
    if not isinstance(release, PublishedValues):
        raise ReleaseError(f"{what} needs a release; got a {type(release).__name__}.")


def check_release(release: object, what: str) -> Release:
    """A release, where nothing else will do."""
    if not isinstance(release, Release):
        raise ReleaseError(f"{what} needs a release; got a {type(release).__name__}.")
    return release


def check_counts(query: Query) -> None:
    """Refuse answers that are not counts of records, for tests with a sampling model of counts."""
    if not query.counts_records:
        raise ReleaseError(
            "This test is for counts of people; the answers of this release are not counts."
        )


MIN_POISSON_VARIANCE = 8.0  # of a difference of cells, for the normal approximation
MIN_TOTAL = 5.0  # of a row or a column, for the chi-square approximation ...
MIN_TOTAL_OVER_STDERR = 2.0  # ... and in standard errors of its noise
MAX_COVARIANCE_WEIGHTS = 2**25  # groups × cells whose covariance is taken
MAX_BATCH_NUMBERS = 2**22  # numbers in one batch of statistics

EXACT = "the exact law of the noise"
HOW = {
    "exact": EXACT,
    "smeared": "the law of the noise, conservative by at most 0.6 % of a standard error",
    "simulated": "draws of the noise with a public key, with room for the error of simulation",
    "conservative": "a proven bound on the law of the noise",
    "Chebyshev": "Chebyshev's inequality: only the variance of the noise is known",
}


# ------------------------------------------------------------------ about the confidential figures


@no_test
def test_value(release: PublishedValues, figure: ArrayLike | Estimate, value: float) -> TestResult:
    """Test that the true figure equals a value.

    Parameters
    ----------
    release
        The release.
    figure
        Weights of the answers, or one figure that `release.estimate` or `release.margin` gave.
    value
        What the confidential figure is under the null.

    Guarantees
    ----------
    1. Under the null P(p-value ≤ a) ≤ a for every a, over the noise, whatever the data: the p-value
       is a tail of the law of the noise. Equality, up to the steps of a lattice, where nothing
       was rounded.
    2. A figure that the invariants fix has the p-value 1 or 0: it is published exactly.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> result = test_value(release, release.where(sex="F"), 40)
    >>> result.method, round(result.statistic, 3), result.pvalue > 0.2
    ('the exact law of the noise', -1.25, True)
    >>> test_value(release, release.where(age="old"), 50).pvalue
    1.0
    """
    if isinstance(figure, Estimate):
        if figure.values.size != 1:
            raise ReleaseError(
                f"One figure is tested at a time; this estimate has {figure.values.size:,}."
            )
        estimate, size = float(figure.values.reshape(-1)[0]), 0.0
        stderr = float(np.reshape(figure.stderr, -1)[0])
        law = figure.figures.law(int(figure.figures.classes().reshape(-1)[0]))
    else:
        w = _one_figure(release, figure)
        estimate, size = _weighted(release, w)
        stderr, law = math.sqrt(release.noise.variance(w)), release.noise.law_of(w)
    wanted = _number(value)
    null = f"the true figure is {wanted:,.10g}"
    return _against_noise(estimate - wanted, max(size, abs(estimate), 1.0), stderr, law, null)


@no_test
def test_equal(
    release: PublishedValues, first: ArrayLike, second: ArrayLike, *, sampling: str = "none"
) -> TestResult:
    """Test that two figures are equal.

    Parameters
    ----------
    release
        The release, or several combined.
    first, second
        Weights of the answers; `release.where(...)` gives those of a group.
    sampling
        "none": the null is that the two confidential figures are equal. "poisson": that their
        expectations are, for cells with independent Poisson counts.

    Guarantees
    ----------
    1. "none": that of `test_value`.
    2. "poisson": the level is asymptotic, for differences large enough to be nearly normal. It is
       the same when a sum of cells is held: given n = a + b the difference a − b has variance n
       under the null, and n is then known exactly.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0))
    >>> release = mechanism.release(sdp.Table([[30, 20], [10, 40]], domain), seed=1)
    >>> cell = {"age": "old"}
    >>> women, men = release.where(sex="F", **cell), release.where(sex="M", **cell)
    >>> test_equal(release, women, men).pvalue < test_equal(
    ...     release, women, men, sampling="poisson"
    ... ).pvalue < 0.01
    True
    """
    if sampling not in ("none", "poisson"):
        raise ReleaseError(f"`sampling` must be 'none' or 'poisson'; got {sampling!r}.")
    w = _one_figure(release, first) - _one_figure(release, second)
    difference, size = _weighted(release, w)
    joint = release.noise
    noise = joint.variance(w)
    if sampling == "none":
        law = joint.law_of(w)
        null = "the two true figures are equal"
        return _against_noise(difference, max(size, 1.0), math.sqrt(noise), law, null)
    check_counts(release.query)
    check_variance(noise)
    values = np.asarray(release.values, np.float64)
    sampled = float(np.vdot(w * w, values))  # Var(w·n) = Σ w²λ, estimated
    variance = noise + max(0.0, sampled)
    if variance < MIN_POISSON_VARIANCE * float(np.abs(w).max(initial=0.0)) ** 2:
        raise ReleaseError(
            "The two figures have too few people for a Poisson test; `sampling='none'` tests the "
            "confidential figures themselves."
        )
    statistic, fourth = 0.0, 0.0
    if variance > 0:
        statistic = difference**2 / variance
        fourth = float(np.sum(joint.fourth_roots(w) ** 4)) / variance**2
    pvalue, how = scaled_tail(statistic, 1, fourth)
    return TestResult(
        statistic=statistic,
        df=1,
        pvalue=pvalue,
        null="the expectations behind two independent Poisson figures are equal",
        method=f"{how}; variance: Poisson, estimated, plus that of the noise",
    )


def _against_noise(
    difference: float, size: float, stderr: float, law: SumLaw, null: str
) -> TestResult:
    """|difference| against the law of the noise; `size` is that of the numbers it came from."""
    slack = 1e-12 * size  # what float64 may have done to a sum of published values
    if stderr == 0:
        equal = abs(difference) <= slack
        return TestResult(
            statistic=0.0 if equal else math.copysign(math.inf, difference),
            df=None,
            pvalue=1.0 if equal else 0.0,
            null=null,
            method="no noise: the invariants fix the figure, and it is published exactly",
        )
    return TestResult(
        statistic=difference / stderr,
        df=None,
        pvalue=law.tail(abs(difference) - slack),
        null=null,
        method=HOW.get(law.method, law.method),
    )


def _one_figure(release: PublishedValues, weights: ArrayLike) -> FloatArray:
    check_estimates(release, "A test")
    if isinstance(weights, Estimate):
        raise ReleaseError("Give the weights of a figure; an estimate has forgotten its own.")
    w = checked_weights(weights, release.values.shape)
    if w.shape != release.values.shape:
        raise ReleaseError(f"One figure is tested at a time; got weights of {len(w)}.")
    return w


def _weighted(release: PublishedValues, w: FloatArray) -> tuple[float, float]:
    """Σ wᵢ·answerᵢ and Σ |wᵢ·answerᵢ|."""
    terms = w * np.asarray(release.values, np.float64)
    return float(terms.sum()), float(np.abs(terms).sum())


def _number(value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ReleaseError(f"`value` must be a finite number; got {value!r}.")
    return number


# -------------------------------------------------------------------------------- two-way tables


@no_test
def test_independence(
    release: PublishedValues,
    *,
    rows: str,
    columns: str,
    method: str = "chi-square",
    number: int = 999,
    seed: int | None = None,
) -> TestResult:
    """Test that two classifications are independent, for a multinomial sample with known noise.

    Parameters
    ----------
    release
        The release, or several combined.
    rows, columns
        Two level names of different axes; all other axes are summed over.
    method
        "chi-square": the limit law of the statistic. "replicates": tables drawn from the fitted
        null, with noise drawn from the mechanism.
    number, seed
        How many replicates, and a whole number that makes them reproducible.

    Guarantees
    ----------
    1. Without noise, the statistic is Pearson's.
    2. As expected counts grow, or the noise becomes normal, its law under the null tends to
       chi-square with (r − 1)(c − 1) degrees of freedom, whatever totals are held. Where Laplace
       noise dominates a small table, a multiple of a chi-square variable with the right mean and
       variance takes its place.
    3. Under controlled rounding the noise covariance is an upper bound, and "chi-square"
       conservative.
    4. "chi-square" refuses a table with a row or column total below 5, or below twice the standard
       error of its noise; "replicates" does not. Rows and columns that are known to be empty are
       left out.

    Notes
    -----
    The residuals y_ij − y_i·y_·j/y_·· have the derivative (I − p1ᵀ) ⊗ (I − q1ᵀ) at shares p and q.
    Their covariance is N·(diag p − ppᵀ) ⊗ (diag q − qqᵀ) from sampling and GΣGᵀ from the noise.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(0.5))
    >>> release = mechanism.release(sdp.Table([[130, 120], [110, 140]], domain), seed=1)
    >>> result = test_independence(release, rows="age", columns="sex")
    >>> result.df, result.pvalue > 0.01
    (1, True)
    """
    null = f"{rows} and {columns} are independent in the population"
    return _two_way(release, rows, columns, method, number, seed, null, rows_fixed=False)


@no_test
def test_homogeneity(
    release: PublishedValues,
    *,
    rows: str,
    columns: str,
    method: str = "chi-square",
    number: int = 999,
    seed: int | None = None,
) -> TestResult:
    """Test that every row has the same distribution over the columns (product multinomial).

    The statistic, its limit and the arguments are those of `test_independence`; replicates keep the
    row totals and draw each row by itself.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("age"), sdp.PureDP(0.5))
    >>> release = mechanism.release(sdp.Table([[200, 50], [110, 140]], domain), seed=1)
    >>> test_homogeneity(release, rows="age", columns="sex", method="replicates", seed=2).pvalue
    0.001
    """
    null = f"every {rows} has the same distribution of {columns}"
    return _two_way(release, rows, columns, method, number, seed, null, rows_fixed=True)


def _two_way(
    release: PublishedValues,
    rows: str,
    columns: str,
    method: str,
    number: int,
    seed: int | None,
    null: str,
    *,
    rows_fixed: bool,
) -> TestResult:
    if method not in ("chi-square", "replicates"):
        raise ReleaseError(f"`method` must be 'chi-square' or 'replicates'; got {method!r}.")
    table = _TwoWay.of(release, rows, columns)
    r, c = table.values.shape
    df = (r - 1) * (c - 1)
    with_noise = bool(np.any(table.noise))
    noise = "noise covariance known" if with_noise else "no noise: the table is published exactly"
    if method == "chi-square":
        table.check()
        statistic = float(statistics(table.values[None], table.noise)[0])
        pvalue, how = scaled_tail(statistic, df, table.fourth())
        return TestResult(statistic, df, pvalue, null, f"{how}; {noise}")
    check_draws(number, seed)
    counts = table.drawn(number, seed, rows_fixed=rows_fixed)
    if with_noise:
        counts += table.noise_draws(number, seed)
    statistic = float(statistics(table.values[None], table.noise)[0])
    # A tie counts, so that float64 must not break one.
    larger = int(np.count_nonzero(statistics(counts, table.noise) >= statistic * (1 - 1e-9)))
    how = f"{number:,} replicates of the fitted null with " + (
        "noise from the mechanism" if with_noise else noise
    )
    return TestResult(statistic, df, (1 + larger) / (number + 1), null, how)


@frozen(eq=False, repr=False, kw_only=True)
class _TwoWay:
    """A two-way table of released totals, without the rows and columns known to be empty."""

    release: PublishedValues
    query: Query
    domain: Domain
    names: tuple[str, str]
    keep: tuple[BoolArray, BoolArray]
    values: FloatArray  # r × c
    noise: FloatArray  # rc × rc
    roots: FloatArray  # rc × independent noise: its weights times κ₄¼; none where κ₄ is 0

    @classmethod
    def of(cls, release: PublishedValues, rows: str, columns: str) -> _TwoWay:
        check_estimates(release, "A test of a two-way table")
        query = release.query
        check_counts(query)
        domain = release.domain
        for name in (rows, columns):
            if not isinstance(name, str):
                raise ReleaseError("`rows` and `columns` are names of levels.")
        margin = domain.margin(rows, columns)
        groups = int(np.prod(margin.shape))
        if groups * release.values.size > MAX_COVARIANCE_WEIGHTS:
            raise ReleaseError(
                f"A two-way table of {groups:,} groups over {release.values.size:,} cells is too "
                "large for its covariance; take coarser levels."
            )
        eye = np.eye(groups).reshape(groups, *margin.shape)
        weights = np.stack([query.indicator(margin, e) for e in eye])
        cov = release.covariance(weights)
        check_variance(float(np.trace(cov)))
        values = _arranged(domain, rows, columns, np.asarray(release.margin(rows, columns).values))
        r, c = values.shape
        places = np.arange(groups).reshape(margin.shape)
        order = _arranged(domain, rows, columns, places).astype(np.int64)
        cov = cov[np.ix_(order.ravel(), order.ravel())].reshape(r, c, r, c)
        keep = tuple(
            ~((values.sum(axis=1 - a) <= 1e-6) & (_total_variances(cov, a) <= 1e-12 * cov.max()))
            for a in (0, 1)
        )
        values = values[np.ix_(*keep)]
        if min(values.shape) < 2:
            raise ReleaseError(
                f"A two-way table needs two rows and two columns that are not known to be empty; "
                f"`{rows}` by `{columns}` has {values.shape[0]} and {values.shape[1]}."
            )
        cov = cov[np.ix_(*keep, *keep)].reshape(values.size, values.size)
        return cls(
            release=release,
            query=query,
            domain=domain,
            names=(rows, columns),
            keep=(keep[0], keep[1]),
            values=values,
            noise=cov,
            roots=_roots(release.noise, weights[order[np.ix_(*keep)].ravel()]),
        )

    def check(self) -> None:
        """Refuse totals for which the chi-square approximation cannot be trusted."""
        cov = self.noise.reshape(self.values.shape * 2)
        for a, name in enumerate(self.names):
            totals = self.values.sum(axis=1 - a)
            least = np.maximum(MIN_TOTAL, MIN_TOTAL_OVER_STDERR * np.sqrt(_total_variances(cov, a)))
            small = int(np.count_nonzero(totals < least))
            if small:
                raise ReleaseError(
                    f"The counts are too small for the noise: {small} of {totals.size} totals of "
                    f"`{name}` are below 5 or below twice the standard error of their noise; take "
                    "coarser levels, or method='replicates'.",
                    small=small,
                )

    def fourth(self) -> float:
        """What the fourth cumulant of the noise adds to the variance of the statistic.

        Independent noise of cell i moves the residuals by aᵢ and adds κ₄·(aᵢᵀV⁻¹aᵢ)².
        """
        if not self.roots.size or not np.any(self.noise):
            return 0.0
        _, V, G = (part[0] for part in _residuals(self.values[None], self.noise))
        A = G @ self.roots
        return float(np.sum(np.einsum("ki,ki->i", A, np.linalg.solve(V, A)) ** 2))

    def drawn(self, number: int, seed: int | None, *, rows_fixed: bool) -> FloatArray:
        """Tables drawn from the fitted null, without noise."""
        rng = np.random.default_rng(None if seed is None else [seed % 2**64, 0x5DB])
        R, q, total = self._fitted
        r, c = self.values.shape
        if rows_fixed:
            drawn = rng.multinomial(np.rint(R).astype(np.int64), q, size=(number, r))
        else:
            shares = np.multiply.outer(R / R.sum(), q).ravel()
            drawn = rng.multinomial(round(total), shares / shares.sum(), size=number)
        return drawn.reshape(number, r, c).astype(np.float64)

    @property
    def _fitted(self) -> tuple[FloatArray, FloatArray, float]:
        """Row totals, column shares and the grand total, none below one person."""
        R, C = (np.maximum(self.values.sum(axis=1 - a), 1.0) for a in (0, 1))
        return R, C / C.sum(), max(float(self.values.sum()), 1.0)

    def noise_draws(self, number: int, seed: int | None) -> FloatArray:
        """The noise of the table, drawn anew."""
        margin = self.domain.margin(*self.names)
        out = np.empty((number, *self.values.shape))
        for i, drawn in enumerate(replicates(self.release, number, seed=seed)):
            sums = self.query.totals(np.asarray(drawn, np.float64), margin)
            out[i] = _arranged(self.domain, *self.names, sums)[np.ix_(*self.keep)]
        return out


def _roots(noise: JointNoise, weights: FloatArray) -> FloatArray:
    """The weights of the independent noise in every figure, each times κ₄¼."""
    return np.stack([noise.fourth_roots(w) for w in weights])


def _arranged(domain: Domain, rows: str, columns: str, totals: AnyArray) -> FloatArray:
    """Totals of the margin as a matrix of rows by columns."""
    margin = domain.margin(rows, columns)
    names = margin.names
    matrix = totals.reshape([lv.groups for lv in margin.levels if lv.name]).astype(np.float64)
    return np.asarray(matrix if names[0] == rows else matrix.T)


def _total_variances(cov: FloatArray, axis: int) -> FloatArray:
    """Noise variances of the row (0) or column (1) totals from an r × c × r × c covariance."""
    return np.asarray(np.maximum(np.einsum("ijil->i" if axis == 0 else "ijkj->j", cov), 0.0))


def statistics(tables: FloatArray, noise: FloatArray) -> FloatArray:
    """The quadratic form zᵀV⁻¹z of the interaction residuals of each of several tables.

    Parameters
    ----------
    tables
        b × r × c.
    noise
        The covariance of the noise of one table, rc × rc.
    """
    b, r, c = tables.shape
    out = np.empty(b)
    step = max(1, MAX_BATCH_NUMBERS // ((r - 1) * (c - 1) * r * c))
    for start in range(0, b, step):
        out[start : start + step] = _batch(tables[start : start + step], noise)
    return out


def _batch(y: FloatArray, noise: FloatArray) -> FloatArray:
    z, V, _ = _residuals(y, noise)
    return np.asarray(np.einsum("bi,bi->b", z, np.linalg.solve(V, z[:, :, None])[:, :, 0]))


def _residuals(y: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Contrasts z of the interaction residuals, their covariance V, their derivative G."""
    b, r, c = y.shape
    k = (r - 1) * (c - 1)
    R, C = np.maximum(y.sum(axis=2), 1.0), np.maximum(y.sum(axis=1), 1.0)
    p, q = R / R.sum(axis=1, keepdims=True), C / C.sum(axis=1, keepdims=True)
    total = np.maximum(y.sum(axis=(1, 2)), 1.0)
    # Residuals have zero row and column sums: orthonormal contrasts H lose nothing of them, and
    # there V has full rank.
    Hr, Hc = _contrasts(r), _contrasts(c)
    residual = y - total[:, None, None] * p[:, :, None] * q[:, None, :]
    z = (Hr @ residual @ Hc.T).reshape(b, k)
    Gr, Gc = Hr - (p @ Hr.T)[:, :, None], Hc - (q @ Hc.T)[:, :, None]  # H(I − p1ᵀ)
    Dr, Dc = Gr * p[:, None, :] @ Hr.T, Gc * q[:, None, :] @ Hc.T  # H(diag p − ppᵀ)Hᵀ
    G = np.einsum("bij,bkl->bikjl", Gr, Gc).reshape(b, k, r * c)
    V = total[:, None, None] * np.einsum("bij,bkl->bikjl", Dr, Dc).reshape(b, k, k)
    if np.any(noise):
        V += G @ noise @ G.transpose(0, 2, 1)
    return z, V, G


def _contrasts(n: int) -> FloatArray:
    """Orthonormal rows orthogonal to 1 (Helmert's)."""
    out = np.tril(np.ones((n - 1, n)))
    out[np.arange(n - 1), np.arange(1, n)] = -np.arange(1, n)
    return np.asarray(out / np.sqrt(np.arange(1, n) * np.arange(2, n + 1))[:, None])
