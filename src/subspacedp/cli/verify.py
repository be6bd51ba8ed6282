"""`subspacedp verify FOLDER`: every check a reader can repeat."""

from __future__ import annotations

import json
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.show import checks_table
from subspacedp.cli.terminal import PATIENCE, printer, progress
from subspacedp.errors import ReleaseError
from subspacedp.microdata import verify_folder

__all__ = ["run"]


def run(folder: Path, key: Path | None = None, *, as_json: bool) -> int:
    """Print the checks; 0 when all hold, 1 when one does not."""
    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}`.")
    with progress(PATIENCE) as tell:
        tell(f"verifying {folder}")
        result = verify_folder(folder, public_key=key)
    console = printer()
    if as_json:
        checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in result.checks]
        report = {
            "folder": str(folder),
            "ok": result.ok,
            "stamp": result.stamp,
            "notes": list(result.notes),
            "checks": checks,
        }
        print(json.dumps(report))
        return 0 if result.ok else 1
    console.print(checks_table(result))
    for note in result.notes:
        console.print(f"[dim]Note: {escape(note)}[/]", soft_wrap=True)
    if result.stamp:
        console.print(f"[bold yellow]{escape(result.stamp)}[/]")
    verdict = "[green]All checks hold.[/]" if result.ok else "[bold red]A check failed.[/]"
    console.print(verdict)
    return 0 if result.ok else 1
