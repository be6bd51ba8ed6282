"""Controlled rounding: published digits that add up, unbiased, given the held values."""

from __future__ import annotations

from subspacedp.invariants import MarginNullSpace, NullSpace
from subspacedp.rounding.margins import DigitPlan
from subspacedp.rounding.matrix import GeneralDigits
from subspacedp.rounding.profiles import GroupProfiles, corner_counts

__all__ = [
    "DigitPlan",
    "Digits",
    "GeneralDigits",
    "GroupProfiles",
    "corner_counts",
    "digits_of",
]

Digits = DigitPlan | GeneralDigits


def digits_of(space: NullSpace, decimals: int | None, *, coin: float = 1 / 6) -> Digits | None:
    """How digits are made to add up; None for real values.

    `coin` bounds the variance of one coin: 1/6 where a residual is noise of ours alone, else 1/4.
    """
    if decimals is None:
        return None
    if isinstance(space, MarginNullSpace):
        return DigitPlan(space, decimals, coin=coin)
    return GeneralDigits(space, decimals, coin=coin)
