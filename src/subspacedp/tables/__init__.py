"""Tables: axes with nested levels, domains, margins, counts, and what a neighbour may change."""

from subspacedp.tables.axis import Axis, Label, Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.entries import LocalEntries
from subspacedp.tables.functions import ClippedSums, GeneralQuery, check_sensitivity
from subspacedp.tables.margin import Margin, along
from subspacedp.tables.margin_tables import MarginTables
from subspacedp.tables.neighbours import AddRemoveOne, Neighbours, ReplaceOne, neighbours_from
from subspacedp.tables.queries import Cells, LinearQuery, Query, Sensitivity, as_query
from subspacedp.tables.rows import RowPlan, margin_sums
from subspacedp.tables.stated_queries import query_from
from subspacedp.tables.table import MAX_TOTAL, Table
from subspacedp.tables.workload import Margins, block_name

__all__ = [
    "MAX_TOTAL",
    "AddRemoveOne",
    "Axis",
    "Cells",
    "ClippedSums",
    "Domain",
    "GeneralQuery",
    "Label",
    "Level",
    "LinearQuery",
    "LocalEntries",
    "Margin",
    "MarginTables",
    "Margins",
    "Neighbours",
    "Query",
    "ReplaceOne",
    "RowPlan",
    "Sensitivity",
    "Table",
    "along",
    "as_query",
    "block_name",
    "check_sensitivity",
    "margin_sums",
    "neighbours_from",
    "query_from",
]
