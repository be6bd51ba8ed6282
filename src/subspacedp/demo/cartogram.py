"""Every county as a square in the tile of its state.

States stand about where they are on a map, all tiles of one size. In a tile the counties are in
order of population, the smallest first, row by row.
"""

from __future__ import annotations

import math

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.demo.page import Figure, signed
from subspacedp.report.plots import ACCENT, GRID, SECOND, Plot, drawing, linear

TILES = (
    "AK .  .  .  .  .  .  .  .  .  .  ME",
    ".  .  .  .  .  .  .  .  .  .  VT NH",
    "WA ID MT ND MN WI .  MI .  NY MA RI",
    "OR NV WY SD IA IL IN OH PA NJ CT .",
    "CA UT CO NE MO KY WV VA MD DE .  .",
    ".  AZ NM KS AR TN NC SC DC .  .  .",
    ".  .  .  OK LA MS AL GA .  .  .  .",
    "HI .  .  TX .  .  .  .  FL .  PR .",
)
PLACES = {
    state: (column, row)
    for row, line in enumerate(TILES)
    for column, state in enumerate(line.split())
    if state != "."
}
TILE = 64.0  # the side of a tile, which the squares of its counties fill
APART = (71.0, 84.0)  # from one tile to the next
# From which multiple of the typical error on a square is so dark.
SHADES = ((2.0, 1.0), (1.0, 0.7), (0.5, 0.42), (0.0, 0.18))


def cartogram(
    errors: FloatArray,
    counts: Int64Array,
    states: AnyArray,
    stderr: FloatArray,
) -> Figure:
    """The error of every county, in multiples of its standard error."""
    columns = 1 + max(column for column, _ in PLACES.values())
    wide, high = columns * APART[0], len(TILES) * APART[1]
    plot = Plot(
        x=linear(0, wide, ticks=(), grid=False),
        y=linear(0, high, ticks=(), grid=False),
        width=wide,
        height=high,
        down=True,
    )
    multiple = np.abs(errors) / np.where(stderr > 0, stderr, np.inf)
    rows = []
    for state, (column, row) in sorted(PLACES.items()):
        inside = np.flatnonzero(states == state)
        left, top = column * APART[0], row * APART[1]
        plot.words(left, top + 11, state, size=11)
        along = math.ceil(math.sqrt(inside.size))
        step = TILE / along
        shaded: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for at, county in enumerate(inside[np.argsort(counts[inside], kind="stable")].tolist()):
            corner = (left + at % along * step, top + 15 + at // along * step)
            colour = SECOND if errors[county] > 0 else ACCENT
            opacity = next(shade for least, shade in SHADES if multiple[county] >= least)
            look = (colour, opacity) if stderr[county] > 0 else (GRID, 1.0)  # exact
            shaded.setdefault(look, []).append(corner)
        for (colour, opacity), corners in sorted(shaded.items()):
            plot.squares(corners, step - 0.06 * step - 0.3, colour, opacity)
        largest = inside[np.argmax(np.abs(errors[inside]))]
        rows.append(
            (
                state,
                f"{inside.size}",
                f"{int(counts[inside].sum()):,}",
                f"{abs(errors[inside].sum()):.0f}",
                f"{np.sqrt(np.mean(errors[inside] ** 2)):.1f}",
                signed(float(errors[largest]), 1),
            )
        )
    return Figure(
        name="every-county",
        svg=drawing(
            [[plot]],
            heading=(
                "a square per county, the smallest first; blue: too few, red: too many, darker "
                "beyond the typical error, grey: exact"
            ),
        ),
        caption="Every county in the tile of its state: too few, or too many people",
        description=(
            f"{len(errors):,} squares in {len(PLACES)} tiles that stand about where the states "
            "are. Blue and red are mixed evenly in every tile, from its smallest county to its "
            "largest, and the errors of every tile add up to zero."
        ),
        columns=(
            "state",
            "counties",
            "population, exact",
            "sum of errors",
            "typical error",
            "largest",
        ),
        rows=rows,
    )
