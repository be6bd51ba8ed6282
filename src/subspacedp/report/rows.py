"""Estimates as the page shows them, how exact they are, and the rows of its tables.

All cells where they fit, otherwise the largest margin that does; for a release of margins also the
error of every margin. Labels may be anybody's text. They reach the page through the template's
escaping, or as JSON in which no character can end a script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray, Int64Array
from subspacedp.frozen import frozen
from subspacedp.mechanisms.estimates import Estimate
from subspacedp.mechanisms.figures import Figures
from subspacedp.queries import Query
from subspacedp.release import Release
from subspacedp.tables import Margin

MAX_ROWS = 5_000
EXACT_IN_SCRIPT = 2**53  # the largest whole numbers that a browser keeps apart

INTERVAL_LEVEL = 0.95
MAX_SEPARATE_LAWS = 60  # computed one by one, some ten milliseconds each
MAX_SWEEP_WORK = 1 << 24  # groups × cells, where each group's variance is a sweep over the table

THRESHOLDS = (0.05, 0.10, 0.30)
CELLS_AT_A_TIME = 1 << 20
WIDE, HIGH = 64, 40  # places of a chart at which cells are one point


@frozen(eq=False)
class LabelColumn:
    """One column of labels: its distinct texts, and which of them each row has."""

    name: str
    texts: Sequence[str]
    codes: Int64Array


@frozen(eq=False)
class NumberColumn:
    """One column of numbers, the words above it, and the decimals it is shown with."""

    name: str
    title: str
    numbers: AnyArray
    digits: int


@frozen(eq=False, repr=False, kw_only=True)
class Rows:
    """A table of figures with labels.

    Parameters
    ----------
    title
        What it has.
    complete
        Whether that is all there is to show.
    labels, numbers
        Its columns.
    normal
        Whether its intervals are by the normal approximation.
    """

    title: str
    complete: bool
    labels: tuple[LabelColumn, ...]
    numbers: tuple[NumberColumn, ...]
    normal: bool = False

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.numbers[0].numbers.size)

    def first(self, number: int) -> Iterator[tuple[list[str], list[str]]]:
        """The first rows as text: labels and numbers."""
        for i in range(min(number, self.count)):
            yield (
                [column.texts[column.codes[i]] for column in self.labels],
                [shown(column.numbers[i], column.digits) for column in self.numbers],
            )

    def embedded(self, file: str) -> str:
        """The rows as JSON for the page's script."""
        data = {
            "file": file,
            "labels": [
                {"name": c.name, "texts": list(c.texts), "codes": c.codes.tolist()}
                for c in self.labels
            ],
            "numbers": [
                {"name": c.name, "digits": c.digits, "values": _plain(c.numbers)}
                for c in self.numbers
            ],
        }
        return in_script(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def in_script(text: str) -> str:
    """JSON in which no character can end the script that it stands in."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def estimate_columns(
    value: AnyArray,
    stderr: FloatArray,
    interval: tuple[FloatArray, FloatArray],
    decimals: int | None,
) -> tuple[NumberColumn, ...]:
    """Value, standard error and interval; limits of whole figures are whole."""
    fine = error_digits(stderr)
    at = 0 if value.dtype.kind == "i" else min(fine if decimals is None else decimals, 6)
    limits = np.concatenate(interval)
    limits = limits[np.isfinite(limits)]
    near = at if np.array_equal(limits, np.round(limits, at)) else max(at, fine - 1)
    return (
        NumberColumn("value", "value", value, at),
        NumberColumn("stderr", "standard error", stderr, fine),
        NumberColumn("lower", "95 % from", interval[0], near),
        NumberColumn("upper", "95 % to", interval[1], near),
    )


def _rows_of(
    title: str,
    labels: tuple[LabelColumn, ...],
    estimates: Estimates,
    decimals: int | None,
    *,
    complete: bool,
) -> Rows:
    e = estimates
    return Rows(
        title=title,
        complete=complete,
        labels=labels,
        numbers=estimate_columns(e.value, e.stderr, e.interval, decimals),
        normal=not e.exact,
    )


def table_rows(release: Release, cells: Estimates, most_bytes: int) -> Rows | None:
    """The finest table that fits; None when not even the coarsest does."""
    decimals = release.mechanism.decimals
    if release.mechanism.query.size <= MAX_ROWS:
        labels = answer_labels(release.mechanism.query)
        rows = _rows_of("every cell", labels, cells, decimals, complete=True)
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
    if release.mechanism.query.axes is None:
        return None
    for margin in _smaller_margins(release):
        labels, kept = margin_labels(margin)
        estimates = margin_estimates(release, margin).take(kept)
        rows = _rows_of(margin.title, labels, estimates, decimals, complete=False)
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
    return None


def margin_rows(
    margins: Sequence[tuple[Margin, Estimates]], most_bytes: int, decimals: int | None
) -> Rows | None:
    """Margins one after another, so many of them as fit; two columns of labels for all.

    `margins` has the estimates of every group of a margin, empty ones included.
    """
    kept: list[tuple[Margin, list[str], Estimates]] = []
    room = MAX_ROWS
    for margin, estimates in margins:
        texts, places = _group_texts(margin)
        if len(texts) <= room:
            room -= len(texts)
            kept.append((margin, texts, estimates.take(places)))
    while kept:
        parts = [e for _, _, e in kept]
        limits = [np.concatenate([e.interval[side] for e in parts]) for side in (0, 1)]
        all_of_them = len(kept) == len(margins)
        rows = Rows(
            title="every margin" if all_of_them else f"{len(kept)} of {len(margins)} margins",
            complete=all_of_them,
            labels=_two_columns([(margin.title, texts) for margin, texts, _ in kept]),
            numbers=estimate_columns(
                np.concatenate([e.value for e in parts]),
                np.concatenate([e.stderr for e in parts]),
                (limits[0], limits[1]),
                decimals,
            ),
            normal=not all(e.exact for e in parts),
        )
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
        kept.pop()
    return None


def held_rows(release: Release, most_bytes: int) -> Rows | None:
    """The figures that are published exactly; None where there are none, or too many."""
    held, exact = release.mechanism.held, release.exact
    blocks: list[tuple[str, list[str]]] = []
    values: list[AnyArray] = []
    for margin, totals in held.totals(exact):
        texts, places = _group_texts(margin)
        blocks.append((margin.title, texts))
        values.append(np.ravel(totals)[places])
    equalities = held.equalities(exact)
    if equalities.size:
        blocks.append(("sum", list(held.equality_labels)))
        values.append(equalities)
    number = sum(len(texts) for _, texts in blocks)
    if not 0 < number <= MAX_ROWS:
        return None
    value = np.concatenate(values)
    digits = 0 if np.array_equal(value, np.round(value)) else 6
    rows = Rows(
        title="every figure that is published exactly",
        complete=True,
        labels=_two_columns(blocks),
        numbers=(NumberColumn("value", "value", value, digits),),
    )
    return rows if len(rows.embedded("").encode()) <= most_bytes else None


def _group_texts(margin: Margin) -> tuple[list[str], Int64Array]:
    """The labels of every group of a margin that has cells, each as one text."""
    labels, places = margin_labels(margin, coarser=False)
    texts = [
        " · ".join(column.texts[column.codes[row]] for column in labels) or "all"
        for row in range(places.size)
    ]
    return texts, places


def _two_columns(blocks: Sequence[tuple[str, Sequence[str]]]) -> tuple[LabelColumn, LabelColumn]:
    """The margin and the group of every row."""
    which = np.repeat(np.arange(len(blocks)), [len(texts) for _, texts in blocks])
    groups = np.asarray([text for _, texts in blocks for text in texts], dtype=object)
    texts, codes = np.unique(groups.astype(str), return_inverse=True)
    return (
        LabelColumn("margin", [name for name, _ in blocks], which),
        LabelColumn("group", texts.tolist(), codes.reshape(-1)),
    )


def margin_labels(
    margin: Margin, *, coarser: bool = True
) -> tuple[tuple[LabelColumn, ...], Int64Array]:
    """The labels of a margin's groups, with their coarser levels, and which groups have cells."""
    kept = np.flatnonzero(~margin.empty.reshape(-1))
    places = np.unravel_index(kept, margin.shape)
    labels = []
    for a, (axis, step) in enumerate(zip(margin.axes, margin.steps, strict=True)):
        if step == axis.depth - 1:
            continue
        for coarse in (
            [step, *(s for s in range(step + 1, axis.depth - 1) if step < axis.depth)]
            if coarser
            else [step]
        ):
            level = axis.step(coarse)
            codes = axis.parents(step, coarse)[places[a]]
            labels.append(LabelColumn(level.title, [str(t) for t in level.labels], codes))
    return tuple(labels), kept


def answer_labels(query: Query) -> tuple[LabelColumn, ...]:
    """The labels of every answer, under the titles of their levels."""
    axes = () if query.axes is None else query.axes.axes
    titles = {level.name: level.title for axis in axes for level in axis.named}
    columns = query.columns().items()
    return tuple(label_column(titles.get(name, name), column) for name, column in columns)


def label_column(name: str, column: AnyArray) -> LabelColumn:
    """A column of labels by its distinct texts."""
    texts, codes = np.unique(column, return_inverse=True)
    return LabelColumn(name, [str(text) for text in texts.tolist()], codes.reshape(-1))


def _smaller_margins(release: Release) -> list[Margin]:
    """Margins that fit and say something, finest first."""
    axes = tuple(release.mechanism.domain.axes)
    cells = release.mechanism.domain.cells
    steps = product(*(range(axis.depth) for axis in axes))
    margins = (Margin(axes, s) for s in steps)
    fitting = [
        m
        for m in margins
        if m.names and m != cells and math.prod(m.shape) <= MAX_ROWS and within_reach(release, m)
    ]
    return sorted(fitting, key=lambda m: -math.prod(m.shape))


def error_digits(stderr: FloatArray) -> int:
    """Decimals that show about three figures of a typical standard error."""
    noisy = stderr[np.isfinite(stderr) & (stderr > 0)]
    if not noisy.size:
        return 0
    return min(6, max(0, 2 - math.floor(math.log10(float(np.median(noisy))))))


def shown(number: Any, digits: int) -> str:
    """A number as people write it; a dash where it is not known."""
    if isinstance(number, int | np.integer):
        return f"{int(number):,}"
    if not math.isfinite(number):
        return "–"
    text = f"{float(number):,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _plain(numbers: AnyArray) -> list[Any]:
    """Numbers for JSON: null where unknown, and text where a browser would round."""
    if numbers.dtype.kind == "i":
        return [n if abs(n) < EXACT_IN_SCRIPT else str(n) for n in numbers.tolist()]
    return [x if math.isfinite(x) else None for x in numbers.tolist()]


@frozen
class MarginError:
    """One margin: how many figures, how many of them exact, and how far off the others are."""

    name: str
    figures: int
    exact: int
    value: str  # median
    stderr: str
    within: str  # half of a 95 % interval
    weight: str = ""


def margin_errors(
    margins: Sequence[tuple[Margin, Estimates]], weights: Sequence[float] = ()
) -> Iterator[MarginError]:
    """One row per margin, from the published figures, their standard errors and intervals."""
    everything = [e.stderr for _, e in margins]
    digits = error_digits(np.concatenate(everything)) if everything else 0
    for place, (margin, estimates) in enumerate(margins):
        noisy = estimates.stderr > 0
        halves = np.subtract(*estimates.interval[::-1]) / 2
        yield MarginError(
            name=margin.title,
            figures=estimates.value.size,
            exact=int(np.count_nonzero(~noisy)),
            value=shown(float(np.median(estimates.value)), 0),
            stderr=_range_of(estimates.stderr[noisy], digits),
            within=_range_of(halves[noisy], max(0, digits - 1)),
            weight=f"{weights[place]:g}" if weights else "",
        )


def _range_of(numbers: FloatArray, digits: int) -> str:
    limits = [shown(float(limit(numbers)), digits) for limit in (np.min, np.max) if numbers.size]
    return " to ".join(dict.fromkeys(limits)) or "0"


@frozen(eq=False, repr=False)
class Estimates:
    """Some rows of a family of estimates.

    A standard error is NaN where the noise is another mechanism's and nothing was declared of it.
    """

    family: Estimate
    rows: Int64Array | None = None  # all of them, in order, if not given

    @cached_property
    def value(self) -> AnyArray:
        """The published values."""
        return self._chosen(np.asarray(self.family.value))

    @cached_property
    def stderr(self) -> FloatArray:
        """Their standard errors."""
        return self._chosen(np.asarray(self.family.stderr, np.float64))

    def _chosen(self, figures: AnyArray) -> AnyArray:
        flat = np.ravel(figures)
        return flat if self.rows is None else flat[self.rows]

    @property
    def exact(self) -> bool:
        """Whether the intervals come from the law of the noise, not from a normal one."""
        figures = self.family.figures
        if figures.closed or self.value.size <= MAX_SEPARATE_LAWS:
            return True
        return not figures.apart and _kinds(figures) <= MAX_SEPARATE_LAWS

    @cached_property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits."""
        if np.isnan(self.stderr).any():
            unknown = np.full(self.value.size, np.nan)
            return unknown, unknown
        limits = self.family.interval(INTERVAL_LEVEL, method="exact" if self.exact else "normal")
        # Limits on a lattice are a few units in the last place off it; readers need not see that.
        lower, upper = (self._chosen(np.round(np.asarray(limit), 6)) for limit in limits)
        return lower, upper

    def take(self, rows: Int64Array) -> Estimates:
        """Some of the rows, in the order asked for; their intervals stay the same."""
        of_family = rows if self.rows is None else self.rows[rows]
        return _Part(self.family, of_family, whole=self, places=rows)


@frozen(eq=False, repr=False)
class _Part(Estimates):
    """Rows of other estimates, which decide how intervals are found."""

    whole: Estimates = field(kw_only=True)
    places: Int64Array = field(kw_only=True)

    @property
    def exact(self) -> bool:
        """As for the whole."""
        return self.whole.exact

    @cached_property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Those of the whole."""
        lower, upper = self.whole.interval
        return lower[self.places], upper[self.places]


def cell_estimates(release: Release) -> Estimates:
    """The estimate of every answer."""
    return Estimates(release.cells())


def margin_estimates(release: Release, margin: Margin) -> Estimates:
    """The estimate of every group of a margin."""
    return Estimates(release.margin(*margin.names))


def within_reach(release: Release, margin: Margin) -> bool:
    """Whether the standard errors of a margin can be had in about a second."""
    groups, cells = math.prod(margin.shape), release.mechanism.query.size
    apart = release.mechanism.margin_accuracy(*margin.names).figures.apart
    return not apart or groups * cells <= MAX_SWEEP_WORK


def _kinds(figures: Figures) -> int:
    """How many laws there are."""
    return int(np.unique(figures.classes()).size)


@frozen
class Share:
    """How many cells have a relative standard error below a threshold."""

    below: float
    cells: int
    share: float


@frozen
class SizeClass:
    """The cells whose published value lies in one range."""

    least: float | None  # None: no lower bound
    most: float | None
    cells: int
    stderr: float  # median
    relative: float  # median


@frozen(eq=False, repr=False)
class CellErrors:
    """Relative standard errors of the cells: standard error over max(published value, 1).

    Sizes of cells are confidential; the published values stand for them.
    """

    estimates: Estimates

    @property
    def known(self) -> bool:
        """Whether the standard errors are known at all."""
        return not bool(np.isnan(self.estimates.stderr).any())

    @property
    def relative(self) -> FloatArray:
        """The relative standard error of every cell."""
        out = np.concatenate([relative for _, _, relative in self._parts()] or [np.zeros(0)])
        return np.asarray(out, np.float64)

    def _parts(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Value, value of at least 1 and relative standard error, some cells at a time."""
        value, stderr = self.estimates.value, self.estimates.stderr
        for at in range(0, value.size, CELLS_AT_A_TIME):
            some = value[at : at + CELLS_AT_A_TIME].astype(np.float64)
            size = np.maximum(some, 1.0)
            yield some, size, stderr[at : at + CELLS_AT_A_TIME] / size

    @property
    def exact(self) -> int:
        """How many cells the held figures fix."""
        return int(np.count_nonzero(self.estimates.stderr == 0.0))

    @property
    def median(self) -> float:
        """The median standard error."""
        return float(np.median(self.estimates.stderr))

    @property
    def noisy_median(self) -> float:
        """The median standard error of the cells that the held figures do not fix."""
        return float(np.median(self.noisy))

    @property
    def stderr(self) -> FloatArray:
        """All standard errors."""
        return self.estimates.stderr

    @property
    def noisy(self) -> FloatArray:
        """The standard errors of the cells that the held figures do not fix."""
        return self.estimates.stderr[self.estimates.stderr > 0]

    @property
    def alike(self) -> bool:
        """Whether all cells with noise have the same standard error, to two parts in a hundred."""
        return not self.noisy.size or bool(np.ptp(self.noisy) <= 0.02 * self.noisy.max())

    def shares(self) -> list[Share]:
        """The cells below each threshold."""
        cells = np.zeros(len(THRESHOLDS), np.int64)
        for _, _, relative in self._parts():
            cells += [int(np.count_nonzero(relative < t)) for t in THRESHOLDS]
        number = self.estimates.value.size
        return [Share(t, n, n / number) for t, n in zip(THRESHOLDS, cells.tolist(), strict=True)]

    def classes(self) -> list[SizeClass]:
        """The cells by published value, in powers of ten; empty classes are left out."""
        value, relative = self.estimates.value, self.relative
        top = max(1, math.ceil(math.log10(max(float(value.max()), 1.0) + 1)))
        edges = [-math.inf, 1.0, *(10.0**k for k in range(1, top)), math.inf]
        out = []
        for low, high in pairwise(edges):
            inside = (value >= low) & (value < high)
            if inside.any():
                out.append(
                    SizeClass(
                        None if math.isinf(low) else low,
                        None if math.isinf(high) else high,
                        int(inside.sum()),
                        float(np.median(self.estimates.stderr[inside])),
                        float(np.median(relative[inside])),
                    )
                )
        return out

    def clusters(self) -> list[dict[str, float]]:
        """Cells as points of size and relative error; those that would overlap are one point."""
        ranges = [
            [limit(axis[relative > 0]) for axis in (size, relative) for limit in (np.min, np.max)]
            for _, size, relative in self._parts()
            if np.any(relative > 0)
        ]
        if not ranges:
            return []
        lows, highs = np.log10(np.min(ranges, axis=0)), np.log10(np.max(ranges, axis=0))
        sums = np.zeros((3, WIDE * HIGH))
        for _, size, relative in self._parts():
            x, y = np.log10(size[relative > 0]), np.log10(relative[relative > 0])
            place = _bins(x, lows[0], highs[1], WIDE) * HIGH + _bins(y, lows[2], highs[3], HIGH)
            for total, weights in zip(sums, (None, x, y), strict=True):
                total += np.bincount(place, weights, minlength=WIDE * HIGH)
        cells, x, y = sums[:, sums[0] > 0]
        return [
            {"value": float(10**a), "relative": float(10**b), "cells": int(n)}
            for a, b, n in zip(x / cells, y / cells, cells, strict=True)
        ]

    def histogram(self, bins: int = 20) -> list[dict[str, float]]:
        """Cells by their standard error, cells that are fixed left out; empty if all are alike."""
        if self.alike:
            return []
        cells, edges = np.histogram(self.noisy, bins)
        return [
            {"from": float(a), "to": float(b), "cells": int(n)}
            for a, b, n in zip(edges, edges[1:], cells, strict=False)
        ]


@frozen(eq=False, repr=False)
class KindErrors(CellErrors):
    """How exact the cells of a table are that is too large to look at cell by cell.

    By the kinds of its cells, of which there are far fewer; `estimates` are not looked at.
    """

    figures: Figures

    @cached_property
    def _kinds(self) -> tuple[FloatArray, Int64Array]:
        parts = [(kinds.variance, kinds.number) for kinds in self.figures.kinds()]
        variance, number = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(variance, kind="stable")
        return np.sqrt(variance[order]), number[order]

    @property
    def known(self) -> bool:
        """Whether the standard errors are known at all."""
        return not bool(np.isnan(self.stderr).any())

    @property
    def exact(self) -> int:
        """How many cells the held figures fix."""
        stderr, number = self._kinds
        return int(number[stderr == 0.0].sum())

    @property
    def median(self) -> float:
        """The median standard error of the cells."""
        return _median(*self._kinds)

    @property
    def noisy_median(self) -> float:
        """The median of the cells that the held figures do not fix."""
        stderr, number = self._kinds
        return _median(stderr[stderr > 0], number[stderr > 0])

    @property
    def stderr(self) -> FloatArray:
        """One standard error per kind of cell."""
        return self._kinds[0]

    @property
    def noisy(self) -> FloatArray:
        """One standard error per kind of cell that the held figures do not fix."""
        return self.stderr[self.stderr > 0]


def _median(increasing: FloatArray, number: Int64Array) -> float:
    """The median of values that occur so many times."""
    return float(increasing[np.searchsorted(np.cumsum(number), number.sum() / 2)])


def _bins(x: FloatArray, low: float, high: float, number: int) -> Int64Array:
    width = max(high - low, 1e-9) / number
    return np.asarray(np.minimum((x - low) / width, number - 1), np.int64)
