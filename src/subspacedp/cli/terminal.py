"""Where words go: a screen as wide as it is, a file or a pipe with lines of any length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["PATIENCE", "indented", "printer", "progress"]

UNBOUNDED = 1 << 16  # columns; no line of ours is longer
PATIENCE = 2.0  # seconds after which a command that says nothing yet says what it does


def printer(*, stderr: bool = False) -> Console:
    """Where a command prints; lines are broken for a screen alone."""
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False)
    if not out.is_terminal:
        out.width = UNBOUNDED
    return out


def indented(content: Any) -> Any:
    """Text or a table, two columns to the right."""
    from rich.padding import Padding

    return Padding(content, (0, 0, 0, 2), expand=False)


@contextmanager
def progress(after: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Lines on standard error that say what is being done; each stays when its step is over.

    Nothing is said within the first `after` seconds.
    """
    if after > 0:
        with _late(after) as tell:
            yield tell
        return
    from rich.markup import escape

    out = printer(stderr=True)
    with out.status("starting") as status:

        def tell(sentence: str) -> None:
            out.print(f"[dim]{escape(sentence)}[/]", soft_wrap=True)
            status.update(escape(sentence))

        yield tell


@contextmanager
def _late(after: float) -> Iterator[Callable[[str], None]]:
    """Says the step that is going on when the time has come, and every later one."""
    latest, shown = "starting", False

    def show() -> None:
        nonlocal shown
        shown = True
        printer(stderr=True).print(f"[dim]{latest} …[/]", markup=True)

    def tell(sentence: str) -> None:
        nonlocal latest
        latest = sentence.replace("[", "\\[")
        if shown:
            show()

    timer = Timer(after, show)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
