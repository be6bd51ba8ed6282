"""Which controlled rounding published values have, by what is held."""

from __future__ import annotations

from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.rounding.controlled import NOISE_ALONE, ControlledRounding
from subspacedp.rounding.margins import MarginRounding


def rounding_of(
    held: HeldMargins | HeldMatrix, decimals: int | None, *, unit_variance: float = NOISE_ALONE
) -> ControlledRounding | None:
    """Controlled rounding: along merged axes for margins, by cycles where they cross, or a lattice.

    None for real values. `unit_variance` bounds the variance of one randomised rounding:
    1/6 where a residual is noise of ours alone, else 1/4.
    """
    if decimals is None:
        return None
    if held.family is not None:
        return MarginRounding(held.family.cell_space, decimals, unit_variance=unit_variance)
    # What is held mostly is margins, whose rounding takes less to be loaded.
    from subspacedp.rounding.crossing import CrossingRounding
    from subspacedp.rounding.lattice import MatrixRounding

    matrix = held.as_matrix()
    if matrix.crossing_space is not None:
        return CrossingRounding(matrix.crossing_space, decimals, unit_variance=unit_variance)
    return MatrixRounding(matrix.space, decimals, unit_variance=unit_variance)
