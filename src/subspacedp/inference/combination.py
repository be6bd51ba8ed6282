"""Several releases of the same answers as one: generalised least squares under all invariants.

Release r is y_r = x + ξ_r with ξ_r in the null space N_r of its invariants. All held values are
exact, so x is known outside N = ∩ N_r, and inside N_r the noise of release r has the same variance
in every direction. The best linear unbiased estimate is therefore lift(c) + Π_N Σ ω_r y_r with ω_r
in proportion to one over the variance. Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.inference.combined_noise import (
    CombinedNoise,
    DenseCombinedNoise,
    alike,
    rounded_digits,
)
from subspacedp.inference.combined_totals import CombinedTotals, by_class
from subspacedp.inference.joint_releases import checked_releases, joint_invariants
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, MarginNullSpace, space_of
from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import (
    Figures,
    cells_apart,
    checked_weights,
    groups_apart,
    kept_shape,
    level_names,
    margin_names,
    rows_apart,
)
from subspacedp.mechanisms.impose import impose_bound
from subspacedp.queries import Query
from subspacedp.release import Release
from subspacedp.release.questions import where
from subspacedp.release.ratios import Ratio, ratio_of
from subspacedp.rounding import GroupProfiles
from subspacedp.tables import Domain, Margin

__all__ = ["Combined", "CombinedNoise", "DenseCombinedNoise", "combine"]

FloatArray = npt.NDArray[np.float64]


def combine(*releases: Release | Iterable[Release]) -> Combined:
    """Combine independent releases of the same answers into the best linear unbiased estimate.

    Parameters
    ----------
    releases
        A list of them, or one after another: at least one, each made with noise of its own. They
        may hold different things and be of different budgets, mechanisms and digits.

    Guarantees
    ----------
    1. The values keep what any of the releases holds, to the rounding of float64, and are unbiased.
    2. Among all linear unbiased estimates no weighted sum of answers has a smaller variance, where
       nothing was rounded to digits. With digits the weights use the average variance of each
       release, rounding included: still unbiased, and best but for the shape of the rounding.
    3. Standard errors and intervals come from the law of all noise together, as for one release.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("age", ["young", "old"]), sdp.Axis("sex", ["F", "M"])])
    >>> table = sdp.Table([[30, 20], [10, 40]], domain)
    >>> first = sdp.design(domain, sdp.hold("age"), sdp.PureDP(1.0)).release(table, seed=1)
    >>> second = sdp.design(domain, sdp.hold("sex"), sdp.PureDP(2.0)).release(table, seed=2)
    >>> both = combine([first, second])
    >>> both
    Combined(2 releases of Domain(age: 2, sex: 2; 4 cells), held: every age total; every sex total,
      weights 0.19, 0.81)
    >>> both.values.sum(axis=0), both.values.sum(axis=1)
    (array([40., 60.]), array([50., 50.]))
    """
    one = releases[0] if len(releases) == 1 else None
    chosen = checked_releases(releases if one is None or isinstance(one, Release) else one)
    held, exact = joint_invariants(chosen)
    space = space_of(held)
    noises = tuple(release.mechanism.noise for release in chosen)
    variances = [_average_variance(release) for release in chosen]
    precision = [1 / v for v in variances]
    weights = tuple(p / math.fsum(precision) for p in precision)
    noise: CombinedNoise | DenseCombinedNoise
    if all(alike(n) for n in noises):
        noise = CombinedNoise(noises=noises, shares=weights, space=space)
    else:
        noise = DenseCombinedNoise.best(noises, space)
        weights = tuple(float(np.trace(m)) / max(space.dimension, 1) for m in noise.maps)
    out = _mixed(
        noise, held, [release.values for release in chosen], exact, chosen[0].mechanism.query
    )
    out.setflags(write=False)
    return Combined(
        releases=chosen, held=held, exact=exact, values=out, noise=noise, weights=weights
    )


def _mixed(
    noise: CombinedNoise | DenseCombinedNoise,
    held: HeldMargins | HeldMatrix,
    values: Sequence[npt.NDArray[Any]],
    exact: HeldValues,
    query: Query,
) -> FloatArray:
    """lift(c) + Σ M_r(y_r − lift(c)), which has all that is held."""
    grid = float(query.grid)
    scaled = [np.asarray(v, np.float64) / grid for v in values]
    if isinstance(noise, CombinedNoise):
        pairs = zip(noise.shares, scaled, strict=True)
        mixed = sum((w * v for w, v in pairs), np.zeros(noise.space.shape))
    else:
        base = noise.space.lift(exact)
        mixed = base + sum(
            (m @ (v - base).reshape(-1) for m, v in zip(noise.maps, scaled, strict=True)),
            np.zeros(noise.space.size),
        ).reshape(noise.space.shape)
    return impose_bound(held, mixed, exact) * grid


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Combined:
    """The best estimate from several releases; made by `combine`.

    Parameters
    ----------
    releases
        What was combined.
    held, exact
        Everything that any release holds, with its values.
    values
        In the shape of the answers.
    noise
        The joint law of values minus truth.
    weights
        ω_r, the share of every release; its average over all directions where it differs.
    """

    releases: tuple[Release, ...]
    held: HeldMargins | HeldMatrix
    exact: HeldValues
    values: FloatArray
    noise: CombinedNoise | DenseCombinedNoise
    weights: tuple[float, ...]

    @property
    def query(self) -> Query:
        """What all releases answer."""
        return self.releases[0].mechanism.query

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        return self.releases[0].mechanism.domain

    def stderr(self) -> FloatArray:
        """The standard error of every answer; 0 where the invariants fix it."""
        return np.sqrt(self.noise.cell_variance())

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, method: str = "exact"
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, in the shape of the values, that cover the truth."""
        return self.cells().interval(level, simultaneous=simultaneous, method=method)

    def cells(self) -> Estimate:
        """Every answer as an estimate."""
        if by_class(self.noise):
            figures: Figures = self._totals(self.domain.cells)
        else:
            figures = cells_apart(self.noise, self.query.shape)
        return self._estimate(figures, self.values, self.query.columns)

    def estimate(self, weights: npt.ArrayLike) -> Estimate:
        """A weighted sum of the answers, or several along a leading axis of the weights."""
        shape = self.query.shape
        w = checked_weights(weights, shape)
        rows = w[None] if w.shape == shape else w
        figures = rows_apart(self.noise, rows, () if w.shape == shape else (len(rows),))
        return self._estimate(figures, np.asarray(np.tensordot(w, self.values, len(shape))), dict)

    def margin(self, *names: str) -> Estimate:
        """The total of every group of a margin, by the names of its levels."""
        margin = self.domain.margin(*level_names(names))
        held = self.held
        if isinstance(held, HeldMargins) and any(m.determines(margin) for m in held.margins):
            values: npt.NDArray[Any] = held.of(self.exact, margin)
            if self.query.grid != 1:
                values = values * float(self.query.grid)
        else:
            values = margin.sum(self.values)
        figures: Figures
        figures = self._totals(margin) if by_class(self.noise) else groups_apart(self.noise, margin)
        shape = kept_shape(margin)
        return self._estimate(figures, values.reshape(shape), partial(margin_names, margin), shape)

    def ratio(self, numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> Ratio:
        """A ratio of two weighted sums of the answers."""
        return ratio_of(self.noise, self.values, numerator, denominator)

    def covariance(self, weights: npt.ArrayLike) -> FloatArray:
        """The covariance matrix of several weighted sums of the answers.

        With digits that add up it is an upper bound, in the sense of matrices.
        """
        w = checked_weights(weights, self.query.shape)
        return self.noise.covariance(w[None] if w.shape == self.query.shape else w)

    def of_noise(self, drawn: Sequence[npt.NDArray[Any]]) -> FloatArray:
        """What the combination makes of one noise table for each release, all held values 0."""
        zeros = self.held.sums(np.zeros(self.query.shape, np.int64))
        return _mixed(self.noise, self.held, drawn, zeros, self.query)

    def where(self, **labels: Any) -> FloatArray:
        """Weights for `estimate`: 1 for the cells with these labels, 0 elsewhere."""
        return where(self.domain, labels)

    def _totals(self, margin: Margin) -> Figures:
        space = self.noise.space
        if not isinstance(self.noise, CombinedNoise) or not isinstance(space, MarginNullSpace):
            return groups_apart(self.noise, margin)
        return CombinedTotals(self.noise, GroupProfiles(space, margin))

    def _estimate(
        self,
        figures: Figures,
        values: npt.NDArray[Any],
        labels: Callable[[], dict[str, npt.NDArray[Any]]],
        shape: tuple[int, ...] | None = None,
    ) -> Estimate:
        return Estimate(
            figures=figures, held=str(self.held), labels=labels, shape=shape, values=values
        )

    def __repr__(self) -> str:
        weights = ", ".join(f"{w:.3g}" for w in self.weights)
        return (
            f"Combined({len(self.releases)} releases of {self.query!r}, held: {self.held}, "
            f"weights {weights})"
        )


def _average_variance(release: Release) -> float:
    """The variance of a release's noise, averaged over the directions of its null space."""
    noise = release.mechanism.noise
    if math.isnan(noise.each):
        raise ReleaseError(
            "The noise of one of the releases was declared without a variance, so nobody can say "
            "what weight it deserves."
        )
    digits = rounded_digits(noise)
    rounding = 0.0 if digits is None else float(np.sum(digits.variance())) / digits.space.dimension
    if not noise.each + rounding > 0:
        raise ReleaseError("One of the releases has no noise at all: nothing can improve it.")
    return noise.each + rounding
