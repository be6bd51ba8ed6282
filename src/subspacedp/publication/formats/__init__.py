"""Further forms of the published tables, beside CSV and Parquet: one function each.

They say again what the CSV files say, for readers who have other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from subspacedp.errors import ReleaseError
from subspacedp.publication.formats.tables import ReleaseTables, published_tables

if TYPE_CHECKING:
    from subspacedp.report import PublishedFile

__all__ = ["FORMATS", "ReleaseTables", "check_formats", "published_tables"]


def _workbook(content: ReleaseTables, folder: Path) -> list[PublishedFile]:
    from subspacedp.publication.formats.workbook import write_workbook

    return write_workbook(content, folder)


def _sdmx(content: ReleaseTables, folder: Path) -> list[PublishedFile]:
    from subspacedp.publication.formats.sdmx import write_sdmx

    return write_sdmx(content, folder)


FORMATS: Mapping[str, Callable[[ReleaseTables, Path], list[PublishedFile]]] = {
    "xlsx": _workbook,
    "sdmx-csv": _sdmx,
}


def check_formats(names: Sequence[str]) -> None:
    """Refuse what a library is missing for; ask before anything is paid."""
    if "xlsx" in names and find_spec("xlsxwriter") is None:
        raise ReleaseError(
            "`XlsxWriter` is not installed, which `publish: formats: [xlsx]` needs; it comes with "
            "subspacedp[files]."
        )
