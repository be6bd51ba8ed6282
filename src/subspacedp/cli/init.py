"""`subspacedp init FILE`: a commented specification to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.terminal import PATIENCE, printer, progress
from subspacedp.publication.starter import write_starter

__all__ = ["run"]


def run(source: str, out: Path, table: str | None) -> None:
    """Look at the source and write the proposal, readable by its owner alone."""
    with progress(PATIENCE) as tell:
        tell("looking at the data")
        files = write_starter(source, out, table)
    console = printer()
    written = ", ".join(escape(str(path)) for path in files)
    console.print(f"Wrote {written}.", soft_wrap=True)
    console.print(
        "Labels in it were seen in the data: compare them with a public list before you publish.",
        soft_wrap=True,
    )
    console.print("Its end says what was left out, and why; it is for you alone.", soft_wrap=True)
    console.print(f"Next: subspacedp plan {escape(shlex.quote(str(out)))}", soft_wrap=True)
