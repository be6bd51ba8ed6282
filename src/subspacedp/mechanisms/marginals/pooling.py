"""Several releases of one workload as one estimate, interaction by interaction.

What release r says of the contrasts of an interaction is x plus noise with the information
M_r = Σ_l τ_r[l] S_lᵀS_l over the levels of the tree. Informations add up, so generalised least
squares is the tree smoother again, with the precisions Σ_r τ_r[l] and, as what was measured at
level l, the means of S_l y_r weighted by τ_r[l]. Two passes, linear in the size of the tree.
Proof: `docs/proofs/combination.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues
from subspacedp.mechanisms.error_laws.joint import UNEQUAL, Averaging, Pooling
from subspacedp.mechanisms.marginals.error_model import MarginalsNoise, noise_by_orbit
from subspacedp.mechanisms.marginals.estimate import without_noise
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.smoother import Smoother
from subspacedp.tables import Margin


def averaging(noises: tuple[MarginalsNoise, ...]) -> Averaging | None:
    """The average of releases whose precisions are multiples of each other's, nearly."""
    first = noises[0].measurement
    for noise in noises[1:]:
        other = noise.measurement
        same = (
            first.errors.constrained == other.errors.constrained
            and first.errors.total_known == other.errors.total_known
            and first.shares.shape == other.shares.shape
            and np.array_equal(first.shares > 0, other.shares > 0)
        )
        if not same:
            return None
        ratio = other.shares[first.shares > 0] / first.shares[first.shares > 0]
        if ratio.size and float(ratio.max()) > (1 + UNEQUAL) * float(ratio.min()):
            return None
    precision = [1 / float(noise.cell_variance().sum()) for noise in noises]
    return Averaging(tuple(p / math.fsum(precision) for p in precision))


@frozen(eq=False, repr=False)
class TreePooling(Pooling):
    """One tree smoother for every interaction, under all that is held.

    Guarantees
    ----------
    1. Unbiased, with all held totals exact, for any precisions.
    2. Best where no release was projected onto its null space (nothing held, or exact totals in its
       least squares). A projected release knows less of how its noise depends on directions than
       M_r says, and the estimate is near the best one only.
    """

    noises: tuple[MarginalsNoise, ...]

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.noises[0].interactions

    @property
    def best(self) -> bool:
        """Whether the informations are those of the releases."""
        return not any(
            noise.measurement.tree_smoother(interaction).projected
            for noise in self.noises
            for interaction in noise.measurement.errors.measured
        )

    @cached_property
    def shares(self) -> tuple[float, ...]:  # type: ignore[override]
        """Of the precisions of all interactions and levels together, by release."""
        total = [
            math.fsum(
                math.fsum(float(n @ np.broadcast_to(p, n.shape)) / t for n, p, t in levels)
                for levels in (self._relative(interaction, r) for interaction in self._measured)
            )
            for r in range(len(self.noises))
        ]
        whole = math.fsum(total)
        return tuple(t / whole if whole > 0 else 1 / len(total) for t in total)

    def _relative(
        self, interaction: Interaction, r: int
    ) -> list[tuple[FloatArray, FloatArray, float]]:
        """For every level in use the nodes, the precisions of a release, and the sum of all."""
        number = self.interactions.as_tree.orbits.number
        pooled = self._smoothers[interaction.steps].precision
        alone = self._precision(interaction, r)
        return [
            (number[level], alone[level], whole)
            for level in range(interaction.finest, len(number))
            if (whole := float(number[level] @ pooled[level])) > 0
        ]

    # ------------------------------------------------------------------------ the smoothers

    @cached_property
    def _measured(self) -> tuple[Interaction, ...]:
        """The interactions that every release measured with noise."""
        each = [{i.steps for i in n.measurement.errors.measured} for n in self.noises]
        first = self.noises[0].measurement.errors.measured
        return tuple(i for i in first if all(i.steps in steps for steps in each))

    def _precision(self, interaction: Interaction, r: int) -> list[FloatArray]:
        number = self.interactions.as_tree.orbits.number
        smoother = self.noises[r].measurement.tree_smoother(interaction)
        pairs = zip(smoother.precision, number, strict=True)
        return [np.broadcast_to(p, n.shape) for p, n in pairs]

    @cached_property
    def _smoothers(self) -> dict[tuple[int, ...], Smoother]:
        out = {}
        for interaction in self._measured:
            each = [self._precision(interaction, r) for r in range(len(self.noises))]
            out[interaction.steps] = Smoother(
                tree=self.interactions.as_tree,
                precision=[np.sum(levels, axis=0) for levels in zip(*each, strict=True)],
                finest=interaction.finest,
                held=interaction.held,
                constrained=interaction.held is not None,
                total_known=any(
                    n.measurement.tree_smoother(interaction).total_known for n in self.noises
                ),
            )
        return out

    def _weights(self, interaction: Interaction, r: int, level: int) -> FloatArray:
        """τ_r[l]/Σ τ[l] for every node."""
        whole = self._smoothers[interaction.steps].precision[level]
        alone = self._precision(interaction, r)[level]
        share = np.divide(alone, whole, out=np.zeros_like(whole), where=whole > 0)
        nodes = self.interactions.as_tree.orbits.spread(share, level)
        return np.asarray(nodes).reshape(-1, *(1,) * len(self.interactions.axes))

    def _levels(self, interaction: Interaction) -> list[int]:
        """Those that some release measured, up to where totals are exact."""
        smoother = self._smoothers[interaction.steps]
        precision = smoother.precision
        return [
            lv for lv in range(interaction.finest, smoother.top + 1) if np.any(precision[lv] > 0)
        ]

    # ------------------------------------------------------------------------ estimates

    def mix(
        self,
        values: Sequence[AnyArray],
        held: HeldMargins | HeldMatrix,
        exact: HeldValues,
    ) -> FloatArray:
        """Least squares for every interaction; what is exact is taken as it is."""
        inter, tree = self.interactions, self.interactions.as_tree
        tables = [n.tables_of(v) for n, v in zip(self.noises, values, strict=True)]
        estimates: dict[tuple[int, ...], dict[int, FloatArray]] = {}
        for interaction in inter.all.values():
            each = [inter.contrasts_from(t, interaction) for t in tables]
            known, root = self._exact(held, exact, interaction), self._root(each, interaction)
            if interaction.steps in self._smoothers:
                measured = {}
                for level in self._levels(interaction):
                    means = [
                        self._weights(interaction, r, level)
                        * tree.climb(x, interaction.finest, level)
                        for r, x in enumerate(each)
                    ]
                    measured[level] = np.sum(means, axis=0)
                smoother = self._smoothers[interaction.steps]
                estimates[interaction.steps] = smoother.estimate({**measured, **root}, known)
            else:
                estimates[interaction.steps] = without_noise(tree, {**root, **known})
        out = []
        for t in range(len(tables[0])):
            where = inter.published[t]
            here = {s: e[where.level] for s, e in estimates.items() if where.level in e}
            out.append(inter.table_from(here, where.steps))
        return held.space.imposed(self.noises[0].answers_of(out), exact)

    def _exact(
        self, held: HeldMargins | HeldMatrix, exact: HeldValues, interaction: Interaction
    ) -> dict[int, FloatArray]:
        """The contrasts of an interaction at the level that is held."""
        inter, steps, level = self.interactions, interaction.steps, interaction.held
        if held.family is None or level is None:
            return {}
        totals = held.family.of(exact, inter.margin(level, steps))
        return {level: inter.contrasts(inter.to_nodes(totals, level), steps)}

    def _root(self, each: Sequence[FloatArray], interaction: Interaction) -> dict[int, FloatArray]:
        """The grand total, where a release has it without noise."""
        tree = self.interactions.as_tree
        for x, noise in zip(each, self.noises, strict=True):
            known = noise.measurement.errors.total_known
            if known and not self.interactions.kept(interaction.steps):
                return {tree.root: tree.climb(x, interaction.finest, tree.root)}
        return {}

    def under(self, weights: FloatArray) -> list[FloatArray]:
        """The adjoint of `mix`, exact values apart."""
        inter, tree = self.interactions, self.interactions.as_tree
        first = self.noises[0]
        tables = first.tables_of(weights)
        out = [[np.zeros_like(t) for t in tables] for _ in self.noises]
        for interaction in self._measured:
            by_level: dict[int, FloatArray] = {}
            for where, table in zip(inter.published, tables, strict=False):
                if interaction.steps in set(inter.below(where.steps)):
                    gathered = inter.gather(table, where.steps, interaction.steps)
                    by_level[where.level] = by_level.get(where.level, 0.0) + gathered
            if not by_level:
                continue
            measured = self._smoothers[interaction.steps].noise_weights(by_level)
            for r, target in enumerate(out):
                finest = sum(
                    tree.descend(
                        self._weights(interaction, r, level) * w, level, interaction.finest
                    )
                    for level, w in measured.items()
                )
                inter.weights_to(target, interaction, np.asarray(finest))
        return [first.answers_of(t) for t in out]

    def figure_variance(
        self, each: Sequence[FloatArray], margins: Sequence[Margin]
    ) -> FloatArray | None:
        """The variances of the smoother, where it is best and nothing is rounded."""
        del each
        first, inter = self.noises[0], self.interactions
        rounded = any(noise.rounding is not None for noise in self.noises)
        local = [inter.domain.margin(*m.names) for m in margins]
        if rounded or not self.best or not all(first.knows(m) for m in local):
            return None
        tables = []
        for where in map(inter.locate, local):
            groups = [np.arange(n) for n in inter.shape(where.steps)]
            table = noise_by_orbit(inter, where, groups, self._smoothers)
            nodes = inter.as_tree.spread(table, where.level)
            tables.append(inter.from_nodes(nodes, where.level).reshape(-1))
        return np.concatenate(tables)
