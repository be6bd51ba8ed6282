"""Queries: what is asked of the data, as integers, and what one person changes of the answers."""

from collections.abc import Mapping
from typing import Any

from subspacedp.errors import ReleaseError
from subspacedp.queries.functions import ClippedSums, GeneralQuery, LocalEntries, check_sensitivity
from subspacedp.queries.linear import Cells, LinearQuery, Query, Sensitivity, as_query
from subspacedp.queries.margins import Margins, block_name

__all__ = [
    "Cells",
    "ClippedSums",
    "GeneralQuery",
    "LinearQuery",
    "LocalEntries",
    "Margins",
    "Query",
    "Sensitivity",
    "as_query",
    "block_name",
    "check_sensitivity",
    "query_from",
]

# A query of a new kind is its class and its place in this list.
QUERIES: dict[str, type[Query]] = {
    query.kind: query
    for query in (Cells, LinearQuery, Margins, ClippedSums, GeneralQuery, LocalEntries)
}


def query_from(data: Mapping[str, Any], answers: int | None = None) -> Query:
    """The query that plain data state; `answers` is how many values there are, where known."""
    kind = QUERIES.get(str(data["kind"]))
    if kind is None:
        raise ReleaseError("its query is unknown.")
    return kind.from_dict(data, answers)
