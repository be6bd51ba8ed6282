"""What one record changes of the whole numbers that are measured, exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.strategies import BasisStrategy
from subspacedp.privacy import Neighbours
from subspacedp.queries import Query
from subspacedp.queries.linear import used_columns

__all__ = ["changes", "measured_columns"]

ObjectArray = npt.NDArray[np.object_]

MOST_VECTORS = 50_000


def measured_columns(basis: BasisStrategy, query: Query) -> ObjectArray:
    """What each kind of record adds to the measured integers, one a row, each once."""
    if query.contributions is None:
        raise ReleaseError(
            "The k-norm mechanism needs to know what a record adds to the answers; a query of "
            "which only the sensitivity is declared has no such columns."
        )
    records = used_columns(query.contributions)
    largest = int(np.abs(basis.weights).sum(axis=1).max()) * int(abs(records).max())
    if largest < 2**62:
        rows = np.unique(np.asarray(basis.weights @ records).T, axis=0).tolist()
    else:
        from flint import fmpz_mat

        product = fmpz_mat(basis.weights.tolist()) * fmpz_mat(records.toarray().tolist())
        rows = sorted({tuple(map(int, row)) for row in zip(*product.tolist(), strict=True)})
    return np.array(rows, object)


def changes(basis: BasisStrategy, query: Query, relation: Neighbours) -> ObjectArray:
    """What one record's worth of change does to the measured integers, up to sign, as rows.

    Columns, and under replace-one their differences; columns beside these where one person may
    have no record.
    """
    columns = measured_columns(basis, query)
    if relation.persons == 1:
        return columns
    if len(columns) * (len(columns) - 1) // 2 > MOST_VECTORS:
        raise ReleaseError(
            f"{len(columns):,} kinds of records have too many pairs for this mechanism; use the "
            "projected mechanism."
        )
    first, second = np.triu_indices(len(columns), 1)
    pairs = columns[first] - columns[second]
    return pairs if relation.keeps_total else np.concatenate([pairs, columns])
