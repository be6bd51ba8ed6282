"""The report: one page about a release that opens anywhere, without a network."""

from subspacedp.report.page import write_report
from subspacedp.report.words import PublishedColumn, PublishedFile, ReportNotes

__all__ = ["PublishedColumn", "PublishedFile", "ReportNotes", "write_report"]
