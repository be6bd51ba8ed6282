"""`subspacedp report FOLDER`: the page of a published release, from its files alone."""

from __future__ import annotations

from pathlib import Path

from subspacedp.cli.terminal import PATIENCE, progress
from subspacedp.errors import ReleaseError
from subspacedp.release import Release
from subspacedp.report import write_report
from subspacedp.report.words import axes_words

__all__ = ["run"]


def run(folder: Path, out: Path, title: str | None) -> None:
    """Load every release of the folder and write the page."""
    if not folder.is_dir():
        raise ReleaseError(f"There is no folder `{folder}`.")
    if out.exists():
        raise ReleaseError(f"`{out}` exists already; it is not overwritten.")
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/certificate.json"))}
    if (folder / "certificate.json").exists() or not folders:
        folders = {"release": folder}
    with progress(PATIENCE) as tell:
        tell(f"reading {folder}")
        releases = {name: Release.load(path) for name, path in folders.items()}
        first = next(iter(releases.values()))
        axes = axes_words([axis.title for axis in first.mechanism.domain.axes])
        tell("writing the report")
        page = write_report(releases, title=title or f"Counts by {axes}")
    try:
        out.write_text(page, "utf-8")
    except OSError as error:
        raise ReleaseError(f"Cannot write `{out}`: {error.strerror}.") from None
    print(f"Wrote {out}")
