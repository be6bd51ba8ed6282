"""`subspacedp verify FOLDER`: every check a reader can repeat."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from subspacedp.cli.show import checks_table
from subspacedp.errors import ReleaseError
from subspacedp.release import Verification, verify_folder

__all__ = ["run"]


STREAMED = ("values.npy", "values.zarr", "values")  # what only a streamed release has


def run(
    folder: Path, key: Path | None = None, *, as_json: bool, streamed: bool | None = None
) -> int:
    """Print the checks; 0 when all hold, 1 when one does not.

    Whether the release is a streamed one is seen from its files, unless it is told.
    """
    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}`.")
    if streamed is None:
        streamed = any((folder / name).exists() for name in STREAMED)
    result = _verify_streamed(folder, key) if streamed else verify_folder(folder, public_key=key)
    console = Console(highlight=False)
    if as_json:
        checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in result.checks]
        report = {"folder": str(folder), "ok": result.ok, "stamp": result.stamp, "checks": checks}
        print(json.dumps(report))
        return 0 if result.ok else 1
    console.print(checks_table(result))
    if result.stamp:
        console.print(f"[bold yellow]{escape(result.stamp)}[/]")
    verdict = "[green]All checks hold.[/]" if result.ok else "[bold red]A check failed.[/]"
    console.print(verdict)
    return 0 if result.ok else 1


def _verify_streamed(folder: Path, key: Path | None) -> Verification:
    from subspacedp.distributed import verify_stream
    from subspacedp.release.signature import check_signature

    found = verify_stream(folder)
    signed = () if key is None else (check_signature(folder, key),)
    return Verification((*signed, *found.checks), found.stamp)
