"""Generalised least squares with matrices: releases of any noise, and of margins and cells alike.

Release r is y_r = A_r x + ξ_r, x the answers of the estimate. What is known exactly of x (that its
margins agree with each other, what is held, what a release measured without noise) leaves a space
spanned by the columns of U, and there x̂ = x₀ + Σ_r M_r(y_r − A_r x₀) with

    M_r = U (Σ_s Uᵀ A_sᵀ V_s⁺ A_s U)⁻¹ Uᵀ A_rᵀ V_r⁺,    V_r = Cov ξ_r.

Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.error_laws.pooling import Pooling
from subspacedp.mechanisms.impose import impose_bound
from subspacedp.queries import Query
from subspacedp.tables import Margin

__all__ = ["MOST_DENSE", "DensePooling"]

FloatArray = npt.NDArray[np.float64]

MOST_DENSE = 2000  # answers, where covariances have to be matrices
NO_NOISE = 1e-10  # of the largest variance: a direction that is known exactly


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DensePooling(Pooling):
    """The maps of generalised least squares, as matrices."""

    query: Query  # of the estimate
    questions: tuple[FloatArray, ...]  # A_r
    shapes: tuple[tuple[int, ...], ...]  # of the answers of every release
    maps: tuple[FloatArray, ...]  # M_r
    agreement: FloatArray  # rows that vanish: margins of the estimate agree with each other
    across: tuple[tuple[Margin | None, FloatArray], ...]  # what is held of the answers, as rows
    noiseless: tuple[FloatArray, ...]  # rows z with z·ξ_r = 0
    shares: tuple[float, ...]

    @classmethod
    def of(
        cls,
        query: Query,
        queries: Sequence[Query],
        noises: Sequence[JointNoise],
        held: HeldMargins | HeldMatrix,
    ) -> DensePooling:
        """The best linear unbiased estimate of the answers of a query that determines all others.

        Digits that add up count in V_r by the bound on their covariance.
        """
        n = max(query.size, *(q.size for q in queries))
        if n > MOST_DENSE:
            raise ReleaseError(
                "These releases differ in what they ask, hold or measure, so that they are "
                f"combined by matrices, and {n:,} answers are more than the {MOST_DENSE:,} for "
                "which that is done; combine releases of one workload that hold the same."
            )
        questions = tuple(_matrix(query, q) for q in queries)
        inverses, noiseless = [], []
        for noise, q in zip(noises, queries, strict=True):
            values, vectors = np.linalg.eigh(_covariance(noise, q))
            free = values > NO_NOISE * max(float(values[-1]), 1e-300)
            inverses.append((vectors[:, free] / values[free]) @ vectors[:, free].T)
            noiseless.append(vectors[:, ~free].T)
        out = cls(
            query=query,
            questions=questions,
            shapes=tuple(q.shape for q in queries),
            maps=(),
            agreement=_agreement(query),
            across=tuple(_across(query, held)),
            noiseless=tuple(noiseless),
            shares=(),
        )
        U = out._known[1]
        right = [U.T @ a.T @ v for a, v in zip(questions, inverses, strict=True)]
        gram = np.zeros((U.shape[1],) * 2)
        for b, a in zip(right, questions, strict=True):
            gram += b @ a @ U
        maps = tuple(np.asarray(U @ np.linalg.solve(gram, b)) for b in right)
        pairs = zip(maps, questions, strict=True)
        shares = tuple(float(np.sum(m * a.T)) / max(U.shape[1], 1) for m, a in pairs)
        return replace(out, maps=maps, shares=shares)

    @cached_property
    def _known(self) -> tuple[FloatArray, FloatArray]:
        """All rows whose values are exact, and a basis U of what they leave open."""
        pairs = zip(self.noiseless, self.questions, strict=True)
        rows = [self.agreement, *(r for _, r in self.across), *(z @ a for z, a in pairs)]
        known = np.concatenate(rows)
        values, vectors = np.linalg.eigh(known.T @ known)
        return known, vectors[:, values <= NO_NOISE * max(float(values[-1]), 1e-300)]

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """M_rᵀ w for every release."""
        flat = weights.reshape(-1)
        pairs = zip(self.maps, self.shapes, strict=True)
        return [np.asarray(flat @ m).reshape(shape) for m, shape in pairs]

    def mix(
        self,
        values: Sequence[npt.NDArray[Any]],
        held: HeldMargins | HeldMatrix,
        exact: HeldValues,
    ) -> FloatArray:
        """x₀ + Σ M_r(y_r − A_r x₀), with all that is held put on it."""
        flat = [np.asarray(v, np.float64).reshape(-1) for v in values]
        every = np.concatenate(self.questions)
        # Whole numbers near the truth: what is left to solve for is of the size of the noise.
        base = np.rint(np.linalg.lstsq(every, np.concatenate(flat), rcond=None)[0])
        family = held.family
        totals = [
            exact[0] if family is None or m is None else family.of(exact, m) for m, _ in self.across
        ]
        wanted = np.concatenate(
            [
                -self.agreement @ base,
                *(c.reshape(-1) - r @ base for c, (_, r) in zip(totals, self.across, strict=True)),
                *(
                    z @ (y - a @ base)
                    for z, a, y in zip(self.noiseless, self.questions, flat, strict=True)
                ),
            ]
        )
        known = self._known[0]
        start = np.linalg.lstsq(known, wanted, rcond=None)[0] if wanted.size else 0.0 * base
        room = 1e-6 + 1e-9 * float(np.abs(base).max(initial=0.0))
        if wanted.size and float(np.abs(known @ start - wanted).max()) > room:
            raise InvariantError(
                "The releases contradict each other: no table has all their exact values."
            )
        base = base + start
        steps = (
            m @ (y - a @ base) for m, a, y in zip(self.maps, self.questions, flat, strict=True)
        )
        mixed = np.asarray(base + sum(steps))
        return impose_bound(held, mixed.reshape(self.query.shape), exact)


def _covariance(noise: JointNoise, query: Query) -> FloatArray:
    """Of the answers: exact for noise, with the bound for controlled rounding."""
    units = np.eye(query.size).reshape(query.size, *query.shape)
    inside = np.stack([noise.inside(unit).reshape(-1) for unit in units])
    out = (inside * noise.variances(inside.shape[1])) @ inside.T
    roundings = [noise.roundings(unit) for unit in units]
    if roundings[0][0].size:
        coefficients = np.stack([each for each, _ in roundings])
        out += (coefficients * roundings[0][1]) @ coefficients.T
    return np.asarray(out)


def _matrix(query: Query, other: Query) -> FloatArray:
    """The answers of another query as weighted sums of those of the first, one a row."""
    axes = query.axes
    if query.same_as(other) or axes is None:
        return np.eye(query.size)
    return np.concatenate(
        [_totals(query, axes.margin(*m.names)) for m in other.margins_asked or ()]
    )


def _totals(query: Query, margin: Margin) -> FloatArray:
    """The totals of a margin as weighted sums of answers, one a row."""
    groups = np.eye(math.prod(margin.shape))
    return np.stack([query.indicator(margin, g).reshape(-1) for g in groups])


def _agreement(query: Query) -> FloatArray:
    """What vanishes because two margins of the answers have it in common, one a row.

    Margins over nested levels come from a table if every two of them agree on their meet.
    """
    margins = list(query.margins_asked or ())
    starts = np.cumsum([0, *(math.prod(m.shape) for m in margins)])
    rows = [np.zeros((0, query.size))]
    for i, one in enumerate(margins):
        for j, other in enumerate(margins[:i]):
            meet = one.meet(other)
            block = np.zeros((math.prod(meet.shape), query.size))
            block[:, starts[i] : starts[i + 1]] += _coarsening(one, meet)
            block[:, starts[j] : starts[j + 1]] -= _coarsening(other, meet)
            rows.append(block)
    return np.concatenate(rows)


def _coarsening(margin: Margin, coarse: Margin) -> FloatArray:
    size = math.prod(margin.shape)
    units = np.eye(size).reshape(size, *margin.shape)
    return np.stack([margin.coarsen(u, coarse).reshape(-1) for u in units], axis=1)


def _across(
    query: Query, held: HeldMargins | HeldMatrix
) -> Iterator[tuple[Margin | None, FloatArray]]:
    """The margins that some held one and some margin of the answers determine; or C itself."""
    if held.family is None:
        yield None, held.as_matrix(query).matrix.toarray().astype(np.float64)
        return
    margins = query.margins_asked or ()
    meets = dict.fromkeys(h.meet(m) for h in held.family.margins for m in margins)
    for meet in meets:
        yield meet, _totals(query, meet)
