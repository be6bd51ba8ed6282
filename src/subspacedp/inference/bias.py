"""Do small places gain and large ones lose? The trend of errors in size, group by group.

A release that is made non-negative and rescaled to exact totals moves people from large places to
small ones. An unbiased release does not: its errors do not depend on the counts. The check is that
of the paper's census demonstration: in every state with more than five counties, the regression of
errors on the logarithm of the population.
"""

from __future__ import annotations

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.estimates import check_level


@frozen(eq=False, repr=False, kw_only=True)
class BiasTrend:
    """Slopes of errors on log size, one per group, and how many of them point the same way."""

    labels: AnyArray
    n: Int64Array
    slope: FloatArray
    stderr: FloatArray
    t: FloatArray
    pvalue: FloatArray  # two-sided
    level: float
    skipped: int  # groups too small, or without two sizes
    dropped: int  # members without a positive size

    @property
    def groups(self) -> int:
        """How many groups have a slope."""
        return len(self.slope)

    @property
    def negative(self) -> int:
        """How many slopes are negative: large places lose."""
        return int(np.count_nonzero(self.slope < 0))

    @property
    def positive(self) -> int:
        """How many slopes are positive."""
        return int(np.count_nonzero(self.slope > 0))

    @property
    def significant_negative(self) -> int:
        """How many negative slopes have a p-value of at most `level`."""
        return int(np.count_nonzero((self.slope < 0) & (self.pvalue <= self.level)))

    @property
    def significant_positive(self) -> int:
        """How many positive slopes have a p-value of at most `level`."""
        return int(np.count_nonzero((self.slope > 0) & (self.pvalue <= self.level)))

    @property
    def sign_pvalue(self) -> float:
        """Two-sided, for half of the slopes negative: the sign test over independent groups.

        Slopes of exactly 0 count on neither side.
        """
        from scipy.special import bdtr

        signed = self.negative + self.positive
        fewer = min(self.negative, self.positive)
        return min(1.0, 2 * float(bdtr(fewer, signed, 0.5))) if signed else 1.0

    def columns(self) -> dict[str, AnyArray]:
        """One row per group."""
        return {
            "group": self.labels,
            "n": self.n,
            "slope": self.slope,
            "stderr": self.stderr,
            "t": self.t,
            "pvalue": self.pvalue,
        }

    def __repr__(self) -> str:
        left_out = f"; {self.skipped:,} groups skipped" if self.skipped else ""
        left_out += f"; {self.dropped:,} members without a positive size" if self.dropped else ""
        return (
            f"BiasTrend({self.groups:,} groups: {self.negative:,} negative slopes "
            f"(p-value {self.sign_pvalue:.3g} for half), significant at {self.level:g}: "
            f"{self.significant_negative:,} negative, {self.significant_positive:,} positive"
            f"{left_out})"
        )


def bias_trend(
    errors: ArrayLike,
    size: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.01,
    least: int = 6,
) -> BiasTrend:
    """Regress errors on log size within every group.

    This needs the truth, so it is for a curator's own evaluation, or for data whose truth is
    public. Its result describes confidential errors and is not protected.

    Parameters
    ----------
    errors
        Release minus truth.
    size
        The true counts, or other positive sizes. Members without a positive size have no
        logarithm: they are left out and counted.
    groups
        The group of every member, such as its state; one group of all by default.
    level
        Of the two-sided t-test of every slope.
    least
        Groups with fewer members are skipped and counted, as are those whose sizes are all equal.

    Guarantees
    ----------
    1. Errors of mean zero, whatever the sizes, have slopes of mean zero, also when a group's sum is
       held. If their law is symmetric, both signs are as likely, and `sign_pvalue` is exact for
       groups with independent errors. The t-tests are exact for normal errors of equal variance.

    Examples
    --------
    >>> import numpy as np
    >>> size = np.array([10, 20, 50, 100, 200, 1000])
    >>> trend = bias_trend(10 - 2 * np.log(size) + [0.1, -0.1, 0, 0.1, 0, -0.1], size)
    >>> trend.negative, round(float(trend.slope[0]), 1)
    (1, -2.0)
    """
    level = check_level(level)
    if isinstance(least, bool) or not isinstance(least, int) or least < 3:
        raise ReleaseError(f"`least` must be a whole number of at least 3; got {least!r}.")
    y, s = _numbers(errors, "errors"), _numbers(size, "size")
    g = np.zeros(y.shape, np.int64) if groups is None else np.asarray(groups).reshape(-1)
    if g.dtype == object and len(set(map(type, g))) > 1:
        raise ReleaseError("`groups` must be all text or all numbers, without missing ones.")
    if not y.size == s.size == g.size:
        raise ReleaseError(
            f"Errors, sizes and groups must be equally many; got {y.size:,}, {s.size:,} and "
            f"{g.size:,}."
        )
    usable = s > 0
    labels, member = np.unique(g[usable], return_inverse=True)
    member, x, y = member.reshape(-1), np.log(s[usable]), y[usable]
    number = len(labels)

    def total(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(member, weights=values, minlength=number), np.float64)

    n = np.bincount(member, minlength=number)
    # Centred before squares are taken, so that large sizes cancel nothing.
    x = x - (total(x) / n)[member]
    y = y - (total(y) / n)[member]
    sxx = total(x * x)
    kept = (n >= least) & (sxx > 1e-20 * n)
    sxx = np.where(kept, sxx, 1.0)
    slope = total(x * y) / sxx
    residual = total((y - slope[member] * x) ** 2)
    stderr = np.sqrt(residual / (np.maximum(n - 2, 1) * sxx))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = slope / stderr
    from scipy.special import stdtr

    pvalue = np.where(np.isnan(t), 1.0, 2 * stdtr(np.maximum(n - 2, 1), -np.abs(t)))
    missing = 0 if groups is None else len(np.unique(g)) - number  # groups without a size at all
    return BiasTrend(
        labels=labels[kept],
        n=n[kept],
        slope=slope[kept],
        stderr=stderr[kept],
        t=t[kept],
        pvalue=pvalue[kept],
        level=level,
        skipped=int(np.count_nonzero(~kept)) + missing,
        dropped=int(np.count_nonzero(~usable)),
    )


def _numbers(values: ArrayLike, name: str) -> FloatArray:
    try:
        out = np.asarray(values, np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise ReleaseError(f"`{name}` must be numbers.") from None
    if not np.all(np.isfinite(out)):
        raise ReleaseError(f"`{name}` must be finite numbers.")
    return out
