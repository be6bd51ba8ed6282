"""Checks of what noise is designed for: margins, beside the cells or without them.

Names of axes and levels in margins are checked elsewhere, for all tables alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from subspacedp.mechanisms import MECHANISMS
from subspacedp.publication.problems import Place, Problem
from subspacedp.publication.spelling import nearest
from subspacedp.queries.margins import COLUMN, MOST_AXES

if TYPE_CHECKING:
    from subspacedp.publication.specification import Specification
    from subspacedp.publication.table_specification import TableSpecification

__all__ = ["no_such", "place_of", "workload_problems"]

FOR_MARGINS = ("auto", *(name for name, kind in MECHANISMS.items() if kind.for_workloads))


def place_of(specification: Specification, table: str, *path: str) -> Place:
    """Where a key of a table stands: with the table, or above for all."""
    tables = specification.document.tables
    section: Any = None if tables is None else tables[table]
    for key in path:
        if section is None or key not in section.model_fields_set:
            return path
        section = getattr(section, key)
    return ("tables", table, *path)


def no_such(kind: str, name: object, known: Any) -> str:
    """A phrase for a name that is none, with the nearest one that is."""
    near = nearest(str(name), known)
    hint = f"; did you mean `{near}`?" if near else ""
    article = "an" if kind.startswith("a") else "a"
    return f"names `{name}`, which is not {article} {kind} here{hint}"


def workload_problems(specification: Specification, name: str) -> Iterator[Problem]:
    """What is wrong with `cells` and `weights`."""
    table = specification.table(name)

    def at(*path: str) -> Place:
        return place_of(specification, name, *path)

    weights = table.publish.weights
    if not table.margins_alone:
        yield from _beside_cells(table, at("publish", "weights"), at("publish", "cells"))
        return
    if not table.margins:
        yield Problem(
            at("publish", "cells"),
            "needs `margins` beside it, then all that is published",
        )
        return
    if weights is not None and len(weights) != len(table.margins):
        yield Problem(
            at("publish", "weights"),
            f"must be {len(table.margins)} numbers, one for each of the margins; got "
            f"{len(weights)}",
        )
    if table.sums:
        yield Problem(
            at("sums"), "cannot stand beside `cells: false`; sums need the cells of their table"
        )
    if table.publish.non_negative:
        yield Problem(at("publish", "non_negative"), "needs the cells; leave out `cells: false`")
    if table.mechanism not in FOR_MARGINS:
        yield Problem(
            at("mechanism"),
            f"must be {', '.join(f'`{m}`' for m in FOR_MARGINS)} with `cells: false`; got "
            f"`{table.mechanism}`",
        )
    if len(table.axes) > MOST_AXES:
        yield Problem(("axes",), f"has {len(table.axes)} axes, and margins alone take {MOST_AXES}")
    for axis, entry in table.axes.items():
        if COLUMN in (axis, *entry.level_names):
            yield Problem(
                ("axes", axis), f"may not have the name `{COLUMN}`, a column of releases of margins"
            )
    yield from _margins(table, at("publish", "margins"))


def _beside_cells(table: TableSpecification, weights: Place, cells: Place) -> Iterator[Problem]:
    """What is said to count where cells are published: weights, or a limit for the cells."""
    given, limit = table.publish.weights, table.publish.cells_at_most
    for at, asked in ((weights, given is not None), (cells, limit is not None)):
        if asked and table.mechanism not in FOR_MARGINS:
            yield Problem(at, "is for `mechanism: marginals` or `auto`")
        elif asked and not table.margins:
            yield Problem(at, "needs `margins` beside it, which the noise is designed for too")
    number = len(table.margins) + 1
    if given is not None and len(given) != number:
        yield Problem(
            weights,
            f"must be {number} numbers, one for the cells and one for each of the margins; got "
            f"{len(given)}",
        )
    if given is not None and limit is not None:
        yield Problem(weights, "cannot stand beside a limit for the cells; leave one of them out")
    if limit is not None and limit <= 1:
        yield Problem(cells, f"must allow more than 0 %; got '{table.publish.cells}'")


def _margins(table: TableSpecification, at: Place) -> Iterator[Problem]:
    """No margin twice, in whatever order it is written; not all of them held."""
    if any(name not in _axis_of(table) for m in (*table.margins, *table.hold) for name in m):
        return  # is told of the margin itself
    seen: dict[frozenset[str], int] = {}
    for i, margin in enumerate(table.margins):
        first = seen.setdefault(frozenset(margin), i)
        if first != i:
            yield Problem((*at, i), f"is the same margin as item {first + 1}")
    if all(any(_determines(table, held, m) for held in table.hold) for m in table.margins):
        yield Problem(at, "is fixed entirely by what is held, so that nothing is left to protect")


def _determines(table: TableSpecification, fine: Sequence[str], coarse: Sequence[str]) -> bool:
    """Whether the totals of one margin follow from those of another."""
    axis_of = _axis_of(table)
    steps = {
        level: step
        for axis, entry in table.axes.items()
        for step, level in enumerate((axis, *entry.level_names))
    }
    known = {axis_of[level]: steps[level] for level in fine}
    return all(known.get(axis_of[level], 1 << 30) <= steps[level] for level in coarse)


def _axis_of(table: TableSpecification) -> dict[str, str]:
    return {
        level: axis for axis, entry in table.axes.items() for level in (axis, *entry.level_names)
    }
