"""The joint noise of combined releases, and the maps that combine them.

Release r is y_r = A_r x + ξ_r, x the answers of the estimate, and the estimate is a sum of maps of
the releases: by one projection where noise is alike in all directions of each null space, else by
matrices. Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, NullSpace
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise, SumLaw
from subspacedp.mechanisms.error_laws.joint import Pooling
from subspacedp.mechanisms.error_laws.sums import Part
from subspacedp.mechanisms.figures import EachApart, Figures, cells_apart
from subspacedp.queries import Query
from subspacedp.rounding import GroupProfiles
from subspacedp.tables import Margin

MAX_SEPARATE_FIGURES = 20_000  # whose variances are worked out one by one


MAX_DENSE_ANSWERS = 2000  # answers, where covariances have to be matrices
RELATIVE_ZERO_VARIANCE = 1e-10  # of the largest variance: a direction that is known exactly


@frozen(eq=False, repr=False, kw_only=True)
class CombinedNoise(JointNoise):
    """Combined estimate minus truth: Σ_r T_r ξ_r, the releases' noises ξ_r independent.

    Guarantees
    ----------
    1. Variances and covariances are those of exactly this sum, for whatever maps T_r; under
       controlled rounding, upper bounds.
    """

    designs: tuple[Mechanism, ...]
    noises: tuple[JointNoise, ...]
    pooling: Pooling
    query: Query  # what the estimate answers

    @property
    def known(self) -> bool:
        """Whether all laws are known, and not only their variances."""
        return all(noise.known for noise in self.noises)

    @property
    def excess(self) -> float:
        """The largest of all releases."""
        return max(noise.excess for noise in self.noises)

    def fourth_roots(self, weights: FloatArray) -> FloatArray:
        """Those of every release under its weights."""
        pairs = zip(self.noises, self.pooling.under(weights), strict=True)
        return np.concatenate([noise.fourth_roots(w) for noise, w in pairs])

    def without_rounding(self, plain: tuple[JointNoise, ...]) -> JointNoise:
        """The same maps of other noises."""
        return replace(self, noises=plain)

    # ------------------------------------------------------------------ weighted sums

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the noise variables of every release."""
        weights = self.pooling.under(np.zeros(self.query.shape))
        return [n.inside(w).shape for n, w in zip(self.noises, weights, strict=True)]

    @cached_property
    def _variances(self) -> list[FloatArray]:
        pairs = zip(self.noises, self._shapes, strict=True)
        return [noise.variances(math.prod(shape)) for noise, shape in pairs]

    @property
    def each(self) -> float:
        """The largest variance of a noise variable; `inside` is in these units."""
        return max(float(v.max()) for v in self._variances)

    def inside(self, weights: FloatArray) -> FloatArray:
        """The weights of all noise variables, each times its relative standard deviation."""
        pieces = [
            noise.inside(w).reshape(-1) * np.sqrt(v / self.each)
            for noise, w, v in zip(
                self.noises, self.pooling.under(weights), self._variances, strict=True
            )
        ]
        return np.concatenate(pieces)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release."""
        out: list[Part] = []
        at = 0
        for noise, v, shape in zip(self.noises, self._variances, self._shapes, strict=True):
            piece = inside[at : at + v.size] / np.sqrt(v / self.each)
            out.extend(noise.parts(piece.reshape(shape)))
            at += v.size
        return tuple(out)

    def roundings(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The roundings of every release under its weights."""
        pairs = zip(self.noises, self.pooling.under(weights), strict=True)
        return _joined(noise.roundings(w) for noise, w in pairs)

    def law_from(
        self, parts: tuple[Part, ...], coefficients: FloatArray, step: float | None, variance: float
    ) -> SumLaw:
        """As the first release takes its own, where all laws are known."""
        if not self.known:
            return super().law_from(parts, coefficients, step, variance)
        return self.noises[0].law_from(parts, coefficients, step, variance)

    # ------------------------------------------------------------------ figures

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        return self.cell_figures(self.query.shape).variance()

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every answer."""

        def weights(i: int) -> FloatArray:
            out = np.zeros(shape)
            out.flat[i] = 1.0
            return out

        return self._pooled(
            [design.cell_figures() for design in self.designs] if self._alike else [],
            self.query.margins_asked or (),
            shape,
            weights,
        )

    def margin_figures(self, margin: Margin, *, fixed: bool = False) -> Figures:
        """The total of every group of a margin; `fixed` says that what is held determines them."""

        def weights(i: int) -> FloatArray:
            groups = np.zeros(math.prod(margin.shape))
            groups[i] = 1.0
            return self.query.indicator(margin, groups)

        if fixed:
            return EachApart(self, margin.shape, weights, np.zeros(margin.shape))
        designs = self.designs if self._alike else ()
        return self._pooled(
            [design.margin_figures(design.domain.margin(*margin.names)) for design in designs],
            (margin,),
            margin.shape,
            weights,
        )

    @cached_property
    def _alike(self) -> bool:
        """Whether every release answers what the estimate answers."""
        return all(self.query.same_as(design.query) for design in self.designs)

    def _pooled(
        self,
        figures: list[Figures],
        margins: Sequence[Margin],
        shape: tuple[int, ...],
        weights: Callable[[int], FloatArray],
    ) -> Figures:
        """By class where the maps allow it, else each by itself."""
        variance = None
        if figures:
            variance = self.pooling.figure_variance([f.variance() for f in figures], margins)
        if variance is not None:
            return PooledFigures(self, shape, weights, tuple(figures), variance.reshape(shape))
        if math.prod(shape) > MAX_SEPARATE_FIGURES:
            raise ReleaseError(
                f"The standard errors of {math.prod(shape):,} figures have no closed form here, "
                "because the combined releases differ in what they hold, measure or round; ask for "
                "those of interest with `estimate`."
            )
        return EachApart(self, shape, weights)


@frozen(eq=False, repr=False)
class Projection(Pooling):
    """Π_N Σ ω_r y_r + lift(c): for noise alike in all directions of each null space N_r ⊇ N."""

    shares: tuple[float, ...]  # ω_r
    space: NullSpace  # N

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """ω_r Π_N w for every release."""
        inside = self.space.project(weights)
        return [share * inside for share in self.shares]

    def mix(
        self, values: Sequence[AnyArray], held: HeldMargins | HeldMatrix, exact: HeldValues
    ) -> FloatArray:
        """The average, with all that is held put on it."""
        pairs = zip(self.shares, values, strict=True)
        mixed = sum((w * v for w, v in pairs), np.zeros(self.space.shape))
        return held.space.imposed(mixed, exact)


@frozen(eq=False, repr=False, kw_only=True)
class UniformNoise(CombinedNoise):
    """The same where noise is alike in all directions: one projection serves all releases."""

    pooling: Projection
    uniform: ClassVar[bool] = True  # as in every release

    @property
    def null_space(self) -> NullSpace:
        """N."""
        return self.pooling.space

    @property
    def shared(self) -> list[tuple[float, JointNoise]]:
        """Every release's noise with its share."""
        return list(zip(self.pooling.shares, self.noises, strict=True))

    @property
    def each(self) -> float:
        """Σ ω_r² Var(e_r)."""
        return math.fsum(w * w * noise.each for w, noise in self.shared)

    def inside(self, weights: FloatArray) -> FloatArray:
        """Π_N w."""
        return self.pooling.space.project(weights)

    def parts(self, inside: FloatArray) -> tuple[Part, ...]:
        """The noise of every release under ω_r Π_N w."""
        return tuple(p for w, noise in self.shared for p in noise.parts(noise.inside(w * inside)))

    @cached_property
    def _same_rounding(self) -> bool:
        """Whether every release that was rounded leaves open what all together leave open."""
        rank = self.pooling.space.rank
        rounding = (noise.rounded for noise in self.noises)
        return all(d is None or d.space.rank == rank for d in rounding)

    def cell_variance(self) -> FloatArray:
        """The variance of every answer, in their shape."""
        if not self._same_rounding:
            return super().cell_figures(self.query.shape).variance()
        out = self.pooling.space.diagonal() * self.each
        # N is the null space of every release that was rounded, and there 1_i and Π_N 1_i differ by
        # what is held: they have the same roundings.
        for w, noise in self.shared:
            if noise.rounded is not None:
                out += np.where(out > 0, w * w * noise.rounded.variance(), 0.0)
        return out

    def cell_figures(self, shape: tuple[int, ...]) -> Figures:
        """Every answer: one law for all of equal sizes of groups, where margins are held."""
        axes = self.query.axes
        totals = None if axes is None else self._totals(axes.cells)
        if totals is not None:
            return totals
        return cells_apart(self, shape)

    def margin_figures(self, margin: Margin, *, fixed: bool = False) -> Figures:
        """The total of every group of a margin, in the same way."""
        return self._totals(margin) or super().margin_figures(margin, fixed=fixed)

    def _totals(self, margin: Margin) -> Figures | None:
        family = self.pooling.space.held.family
        nothing = np.zeros(0)
        alike = all(noise.counted(nothing, nothing) is not None for noise in self.noises)
        if family is None or margin.grouped or not alike or not self._same_rounding:
            return None
        return CombinedTotals(self, self.shared, GroupProfiles(family.cell_space, margin))


def _joined(pairs: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    coefficients, variances = zip(*pairs, strict=True)
    return np.concatenate(coefficients), np.concatenate(variances)


@frozen(eq=False, repr=False)
class PooledFigures(Figures):
    """Figures with one law for all that have one law in every release."""

    noise: JointNoise  # of the estimate
    shape: tuple[int, ...]
    weights: Callable[[int], FloatArray]  # of the answers, by the number of a figure
    figures: tuple[Figures, ...]  # the same in every release
    known_variance: FloatArray

    def variance(self) -> FloatArray:
        """In closed form."""
        return self.known_variance

    @cached_property
    def _numbered(self) -> tuple[Int64Array, Int64Array]:
        """The first figure of every class, and the class of every figure."""
        rows = np.stack([f.classes().reshape(-1) for f in self.figures], axis=1)
        _, first, member = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, member.reshape(self.shape)

    def classes(self) -> Int64Array:
        """One number for equal classes in every release."""
        return self._numbered[1]

    def law(self, number: int) -> SumLaw:
        """That of the first figure of its class."""
        return self.noise.law_of(self.weights(int(self._numbered[0][int(number)])))


@frozen(eq=False, repr=False)
class CombinedTotals(Figures):
    """The totals of a margin's groups where all releases hold margins: one law per class."""

    noise: JointNoise
    shared: list[tuple[float, JointNoise]]  # ω_r, and the noise of every release
    profiles: GroupProfiles

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The margin's shape."""
        return self.profiles.margin.shape

    @cached_property
    def _roundings(self) -> list[tuple[float, float, Int64Array, int]]:
        """What a rounding adds, its variance, how many each group has, and more than the most."""
        counted = [(w, noise.rounding_counts(self.profiles.margin)) for w, noise in self.shared]
        return [
            (w * roundings[0], roundings[1], roundings[2], int(roundings[2].max(initial=0)) + 1)
            for w, roundings in counted
            if roundings is not None
        ]

    def variance(self) -> FloatArray:
        """Var(e)·|Π_N 1_G|², and at most `unit_variance` squared steps for every rounding."""
        if self.profiles.margin == self.profiles.space.domain.cells:
            return self.noise.cell_variance()
        squared = self.profiles.squared()
        out = squared * self.noise.each
        for step, unit_variance, counts, _ in self._roundings:
            out += np.where(squared > 0, counts * (step**2 * unit_variance), 0.0)
        return out

    def classes(self) -> Int64Array:
        """Equal sizes of all containing groups, and equally many roundings of every release."""
        out = self.profiles.classes()
        for _, _, counts, radix in self._roundings:
            out = out * radix + counts
        return np.asarray(out)

    def law(self, number: int) -> SumLaw:
        """From the values of Π_N 1_G and how often each occurs."""
        kind, coefficients, rounding = int(number), [np.zeros(0)], 0.0
        for step, unit_variance, _, radix in reversed(self._roundings):
            kind, roundings = divmod(kind, radix)
            coefficients.append(np.full(roundings, step))
            rounding += roundings * step**2 * unit_variance
        weights, counts = self.profiles.profile(kind)
        parts = tuple(p for w, n in self.shared for p in n.counted(w * weights, counts) or ())
        variance = self.noise.each * float(counts @ weights**2) + rounding
        return self.noise.law_from(parts, np.concatenate(coefficients), None, variance)


@frozen(eq=False, repr=False, kw_only=True)
class DensePooling(Pooling):
    """The maps of generalised least squares, as matrices.

    What is known exactly of x (that its margins agree with each other, what is held, what a release
    measured without noise) leaves a space spanned by the columns of U, and there
    x̂ = x₀ + Σ_r M_r(y_r − A_r x₀) with

        M_r = U (Σ_s Uᵀ A_sᵀ V_s⁺ A_s U)⁻¹ Uᵀ A_rᵀ V_r⁺,    V_r = Cov ξ_r.
    """

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

        Controlled rounding counts in V_r by the bound on its covariance.
        """
        n = max(query.size, *(q.size for q in queries))
        if n > MAX_DENSE_ANSWERS:
            raise ReleaseError(
                "These releases differ in what they ask, hold or measure, so that they are "
                f"combined by matrices, and {n:,} answers are more than the "
                f"{MAX_DENSE_ANSWERS:,} for which that is done; combine releases of one workload "
                "that hold the same."
            )
        questions = tuple(_matrix(query, q) for q in queries)
        inverses, noiseless = [], []
        for noise, q in zip(noises, queries, strict=True):
            values, vectors = np.linalg.eigh(_covariance(noise, q))
            free = values > RELATIVE_ZERO_VARIANCE * max(float(values[-1]), 1e-300)
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
        return known, vectors[:, values <= RELATIVE_ZERO_VARIANCE * max(float(values[-1]), 1e-300)]

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """M_rᵀ w for every release."""
        flat = weights.reshape(-1)
        pairs = zip(self.maps, self.shapes, strict=True)
        return [np.asarray(flat @ m).reshape(shape) for m, shape in pairs]

    def mix(
        self, values: Sequence[AnyArray], held: HeldMargins | HeldMatrix, exact: HeldValues
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
        return held.space.imposed(mixed.reshape(self.query.shape), exact)


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
    """The answers of another query as weighted sums of those of the first, one per row."""
    axes = query.axes
    if query.same_as(other) or axes is None:
        return np.eye(query.size)
    return np.concatenate(
        [_totals(query, axes.margin(*m.names)) for m in other.margins_asked or ()]
    )


def _totals(query: Query, margin: Margin) -> FloatArray:
    """The totals of a margin as weighted sums of answers, one per row."""
    groups = np.eye(math.prod(margin.shape))
    return np.stack([query.indicator(margin, g).reshape(-1) for g in groups])


def _agreement(query: Query) -> FloatArray:
    """What vanishes because two margins of the answers have it in common, one per row.

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
