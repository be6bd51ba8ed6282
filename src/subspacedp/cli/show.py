"""Pieces of terminal output that several verbs share."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table as RichTable

from subspacedp.release import Verification

__all__ = ["checks_table"]


def checks_table(result: Verification) -> RichTable:
    """The checks of a release as a table."""
    table = RichTable(box=None, show_header=False, padding=(0, 1))
    for check in result.checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
        table.add_row(mark, escape(check.name), f"[dim]{escape(check.detail)}[/]")
    return table
