"""Controlled rounding: published digits that add up, unbiased, given the held values."""

from __future__ import annotations

from subspacedp.invariants import HeldMargins, HeldMatrix
from subspacedp.rounding.digits import NOISE_ALONE, Digits
from subspacedp.rounding.margins import DigitPlan
from subspacedp.rounding.matrix import GeneralDigits
from subspacedp.rounding.profiles import GroupProfiles, corner_counts

__all__ = [
    "NOISE_ALONE",
    "DigitPlan",
    "Digits",
    "GeneralDigits",
    "GroupProfiles",
    "corner_counts",
    "digits_of",
]


def digits_of(
    held: HeldMargins | HeldMatrix, decimals: int | None, *, coin: float = NOISE_ALONE
) -> Digits | None:
    """How digits are made to add up: along merged axes for margins, in a lattice basis otherwise.

    None for real values. `coin` bounds the variance of one coin: 1/6 where a residual is noise of
    ours alone, else 1/4.
    """
    if decimals is None:
        return None
    if held.family is not None:
        return DigitPlan(held.family.cell_space, decimals, coin=coin)
    return GeneralDigits(held.as_matrix().space, decimals, coin=coin)
