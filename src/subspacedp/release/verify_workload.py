"""Checks of a release of margins: they agree with each other, and with what is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from subspacedp.invariants import HeldMargins
from subspacedp.queries import Margins
from subspacedp.release.verify import Check, whole_steps
from subspacedp.tables.margin_tables import all_meets, steps_of

if TYPE_CHECKING:
    from subspacedp.release.release import Release

__all__ = ["check_workload"]

KEPT, AGREE = "held totals are kept", "margins agree with each other"


def check_workload(release: Release, workload: Margins, held: HeldMargins) -> tuple[Check, Check]:
    """Every total that two margins know, in whole steps or to the rounding of float64."""
    decimals = release.mechanism.decimals
    values: npt.NDArray[Any] = release.values
    scale = 1
    if not np.all(np.isfinite(values)):
        return Check(KEPT, False, "some values are not finite"), Check(AGREE, False, "as above")
    if decimals is not None:
        scale = 10**decimals
        steps = whole_steps(values, scale)
        if steps is None:
            wrong = f"some values do not have {decimals} decimals"
            return Check(KEPT, False, wrong), Check(AGREE, False, wrong)
        values = steps
    tables = workload.split(values)
    margins = tuple(workload.margins)
    same = _equal if decimals is not None else _near(values, release.mechanism.law.scale)
    how = "in whole numbers" if decimals is not None else "within the rounding of float64"
    finest = steps_of(margins)
    family = [
        m for m in all_meets((*margins, *held.essential))
        if np.any(np.all(finest <= np.array(m.steps), axis=1))
    ]  # fmt: skip
    compared = broken = disagreeing = totals = 0
    for meet in family:
        totals_held = held.known(release.exact, meet)
        wanted = None if totals_held is None else totals_held * scale
        first: npt.NDArray[Any] | None = wanted
        for margin, table in zip(margins, tables, strict=True):
            if not margin.determines(meet):
                continue
            coarse = margin.coarsen(table, meet)
            if first is None:
                first = coarse
                continue
            wrong_here = int(np.count_nonzero(~same(coarse, first)))
            if wanted is None:
                compared, disagreeing = compared + coarse.size, disagreeing + wrong_here
            else:
                totals, broken = totals + coarse.size, broken + wrong_here
    return _result(KEPT, broken, totals, how), _result(AGREE, disagreeing, compared, how)


def _equal(present: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(present == wanted)


def _near(
    values: npt.NDArray[Any], noise: float
) -> Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """Within the rounding of sums of numbers as large as these, or as the noise before sums."""
    largest = float(np.abs(values).max(initial=0.0)) + 64.0 * noise + 1.0
    slack = largest * values.size**0.5 * 2.0**-44

    def same(present: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.asarray(np.abs(present - wanted) <= slack)

    return same


def _result(name: str, broken: int, number: int, how: str) -> Check:
    if broken:
        return Check(name, False, f"{broken:,} of {number:,} comparisons fail, checked {how}")
    return Check(name, True, f"all {number:,} comparisons, {how}")
