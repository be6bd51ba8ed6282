"""Some combinations of parameters always, the others in a soak."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

__all__ = ["spanning"]


def spanning(*axes: Sequence[Any], every: int = 2) -> list[Any]:
    """Every combination; always run are those whose places add up to a multiple of `every`.

    Each value is always run as long as some other axis has `every` values or more, and each pair of
    values from two axes as long as a third one has.
    """
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, places, strict=True)),
            marks=[pytest.mark.soak] if sum(places) % every else [],
        )
        for places in product(*(range(len(axis)) for axis in axes))
    ]
