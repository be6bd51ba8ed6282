"""Bias and mean squared error by the true size of a cell, method by method, at one budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from studies.topdown import OneLevel, TopDown
from subspacedp.frozen import frozen
from subspacedp.inference import non_negative, replicates
from subspacedp.invariants import hold
from subspacedp.privacy import PureDP
from subspacedp.release import Design, design
from subspacedp.tables import Table

__all__ = [
    "METHODS",
    "SECOND",
    "SIZES",
    "SMALL",
    "Comparison",
    "Outcome",
    "compare_by_size",
    "size_words",
]

FloatArray = npt.NDArray[np.float64]

SIZES = (0, 1, 10, 30, 100, 300, 1_000, 10_000)  # where classes of cells begin
SMALL = 10
METHODS = ("projected", "one level", "TopDown")
SECOND = "second table"  # beside the projected one: without negative values, made from it
NEIGHBOURS = 50  # places that follow each other, whose cells of one class are added up


@frozen(eq=False, kw_only=True)
class Outcome:
    """What one method does to the cells of every class."""

    bias: FloatArray  # mean error
    bias_stderr: FloatArray  # of the mean, from run to run
    mse: FloatArray
    overall_mse: float
    place_mse: float  # of the totals of places
    small_sum_bias: float  # of the sum of all small cells
    small_sum_rms: float
    neighbours_rms: float  # of sums of neighbouring cells
    negative: float  # share of released cells below zero


@frozen(eq=False, kw_only=True)
class Comparison:
    """All methods on one table."""

    name: str
    place: str
    runs: int
    least: tuple[int, ...]  # where the classes that have cells begin
    cells: tuple[int, ...]
    small_cells: int  # with fewer than `SMALL` people
    small_people: int
    expected_mse: float  # of ours, in closed form and the same for every cell
    small_stderr: float  # of ours, in closed form: of the sum of all small cells
    outcomes: dict[str, Outcome]

    def nearer(self, method: str) -> list[str]:
        """The classes where a method has less squared error than ours, by a tenth at least."""
        return self._classes(self.outcomes[method].mse <= 0.9 * self.expected_mse)

    def farther(self, method: str) -> list[str]:
        """The classes where it has more, by a tenth at least."""
        return self._classes(self.outcomes[method].mse >= 1.1 * self.expected_mse)

    def _classes(self, chosen: npt.NDArray[np.bool_]) -> list[str]:
        return [size_words(self.least[at]) for at in np.flatnonzero(chosen).tolist()]

    def summary(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "name": self.name,
            "runs": self.runs,
            "sizes": [size_words(least) for least in self.least],
            "cells": list(self.cells),
            "small_cells": self.small_cells,
            "small_people": self.small_people,
            "expected_squared_error": self.expected_mse,
            "expected_stderr_of_small_sum": self.small_stderr,
            "methods": {
                method: {
                    "bias": one.bias.tolist(),
                    "bias_stderr": one.bias_stderr.tolist(),
                    "squared_error": one.mse.tolist(),
                    "overall_squared_error": one.overall_mse,
                    f"squared_error_of_a_{self.place}": one.place_mse,
                    "sum_of_small_cells_bias": one.small_sum_bias,
                    "sum_of_small_cells_rms": one.small_sum_rms,
                    f"sum_of_{NEIGHBOURS}_neighbours_rms": one.neighbours_rms,
                    "share_of_negative_cells": one.negative,
                    "nearer": self.nearer(method),
                    "farther": self.farther(method),
                }
                for method, one in self.outcomes.items()
            },
        }


def compare_by_size(
    table: Table,
    epsilon: float,
    runs: int,
    *,
    name: str,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run all methods on a table whose first axis are places, with its total held.

    Parameters
    ----------
    table
        Public data: errors are release minus truth.
    epsilon
        The budget of every method, for neighbours that replace one record.
    runs
        How many runs of each.
    name
        Of the table, in words.
    report
        Called with a sentence before each method.
    """
    ours = design(table.domain, hold(), PureDP(epsilon))
    one = OneLevel(domain=table.domain, epsilon=epsilon)
    down = TopDown(domain=table.domain, epsilon=epsilon)
    group = np.digitize(table.counts, SIZES) - 1
    present, member = np.unique(group, return_inverse=True)
    outcomes = {}
    for method, errors in zip(
        (*METHODS, SECOND),
        (
            replicates(ours, runs, seed=seed),
            one.errors(table, runs, seed=seed),
            down.errors(table, runs, seed=seed),
            _of_second_tables(ours, table, runs, seed),
        ),
        strict=True,
    ):
        report(f"{name}: {runs} runs, {method}")
        outcomes[method] = _outcome(errors, table, member.ravel(), len(present))
    return Comparison(
        name=name,
        place=table.domain.axes[0].name,
        runs=runs,
        least=tuple(SIZES[at] for at in present.tolist()),
        cells=tuple(np.bincount(member.ravel()).tolist()),
        small_cells=int(np.count_nonzero(table.counts < SMALL)),
        small_people=int(table.counts[table.counts < SMALL].sum()),
        small_stderr=float(ours.accuracy((table.counts < SMALL).astype(np.float64)).stderr),
        expected_mse=float(ours.expected_error().per_cell.mean()),
        outcomes=outcomes,
    )


def _of_second_tables(
    ours: Design, table: Table, runs: int, seed: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Second table minus truth, over so many runs."""
    for run in range(runs):
        yield non_negative(ours.release(table, seed=seed + run)) - table.counts


def size_words(least: int) -> str:
    """A class of sizes in words.

    >>> [size_words(least) for least in (0, 1, 10_000)]
    ['0', '1–9', '10,000+']
    """
    at = SIZES.index(least)
    if at == len(SIZES) - 1:
        return f"{least:,}+"
    return f"{least:,}" if SIZES[at + 1] == least + 1 else f"{least:,}–{SIZES[at + 1] - 1:,}"


def _outcome(
    errors: Iterable[npt.NDArray[Any]],
    table: Table,
    member: npt.NDArray[np.intp],
    classes: int,
) -> Outcome:
    cells = np.bincount(member, minlength=classes)
    small = table.counts.ravel() < SMALL
    means, squares, places, sums, near, below = [], [], [], [], [], []
    for run in errors:
        flat = np.asarray(run, np.float64).ravel()
        means.append(np.bincount(member, weights=flat, minlength=classes) / cells)
        squares.append(np.bincount(member, weights=flat**2, minlength=classes) / cells)
        places.append(np.mean(flat.reshape(len(table.counts), -1).sum(axis=1) ** 2))
        sums.append(flat[small].sum())
        running = np.cumsum(flat.reshape(len(table.counts), -1), axis=0)
        near.append(np.mean((running[NEIGHBOURS:] - running[:-NEIGHBOURS]) ** 2))
        below.append(np.mean(table.counts.ravel() + flat < 0))
    mse = np.mean(squares, axis=0)
    spread = np.std(means, axis=0, ddof=1) if len(means) > 1 else np.full(classes, np.nan)
    return Outcome(
        bias=np.mean(means, axis=0),
        bias_stderr=spread / np.sqrt(len(means)),
        mse=mse,
        overall_mse=float(mse @ cells / cells.sum()),
        place_mse=float(np.mean(places)),
        small_sum_bias=float(np.mean(sums)),
        small_sum_rms=float(np.sqrt(np.mean(np.square(sums)))),
        neighbours_rms=float(np.sqrt(np.mean(near))),
        negative=float(np.mean(below)),
    )
