"""Person records or counts in, tables out: the group-by is done where the data are."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.io.coding import AxisColumn, bin_labels
    from subspacedp.io.engine import Kind, Source
    from subspacedp.io.inspect import Column, Seen, labels_from_data, look
    from subspacedp.io.margin_tables import TabulatedMargins, tabulate_margins
    from subspacedp.io.sources import open_source
    from subspacedp.io.tabulate import ClippedValue, Tabulated, tabulate

__all__ = [
    "AxisColumn",
    "ClippedValue",
    "Column",
    "Kind",
    "Seen",
    "Source",
    "Tabulated",
    "TabulatedMargins",
    "bin_labels",
    "labels_from_data",
    "look",
    "open_source",
    "tabulate",
    "tabulate_margins",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "io.coding": ["AxisColumn", "bin_labels"],
        "io.engine": ["Kind", "Source"],
        "io.inspect": ["Column", "Seen", "labels_from_data", "look"],
        "io.margin_tables": ["TabulatedMargins", "tabulate_margins"],
        "io.sources": ["open_source"],
        "io.tabulate": ["ClippedValue", "Tabulated", "tabulate"],
    },
)
