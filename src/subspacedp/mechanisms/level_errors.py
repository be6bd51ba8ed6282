"""Error by level: of a design, of noise on the cells alone, and of every level by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.level_strategy import WHOLE, LevelStrategy
from subspacedp.noise.level_noise import LevelNoise
from subspacedp.release import Design
from subspacedp.tables import Margin

__all__ = ["LevelErrors"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelErrors:
    """Root mean squared errors of the totals of every level, other axes in full.

    Beside the design's own: that of noise on the cells alone, and that of a plain practice, where
    all levels asked for get equal shares of the budget and each is published from its own noise,
    whatever the others say (a level not asked for is summed from the next finer one). `print` shows
    the table; `columns()` is for figures and dataframes.
    """

    levels: tuple[str, ...]
    groups: tuple[int, ...]
    shares: tuple[float, ...]
    here: FloatArray
    cells_alone: FloatArray
    levels_apart: FloatArray

    @classmethod
    def of(cls, design: Design, strategy: LevelStrategy) -> LevelErrors:
        """From the design alone."""
        alone = replace(strategy, shares={strategy.axis: WHOLE})
        chain = design.domain.axis(strategy.axis).chain
        here = _errors(design, strategy)
        return cls(
            levels=tuple(level.name for level in chain),
            groups=tuple(level.nonempty for level in chain),
            shares=tuple(strategy.shares.get(level.name, 0) / WHOLE for level in chain),
            here=here,
            cells_alone=_errors(replace(design, strategy=alone), strategy),
            levels_apart=np.where(here > 0, _apart(design, strategy), 0.0),
        )

    @property
    def ratio(self) -> FloatArray:
        """The error here over that of noise on the cells alone; NaN where both are zero."""
        out = np.full(self.here.shape, math.nan)
        np.divide(self.here, self.cells_alone, out=out, where=self.cells_alone > 0)
        return out

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """One row a level, finest first."""
        return {
            "level": np.array(self.levels),
            "groups": np.array(self.groups),
            "share": np.array(self.shares),
            "rmse": self.here,
            "rmse_cells_alone": self.cells_alone,
            "rmse_levels_apart": self.levels_apart,
        }

    def __str__(self) -> str:
        width = max(5, *(len(name) for name in self.levels))
        rows = [
            f"{'level':<{width}} {'groups':>10} {'share':>8} {'rmse':>12} {'cells alone':>12} "
            f"{'levels apart':>12}"
        ]
        for i, name in enumerate(self.levels):
            rows.append(
                f"{name:<{width}} {self.groups[i]:>10,} {self.shares[i]:>8.2%} "
                f"{self.here[i]:>12.4g} {self.cells_alone[i]:>12.4g} "
                f"{self.levels_apart[i]:>12.4g}"
            )
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"LevelErrors({', '.join(self.levels)})"


def _errors(design: Design, strategy: LevelStrategy) -> FloatArray:
    """√(mean variance) of the totals of every level of the axis, empty groups left out."""
    noise, place = design.noise, strategy.place(design)
    if not isinstance(noise, LevelNoise):
        return np.zeros(0)
    cells = design.domain.cells
    out = []
    for step, level in enumerate(cells.axes[place].chain):
        steps = tuple(step if a == place else 0 for a in range(len(cells.steps)))
        found = noise.group_variance(Margin(cells.axes, steps))
        groups = level.nonempty * (found.size // level.groups)
        out.append(math.sqrt(float(found.sum()) / groups))
    return np.array(out)


def _apart(design: Design, strategy: LevelStrategy) -> FloatArray:
    """√(variance) of every level from its own measurement, with equal shares of the budget."""
    share = WHOLE // len(strategy.shares)
    equal = replace(strategy, shares=dict.fromkeys(strategy.shares, share))
    laws, out = equal.law(design).of_step, []
    source = 0
    chain = design.domain.axis(strategy.axis).chain
    for step, level in enumerate(chain):
        source = step if step in laws else source
        parts = chain[source].nonempty / level.nonempty
        out.append(math.sqrt(laws[source].variance * parts))
    return np.array(out)
