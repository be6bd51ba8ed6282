"""Tables: axes with nested levels, domains, margins and counts."""

from subspacedp.tables.axis import Axis, Label, Level
from subspacedp.tables.domain import Domain
from subspacedp.tables.margin import Margin, along, finest_of, outer
from subspacedp.tables.rows import RowPlan, margin_sums
from subspacedp.tables.table import MAX_TOTAL, MarginTables, Table

__all__ = [
    "MAX_TOTAL",
    "Axis",
    "Domain",
    "Label",
    "Level",
    "Margin",
    "MarginTables",
    "RowPlan",
    "Table",
    "along",
    "finest_of",
    "margin_sums",
    "outer",
]
