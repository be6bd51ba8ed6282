"""What least squares makes of a measurement: contrasts of every interaction, and tables of them.

For a table of cells the two passes give the best estimate x̃, with error covariance V. That the
cells Z are empty is one more thing that is known, so the best estimate with it is

    x̂ = x̃ − V_Z (V_ZZ)⁺ x̃_Z,      V_Z the columns and V_ZZ the block of V at Z,

and its covariance V − V_Z (V_ZZ)⁺ V_Zᵀ. The columns of V keep what is held, so x̂ does. Setting x̃_Z
to zero alone would undo what margins were measured for: a total would be off by the noise of all
its empty cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray, Int64Array
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.mechanisms.marginals.interactions import Interaction, Interactions
from subspacedp.mechanisms.marginals.measurement import ByLevel, Measurement
from subspacedp.mechanisms.marginals.tree import Places
from subspacedp.tables import Margin


@frozen(eq=False, repr=False, kw_only=True)
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


MAX_EMPTY_ENTRIES = 1 << 25  # of the covariances between all cells and the empty ones
MAX_EMPTY_CELLS = 4096
NO_VARIANCE = 1e-11  # of the largest: a combination of empty cells with less is exact


@frozen(eq=False, repr=False)
class EmptyCells:
    """What knowing that cells are empty does to an estimate of all cells.

    Parameters
    ----------
    mask
        True where a cell is known to be empty.
    column
        The column of V for weights of one cell.

    Guarantees
    ----------
    1. `impose` is linear in the estimate and gives zeros at empty cells, exactly.
    2. For every weighted sum the variance is at most that of the estimate before.
    """

    mask: BoolArray
    column: Callable[[FloatArray], FloatArray]

    def __post_init__(self) -> None:
        number = int(self.mask.sum())
        if number > MAX_EMPTY_CELLS or number * self.mask.size > MAX_EMPTY_ENTRIES:
            raise ReleaseError(
                f"{number:,} cells known to be empty among {self.mask.size:,} are too many for the "
                f"least squares of the marginals mechanism (at most {MAX_EMPTY_CELLS:,}, and "
                f"{MAX_EMPTY_ENTRIES:,} pairs with a cell): write mechanism='projected', or a "
                "domain without labels that nobody can have."
            )

    @cached_property
    def places(self) -> Int64Array:
        """The empty cells by number."""
        return np.flatnonzero(self.mask.reshape(-1))

    @cached_property
    def _columns(self) -> FloatArray:
        """V_Z, one row per empty cell."""
        out = np.empty((len(self.places), self.mask.size))
        for row, place in zip(out, self.places, strict=True):
            one = np.zeros(self.mask.size)
            one[place] = 1.0
            row[:] = self.column(one.reshape(self.mask.shape)).reshape(-1)
        return out

    @cached_property
    def _gain(self) -> FloatArray:
        """(V_ZZ)⁺ V_Zᵀ, one row per empty cell."""
        block = self._columns[:, self.places]
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        kept = values > NO_VARIANCE * max(float(values.max(initial=0.0)), 0.0)
        inner = vectors[:, kept]
        return np.asarray((inner / values[kept]) @ (inner.T @ self._columns))

    def impose(self, cells: FloatArray) -> FloatArray:
        """The best estimate with the empty cells, from the best one without."""
        flat = cells.reshape(-1)
        out = flat - flat[self.places] @ self._gain
        out[self.places] = 0.0
        return out.reshape(cells.shape)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        """Weights of the estimate before, for the same weighted sum of the one after."""
        flat = weights.reshape(-1).copy()
        flat[self.places] = 0.0
        flat[self.places] = -(self._gain @ flat)
        return flat.reshape(weights.shape)

    def as_dict(self) -> dict[str, Any]:
        """Which cells are empty, and what `adjoint` multiplies with."""
        gain = {"shape": list(self._gain.shape), "values": self._gain.reshape(-1).tolist()}
        return {"cells": self.places.tolist(), "gain": gain}

    def variance_taken_off(self, margin: Margin) -> FloatArray:
        """By how much the variance of every total of a margin is smaller."""
        out = np.zeros(margin.shape)
        for column, gain in zip(self._columns, self._gain, strict=True):
            out += margin.sum(column.reshape(self.mask.shape)) * margin.sum(
                gain.reshape(self.mask.shape)
            )
        return out
