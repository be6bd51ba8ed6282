"""Which releases can be combined, and everything that any of them holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.invariants import (
    Held,
    HeldMargins,
    HeldMatrix,
    HeldValues,
    bind,
    hold_matrix,
    space_of,
)
from subspacedp.queries import Margins, Query
from subspacedp.release import Release

__all__ = ["checked_releases", "hold_alike", "joint_invariants", "joint_query"]

MOST_RANKED = 500_000  # entries of a matrix whose rank is found exactly


def checked_releases(given: tuple[Any, ...]) -> tuple[Release, ...]:
    """Releases one after another, or a list of them, of the same records with other noise."""
    listed = given[0] if len(given) == 1 else given
    if not isinstance(listed, Iterable | Release):
        raise ReleaseError("`combine` takes a list of releases.")
    chosen = tuple(listed) if isinstance(listed, Iterable) else given
    if not chosen:
        raise ReleaseError("There must be at least one release to combine; got none.")
    for release in chosen:
        if not isinstance(release, Release):
            raise ReleaseError(f"`combine` takes releases; got a {type(release).__name__}.")
    for number, release in enumerate(chosen[1:], 2):
        if _cap(release) != _cap(chosen[0]):
            raise ReleaseError(
                "Releases can be combined when they count the same records; release "
                f"{number} bounds the records of a person differently from the first.",
                number=number,
            )
    ids = [release.release_id for release in chosen]
    repeated = next((i for i in ids if ids.count(i) > 1), None)
    if repeated is not None:
        raise ReleaseError(
            f"The release {repeated} is given twice; a release combined with itself, or with one "
            "from the same seed and mechanism, has the same noise and no more information.",
            release_id=repeated,
        )
    return chosen


def joint_query(releases: tuple[Release, ...]) -> Query:
    """What the releases answer together: the cells, or all margins that any of them has."""
    queries = [release.mechanism.query for release in releases]
    first = queries[0]
    margins: dict[tuple[str, ...], None] = {}
    for number, query in enumerate(queries, 1):
        if first.same_as(query):
            margins.update((m.names, None) for m in query.margins_asked or ())
            continue
        asked, axes = query.margins_asked, first.axes
        related = asked is not None and first.margins_asked is not None
        if not related or axes is None or query.axes is None or not axes.matches(query.axes):
            raise ReleaseError(
                f"Releases can be combined when they answer the same questions, or tables and "
                f"margins of one domain; release {number} differs from the first in its "
                "questions, axes, labels or levels.",
                number=number,
            )
        margins.update((m.names, None) for m in asked or ())
    if all(first.same_as(query) for query in queries) or first.axes is None:
        return first
    table = [first.axes.cells.names]
    whole = (q for q in queries if [m.names for m in q.margins_asked or ()] == table)
    return next(whole, None) or Margins(first.axes, [list(names) for names in margins])


def _cap(release: Release) -> tuple[int, int | None] | None:
    """How many records of a person the table may count, where others were left out."""
    mechanism = release.mechanism
    if not mechanism.capped:
        return None
    return mechanism.neighbours.records, mechanism.neighbours.per_cell


def joint_invariants(
    releases: tuple[Release, ...], query: Query
) -> tuple[HeldMargins | HeldMatrix, HeldValues]:
    """All that is held by any release, with its values; an error if they contradict each other."""
    first = releases[0].mechanism
    if len(releases) == 1:
        return first.held, releases[0].exact
    families = [h for release in releases if (h := release.mechanism.held.family) is not None]
    if len(families) < len(releases):
        return _stacked(releases, query)
    # By name: a loaded release has a domain of its own.
    margins = [first.domain.margin(*m.names) for family in families for m in family.margins]
    values = [v for release in releases for v in release.exact]
    wrong = HeldMargins(domain=first.domain, margins=tuple(margins)).contradiction(values)
    if wrong:
        raise InvariantError(f"The releases contradict each other: {wrong}.")
    kept = dict(zip(reversed(margins), reversed(values), strict=True))
    distinct = tuple(dict.fromkeys(margins))
    held = bind(Held(tuple(m.names for m in distinct)), query)
    return held, tuple(kept[m] for m in distinct)


def hold_alike(releases: tuple[Release, ...]) -> bool:
    """Whether all releases hold the same margins."""
    families = [release.mechanism.held.family for release in releases]
    names = [None if f is None else {m.names for m in f.margins} for f in families]
    return names[0] is not None and all(n == names[0] for n in names)


def _stacked(releases: tuple[Release, ...], query: Query) -> tuple[HeldMatrix, HeldValues]:
    """The rows of all releases' invariants as one matrix; cells known to be empty come last."""
    from scipy.sparse import csr_array, vstack

    blocks: list[tuple[HeldMatrix, Any, npt.NDArray[Any]]] = []
    empty = np.zeros(query.shape, bool)
    for release in releases:
        held = release.mechanism.held.as_matrix(query)
        values = np.concatenate([np.zeros(0, np.int64), *(v.reshape(-1) for v in release.exact)])
        rows = held.rows
        if held.empty is not None:
            empty |= held.empty
            rows -= int(held.empty.sum())
        block = held.matrix[:rows]
        again = any(
            m.shape == block.shape and not (m != block).nnz and np.array_equal(v, values[:rows])
            for _, m, v in blocks
        )
        if rows and not again:
            blocks.append((held, block, values[:rows]))
    if not blocks and not empty.any():
        nothing = hold_matrix(Held(), query)
        return nothing, nothing.sums(np.zeros(query.shape, np.int64))
    where_empty = np.flatnonzero(empty.reshape(-1))
    kept = np.flatnonzero(~empty.reshape(-1))
    inhabited = csr_array(
        (np.ones(kept.size, np.int64), (kept, kept)), shape=(query.size, query.size)
    )
    alone = csr_array(
        (np.ones(where_empty.size, np.int64), (np.arange(where_empty.size), where_empty)),
        shape=(where_empty.size, query.size),
    )
    matrix = csr_array(vstack([*(csr_array(m @ inhabited) for _, m, _ in blocks), alone]))
    matrix.eliminate_zeros()
    values = np.concatenate([*(v for _, _, v in blocks), np.zeros(where_empty.size, np.int64)])
    labels = [name for held, m, _ in blocks for name in held.labels[: m.shape[0]]]
    parts = {str(part): part for held, _, _ in blocks for part in held.parts}
    words = dict.fromkeys(held.words for held, _, _ in blocks)
    joint = HeldMatrix(
        query=query,
        matrix=matrix,
        labels=(*labels, *(f"empty cell {i}" for i in where_empty)),
        parts=tuple(parts.values()),
        words="; ".join(words) or f"{where_empty.size} cells known to be empty",
        empty=empty if where_empty.size else None,
    )
    _check_solvable(joint, values)
    return joint, (values,)


def _check_solvable(held: HeldMatrix, values: npt.NDArray[Any]) -> None:
    """C x = c must have a solution: exactly for whole numbers of moderate size, else to 1e-9."""
    sentence = "The releases contradict each other: no table has all their exact values."
    if held.exact and values.dtype.kind == "i" and held.rows * held.query.size <= MOST_RANKED:
        from flint import fmpz_mat

        rows = held.matrix.toarray().tolist()
        both = [[*row, int(v)] for row, v in zip(rows, values, strict=True)]
        if fmpz_mat(both).rank() != fmpz_mat(rows).rank():
            raise InvariantError(sentence)
        return
    try:
        space_of(held).lift((values,))
    except InvariantError:
        raise InvariantError(sentence) from None
