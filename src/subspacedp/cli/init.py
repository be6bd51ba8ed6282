"""`subspacedp init FILE`: a commented specification to start from."""

from __future__ import annotations

import os
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.terminal import printer
from subspacedp.errors import ReleaseError
from subspacedp.io import look, open_source
from subspacedp.publication.starter import starter

__all__ = ["run"]


def _as_seen_from(out: Path, source: str) -> str:
    """Paths in a specification are relative to it."""
    path = Path(source).expanduser()
    if not path.exists() or path.is_absolute() or out.resolve().parent == Path.cwd():
        return source
    return Path(os.path.relpath(path, out.parent)).as_posix()


def run(source: str, out: Path, table: str | None) -> None:
    """Look at the source and write the proposal, readable by its owner alone."""
    if out.exists():
        raise ReleaseError(f"`{out}` exists already; it is not overwritten.")
    with open_source(source, table=table) as opened:
        text = starter(look(opened), _as_seen_from(out, source), table)
    try:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{out}`: {error.strerror}.") from None
    console = printer()
    console.print(f"Wrote {escape(str(out))}.", soft_wrap=True)
    console.print(
        "Labels in it were seen in the data: compare them with a public list before you publish."
    )
    console.print(f"Next: subspacedp plan {escape(str(out))}", soft_wrap=True)
