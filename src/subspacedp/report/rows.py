"""The rows of the report's tables.

All cells where they fit, otherwise the largest margin that does; for a release of margins also the
error of every margin. Labels may be anybody's text. They reach the page through the template's
escaping, or as JSON in which no character can end a script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.queries import Margins
from subspacedp.queries.margins import block_name
from subspacedp.release import Release
from subspacedp.report.estimates import Estimates, margin_estimates, within_reach
from subspacedp.tables import Margin

__all__ = [
    "MOST_ROWS",
    "LabelColumn",
    "MarginError",
    "Rows",
    "margin_errors",
    "margin_labels",
    "shown",
    "table_rows",
]

MOST_ROWS = 5_000
EXACT_IN_SCRIPT = 2**53  # the largest whole numbers that a browser keeps apart


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """One column of labels: its distinct texts, and which of them each row has."""

    name: str
    texts: Sequence[str]
    codes: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """One column of numbers, the words above it, and the decimals it is shown with."""

    name: str
    title: str
    numbers: npt.NDArray[Any]
    digits: int


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """A table of estimates with labels."""

    title: str
    complete: bool  # whether these are all cells of the release
    labels: tuple[LabelColumn, ...]
    estimates: Estimates
    decimals: int | None

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.estimates.value.size)

    @cached_property
    def numbers(self) -> tuple[NumberColumn, ...]:
        """Value, standard error and interval."""
        e = self.estimates
        lower, upper = e.interval
        fine = error_digits(e.stderr)
        whole = e.value.dtype.kind == "i"
        at = 0 if whole else min(fine if self.decimals is None else self.decimals, 6)
        return (
            NumberColumn("value", "value", e.value, at),
            NumberColumn("stderr", "standard error", e.stderr, fine),
            NumberColumn("lower", "95 % from", lower, max(at, fine - 1)),
            NumberColumn("upper", "95 % to", upper, max(at, fine - 1)),
        )

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
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def table_rows(release: Release, cells: Estimates, most_bytes: int) -> Rows | None:
    """The finest table that fits; None when not even the coarsest does."""
    decimals = release.mechanism.decimals
    workload = release.mechanism.query.workload
    if workload is not None:
        return _workload_rows(workload, cells, most_bytes, decimals)
    if cells.value.size <= MOST_ROWS:
        columns = release.mechanism.query.columns()
        labels = tuple(label_column(name, column) for name, column in columns.items())
        rows = Rows("every cell", True, labels, cells, decimals)
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
    if release.mechanism.query.axes is None:
        return None
    for margin in _smaller_margins(release):
        labels, kept = margin_labels(margin)
        estimates = margin_estimates(release, margin).take(kept)
        rows = Rows(" × ".join(margin.names), False, labels, estimates, decimals)
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
    return None


def _workload_rows(
    query: Margins, cells: Estimates, most_bytes: int, decimals: int | None
) -> Rows | None:
    """The margins one after another, so many of them as fit; two columns of labels for all."""
    number = sum(bound <= MOST_ROWS for bound in query.bounds[1:])
    while number:
        margins = query.margins[:number]
        names = [block_name(margin) for margin in margins]
        kept, texts = [], []
        for i, margin in enumerate(margins):
            labels, places = margin_labels(margin, coarser=False)
            kept.append(query.bounds[i] + places)
            texts += [
                " · ".join(column.texts[column.codes[row]] for column in labels) or "all"
                for row in range(places.size)
            ]
        which = np.repeat(np.arange(number), [places.size for places in kept])
        columns = (LabelColumn("margin", names, which), label_column("group", np.asarray(texts)))
        all_of_them = number == len(query.margins)
        title = "every margin" if all_of_them else f"{number} of {len(query.margins)} margins"
        rows = Rows(title, all_of_them, columns, cells.take(np.concatenate(kept)), decimals)
        if len(rows.embedded("").encode()) <= most_bytes:
            return rows
        number -= 1
    return None


def margin_labels(
    margin: Margin, *, coarser: bool = True
) -> tuple[tuple[LabelColumn, ...], npt.NDArray[np.int64]]:
    """The labels of a margin's groups, with their coarser levels, and which groups have cells."""
    kept = np.flatnonzero(~margin.empty.reshape(-1))
    places = np.unravel_index(kept, margin.shape)
    labels = []
    for a, (axis, step) in enumerate(zip(margin.axes, margin.steps, strict=True)):
        for coarse in range(step, axis.depth - 1 if coarser else min(step + 1, axis.depth - 1)):
            level = axis.step(coarse)
            codes = axis.parents(step, coarse)[places[a]]
            labels.append(LabelColumn(level.name, [str(t) for t in level.labels], codes))
    return tuple(labels), kept


def label_column(name: str, column: npt.NDArray[Any]) -> LabelColumn:
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
        if m.names and m != cells and math.prod(m.shape) <= MOST_ROWS and within_reach(release, m)
    ]
    return sorted(fitting, key=lambda m: -math.prod(m.shape))


def error_digits(stderr: npt.NDArray[np.float64]) -> int:
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


def _plain(numbers: npt.NDArray[Any]) -> list[Any]:
    """Numbers for JSON: null where unknown, and text where a browser would round."""
    if numbers.dtype.kind == "i":
        return [n if abs(n) < EXACT_IN_SCRIPT else str(n) for n in numbers.tolist()]
    return [x if math.isfinite(x) else None for x in numbers.tolist()]


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
    """One row per margin, from the published figures and their standard errors."""
    digits = error_digits(figures.stderr)
    parts = zip(query.split(figures.value), query.split(figures.stderr), strict=True)
    for i, (value, stderr) in enumerate(parts):
        noisy = stderr[stderr > 0]
        limits = [shown(float(limit(noisy)), digits) for limit in (np.min, np.max) if noisy.size]
        yield MarginError(
            name=block_name(query.margins[i]),
            figures=value.size,
            exact=int(np.count_nonzero(stderr == 0)),
            value=shown(float(np.median(value)), 0),
            stderr=" to ".join(dict.fromkeys(limits)) or "0",
            weight=f"{(query.weights or ())[i]:g}",
        )
