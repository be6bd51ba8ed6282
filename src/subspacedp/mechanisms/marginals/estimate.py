"""What least squares makes of a measurement: contrasts of every interaction, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subspacedp.arrays import FloatArray, Int64Array
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.measurement import ByLevel, Measurement
from subspacedp.mechanisms.marginals.tree import Places


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Estimate:
    """Real-valued tables that agree with each other and with the held totals.

    Parameters
    ----------
    measured
        The contrasts that were measured, by interaction and level.
    held, held_totals
        The held margins, and the exact totals of each.
    grand_total
        Where it is known because no neighbouring change alters it.
    """

    measurement: Measurement
    measured: Mapping[tuple[int, ...], ByLevel]
    held: HeldMargins
    held_totals: HeldValues
    grand_total: int | None

    @property
    def interactions(self) -> Interactions:
        """The workload taken apart."""
        return self.measurement.interactions

    @cached_property
    def contrasts(self) -> dict[tuple[int, ...], ByLevel]:
        """Of every interaction at every level from its finest one on, by least squares.

        What is held is taken from the held totals.
        """
        out: dict[tuple[int, ...], ByLevel] = {}
        for interaction in self.interactions.all.values():
            steps, root = interaction.steps, self.root(interaction)
            exact = self.exact_contrasts(interaction)
            if steps in self.measured:
                smoother = self.measurement.smoother(interaction)
                out[steps] = smoother.estimate({**self.measured[steps], **root}, exact)
            else:
                out[steps] = without_noise(self.interactions.tree, {**root, **exact})
        return out

    def exact_contrasts(self, interaction: Interaction) -> ByLevel:
        """The contrasts of an interaction at the finest levels that are held."""
        steps, inter = interaction.steps, self.interactions
        return {lv: inter.contrasts(self.exact(interaction, lv), steps) for lv in interaction.exact}

    def root(self, interaction: Interaction) -> ByLevel:
        """The grand total, where it is measured without noise and is what is asked for."""
        inter = self.interactions
        if self.grand_total is None or inter.kept(interaction.steps):
            return {}
        return {inter.tree.root: np.full((1, *(1,) * len(inter.axes)), float(self.grand_total))}

    def exact(self, interaction: Interaction, level: int) -> Int64Array:
        """The totals of an interaction's margin where they are known, nodes of the tree first."""
        inter = self.interactions
        if not interaction.exact:
            return np.full((1, *(1,) * len(inter.axes)), self.grand_total, np.int64)
        totals = self.held.of(self.held_totals, inter.margin(level, interaction.steps))
        return np.asarray(inter.to_nodes(totals, level), np.int64)

    def finest(self, interaction: Interaction) -> FloatArray:
        """The totals of an interaction's margin at its finest level, nodes of the tree first."""
        return self.totals(interaction.finest, interaction.steps)

    def table(self, number: int) -> FloatArray:
        """A table of the workload in its margin's shape."""
        inter = self.interactions
        margin, where = inter.workload[number], inter.published[number]
        if any(h.determines(margin) for h in self.held.margins):
            return self.held.of(self.held_totals, margin).astype(np.float64)
        return inter.from_nodes(self.totals(where.level, where.steps), where.level)

    def totals(self, level: int, steps: tuple[int, ...]) -> FloatArray:
        """A table of any level and steps in use, nodes of the tree first."""
        at_level = {s: e[level] for s, e in self.contrasts.items() if level in e}
        return self.interactions.table_from(at_level, steps)


def without_noise(tree: Places, known: ByLevel) -> ByLevel:
    """The contrasts of an interaction that is exact, at all levels that known ones determine."""
    out: ByLevel = {}
    for level in range(len(tree)):
        fine = next((e for e in known if tree.determines(e, level)), None)
        if fine is not None:
            out[level] = tree.climb(known[fine], fine, level)
    return out
