"""Figures and tables of today's practice beside ours, by the size of cells."""

from __future__ import annotations

from collections.abc import Sequence

from subspacedp.demonstrations.cell_sizes import METHODS, Comparison, size_words
from subspacedp.demonstrations.page import Grid
from subspacedp.demonstrations.style import (
    OURS,
    PRACTICE,
    Figure,
    Look,
    altair,
    data,
    figure,
    legend,
    scales,
    signed,
    zero_line,
)

__all__ = ["LOOKS", "bias_figure", "comparison_grids", "error_figure"]

ONE_LEVEL = Look(
    name="post-processed, one level", colour="#009e73", shape="triangle-up", dash=(2, 2)
)
LOOKS = (
    OURS,
    ONE_LEVEL,
    Look(
        name="post-processed, level by level (TopDown)",
        colour=PRACTICE.colour,
        shape=PRACTICE.shape,
        dash=PRACTICE.dash,
    ),
)


def bias_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Mean error by the true size of a cell."""
    return _by_size(
        comparisons,
        "bias",
        "bias-by-cell-size",
        y_title="mean error (people)",
        caption="Bias by the true size of a cell",
        description=(
            "Mean error by size. Ours is zero for every size; post-processing makes empty and "
            "small cells too large and takes it from the others."
        ),
    )


def error_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Mean squared error by the true size of a cell."""
    return _by_size(
        comparisons,
        "mse",
        "squared-error-by-cell-size",
        y_title="mean squared error",
        caption="Mean squared error by the true size of a cell",
        description=(
            "Mean squared error by size. Ours is the same for every size; post-processing is "
            "nearer for small cells, and farther for large ones where levels share the budget."
        ),
    )


def _by_size(
    comparisons: Sequence[Comparison],
    measure: str,
    name: str,
    *,
    y_title: str,
    caption: str,
    description: str,
) -> Figure:
    alt = altair()
    named = scales(LOOKS)
    whole_symbols = legend(symbolStrokeWidth=0)  # the dashes of lines would eat into them
    panels = []
    for comparison in comparisons:
        words = [size_words(least) for least in comparison.least]
        values = [
            {"size": size, "method": look.name, "figure": float(number)}
            for look, method in zip(LOOKS, METHODS, strict=True)
            for size, number in zip(
                words, getattr(comparison.outcomes[method], measure), strict=True
            )
        ]
        base = alt.Chart(data(values)).encode(
            x=alt.X(
                "size:O",
                sort=words,
                title="people in the cell, in truth",
                axis=alt.Axis(labelAngle=-40, grid=False),
            ),
            y=alt.Y("figure:Q", title=y_title),
            color=alt.Color("method:N", scale=named["color"], legend=whole_symbols),
        )
        lines = base.mark_line(strokeWidth=2).encode(
            strokeDash=alt.StrokeDash("method:N", scale=named["strokeDash"], legend=None)
        )
        points = base.mark_point(filled=True, size=80, opacity=1).encode(
            shape=alt.Shape("method:N", scale=named["shape"], legend=whole_symbols)
        )
        panels.append(
            alt.layer(zero_line(), lines, points).properties(
                width=370, height=260, title=comparison.name
            )
        )
    return figure(
        alt.hconcat(*panels, spacing=28).resolve_scale(y="shared"),
        name,
        caption=caption,
        description=description,
    )


def comparison_grids(comparison: Comparison) -> tuple[Grid, Grid]:
    """Bias and squared error of all methods, class by class."""
    outcomes = [comparison.outcomes[method] for method in METHODS]
    classes = [
        (size_words(least), f"{cells:,}")
        for least, cells in zip(comparison.least, comparison.cells, strict=True)
    ]
    runs = f"{comparison.name}, {comparison.runs} runs"
    bias = Grid(
        caption=f"Bias. {runs}; ± its standard error",
        columns=("people", "cells", *METHODS),
        rows=tuple(
            (*words, *(f"{signed(o.bias[at], 2)} ± {o.bias_stderr[at]:.2f}" for o in outcomes))
            for at, words in enumerate(classes)
        ),
    )
    squared = Grid(
        caption=f"Mean squared error. {runs}",
        columns=bias.columns,
        rows=(
            *(
                (*words, *(f"{o.mse[at]:,.0f}" for o in outcomes))
                for at, words in enumerate(classes)
            ),
            (
                "all cells",
                f"{sum(comparison.cells):,}",
                *(f"{o.overall_mse:,.0f}" for o in outcomes),
            ),
            (f"total of a {comparison.place}", "", *(f"{o.place_mse:,.0f}" for o in outcomes)),
        ),
    )
    return bias, squared
