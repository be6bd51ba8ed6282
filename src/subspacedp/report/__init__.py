"""The report: one page about a release that opens anywhere, without a network."""

from subspacedp.report.notes import PublishedColumn, PublishedFile, ReportNotes
from subspacedp.report.page import write_report

__all__ = ["PublishedColumn", "PublishedFile", "ReportNotes", "write_report"]
