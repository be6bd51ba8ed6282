"""Least squares on a tree: one pass up, one pass down, and what they say of variances.

A table of contrasts is measured at several levels of a tree, Y_l = S_l x + noise of variance 1/τ_l,
S_l the sums over the nodes of level l. With a_i the variance of node i's total estimated from its
own subtree and s_i the sum of its children's,

    up:    a_i = s_i/(1 + τ_i s_i),   the estimate the precision-weighted mean of both;
    down:  what a parent's estimate exceeds the sum of its children's is shared in proportion to
           their a: child i gets the share r_i = a_i/s_parent.

The final variance is V_i = a_i − r_i a_i + r_i² V_parent. Everything of the size of the tree is
linear; nothing of the size of its square is formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from subspacedp.arrays import FloatArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.mechanisms.marginals.tree import Forest, Orbits, Tree


@frozen(eq=False, repr=False, kw_only=True)
class Smoother:
    """The two passes for one interaction.

    Parameters
    ----------
    tree
        The levels in use.
    precision
        For every level one over the variance of its noise, for each orbit of nodes (or one number
        for all); zeros where nothing is measured.
    finest
        The finest level that is estimated; it is measured.
    held
        The finest level whose totals are exact, coarser than `finest`; None where none are.
    constrained
        Whether the exact totals enter the least squares: the pass down starts from them. Otherwise
        the estimate without them is projected: every node moves by its share, by number of labels,
        of what the estimate of the held node is off.
    total_known
        Whether the root is measured without noise.

    Guarantees
    ----------
    1. `estimate` is the least squares estimate (under the exact totals, if `constrained`), and
       `variances` are its variances, both up to float64 rounding (docs/proofs/marginals.md).
    2. Not constrained, estimate − (exact part) is a function of the measurements alone, projected
       onto the null space of the held totals.
    """

    tree: Tree
    precision: Sequence[FloatArray]
    finest: int
    held: int | None = None
    constrained: bool = False
    total_known: bool = False

    def prepare(self) -> None:
        """Nothing is shared between trees of different interactions."""

    @property
    def orbits(self) -> Orbits:
        """Which nodes are alike."""
        return self.tree.orbits

    @property
    def top(self) -> int:
        """The level at which the pass down begins."""
        starts_at_held = self.constrained and self.held is not None
        return self.held if starts_at_held and self.held is not None else self.tree.root

    # ------------------------------------------------------------------------ variances

    @cached_property
    def _up(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """For every level s, the children's sum, and a, with the node's own measurement."""
        orbits = self.orbits
        below: list[FloatArray] = [np.empty(0)] * len(self.tree)
        subtree: list[FloatArray] = [np.empty(0)] * len(self.tree)
        f = self.finest
        subtree[f] = 1.0 / np.broadcast_to(self.precision[f], orbits.number[f].shape)
        for level in range(f + 1, self.top + 1):
            below[level] = np.bincount(
                orbits.parent[level - 1],
                orbits.siblings[level - 1] * subtree[level - 1],
                minlength=len(orbits.number[level]),
            ).astype(np.float64)
            subtree[level] = below[level] / (1.0 + self.precision[level] * below[level])
        return below, subtree

    @cached_property
    def shares(self) -> list[FloatArray]:
        """r: for every orbit below the top its share of what its parent is off."""
        below, subtree = self._up
        out: list[FloatArray] = [np.empty(0)] * len(self.tree)
        for level in range(self.finest, self.top):
            out[level] = subtree[level] / below[level + 1][self.orbits.parent[level]]
        return out

    @cached_property
    def _free(self) -> list[FloatArray]:
        """V of every orbit before any projection; zeros at the top if that is exact."""
        below, subtree = self._up
        out: list[FloatArray] = [np.empty(0)] * len(self.tree)
        out[self.top] = np.zeros_like(subtree[self.top]) if self._exact_top else subtree[self.top]
        for level in range(self.top - 1, self.finest - 1, -1):
            up = self.orbits.parent[level]
            r, a, s = self.shares[level], subtree[level], below[level + 1][up]
            # a(1 − r) as a(s − a)/s: an only child has s = a, and exactly its parent's variance.
            out[level] = a * ((s - a) / s) + r * r * out[level + 1][up]
        return out

    @property
    def _exact_top(self) -> bool:
        return self.total_known or (self.constrained and self.held is not None)

    @cached_property
    def _paths(self) -> list[FloatArray]:
        """For every orbit below the held level the product of shares from there down."""
        out: list[FloatArray] = [np.empty(0)] * len(self.tree)
        if self.held is None:
            return out
        out[self.held] = np.ones_like(self.orbits.number[self.held])
        for level in range(self.held - 1, self.finest - 1, -1):
            out[level] = self.shares[level] * out[level + 1][self.orbits.parent[level]]
        return out

    @cached_property
    def _by_leaves(self) -> list[FloatArray]:
        """For every orbit below the held level its share of the held node's labels."""
        out: list[FloatArray] = [np.empty(0)] * len(self.tree)
        if self.held is None:
            return out
        for level in range(self.finest, self.held):
            whole = self.orbits.leaves[self.held][self.orbits.ancestors(level, self.held)]
            out[level] = self.orbits.leaves[level] / whole
        return out

    @property
    def projected(self) -> bool:
        """Whether the estimate is projected onto the null space of the held totals."""
        return self.held is not None and not self.constrained

    @cached_property
    def variances(self) -> list[FloatArray]:
        """For every level from `finest` on the variance of a node's total, by orbit."""
        out = list(self._free)
        if self.held is None:
            return out
        if self.projected:
            for level in range(self.finest, self.held):
                above = self._free[self.held][self.orbits.ancestors(level, self.held)]
                q, path = self._by_leaves[level], self._paths[level]
                moved = out[level] + (q * q - 2 * q * path) * above
                # A node with all labels of its held one is that one, and exact.
                out[level] = np.where(q == 1.0, 0.0, np.maximum(moved, 0.0))
        for level in range(self.held, len(self.tree)):
            out[level] = np.zeros_like(self.orbits.number[level])
        return out

    def summed(self, weights: FloatArray | None) -> tuple[FloatArray, dict[int, FloatArray]]:
        """The sum of every level's variances; −∂/∂τ of their weighted sum, by level and orbit."""
        number = self.orbits.number
        pairs = zip(number, self.variances, strict=True)
        sums = np.array([float(n @ v) if len(v) else 0.0 for n, v in pairs])
        if weights is None:
            return sums, {}
        slopes = self.slopes([w * n for w, n in zip(weights, number, strict=True)])
        return sums, dict(enumerate(slopes))

    def slopes_at(self, level: int, orbit: int) -> dict[int, FloatArray]:
        """−∂/∂τ of the variance of the nodes of one orbit, by level and orbit."""
        here = [np.zeros_like(n) for n in self.orbits.number]
        here[level][orbit] = 1.0
        return dict(enumerate(self.slopes(here)))

    def slopes(self, weights: Sequence[FloatArray]) -> list[FloatArray]:
        """−∂/∂τ of Σ weights·variances, for every level and orbit, by reverse differentiation.

        `weights` has one number per orbit for every level; levels not estimated are ignored.
        """
        orbits, top, f = self.orbits, self.top, self.finest
        below, subtree = self._up
        zeros = [np.zeros_like(n) for n in orbits.number]
        v_bar = [w.copy() for w in zeros]
        path_bar = [w.copy() for w in zeros]
        first_held = len(self.tree) if self.held is None else self.held
        for level in range(f, min(first_held, top + 1)):
            v_bar[level] = v_bar[level] + weights[level]
        if self.projected and self.held is not None:
            for level in range(f, self.held):
                up = orbits.ancestors(level, self.held)
                q, path, w = self._by_leaves[level], self._paths[level], weights[level]
                size = len(orbits.number[self.held])
                v_bar[self.held] += np.bincount(up, w * (q * q - 2 * q * path), minlength=size)
                path_bar[level] = path_bar[level] - 2 * q * w * self._free[self.held][up]
        a_bar, s_bar = [w.copy() for w in zeros], [w.copy() for w in zeros]
        for level in range(f, top):
            up, size = orbits.parent[level], len(orbits.number[level + 1])
            r, a, s = self.shares[level], subtree[level], below[level + 1][up]
            above = self._free[level + 1][up]
            r_bar = v_bar[level] * (2 * r * above - a)
            if self.projected and self.held is not None and level < self.held:
                r_bar = r_bar + path_bar[level] * self._paths[level + 1][up]
                if level + 1 < self.held:
                    path_bar[level + 1] += np.bincount(up, path_bar[level] * r, minlength=size)
            v_bar[level + 1] += np.bincount(up, v_bar[level] * r * r, minlength=size)
            a_bar[level] += v_bar[level] * (1 - r) + r_bar / s
            s_bar[level + 1] -= np.bincount(up, r_bar * a / (s * s), minlength=size)
        if not self._exact_top:
            a_bar[top] += v_bar[top]
        out = [w.copy() for w in zeros]
        for level in range(top, f, -1):
            s = below[level]
            damp = 1.0 + self.precision[level] * s
            out[level] = subtree[level] ** 2 * a_bar[level]
            s_bar[level] += a_bar[level] / (damp * damp)
            up = orbits.parent[level - 1]
            a_bar[level - 1] += orbits.siblings[level - 1] * s_bar[level][up]
        out[f] = subtree[f] ** 2 * a_bar[f]
        return out

    # ------------------------------------------------------------------------ densities

    @property
    def free(self) -> int:
        """How many nodes of the finest level what is exact leaves open."""
        exact = 0 if self.held is None else self.tree.nodes(self.held)
        return self.tree.nodes(self.finest) - max(exact, 1 if self.total_known else 0)

    def log_density(self, off: FloatArray, shares: FloatArray) -> float:
        """The log-density of a normal law with the estimate's covariance, at estimate − truth.

        Parameters
        ----------
        off
            Contrasts of the finest level, one row per node; zero in sum where totals are exact.
        shares
            ∏(1 − 1/k) for every group: noise on a group has this variance times that of a node.

        Notes
        -----
        With the information M = Σ τ_l S_lᵀS_l, the density on the space that noise fills is that of
        M there (free, or constrained). A projected estimate is free in addition to a shift of every
        held node by number of labels, over which it is summed (docs/proofs/likelihood.md).
        """
        weight = np.where(shares > 0, 1.0 / np.where(shares > 0, shares, 1.0), 0.0)
        nodes = len(off)
        dimensions = nodes - (self.tree.nodes(self.top) if self._exact_top else 0)
        logdet = self._log_determinant
        squares = self._squares(off, weight)
        known = self.total_known and self.held == self.tree.root
        if self.projected and self.held is not None and not known:
            shifts = self._shifts
            pulled = self._pulled(off)
            precision = self.orbits.spread(shifts.precision[self.held], self.held)
            zeros = {
                level: np.zeros((self.tree.nodes(level), *off.shape[1:]))
                for level in range(self.held + 1, len(self.tree))
            }
            measured = {**zeros, self.held: pulled / _rows(precision, pulled)}
            moved = shifts.estimate({**zeros, **measured}, {})[self.held]
            squares -= float(np.sum(pulled * moved * weight))
            groups = self.tree.nodes(self.held)
            dimensions -= groups - (1 if self.total_known else 0)
            inside = np.bincount(self.tree.ancestors(self.finest, self.held))
            logdet -= shifts._log_determinant + float(np.log(inside).sum())
            logdet += math.log(nodes / groups) if self.total_known else 0.0
        contrasts = float(shares.sum())
        spread = float(np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))
        constant = contrasts * (dimensions * math.log(2 * math.pi) - logdet) + dimensions * spread
        return -0.5 * (squares + constant)

    def _levels(self) -> range:
        """Those whose measurements say something beyond what is exact."""
        return range(self.finest, self.top if self._exact_top else self.top + 1)

    def _squares(self, off: FloatArray, weight: FloatArray) -> float:
        """Σ τ_l |S_l off|², groups weighted."""
        out = 0.0
        for level in self._levels():
            sums = self.tree.climb(off, self.finest, level)
            precision = self.orbits.spread(
                np.broadcast_to(self.precision[level], self.orbits.number[level].shape), level
            )
            out += float(np.sum(_rows(precision, sums) * sums**2 * weight))
        return out

    @cached_property
    def _log_determinant(self) -> float:
        """Log det M, of one contrast; within what exact totals at the top leave open."""
        below, _ = self._up
        number, f = self.orbits.number, self.finest
        out = float(number[f] @ np.log(np.broadcast_to(self.precision[f], number[f].shape)))
        for level in range(f + 1, self.top + (0 if self._exact_top else 1)):
            out += float(number[level] @ np.log1p(self.precision[level] * below[level]))
        if self._exact_top:
            inside = np.bincount(self.tree.ancestors(f, self.top))
            out += float(number[self.top] @ np.log(below[self.top]) - np.log(inside).sum())
        return out

    @cached_property
    def _shifts(self) -> Smoother:
        """The information on a shift of every held node, by number of labels."""
        orbits, held = self.orbits, self.held
        if held is None:
            raise ReleaseError("Nothing is held.")
        pairs = zip(self.precision, orbits.number, strict=True)
        precision = [np.broadcast_to(p, n.shape) for p, n in pairs]
        information = precision[held].astype(np.float64)
        for level in range(self.finest, held):
            up = orbits.ancestors(level, held)
            each = orbits.number[level] / orbits.number[held][up]
            information = information + np.bincount(
                up,
                each * precision[level] * self._by_leaves[level] ** 2,
                minlength=len(information),
            )
        precision[held] = information
        return Smoother(
            tree=self.tree, precision=precision, finest=held, total_known=self.total_known
        )

    def _pulled(self, off: FloatArray) -> FloatArray:
        """What measurements below every held node say of its shift: Σ τ_l q_l · S_l off."""
        if self.held is None:
            raise ReleaseError("Nothing is held.")
        out = np.zeros((self.tree.nodes(self.held), *off.shape[1:]))
        for level in range(self.finest, self.held):
            sums = self.tree.climb(off, self.finest, level)
            factor = self.orbits.spread(self.precision[level] * self._by_leaves[level], level)
            out += self.tree.climb(_rows(factor, sums) * sums, level, self.held)
        return out

    # ------------------------------------------------------------------------ estimates

    @cached_property
    def _gains(self) -> list[FloatArray]:
        """For every level above the finest what its own measurement counts for, by orbit."""
        below, _ = self._up
        out: list[FloatArray] = [np.empty(0)] * len(self.tree)
        for level in range(self.finest + 1, self.top + 1):
            ts = self.precision[level] * below[level]
            out[level] = ts / (1.0 + ts)
        return out

    def estimate(
        self, measured: Mapping[int, FloatArray], exact: Mapping[int, FloatArray]
    ) -> dict[int, FloatArray]:
        """The estimate at every level from the finest to the root.

        Parameters
        ----------
        measured
            For each level that is measured one row per node; the root's where `total_known`.
        exact
            The exact totals of the held level.
        """
        f, top, tree = self.finest, self.top, self.tree
        held = None if self.held is None else exact.get(self.held)
        estimates: dict[int, FloatArray] = {f: measured[f]}
        sums = self.upward(tree, measured, estimates, f, top)
        self.start_from(estimates, measured, exact)
        self.downward(tree, estimates, sums, f, top)
        if self.held is not None and held is not None:
            if self.projected:
                off = held - estimates[self.held]
                for level in range(f, self.held):
                    over = tree.descend(off, self.held, level)
                    estimates[level] = self.moved(tree, estimates[level], over, level)
            for level in range(self.held, len(tree)):
                estimates[level] = tree.climb(held, self.held, level)
        return estimates

    # The passes of `estimate`, for all of the tree or for a run of its subtrees: what they give a
    # node depends on its own subtree and, on the way down, on its parent, and on nothing else.

    def upward(
        self,
        forest: Forest,
        measured: Mapping[int, FloatArray],
        estimates: dict[int, FloatArray],
        low: int,
        high: int,
    ) -> dict[int, FloatArray]:
        """Estimates of the levels above `low` up to `high` from subtrees; the sums of children."""
        sums: dict[int, FloatArray] = {}
        for level in range(low + 1, high + 1):
            sums[level] = forest.up(level, estimates[level - 1])
            estimates[level] = sums[level]
            if level in measured:
                gain = _rows(forest.spread(self._gains[level], level), sums[level])
                estimates[level] = sums[level] + gain * (measured[level] - sums[level])
        return sums

    def start_from(
        self,
        estimates: dict[int, FloatArray],
        measured: Mapping[int, FloatArray],
        exact: Mapping[int, FloatArray],
    ) -> None:
        """Put exact totals at the top, where the pass down starts from them."""
        if not self._exact_top:
            return
        known = exact if self.constrained and self.held is not None else measured
        if self.top not in known:
            raise ReleaseError("The exact totals that an estimate starts from are missing.")
        estimates[self.top] = known[self.top]

    def downward(
        self,
        forest: Forest,
        estimates: dict[int, FloatArray],
        sums: Mapping[int, FloatArray],
        low: int,
        high: int,
    ) -> None:
        """Share what every parent's estimate exceeds the sum of its children's."""
        for level in range(high - 1, low - 1, -1):
            over = forest.down(level + 1, estimates[level + 1] - sums[level + 1])
            share = _rows(forest.spread(self.shares[level], level), over)
            estimates[level] = estimates[level] + share * over

    def moved(
        self, forest: Forest, estimate: FloatArray, over: FloatArray, level: int
    ) -> FloatArray:
        """Nodes below the held level, each moved by its share of labels of what that is off."""
        return estimate + _rows(forest.spread(self._by_leaves[level], level), over) * over

    def noise_weights(self, weights: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """The adjoint of `estimate`: weights of the measurements in a weighted sum of estimates."""
        f, top, tree = self.finest, self.top, self.tree
        below_held = len(tree) if self.held is None else self.held
        shape = next(iter(weights.values())).shape[1:]

        def nothing(level: int) -> FloatArray:
            return np.zeros((tree.nodes(level), *shape))

        final = {
            level: weights[level].copy() if level in weights and level < below_held
            else nothing(level)
            for level in range(f, top + 1)
        }  # fmt: skip
        if self.projected and self.held is not None:
            for level in range(f, self.held):
                if level in weights:
                    part = self.orbits.spread(self._by_leaves[level], level)
                    moved = _rows(part, final[level]) * weights[level]
                    final[self.held] -= tree.climb(moved, level, self.held)
        on_estimates = {level: nothing(level) for level in range(f, top + 1)}
        sums = {level: nothing(level) for level in range(f, top + 1)}
        for level in range(f, top):
            on_estimates[level] += final[level]
            above = tree.up(
                level + 1,
                _rows(tree.spread(self.shares[level], level), final[level]) * final[level],
            )
            final[level + 1] += above
            sums[level + 1] -= above
        if not self._exact_top:
            on_estimates[top] += final[top]
        out = {}
        for level in range(top, f, -1):
            gain = _rows(tree.spread(self._gains[level], level), on_estimates[level])
            sums[level] += (1.0 - gain) * on_estimates[level]
            if np.any(self.precision[level]):
                out[level] = gain * on_estimates[level]
            on_estimates[level - 1] += tree.down(level, sums[level])
        out[f] = on_estimates[f]
        return out


def _rows(values: FloatArray, like: FloatArray) -> FloatArray:
    """One value per row, to multiply an array of rows with."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))
