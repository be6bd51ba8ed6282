"""Tables: axes with nested levels, domains, margins, counts, and what a neighbour may change."""

from subspacedp.tables.axis import Axis, Label, Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.functions import ClippedSums, GeneralQuery, check_sensitivity
from subspacedp.tables.margin import Margin, along
from subspacedp.tables.neighbours import AddRemoveOne, Neighbours, ReplaceOne
from subspacedp.tables.queries import Cells, LinearQuery, Query, Sensitivity, as_query
from subspacedp.tables.rows import RowPlan, margin_sums
from subspacedp.tables.table import MAX_TOTAL, Table

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
    "Margin",
    "Neighbours",
    "Query",
    "ReplaceOne",
    "RowPlan",
    "Sensitivity",
    "Table",
    "along",
    "as_query",
    "check_sensitivity",
    "margin_sums",
]
