"""The error of every margin of a release of margins, for the page's table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from subspacedp.report.estimates import Estimates
from subspacedp.report.rows import error_digits, shown
from subspacedp.tables import Margins
from subspacedp.tables.workload import block_name

__all__ = ["MarginError", "margin_errors"]


@dataclass(frozen=True)
class MarginError:
    """One margin: how many figures, how many of them exact, and how far off the others are."""

    name: str
    figures: int
    exact: int
    value: str  # median
    stderr: str
    weight: str


def margin_errors(query: Margins, figures: Estimates) -> Iterator[MarginError]:
    """One row a margin, from the published figures and their standard errors."""
    digits = error_digits(figures.stderr)
    parts = zip(query.split(figures.value), query.split(figures.stderr), strict=True)
    for i, (value, stderr) in enumerate(parts):
        noisy = stderr[stderr > 0]
        ends = [shown(float(end(noisy)), digits) for end in (np.min, np.max) if noisy.size]
        yield MarginError(
            name=block_name(query.margins[i]),
            figures=value.size,
            exact=int(np.count_nonzero(stderr == 0)),
            value=shown(float(np.median(value)), 0),
            stderr=" to ".join(dict.fromkeys(ends)) or "0",
            weight=f"{(query.weights or ())[i]:g}",
        )
