"""`subspacedp init FILE`: a commented specification to start from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.terminal import printer
from subspacedp.errors import ReleaseError
from subspacedp.io import look, open_source
from subspacedp.publication.schema import specification_schema
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
        proposal = starter(look(opened), _as_seen_from(out, source), table)
    lists = {out.parent / path: text for path, text in proposal.code_lists.items()}
    for path, text in lists.items():
        if path.exists() and path.read_text("utf-8") != text:
            raise ReleaseError(
                f"`{path}` exists already and is not overwritten; move it, or write the "
                "specification to another folder with `--out`."
            )
    schema = out.parent / "specification.schema.json"
    for path, text in {**lists, out: proposal.text}.items():
        if not path.exists():
            _write(path, text)
    if not schema.exists():
        _write(schema, specification_schema(), mode=0o644)
    console = printer()
    written = ", ".join(escape(str(path)) for path in (out, *lists))
    console.print(f"Wrote {written}.", soft_wrap=True)
    console.print(
        "Labels in it were seen in the data: compare them with a public list before you publish.",
        soft_wrap=True,
    )
    console.print("Its end says what was left out, and why; it is for you alone.", soft_wrap=True)
    console.print(f"Next: subspacedp plan {escape(shlex.quote(str(out)))}", soft_wrap=True)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    try:
        if path.parent.name == "codes":
            path.parent.mkdir(exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ReleaseError(f"Cannot write `{path}`: {error.strerror}.") from None
