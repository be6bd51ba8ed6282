"""Pieces of terminal output that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from subspacedp.release import Verification

__all__ = ["checks_table", "progress"]


def checks_table(result: Verification) -> RichTable:
    """The checks of a release as a table."""
    table = RichTable(box=None, show_header=False, padding=(0, 1))
    for check in result.checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
        table.add_row(mark, escape(check.name), f"[dim]{escape(check.detail)}[/]")
    return table


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is being done; each step stays when it is over."""
    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:

        def tell(sentence: str) -> None:
            console.print(f"[dim]{escape(sentence)}[/]", soft_wrap=True)
            status.update(escape(sentence))

        yield tell
