"""CONFIDENTIAL: how far a release is from the truth, for the curator alone.

Everything here follows from the confidential data, bias and coverage by true size included. It is
written beside a comparison and never into a folder that is published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from subspacedp.arrays import BoolArray, FloatArray
from subspacedp.frozen import frozen
from subspacedp.release import Release
from subspacedp.report.charts import inline_svg
from subspacedp.report.page import rendered, template_text
from subspacedp.report.plots import ACCENT, INK, bands, drawing, fitted, linear
from subspacedp.report.rows import Estimates, cell_estimates, error_digits, shown

EDGES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
WIDTH, HEIGHT = 420, 220


@frozen(eq=False, repr=False, kw_only=True)
class Quality:
    """A release beside what it protects, figure by figure.

    Parameters
    ----------
    name
        Of the release.
    release
        What was released.
    truth
        What would have been released without noise, one figure after another.
    """

    name: str
    release: Release
    truth: FloatArray

    @cached_property
    def estimates(self) -> Estimates:
        """The published figures with their standard errors and intervals."""
        return cell_estimates(self.release)

    @cached_property
    def error(self) -> FloatArray:
        """Released less true."""
        return self.estimates.value - self.truth

    @cached_property
    def noisy(self) -> BoolArray:
        """The figures that have noise."""
        return self.estimates.stderr > 0

    def doubt(self, inside: BoolArray) -> float:
        """The standard error of the mean of some errors, by their joint law."""
        weights = inside.reshape(self.release.mechanism.query.shape) / inside.sum()
        return float(self.release.estimate(weights).stderr)


@frozen
class SizeRow:
    """The figures of one true size: how many, and how far off."""

    size: str
    figures: int
    bias: float  # mean error
    doubt: float  # the standard error of that mean
    seen: float  # root mean squared error
    stated: float  # the same as published
    covered: float  # share of intervals with the truth


def size_rows(quality: Quality) -> list[SizeRow]:
    """By true size, in powers of ten, and all together last; sizes without figures are left out."""
    rows = []
    for low, high in pairwise((-math.inf, *EDGES, math.inf)):
        inside = quality.noisy & (quality.truth >= low) & (quality.truth < high)
        if inside.any():
            rows.append(_row(quality, inside, _words(low, high)))
    return [*rows, _row(quality, quality.noisy, "all with noise")]


def _row(quality: Quality, inside: BoolArray, size: str) -> SizeRow:
    error, stderr = quality.error[inside], quality.estimates.stderr[inside]
    truth, limits = quality.truth[inside], quality.estimates.interval
    # Limits are rounded to 6 digits for reports: one that is met in its last bits is met.
    slack = 1e-6 + 1e-9 * np.abs(truth)
    lower, upper = (limit[inside] for limit in limits)
    return SizeRow(
        size=size,
        figures=int(error.size),
        bias=float(error.mean()),
        doubt=quality.doubt(inside),
        seen=float(np.sqrt(np.mean(error**2))),
        stated=float(np.sqrt(np.mean(stderr**2))),
        covered=float(np.mean((lower - slack <= truth) & (truth <= upper + slack))),
    )


def _words(low: float, high: float) -> str:
    if low < 0:
        return "below 0"
    if high == math.inf:
        return f"{low:,.0f} and more"
    return "0" if high == 1 else f"{low:,.0f} to below {high:,.0f}"


@frozen(eq=False, repr=False)
class _Page:
    title: str
    parts: Sequence[_Part]


class _Part:
    """What the template is given of one release."""

    def __init__(self, quality: Quality) -> None:
        self.name = quality.name
        self.figures = f"{quality.truth.size:,}"
        self.exact = f"{int(np.count_nonzero(~quality.noisy)):,}"
        rows = size_rows(quality)
        digits = error_digits(quality.estimates.stderr)
        self.rows = [
            (
                row.size,
                f"{row.figures:,}",
                f"{shown(row.bias, digits)} ± {shown(1.96 * row.doubt, digits)}",
                shown(row.seen, digits),
                shown(row.stated, digits),
                f"{100 * row.covered:.1f} %",
            )
            for row in rows
        ]
        self.svg = _bias_drawing(rows[:-1])


def _bias_drawing(rows: Sequence[SizeRow]) -> str:
    """Mean error by true size, with the range in which it lies if there is no bias."""
    reach = max(max(abs(row.bias), 1.96 * row.doubt) for row in rows) or 1.0
    names = bands([row.size for row in rows], title="true size", slope=-40)
    plot = fitted(
        names, linear(-reach, reach, nice=True, number=4, title="mean error"), WIDTH, HEIGHT
    )
    for at, row in enumerate(rows):
        half = 1.96 * row.doubt
        plot.span((at, -half), (at, half), ACCENT, ends=8)
    plot.across(INK, y=0, opacity=0.7)
    for at, row in enumerate(rows):
        plot.dot(at, row.bias, 4, INK)
    said = "Mean error by true size, beside the range in which it is expected without bias."
    return inline_svg(drawing([[plot]], least=WIDTH), said)


def quality_report(title: str, releases: Sequence[Quality]) -> str:
    """A page for the curator: bias, error by true size, and how often intervals cover."""
    page = _Page(title, [_Part(one) for one in releases])
    return rendered("quality.html", page, style=template_text("report.css"))
