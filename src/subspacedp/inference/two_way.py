"""Tests of two-way tables that know the noise: independence and homogeneity.

The sampling is multinomial, and the known covariance of the noise is part of the variance of every
residual. Derivations: `docs/proofs/inference-tests.md`.
"""

# ruff: noqa: PT028 - functions named test_* of a library, with defaults; not tests of pytest

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.arrays import BoolArray, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.inference.replicates import check_draws, replicates
from subspacedp.inference.results import (
    TestResult,
    check_counts,
    check_estimates,
    check_variance,
    no_test,
    scaled_tail,
)
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.queries import Query
from subspacedp.release import Published
from subspacedp.tables import Domain

__all__ = ["statistics", "test_homogeneity", "test_independence"]


MIN_TOTAL = 5.0  # of a row or a column, for the chi-square approximation ...
MIN_TOTAL_OVER_STDERR = 2.0  # ... and in standard errors of its noise
MAX_COVARIANCE_WEIGHTS = 2**25  # groups × cells whose covariance is taken
MAX_BATCH_NUMBERS = 2**22  # numbers in one batch of statistics


@no_test
def test_independence(
    release: Published,
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
    release: Published,
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
    release: Published,
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _TwoWay:
    """A two-way table of released totals, without the rows and columns known to be empty."""

    release: Published
    query: Query
    domain: Domain
    names: tuple[str, str]
    keep: tuple[BoolArray, BoolArray]
    values: FloatArray  # r × c
    noise: FloatArray  # rc × rc
    roots: FloatArray  # rc × independent noise: its weights times κ₄¼; none where κ₄ is 0

    @classmethod
    def of(cls, release: Published, rows: str, columns: str) -> _TwoWay:
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


def _arranged(
    domain: Domain, rows: str, columns: str, totals: npt.NDArray[np.generic]
) -> FloatArray:
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
