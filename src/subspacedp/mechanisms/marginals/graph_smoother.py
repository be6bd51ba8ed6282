"""Least squares on levels that cross: one sparse system on the graph of their groups.

A table of contrasts is measured at a finest level, y = x + noise of variance 1/τ, and in sums of
it, y_S = S x + noise of variances 1/τ_r: the rows of S are the groups of coarser levels. With
R = diag(τ/τ_r), 0 for a total that is exact, and C = R + SSᵀ, the number of labels two groups
share,

    estimate    x̂ = y + Sᵀ C⁻¹ (y_S − S y),
    covariance  (1 − Sᵀ C⁻¹ S)/τ.

A figure is k times a finest node plus rows of S with weights a. With b the rows that the node is in
and v = k·b − R a its variance is (k + aᵀRa − vᵀC⁻¹v)/τ, and a + C⁻¹v are its weights of the
measured sums. Where v has entries for every pair of rows that share a node or a figure, so has C:
all variances take the entries of C⁻¹ on the pattern of C alone, and no matrix of the size of the
finest level is formed. Proof: docs/proofs/marginals.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals.sparse_inverse import Inverse, Pattern
from subspacedp.mechanisms.marginals.tree import Overlap

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Pairs = tuple[FloatArray, FloatArray]  # of entries on the pattern and on the diagonal

SMALL = 1e-100  # an imaginary step: a derivative without cancellation
ISOLATED = 1e30  # on the diagonal of a row that follows from others
NO_INFORMATION = 1e-300
FIXED = 1e-11  # of a variance before its figure is known: what is left is the rounding of 0


@frozen(eq=False, repr=False)
class Figures:
    """Figures of a level as entries, ordered by figure and row.

    A figure is `single` (0 or 1) times a finest node plus rows of S with weights `a`; `b` has the
    rows that the node is in.
    """

    number: int
    single: float
    figure: Int64Array
    row: Int64Array
    b: FloatArray
    a: FloatArray

    @classmethod
    def merged(
        cls, number: int, single: float, rows: int, parts: Sequence[tuple[Any, Any, Any, Any]]
    ) -> Figures:
        """From lists of figure, row, b and a; what comes twice is added up."""
        figure, row, b, a = (np.concatenate([np.asarray(p[i]) for p in parts]) for i in range(4))
        keys, where = np.unique(figure * max(rows, 1) + row, return_inverse=True)
        where = where.reshape(-1)
        summed_b = np.bincount(where, b, len(keys)).astype(np.float64)
        summed_a = np.bincount(where, a, len(keys)).astype(np.float64)
        at, of = np.divmod(keys, max(rows, 1))
        return cls(number, single, at.astype(np.int64), of.astype(np.int64), summed_b, summed_a)

    @cached_property
    def pairs(self) -> tuple[Int64Array, Int64Array]:
        """All pairs of different entries of one figure, by their places."""
        starts = np.searchsorted(self.figure, np.arange(self.number + 1))
        later = starts[self.figure + 1] - np.arange(self.figure.size) - 1
        first = np.repeat(np.arange(self.figure.size), later)
        begin = np.cumsum(later) - later
        second = np.arange(first.size) - begin[first] + first + 1
        return first, second

    @cached_property
    def rows_of_pairs(self) -> tuple[Int64Array, Int64Array]:
        """The rows of every pair, the larger one first."""
        first, second = self.pairs
        one, other = self.row[first], self.row[second]
        return np.maximum(one, other), np.minimum(one, other)


@frozen(eq=False, repr=False)
class Moments:
    """Σ v vᵀ over the figures of levels on the pattern of C, as a polynomial in R.

    By level, zeros left out: products b·b, b·a of the two orders and a·a on pairs of rows, and b·b,
    a·b and a·a on the diagonal. `single` has how many finest nodes the figures have.
    """

    single: Mapping[int, float]
    pairs: tuple[dict[int, FloatArray], ...]  # b·b, b·a, a·b, a·a
    own: tuple[dict[int, FloatArray], ...]  # b·b, a·b, a·a

    @classmethod
    def of(cls, system: GraphSystem) -> Moments:
        """From the entries of the figures."""
        size = system.pattern.rows.size
        single = {level: f.single * f.number for level, f in system.figures.items()}
        out = cls(single, ({}, {}, {}, {}), ({}, {}, {}))
        for level, figures in system.figures.items():
            first, second = figures.pairs
            swapped = figures.row[first] < figures.row[second]
            upper, lower = np.where(swapped, second, first), np.where(swapped, first, second)
            places, b, a = system.places(*figures.rows_of_pairs), figures.b, figures.a
            for i, (one, other) in enumerate(((b, b), (b, a), (a, b), (a, a))):
                products = one[upper] * other[lower]
                if products.any():
                    out.pairs[i][level] = np.bincount(places, products, size).astype(np.float64)
            for i, products in enumerate((b * b, a * b, a * a)):
                if products.any():
                    summed = np.bincount(figures.row, products, system.pattern.size)
                    out.own[i][level] = summed.astype(np.float64)
        return out

    def weighted(self, weights: FloatArray) -> tuple[list[FloatArray | None], list[FloatArray]]:
        """Each product, levels weighted and added up; None where there is nothing on pairs."""
        on_pairs: list[FloatArray | None] = []
        for by_level in self.pairs:
            used = [weights[level] * of for level, of in by_level.items() if weights[level]]
            on_pairs.append(np.sum(used, axis=0) if used else None)
        zeros = np.zeros_like(next(iter((*self.own[0].values(), *self.own[2].values()))))
        on_diagonal = []
        for by_level in self.own:
            used = [weights[level] * of for level, of in by_level.items() if weights[level]]
            on_diagonal.append(np.sum(used, axis=0) if used else zeros)
        return on_pairs, on_diagonal


@frozen(eq=False, repr=False, kw_only=True)
class GraphSystem:
    """What of the least squares does not depend on precisions.

    Parameters
    ----------
    overlap
        The levels.
    finest
        The level that determines all others here.
    measured
        The coarser levels that are measured.
    exact
        Levels whose totals enter the least squares without noise, the finest ones.
    held
        The level that the estimate is projected to agree with, measured or exact; None where there
        is none.
    """

    overlap: Overlap
    finest: int
    measured: tuple[int, ...]
    exact: tuple[int, ...] = ()
    held: int | None = None

    @cached_property
    def given(self) -> tuple[int, ...]:
        """The finest levels whose totals are known in the end."""
        return self.exact if self.held is None else (self.held,)

    def known(self, level: int) -> bool:
        """Whether the totals of a level are known in the end."""
        return any(self.overlap.determines(fine, level) for fine in self.given)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """All that the finest level determines."""
        overlap = self.overlap
        return tuple(lv for lv in range(len(overlap)) if overlap.determines(self.finest, lv))

    @cached_property
    def stacked(self) -> tuple[int, ...]:
        """The levels whose nodes are the rows of S."""
        return (*self.measured, *self.exact)

    @cached_property
    def _starts(self) -> list[int]:
        sizes = [self.overlap.nodes(level) for level in self.stacked]
        return [0, *accumulate(sizes)]

    def rows_of(self, level: int) -> slice:
        """The rows of S of a level; of the root those of any level with all labels in one group."""
        if level == self.overlap.root and level not in self.stacked:
            level = next(lv for lv in self.stacked if self.overlap.determines(level, lv))
        number = self.stacked.index(level)
        return slice(self._starts[number], self._starts[number + 1])

    @property
    def size(self) -> int:
        """The number of rows of S."""
        return self._starts[-1]

    @cached_property
    def sums(self) -> csr_array:
        """S."""
        from scipy.sparse import csr_array, vstack

        blocks = [self.overlap.sums(self.finest, level) for level in self.stacked]
        if not blocks:
            return csr_array((0, self.overlap.nodes(self.finest)))
        return csr_array(vstack(blocks).astype(np.float64))

    @cached_property
    def _shared(self) -> tuple[Int64Array, Int64Array, FloatArray, FloatArray]:
        """SSᵀ: rows and columns of its entries below the diagonal, these, and its diagonal."""
        product: Any = (self.sums @ self.sums.T).tocoo()
        below = product.row > product.col
        rows, columns = product.row[below].astype(np.int64), product.col[below].astype(np.int64)
        return rows, columns, product.data[below], np.asarray((self.sums @ self.sums.T).diagonal())

    @cached_property
    def _exactly(self) -> tuple[int, Pattern, FloatArray, FloatArray]:
        """The first exact row, and what exact rows share: SSᵀ of them alone."""
        first = self.rows_of(self.exact[0]).start
        rows, columns, entries, diagonal = self._shared
        inside = columns >= first
        pattern = Pattern(self.size - first, rows[inside] - first, columns[inside] - first)
        return first, pattern, entries[inside].astype(np.float64), diagonal[first:]

    @cached_property
    def repeated(self) -> Int64Array:
        """Exact rows that follow from other exact ones: where several levels are exact."""
        if len(self.exact) < 2:
            return np.zeros(0, np.int64)
        first, pattern, entries, diagonal = self._exactly
        own = pattern.independent(entries, diagonal)
        return np.asarray(np.flatnonzero(~own) + first, np.int64)

    @property
    def rank(self) -> int:
        """How many independent totals are exact."""
        known = sum(self.overlap.nodes(level) for level in self.given)
        return known - self.repeated.size

    @cached_property
    def shared_by_exact(self) -> float:
        """The logarithm of the determinant of what independent exact rows share."""
        if not self.exact:
            return 0.0
        first, pattern, entries, diagonal = self._exactly
        alone = np.zeros(pattern.size, bool)
        alone[self.repeated - first] = True
        entries = np.where(alone[pattern.rows] | alone[pattern.columns], 0.0, entries)
        return pattern.inverse(entries, np.where(alone, 1.0, diagonal)).log_determinant

    @cached_property
    def _parts(self) -> dict[int, csr_array]:
        """By level the share that a node has of the labels of every held one, held ones in rows."""
        from scipy.sparse import csr_array

        if self.held is None:
            return {}
        overlap, held, out = self.overlap, self.held, {}
        above = overlap.of_label[held]
        for level in self.levels:
            below = overlap.of_label[level]
            both = np.flatnonzero((above >= 0) & (below >= 0))
            shape = overlap.nodes(held), overlap.nodes(level)
            at = above[both], below[both]
            part = csr_array((1.0 / overlap.leaves[held][above[both]], at), shape=shape)
            part.sum_duplicates()
            out[level] = part
        return out

    def parts(self, level: int) -> csr_array:
        """What of a held node's noise a node of a level gets, held ones in rows."""
        return self._parts[level]

    @cached_property
    def figures(self) -> dict[int, Figures]:
        """The nodes of every level that is not exact."""
        levels = (self.finest, *self.measured)
        return {level: self._figures(level) for level in levels if not self.known(level)}

    def _figures(self, level: int) -> Figures:
        nodes = self.overlap.nodes(level)
        if level == self.finest:
            sums: Any = self.sums.T.tocoo()
            own = sums.row, sums.col, np.ones(sums.row.size), np.zeros(sums.row.size)
        else:
            rows = np.arange(nodes) + self.rows_of(level).start
            own = np.arange(nodes), rows, np.zeros(nodes), np.ones(nodes)
        entries = [own]
        if self.held is not None:
            part: Any = self.parts(level).tocoo()
            rows = part.row + self.rows_of(self.held).start
            entries.append((part.col, rows, np.zeros(rows.size), -part.data))
        return Figures.merged(nodes, 1.0 if level == self.finest else 0.0, self.size, entries)

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of rows that share a label, or a figure of a projected estimate."""
        rows, columns = [self._shared[0]], [self._shared[1]]
        if self.held is not None:
            for figures in self.figures.values():
                large, small = figures.rows_of_pairs
                rows.append(large)
                columns.append(small)
        keys = np.unique(np.concatenate(rows) * max(self.size, 1) + np.concatenate(columns))
        large, small = np.divmod(keys, max(self.size, 1))
        return Pattern(self.size, large, small)

    @cached_property
    def _keys(self) -> Int64Array:
        return self.pattern.rows * max(self.size, 1) + self.pattern.columns

    def places(self, rows: Int64Array, columns: Int64Array) -> Int64Array:
        """The places of pairs of rows in the pattern."""
        wanted = rows * max(self.size, 1) + columns
        return np.asarray(np.searchsorted(self._keys, wanted), np.int64)

    @cached_property
    def counts(self) -> Pairs:
        """SSᵀ on the pattern, and its diagonal."""
        rows, columns, entries, diagonal = self._shared
        out = np.zeros(self.pattern.rows.size)
        out[self.places(rows, columns)] = entries
        return out, diagonal.astype(np.float64)

    def prepare(self) -> None:
        """Find what all factorisations share, before threads ask for it."""
        _ = self.moments, self.counts, self.repeated
        self.pattern.prepare()

    @cached_property
    def moments(self) -> Moments:
        """Of the figures of every level."""
        return Moments.of(self)


@frozen(eq=False, repr=False)
class GraphSmoother:
    """Least squares for one interaction on levels that cross.

    Parameters
    ----------
    system
        Its levels, and what is exact.
    precision
        One over the variance of the noise at the finest level and at every coarser one that is
        measured; positive.

    Guarantees
    ----------
    1. `estimate` is the least squares estimate under the exact totals, projected onto the held
       ones, and `variances` are its variances, up to float64 rounding.
    2. Projected, estimate − (held part) is a function of the measurements alone, projected
       onto the null space of the held totals.
    """

    system: GraphSystem
    precision: Mapping[int, float]

    def prepare(self) -> None:
        """Find what other smoothers share, before threads ask for it."""
        self.system.prepare()

    @property
    def constrained(self) -> bool:
        """Whether held totals enter the least squares, where there are any."""
        return self.system.held is None

    @property
    def total_known(self) -> bool:
        """Whether the root enters it without noise."""
        return self.system.overlap.root in self.system.exact

    @property
    def projected(self) -> bool:
        """Whether the estimate is projected onto the null space of the held totals."""
        return self.system.held is not None

    @property
    def _finest(self) -> float:
        return float(self.precision[self.system.finest])

    @cached_property
    def ratio(self) -> FloatArray:
        """R: 0 where a total is exact."""
        out = np.zeros(self.system.size)
        for level in self.system.measured:
            out[self.system.rows_of(level)] = self._finest / self.precision[level]
        return out

    def _inverse(self, imaginary: Pairs | None = None) -> Inverse:
        entries, diagonal = self.system.counts
        diagonal = diagonal + self.ratio
        repeated = self.system.repeated
        if repeated.size:
            alone = np.zeros(self.system.size, bool)
            alone[repeated] = True
            pattern = self.system.pattern
            entries = np.where(alone[pattern.rows] | alone[pattern.columns], 0.0, entries)
            diagonal[repeated] = ISOLATED
        if imaginary is None:
            return self.system.pattern.inverse(entries, diagonal)
        return self.system.pattern.inverse(
            entries + 1j * imaginary[0], diagonal + 1j * imaginary[1]
        )

    @cached_property
    def inverse(self) -> Inverse:
        """C⁻¹."""
        return self._inverse()

    # ------------------------------------------------------------------------ variances

    @cached_property
    def variances(self) -> list[FloatArray]:
        """For every level the variances of its nodes' totals; zeros where they are exact."""
        system, inverse, ratio = self.system, self.inverse, self.ratio
        out: list[FloatArray] = [np.empty(0)] * len(system.overlap)
        for level in system.levels:
            out[level] = np.zeros(system.overlap.nodes(level))
        for level, figures in system.figures.items():
            v = figures.b - ratio[figures.row] * figures.a
            first, second = figures.pairs
            each = inverse.diagonal[figures.row] * v * v
            taken = np.bincount(figures.figure, each, figures.number).astype(np.float64)
            places = system.places(*figures.rows_of_pairs)
            pairs = 2 * v[first] * v[second] * inverse.entries[places]
            taken += np.bincount(figures.figure[first], pairs, figures.number)
            own = ratio[figures.row] * figures.a**2
            kept = figures.single + np.bincount(figures.figure, own, figures.number)
            left = kept - taken
            out[level] = np.where(left > FIXED * kept, left, 0.0) / self._finest
        for level in system.levels:
            if level not in system.figures and not system.known(level):
                out[level] = self._unmeasured(level)
        return out

    def _unmeasured(self, level: int) -> FloatArray:
        """The variances of a level without noise of its own: a solution for every node."""
        nodes = self.system.overlap.nodes(level)
        found = np.array([self._squares(self._weights(level, i)) for i in range(nodes)])
        whole = self.system.overlap.sums(self.system.finest, level).sum(axis=1) / self._finest
        return np.where(found > FIXED * whole, found, 0.0)

    def _weights(self, level: int, node: int) -> dict[int, FloatArray]:
        weights = np.zeros((self.system.overlap.nodes(level), 1))
        weights[node] = 1.0
        return self.noise_weights({level: weights})

    def _squares(self, weights: Mapping[int, FloatArray]) -> float:
        return sum(float((w**2).sum()) / self.precision[level] for level, w in weights.items())

    def summed(self, weights: FloatArray | None) -> tuple[FloatArray, dict[int, FloatArray]]:
        """The sum of every level's variances; −∂/∂τ of their weighted sum, by measured level.

        One factorisation gives both: C is moved by Σ weight · Σ v vᵀ along the imaginary axis, and
        the imaginary part of its inverse is the derivative of that of all variances. Sums are of
        levels with a measurement of their own.
        """
        system, moments, ratio, tau = self.system, self.system.moments, self.ratio, self._finest
        by_row, by_column = ratio[system.pattern.rows], ratio[system.pattern.columns]
        # Of b·b, b·a, a·b and a·a: v vᵀ is b·b − R b·a − R a·b + R² a·a.
        factors: tuple[Any, ...] = (1.0, -by_column, -by_row, by_row * by_column)
        own_factors: tuple[Any, ...] = (1.0, -2 * ratio, ratio**2)
        direction, scale = None, 1.0
        if weights is not None and np.any(weights > 0) and system.size:
            on_pairs, on_diagonal = moments.weighted(weights)
            terms = [
                f * part for f, part in zip(factors, on_pairs, strict=True) if part is not None
            ]
            pairs = np.sum(terms, axis=0) if terms else np.zeros(by_row.size)
            diagonal = np.sum(
                [f * d for f, d in zip(own_factors, on_diagonal, strict=True)], axis=0
            )
            scale = SMALL / max(float(np.abs(diagonal).max(initial=0.0)), NO_INFORMATION)
            direction = (pairs * scale, diagonal * scale)
        inverse = self.inverse if direction is None else self._inverse(direction)
        entries, own = inverse.entries.real, inverse.diagonal.real
        sums = np.zeros(len(system.overlap))
        for level, single in moments.single.items():
            sums[level] = single
        for level, of in moments.own[2].items():
            sums[level] += of @ ratio
        for factor, by_level in zip(factors, moments.pairs, strict=True):
            if by_level:
                seen = 2 * factor * entries
                for level, of in by_level.items():
                    sums[level] -= of @ seen
        for factor, by_level in zip(own_factors, moments.own, strict=True):
            for level, of in by_level.items():
                sums[level] -= of @ (factor * own)
        sums /= tau
        if weights is None:
            return sums, {}
        squares = np.zeros(system.size)
        if direction is not None:
            squares = -inverse.diagonal.imag / scale
            squares = squares + self._own_squares(on_pairs, on_diagonal, entries, own)
        slopes = {
            level: float(squares[system.rows_of(level)].sum()) / self.precision[level] ** 2
            for level in system.measured
        }
        # Variances are homogeneous of degree −1 in all precisions.
        whole = float(sum(weights[level] * sums[level] for level in moments.single))
        rest = whole - sum(self.precision[level] * slope for level, slope in slopes.items())
        slopes[system.finest] = rest / tau
        return sums, {level: np.array([slope]) for level, slope in slopes.items()}

    def _own_squares(
        self,
        on_pairs: Sequence[FloatArray | None],
        on_diagonal: Sequence[FloatArray],
        entries: FloatArray,
        own: FloatArray,
    ) -> FloatArray:
        """Σ a² + 2 a·(C⁻¹v) over figures, for every row."""
        pattern, ratio, size = self.system.pattern, self.ratio, self.system.size
        _, b_a, a_b, a_a = on_pairs
        _, same, apart = on_diagonal
        out = apart + 2 * own * (same - ratio * apart)
        for crossed, beside, rows in (
            (b_a, pattern.rows, pattern.columns),
            (a_b, pattern.columns, pattern.rows),
        ):
            seen: Any = 0.0 if crossed is None else crossed
            if a_a is not None:
                seen = seen - a_a * ratio[beside]
            if crossed is not None or a_a is not None:
                out = out + 2 * np.bincount(rows, entries * seen, size)
        return np.asarray(out)

    def slopes_at(self, level: int, node: int) -> dict[int, FloatArray]:
        """−∂/∂τ of one node's variance, by measured level."""
        return {
            lv: np.array([float((w**2).sum()) / self.precision[lv] ** 2])
            for lv, w in self._weights(level, node).items()
        }

    # ------------------------------------------------------------------------ densities

    @property
    def free(self) -> int:
        """How many nodes of the finest level what is exact leaves open."""
        return self.system.overlap.nodes(self.system.finest) - self.system.rank

    def log_density(self, off: FloatArray, shares: FloatArray) -> float:
        """The log-density of a normal law with the estimate's covariance, at estimate − truth.

        As that of `Smoother`. The information M = τ(1 + SᵀR⁻¹S) of the measured rows has the
        determinant τⁿ·det C/det R; what is exact leaves of it, on its null space, that of all rows
        over the determinant of what the exact ones share.
        """
        if self.projected:
            raise ReleaseError(
                "The density of an estimate that is projected onto a classification is not known "
                "where others cross it; take intervals and standard errors."
            )
        system = self.system
        weight = np.where(shares > 0, 1.0 / np.where(shares > 0, shares, 1.0), 0.0)
        squares = sum(
            tau * float(np.sum(system.overlap.climb(off, system.finest, level) ** 2 * weight))
            for level, tau in self.precision.items()
        )
        measured = self.ratio[self.ratio > 0]
        logdet = self.free * math.log(self._finest) - float(np.log(measured).sum())
        logdet += self.inverse.log_determinant - system.repeated.size * math.log(ISOLATED)
        logdet -= system.shared_by_exact
        contrasts = float(shares.sum())
        spread = float(np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))
        constant = contrasts * (self.free * math.log(2 * math.pi) - logdet) + self.free * spread
        return -0.5 * (squares + constant)

    # ------------------------------------------------------------------------ estimates

    def estimate(
        self, measured: Mapping[int, FloatArray], exact: Mapping[int, FloatArray]
    ) -> dict[int, FloatArray]:
        """The estimate at the finest level and at all that it determines.

        Parameters
        ----------
        measured
            For each level that is measured one row per node; the root's too, where it has no noise.
        exact
            The totals of the levels that are held.
        """
        system, overlap = self.system, self.system.overlap
        y = np.asarray(measured[system.finest], np.float64)
        flat = y.reshape(len(y), -1)
        out = flat.copy()
        if system.stacked:
            given = {**measured, **exact} if system.held is None else measured
            of_rows = [np.asarray(given[lv], np.float64) for lv in system.stacked]
            rows = np.concatenate([values.reshape(len(values), -1) for values in of_rows])
            off = rows - system.sums @ flat
            off[system.repeated] = 0.0
            out = out + system.sums.T @ self.inverse.solve(off)
        if system.held is not None:
            totals = np.asarray(exact[system.held], np.float64)
            over = totals.reshape(len(totals), -1) - overlap.sums(system.finest, system.held) @ out
            out = out + system.parts(system.finest).T @ over
        finest = out.reshape(y.shape)
        estimates = {level: overlap.climb(finest, system.finest, level) for level in system.levels}
        for level in system.levels:
            if system.known(level):
                fine = next(fine for fine in system.given if overlap.determines(fine, level))
                whole = np.asarray(exact[fine] if fine in exact else measured[fine], np.float64)
                estimates[level] = overlap.climb(whole, fine, level)
        return estimates

    def noise_weights(self, weights: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """The adjoint of `estimate`: weights of the measurements in a weighted sum of estimates."""
        system, overlap = self.system, self.system.overlap
        shape = next(iter(weights.values())).shape[1:]
        out = np.zeros((overlap.nodes(system.finest), int(np.prod(shape))))
        for level, weight in weights.items():
            if not system.known(level):
                flat = np.asarray(weight, np.float64).reshape(len(weight), -1)
                out += flat if level == system.finest else (
                    overlap.sums(system.finest, level).T @ flat
                )  # fmt: skip
        if system.held is not None:
            moved = system.parts(system.finest) @ out
            out = out - overlap.sums(system.finest, system.held).T @ moved
        of_rows = np.zeros((system.size, out.shape[1]))
        if system.stacked:
            totals = system.sums @ out
            totals[system.repeated] = 0.0
            of_rows = self.inverse.solve(totals)
            of_rows[system.repeated] = 0.0
            out = out - system.sums.T @ of_rows
        found = {level: of_rows[system.rows_of(level)] for level in system.measured}
        found[system.finest] = out
        return {level: values.reshape(-1, *shape) for level, values in found.items()}
