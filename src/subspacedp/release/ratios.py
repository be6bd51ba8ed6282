"""A ratio of two figures of a release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subspacedp.arrays import AnyArray, ArrayLike, FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.estimates import check_level
from subspacedp.mechanisms.figures import checked_weights
from subspacedp.special import normal_quantile

__all__ = ["Ratio", "ratio_of"]


CLOSE = 1e-5  # of a margin: how near an end has to be


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ratio:
    """Numerator over denominator, both linear in the answers.

    A ratio of unbiased figures is not itself unbiased: its bias is of the order of the squared
    relative error of the denominator. The standard error is the delta method's.

    Guarantees
    ----------
    1. `interval(level)` covers with at least this probability: it holds every r for which
       numerator − r·denominator, a linear figure with a known law, is compatible with zero
       (Fieller). It is the whole line when the denominator may be zero.
    """

    noise: JointNoise
    numerator_weights: FloatArray
    denominator_weights: FloatArray
    numerator: float
    denominator: float

    @property
    def value(self) -> float:
        """The ratio of the two figures."""
        return self.numerator / self.denominator if self.denominator else math.nan

    @property
    def stderr(self) -> float:
        """By the delta method: the standard error of (numerator − r·denominator)/denominator."""
        if not self.denominator:
            return math.inf
        return self._spread(self.value) / abs(self.denominator)

    def interval(self, level: float = 0.95, *, method: str = "exact") -> tuple[float, float]:
        """Lower and upper end; `method="normal"` is the delta method's."""
        alpha = 1 - check_level(level)
        if method == "normal":
            half = -normal_quantile(alpha / 2) * self.stderr
            return self.value - half, self.value + half
        if method != "exact":
            raise ReleaseError(f"`method` must be 'exact' or 'normal'; got {method!r}.")
        if self._may_vanish(alpha):
            return -math.inf, math.inf
        kappa = self._kappa(self.value, alpha)
        return self._end(alpha, kappa, -1), self._end(alpha, kappa, +1)

    def _may_vanish(self, alpha: float) -> bool:
        """Whether a denominator of 0 is compatible; by Chebyshev's inequality if that decides."""
        size = abs(self.denominator)
        if size > 0 and self._covariance[2] <= 0.9 * alpha * size**2:
            return False
        return self.noise.law_of(self.denominator_weights).margin_of_error(alpha) >= size

    def _end(self, alpha: float, kappa: float, side: int) -> float:
        """The last r on one side that is compatible: where |n − r·d| meets its margin of error.

        The margin is a slowly varying multiple κ of the standard error, and for a fixed κ the end
        solves a quadratic equation: with κ as it is at the value first, then with κ as it is at
        that end. From there a step outward until the end is certainly incompatible.
        """
        r = self._root(kappa, side)
        if not math.isfinite(r):
            return side * math.inf
        r = self._root(self._kappa(r, alpha) * (1 + CLOSE), side)
        if not math.isfinite(r):
            return side * math.inf
        width = max(abs(r - self.value), 1e-12 * abs(self.value), 1e-300)
        for _ in range(60):
            if abs(self.numerator - r * self.denominator) > self._margin(r, alpha):
                return r
            r += side * 2e-3 * width
            width *= 1.5
        return side * math.inf

    def _kappa(self, r: float, alpha: float) -> float:
        """The margin of error of numerator − r·denominator, in standard errors."""
        return self._margin(r, alpha) / max(self._spread(r), 1e-300)

    def _root(self, kappa: float, side: int) -> float:
        """The end of {r : (n − r·d)² ≤ κ²·Var(n − r·d)}."""
        nn, nd, dd = self._covariance
        n, d = self.numerator, self.denominator
        a = d * d - kappa**2 * dd
        b = n * d - kappa**2 * nd
        c = n * n - kappa**2 * nn
        if a <= 0:
            return math.inf
        return (b + side * math.sqrt(max(b * b - a * c, 0.0))) / a

    @cached_property
    def _covariance(self) -> tuple[float, float, float]:
        matrix = self.noise.covariance(np.stack([self.numerator_weights, self.denominator_weights]))
        return float(matrix[0, 0]), float(matrix[0, 1]), float(matrix[1, 1])

    def _difference(self, r: float) -> FloatArray:
        return self.numerator_weights - r * self.denominator_weights

    def _spread(self, r: float) -> float:
        return math.sqrt(self.noise.variance(self._difference(r)))

    def _margin(self, r: float, alpha: float) -> float:
        return self.noise.law_of(self._difference(r)).margin_of_error(alpha)

    def __repr__(self) -> str:
        return f"Ratio({self.value:.6g}, standard error {self.stderr:.6g})"


def ratio_of(
    noise: JointNoise, values: AnyArray, numerator: ArrayLike, denominator: ArrayLike
) -> Ratio:
    """The ratio of two weighted sums of released values."""
    weights = [checked_weights(w, values.shape) for w in (numerator, denominator)]
    if any(w.shape != values.shape for w in weights):
        raise ReleaseError("A ratio has one numerator and one denominator.")
    first, second = (float(np.vdot(w, np.asarray(values, np.float64))) for w in weights)
    return Ratio(
        noise=noise,
        numerator_weights=weights[0],
        denominator_weights=weights[1],
        numerator=first,
        denominator=second,
    )
