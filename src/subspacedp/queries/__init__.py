"""Queries: what is asked of the data, as integers, and what one person changes of the answers."""

from subspacedp.queries.functions import ClippedSums, GeneralQuery, LocalEntries, check_sensitivity
from subspacedp.queries.linear import Cells, LinearQuery, Query, Sensitivity, as_query
from subspacedp.queries.margins import Margins, block_name
from subspacedp.queries.stated import query_from

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
