"""The error of every published table beside that of noise on the cells alone; no data needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import bind
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.projected import Projected
from subspacedp.queries import Cells
from subspacedp.tables import Margin

__all__ = ["TableComparison", "compare_tables"]

FloatArray = npt.NDArray[np.float64]

MAX_CELLS = 10**6  # of a table whose margins are compared with those of noise on its cells


@dataclass(frozen=True, eq=False)
class TableComparison:
    """Root mean squared errors of tables: here, and from noise on every cell alone."""

    names: tuple[str, ...]
    figures: tuple[int, ...]
    here: FloatArray
    cells_alone: FloatArray


def compare_tables(mechanism: Mechanism) -> TableComparison | None:
    """Every table that noise was designed for, with the same budget.

    None where that was not for several tables, or where no table of cells exists.
    """
    problem, margins = mechanism.problem, mechanism.designed_for
    if not margins or math.prod(mechanism.domain.shape) > MAX_CELLS:
        return None
    cells = Cells(mechanism.domain)
    held = bind(mechanism.held.expression(), cells)
    alone = Projected(replace(problem, query=cells, held=held, decimals=None))
    return TableComparison(
        names=tuple(" × ".join(m.names) or "total" for m in margins),
        figures=tuple(math.prod(m.shape) for m in margins),
        here=np.array([_root_mean(mechanism, m) for m in margins]),
        cells_alone=np.array([_root_mean(alone, m) for m in margins]),
    )


def _root_mean(mechanism: Mechanism, margin: Margin) -> float:
    stderr = np.asarray(mechanism.margin_accuracy(*margin.names).stderr, np.float64)
    return float(np.sqrt(np.mean(stderr**2)))
