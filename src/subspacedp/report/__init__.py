"""The report: one page about a release that opens anywhere, without a network."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.report.page import write_report
    from subspacedp.report.words import PublishedColumn, PublishedFile, ReportNotes

__all__ = ["PublishedColumn", "PublishedFile", "ReportNotes", "write_report"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "report.page": ["write_report"],
        "report.words": ["PublishedColumn", "PublishedFile", "ReportNotes"],
    },
)
