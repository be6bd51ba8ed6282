"""Which releases can be combined, and everything that any of them holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import InvariantError, ReleaseError
from subspacedp.invariants import Held, HeldMargins, HeldMatrix, HeldValues, hold_matrix, space_of
from subspacedp.queries import Cells, Margins, Query
from subspacedp.release import Release

__all__ = ["checked_releases", "joint_invariants"]

MOST_RANKED = 500_000  # entries of a matrix whose rank is found exactly


def checked_releases(releases: Iterable[Any]) -> tuple[Release, ...]:
    """The releases, which answer the same questions about the same records with other noise."""
    if isinstance(releases, Release) or not isinstance(releases, Iterable):
        raise ReleaseError("`combine` takes a list of releases.")
    chosen = tuple(releases)
    if not chosen:
        raise ReleaseError("There must be at least one release to combine; got none.")
    for release in chosen:
        if not isinstance(release, Release):
            raise ReleaseError(f"`combine` takes releases; got a {type(release).__name__}.")
    first = chosen[0].mechanism.query
    if len(chosen) > 1 and isinstance(first, Margins):
        raise ReleaseError(
            "Releases of several margins at once are not combined here; combine their totals one "
            "by one, by their standard errors."
        )
    for number, release in enumerate(chosen[1:], 2):
        if not _same(first, release.mechanism.query):
            raise ReleaseError(
                f"Releases can be combined when they answer the same questions; release {number} "
                "differs from the first in its questions, axes, labels or levels.",
                number=number,
            )
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


def _same(one: Query, other: Query) -> bool:
    if isinstance(one, Cells) and isinstance(other, Cells):
        return one.domain.matches(other.domain)
    return type(one) is type(other) and one.as_dict() == other.as_dict()


def _cap(release: Release) -> tuple[int, int | None] | None:
    """How many records of a person the table may count, where others were left out."""
    mechanism = release.mechanism
    if not mechanism.capped:
        return None
    return mechanism.neighbours.records, mechanism.neighbours.per_cell


def joint_invariants(releases: tuple[Release, ...]) -> tuple[HeldMargins | HeldMatrix, HeldValues]:
    """All that is held by any release, with its values; an error if they contradict each other."""
    first = releases[0].mechanism
    if len(releases) == 1:
        return first.held, releases[0].exact
    families = [h for release in releases if isinstance(h := release.mechanism.held, HeldMargins)]
    if len(families) < len(releases):
        return _stacked(releases)
    # By name: a loaded release has a domain of its own.
    margins = [first.domain.margin(*m.names) for family in families for m in family.margins]
    values = [v for release in releases for v in release.exact]
    found = HeldMargins(domain=first.domain, margins=tuple(margins)).contradiction(values)
    if found:
        raise InvariantError(f"The releases contradict each other: {found}.")
    kept = dict(zip(reversed(margins), reversed(values), strict=True))
    distinct = tuple(dict.fromkeys(margins))
    held = HeldMargins(domain=first.domain, margins=distinct, counts=isinstance(first.query, Cells))
    return held, tuple(kept[m] for m in distinct)


def _stacked(releases: tuple[Release, ...]) -> tuple[HeldMatrix, HeldValues]:
    """The rows of all releases' invariants as one matrix; cells known to be empty come last."""
    from scipy.sparse import csr_array, vstack

    query = releases[0].mechanism.query
    blocks: list[tuple[HeldMatrix, Any, npt.NDArray[Any]]] = []
    empty = np.zeros(query.shape, bool)
    for release in releases:
        held = release.mechanism.held
        if isinstance(held, HeldMargins):
            held = hold_matrix(Held(tuple(m.names for m in held.margins)), query)
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
