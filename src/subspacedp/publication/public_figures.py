"""Targets in parts of figures that are public: of an earlier census, or an earlier release."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.publication.code_lists import check_columns, read_rows
from subspacedp.publication.faults import SpecificationError
from subspacedp.tables import Margin

VALUE = "value"  # the column of the figures, as in the files of a release
WHAT = "file of public figures"


def relative_target(
    margin: Margin, part: float, path: Path, *, at_least: float | None = None
) -> float:
    """What the margin of error of every figure of a margin may be: part × the smallest figure.

    Figures of one margin have noise of one width (with levels of unequal groups: of a few), so the
    smallest decides. Figures below `at_least` count as that; without it, zeros and figures below,
    as noise makes them, have no relative error and set no target.
    """
    figures = read_figures(path, margin).values()
    counted = [max(f, at_least) if at_least is not None else f for f in figures]
    smallest = min((figure for figure in counted if figure > 0), default=None)
    if smallest is None:
        raise SpecificationError(
            f"The {WHAT} `{path}` has no figure above zero, of which an error could be a part; "
            "give an `error` instead, or `at_least`."
        )
    return part * smallest


def read_limits(path: Path, margin: Margin) -> list[Any]:
    """The public limit of every total of a margin, a list for every level that it names.

    Parameters
    ----------
    path
        As for `read_figures`, with whole numbers.
    """
    figures = read_figures(path, margin)
    levels = [[str(label) for label in level.labels] for level in margin.levels if level.name]
    limits = np.empty([len(labels) for labels in levels], object)
    for place, labels in zip(np.ndindex(limits.shape), itertools.product(*levels), strict=True):
        limit = figures[labels]
        if not (limit.is_integer() and limit >= 0):
            raise SpecificationError(
                f"The {WHAT} `{path}` must have whole numbers from 0 as limits; {_words(labels)} "
                f"has {limit:g}."
            )
        limits[place] = int(limit)
    return limits.tolist()  # type: ignore[no-any-return]


def read_figures(path: Path, margin: Margin) -> dict[tuple[str, ...], float]:
    """The public figure of every cell of a margin, by its labels as text.

    Parameters
    ----------
    path
        A csv file with a header: a column for every level of the margin, and the figures in
        `value`, or else in the only further column. Columns beyond `value` are passed over.
    """
    header, rows = read_rows(path, WHAT)
    file = f"The {WHAT} `{path}`"
    check_columns(margin.names, header, file)
    others = [name for name in header if name not in margin.names]
    column = VALUE if VALUE in header or len(others) != 1 else others[0]
    check_columns([column], header, file)
    places = [header.index(name) for name in margin.names]
    figures: dict[tuple[str, ...], float] = {}
    for line, row in rows:
        labels, text = tuple(row[place] for place in places), row[header.index(column)]
        try:
            figure = float(text)
        except ValueError:
            figure = math.nan
        if not math.isfinite(figure):
            raise SpecificationError(
                f"{file} must have a finite number in column `{column}`; line {line} has '{text}'."
            )
        if labels in figures:
            raise SpecificationError(f"{file} has {_words(labels)} again in line {line}.")
        figures[labels] = figure
    levels = [[str(label) for label in level.labels] for level in margin.levels if level.name]
    wanted = dict.fromkeys(itertools.product(*levels))
    short = next((labels for labels in wanted if labels not in figures), None)
    if short is not None:
        raise SpecificationError(f"{file} has no figure for {_words(short)}.")
    further = next((labels for labels in figures if labels not in wanted), None)
    if further is not None:
        raise SpecificationError(f"{file} has {_words(further)}, which is no cell of the margin.")
    return figures


def _words(labels: tuple[str, ...]) -> str:
    """The labels of a cell, as a message has them."""
    return " × ".join(f"'{label}'" for label in labels) or "the grand total"
