"""Tables: axes with nested levels, domains, margins, counts, and what a neighbour may change."""

from subspacedp.tables.axis import Axis, Label, Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin
from subspacedp.tables.neighbours import AddRemoveOne, Neighbours, ReplaceOne
from subspacedp.tables.rows import RowPlan, margin_sums
from subspacedp.tables.table import MAX_TOTAL, Table

__all__ = [
    "MAX_TOTAL",
    "AddRemoveOne",
    "Axis",
    "Domain",
    "Label",
    "Level",
    "Margin",
    "Neighbours",
    "ReplaceOne",
    "RowPlan",
    "Table",
    "margin_sums",
]
