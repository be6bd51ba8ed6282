"""Where words go: a screen as wide as it is, a file or a pipe with lines of any length."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from subspacedp.cli.lines import Lines, Table, escape
from subspacedp.stated import UNSEEN, visible

if TYPE_CHECKING:
    from rich.console import Console

    from subspacedp.release import Check, Verification

AS_A_SCREEN = ("FORCE_COLOR", "TTY_COMPATIBLE")  # by which a pipe or a file may be one to rich
UNBOUNDED = 1 << 16  # columns; no line of ours is longer
MANY = 12  # files of margins from which on they share a row
PATIENCE = 2.0  # seconds after which a command that says nothing yet says what it does


def printer(*, stderr: bool = False) -> Console | Lines:
    """Where a command prints; lines are broken for a screen alone."""
    stream = sys.stderr if stderr else sys.stdout
    if not (stream.isatty() or any(name in os.environ for name in AS_A_SCREEN)):
        return Lines(stderr=stderr)
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False, emoji=False)
    if not out.is_terminal:
        out.width = UNBOUNDED
    return out


def json_text(data: Any, indent: int | None = None) -> str:
    """A result for programs: letters as they are, what `visible` writes out as JSON escapes it."""
    lines = json.dumps(data, ensure_ascii=False, indent=indent).split("\n")
    return "\n".join(UNSEEN.sub(lambda sign: json.dumps(sign[0])[1:-1], line) for line in lines)


def print_json(data: Any) -> None:
    """Print a result for programs."""
    print(json_text(data))


def say(sentence: str) -> None:
    """Print a sentence, which may quote a name that somebody else chose."""
    print(visible(sentence))


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def print_result(result: object) -> None:
    """Print a result as it says itself, which may quote labels."""
    print("\n".join(map(visible, str(result).split("\n"))))


def checks_table(result: Verification) -> Table:
    """The checks of a release as a table; many files of margins that hold share a row."""
    table = Table("", "", "", numbers=(), apart=1)
    for check in _folded(result.checks):
        mark = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
        table.add_row(mark, escape(check.name), f"[dim]{escape(check.detail)}[/]")
    return table


def _folded(checks: Sequence[Check]) -> list[Check]:
    """Checks that hold of many files in one folder as one; those that fail stay by themselves."""
    from subspacedp.release import Check

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
    from subspacedp.release.files import MARGINS

    head, below, _ = check.name.rpartition(f"{MARGINS}/")
    return f"{head}{below}"


@contextmanager
def progress(after: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Lines on standard error that say what is being done; each stays when its step is over.

    Nothing is said within the first `after` seconds.
    """
    if after > 0:
        with _late(after) as tell:
            yield tell
        return
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
        latest = escape(sentence)
        if shown:
            show()

    timer = Timer(after, show)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
