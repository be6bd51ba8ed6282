"""`subspacedp workbench`: a page on this machine to design a release on."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.terminal import printer
from subspacedp.errors import ReleaseError
from subspacedp.workbench.draft import Draft
from subspacedp.workbench.server import serve
from subspacedp.workbench.session import Session

__all__ = ["run"]

SPECIFICATIONS = (".yaml", ".yml", ".json")


def run(start: Path | None, out: Path | None, port: int, *, opens: bool) -> None:
    """Serve the page until Ctrl-C."""
    session = _session(start, out)
    console = printer()

    def opened(address: str, entrance: str) -> None:
        console.print(f"The workbench is at {escape(address)}", soft_wrap=True)
        console.print("It answers this machine alone. Stop it with Ctrl-C.", soft_wrap=True)
        if opens:
            webbrowser.open(entrance)

    try:
        serve(session, port, opened)
    except KeyboardInterrupt as stopped:
        if not session.draft.saved and session.draft.copy.exists():
            stopped.add_note(f"What was not saved is in `{session.draft.copy}`.")
        stopped.add_note(session.ended or "Nothing was spent.")
        raise


def _session(start: Path | None, out: Path | None) -> Session:
    """A new design, one that is in a file, or one that is to begin from data or a code list."""
    if start is not None and not start.exists():
        raise ReleaseError(f"There is no file `{start}`.")
    if start is not None and start.suffix.lower() in SPECIFICATIONS:
        if out is not None:
            raise ReleaseError("`--out` is for new specifications; this one has its file.")
        return Session(Draft(start))
    path = out or Path("publication.yaml")
    if path.exists():
        raise ReleaseError(
            f"`{path}` exists already; open it with `subspacedp workbench {path}`, or name "
            "another file with `--out`."
        )
    return Session(Draft(path), None if start is None else start.resolve())
