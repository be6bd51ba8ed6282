"""Pieces of terminal output that several verbs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table as RichTable

from subspacedp.release import Check, Verification
from subspacedp.release.files import MARGINS

__all__ = ["checks_table"]

MANY = 12  # files of margins from which on they share a row


def checks_table(result: Verification) -> RichTable:
    """The checks of a release as a table; many files of margins that hold share a row."""
    table = RichTable(box=None, show_header=False, padding=(0, 1))
    for check in _folded(result.checks):
        mark = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
        table.add_row(mark, escape(check.name), f"[dim]{escape(check.detail)}[/]")
    return table


def _folded(checks: Sequence[Check]) -> list[Check]:
    """Checks that hold of many files in one folder as one; those that fail stay by themselves."""
    folders = Counter(_folder(check) for check in checks if check.ok)
    out: list[Check] = []
    folded: set[str] = set()
    for check in checks:
        folder = _folder(check)
        if not check.ok or not folder or folders[folder] < MANY:
            out.append(check)
        elif folder not in folded:
            folded.add(folder)
            out.append(Check(folder, True, f"{folders[folder]:,} files follow from the values"))
    return out


def _folder(check: Check) -> str:
    """The folder of a file of margins, as checks name it; empty for other checks."""
    head, below, _ = check.name.rpartition(f"{MARGINS}/")
    return f"{head}{below}"
