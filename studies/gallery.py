"""The accuracy gallery: many queries, every mechanism, and how far each is from the best.

Everything follows from designs: no data are needed. For Gaussian budgets the yardstick is a proven
lower bound on the error of all Gaussian noise that meets the budget and keeps what is held. For
pure budgets no such bound is known, and the yardstick is the least of the errors shown.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from os import PathLike

import numpy as np
import numpy.typing as npt

from subspacedp.demo.page import OURS, Figure, Grid, Page, Part, render
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.invariants import Held, LinearInvariants, hold
from subspacedp.mechanisms import CorrelatedOptions
from subspacedp.privacy import ApproxDP, Budget, PureDP
from subspacedp.queries import LinearQuery, Query
from subspacedp.release import compare, design, new_folder
from subspacedp.report.page import publishing
from subspacedp.report.plots import GRID, Look, Plot, bands, drawing, logarithmic
from subspacedp.tables import Axis, Domain

__all__ = ["EXAMPLES", "Example", "GalleryRow", "accuracy_gallery", "gallery", "gallery_figure"]

FloatArray = npt.NDArray[np.float64]
GAUSSIAN, PURE = ApproxDP(1.0, 1e-6), PureDP(1.0)
EQUAL, BEST = "correlated", "correlated, best split"
LOOKS = (
    OURS,
    Look(name="extended", colour="#009e73", shape="diamond"),
    Look(name=EQUAL, colour="#cc79a7", shape="triangle-up"),
    Look(name=BEST, colour="#8c6bb1", shape="triangle-down"),
    Look(name="knorm", colour="#e69f00", shape="square"),
    Look(name="optimal", colour="#24292f", shape="cross"),
)
ONLY_GAUSSIAN, ONLY_PURE = {EQUAL, BEST, "optimal"}, {"knorm"}
LAWS: dict[Budget, str] = {
    GAUSSIAN: "Gaussian noise, ε = 1, δ = 1e-6",
    PURE: "Pure privacy, ε = 1",
}


@frozen(kw_only=True)
class Example:
    """A query and what is held of its answers."""

    name: str
    query: Callable[[], Domain | Query]
    held: Callable[[], Held | LinearInvariants | None] = lambda: None


def _cube(*sizes: int) -> Domain:
    names = ("group", "hour", "building")
    return Domain([Axis(name, range(n)) for name, n in zip(names, sizes, strict=False)])


def _campus() -> Held:
    return hold("hour", "building") & hold("group", "building")


def _two_way(*sizes: int) -> FloatArray:
    """All margins that leave one axis out."""
    cells = np.eye(math.prod(sizes)).reshape(-1, *sizes)
    return np.vstack(
        [cells.sum(axis=axis + 1).reshape(len(cells), -1).T for axis in range(len(sizes))]
    )


def _ranges(n: int) -> FloatArray:
    ends = [(a, b) for a in range(n) for b in range(a + 1, n + 1)]
    return np.array([[float(a <= i < b) for i in range(n)] for a, b in ends])


def _tree(depth: int) -> FloatArray:
    """Sums over all nodes of a binary tree, the root first."""
    leaves = np.arange(2**depth)
    return np.vstack(
        [leaves >> (depth - k) == np.arange(2**k)[:, None] for k in range(depth + 1)]
    ).astype(float)


def _random(n: int, d: int) -> FloatArray:
    """Whole numbers from −8 to 8."""
    return np.random.default_rng(n * d).integers(-8, 9, size=(n, d)).astype(float)


def _scaled(rows: bool) -> FloatArray:
    """Sizes from 1 to 1,000, over the rows or over the columns."""
    n, d = 40, 120
    sizes = np.rint(np.logspace(0, 3, n if rows else d))
    return _random(n, d) * (sizes[:, None] if rows else sizes)


def _sums(n: int) -> LinearInvariants:
    """The sum of all answers, and of the first half of them."""
    return LinearInvariants(np.array([np.ones(n), np.arange(n) < n // 2], float))


def _top(depth: int, levels: int) -> LinearInvariants:
    return LinearInvariants(np.eye(2**levels - 1, 2 ** (depth + 1) - 1))


EXAMPLES = (
    Example(name="cells 8 × 10", query=lambda: _cube(8, 10)),
    Example(name="cells 8 × 10, rows held", query=lambda: _cube(8, 10), held=lambda: hold("group")),
    Example(name="cube 4 × 6 × 5, margins held", query=lambda: _cube(4, 6, 5), held=_campus),
    Example(
        name="campus 14 × 24 × 20, margins held", query=lambda: _cube(14, 24, 20), held=_campus
    ),
    Example(name="two-way margins of 4 × 5 × 6", query=lambda: LinearQuery(_two_way(4, 5, 6))),
    Example(name="tree of 63 sums", query=lambda: LinearQuery(_tree(5))),
    Example(
        name="tree of 63 sums, top 7 held",
        query=lambda: LinearQuery(_tree(5)),
        held=lambda: _top(5, 3),
    ),
    Example(name="64 prefix sums", query=lambda: LinearQuery(np.tril(np.ones((64, 64))))),
    Example(
        name="64 prefix sums, two sums held",
        query=lambda: LinearQuery(np.tril(np.ones((64, 64)))),
        held=lambda: _sums(64),
    ),
    Example(name="all 300 ranges of 24", query=lambda: LinearQuery(_ranges(24))),
    Example(name="random 40 × 200", query=lambda: LinearQuery(_random(40, 200))),
    Example(
        name="random 40 × 200, two sums held",
        query=lambda: LinearQuery(_random(40, 200)),
        held=lambda: _sums(40),
    ),
    Example(name="rows from 1 to 1,000", query=lambda: LinearQuery(_scaled(rows=True))),
    Example(name="columns from 1 to 1,000", query=lambda: LinearQuery(_scaled(rows=False))),
)


@frozen(kw_only=True)
class GalleryRow:
    """One mechanism on one query.

    Parameters
    ----------
    error
        The expected total squared error; None where the mechanism does not apply.
    times_best
        The error over the yardstick.
    proven
        Whether the yardstick is a proven lower bound; otherwise it is the least error shown.
    refusal
        Why the mechanism does not apply, in a sentence.
    """

    query: str
    law: str
    mechanism: str
    error: float | None
    times_best: float | None
    proven: bool
    refusal: str = ""


def accuracy_gallery(names: Iterable[str] | None = None) -> tuple[GalleryRow, ...]:
    """The error of every mechanism on every query, relative to the best; no data needed.

    Parameters
    ----------
    names
        Of the queries; all of `EXAMPLES` by default.

    Examples
    --------
    >>> rows = accuracy_gallery(["tree of 63 sums"])
    >>> best = min(row.times_best for row in rows if row.proven and row.times_best)
    >>> 1 <= best < 1.001
    True
    """
    known = {example.name: example for example in EXAMPLES}
    chosen = list(known) if names is None else list(names)
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        raise ReleaseError(f"The gallery has no query {unknown!r}; it has {', '.join(known)}.")
    return tuple(row for name in chosen for budget in LAWS for row in _rows(known[name], budget))


def _rows(example: Example, budget: Budget) -> list[GalleryRow]:
    query, held = example.query(), example.held()
    found = compare(query, held, budget)
    known = {look.name for look in LOOKS}
    known -= ONLY_PURE if not budget.pure else ONLY_GAUSSIAN
    errors = {e.name: e.error for e in found.entries if e.name in known}
    refusals = {e.name: str(e.refusal) for e in found.entries if e.refusal is not None}
    if not budget.pure:
        try:
            split = design(query, held, budget, mechanism=CorrelatedOptions(split="best"))
            errors[BEST] = float(split.expected_error().total)
        except SubspaceDPError as problem:
            errors[BEST], refusals[BEST] = None, str(problem)
    bound = found.bound
    least = min(error for error in errors.values() if error is not None)
    yardstick = least if bound is None else bound
    return [
        GalleryRow(
            query=example.name,
            law=LAWS[budget],
            mechanism=name,
            error=error,
            times_best=None if error is None else error / yardstick,
            proven=bound is not None,
            refusal=refusals.get(name, ""),
        )
        for name, error in errors.items()
    ]


def gallery_figure(rows: Sequence[GalleryRow]) -> Figure:
    """One row a query, one mark a mechanism, on a logarithmic scale."""
    shown = [row for row in rows if row.times_best is not None]
    used = [look for look in LOOKS if any(row.mechanism == look.name for row in shown)]
    queries = list(dict.fromkeys(row.query for row in rows))
    panels: list[Plot] = []
    for law in dict.fromkeys(row.law for row in rows):
        here = [row for row in shown if row.law == law]
        # Within the 0.1 % to which the best is found, errors may be on either side of it.
        times = {(r.query, r.mechanism): max(r.times_best or 1.0, 1.0) for r in here}
        end = 1.5 * max(times.values())
        between = (1, 2, 5) if end < 100 else (1,)
        ticks = [m * 10**k for k in range(5) for m in between if m * 10**k <= end]
        proven = all(row.proven for row in here)
        x = logarithmic(
            0.93,
            end,
            [(t, f"{t:,}") for t in ticks],
            title="times the proven least" if proven else "times the least shown",
        )
        y = bands(queries if not panels else [""] * len(queries))
        plot = Plot(x=x, y=y, width=430, height=42 * len(queries), title=law, down=True)
        for at, query in enumerate(queries):
            plot.across(GRID, y=at - 0.5)
            for place, look in enumerate(used):
                if (query, look.name) in times:
                    shift = 28 * ((place + 0.5) / len(used) - 0.5)
                    found = times[query, look.name]
                    plot.dot(found, at, 4.8, look.colour, shape=look.shape, shift=shift)
        panels.append(plot)
    return Figure(
        name="gallery",
        svg=drawing([panels], keys=used),
        caption="Squared error of every mechanism, relative to the best",
        description=(
            f"{len(queries)} queries as rows; the horizontal scale is logarithmic. With Gaussian "
            "noise the optimal mechanism is at the proven least wherever it applies; the simple "
            "ones are beside it for cells and up to some thirty times above it for ranges."
        ),
        columns=("query", "mechanism", "noise", "squared error", "times the best"),
        rows=[_shown(row) for row in rows if row.error is not None],
        texts=3,
    )


def _shown(row: GalleryRow) -> tuple[str, ...]:
    return (
        row.query,
        row.mechanism,
        row.law,
        f"{row.error or 0:,.4g}",
        f"{row.times_best or 1:,.3g}",
    )


def gallery(out: str | PathLike[str]) -> tuple[GalleryRow, ...]:
    """Write the picture, the table and a page to a new folder."""
    publishing("jinja2")
    with new_folder(out) as scratch:
        rows = accuracy_gallery()
        drawn = gallery_figure(rows)
        drawn.write(scratch)
        with (scratch / "gallery.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(GalleryRow.__dataclass_fields__)
            writer.writerows(vars(row).values() for row in rows)
        (scratch / "index.html").write_text(render(_page(rows, drawn)), "utf-8")
    return rows


def _page(rows: Sequence[GalleryRow], drawn: Figure) -> Page:
    refused = {(row.query, row.law, row.mechanism): row.refusal for row in rows if row.refusal}
    return Page(
        title="How far every mechanism is from the best",
        lede=[
            "Expected total squared error, computed from designs alone. Neighbours exchange one "
            "record."
        ],
        parts=[
            Part(
                id="picture",
                title="The picture",
                paragraphs=[
                    "For Gaussian noise the yardstick is a proven lower bound on the error of all "
                    "Gaussian noise that meets the budget and keeps what is held. For pure budgets "
                    "no such bound is known, and the yardstick is the least error in the row.",
                    "For cells the simple mechanisms are as good as any. Where one record enters "
                    "many answers, as in prefix sums, ranges and trees, noise of the right shape "
                    "has a small part of their error.",
                ],
                figures=[drawn],
            ),
            Part(
                id="refused",
                title="What does not apply",
                grids=[
                    Grid(
                        caption="Mechanisms left out, and why",
                        columns=("query", "noise", "mechanism", "reason"),
                        rows=tuple((*which, why) for which, why in refused.items()),
                        texts=4,
                    )
                ],
            ),
        ],
        files=[
            ("gallery.svg", "the picture"),
            ("gallery.csv", "its figures, and why a mechanism does not apply"),
        ],
    )
