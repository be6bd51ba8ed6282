"""`subspacedp audit SPEC`: what the held figures give away by themselves."""

from __future__ import annotations

import json
from pathlib import Path

from rich.markup import escape

from subspacedp.cli.terminal import printer, progress
from subspacedp.publication.auditing import audit

__all__ = ["run"]


def run(path: Path, *, structure: bool, as_json: bool) -> None:
    """Print the audit of every table, and of tables together."""
    with progress() as tell:
        audits = audit(path, structure=structure, progress=tell)
    if as_json:
        print(json.dumps({name: one.as_dict() for name, one in audits.items()}, ensure_ascii=False))
        return
    console = printer()
    for name, one in audits.items():
        if len(audits) > 1:
            console.print(f"\n[bold]{escape(name)}[/]")
        console.print(escape(str(one)), soft_wrap=True)
    if not structure:
        console.print(
            "\n[dim]Read from the held figures alone. They are confidential until they are "
            "published, and so is this.[/]"
        )
