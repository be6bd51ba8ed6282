"""Further forms of the published tables, beside CSV and Parquet: one function each.

They say again what the CSV files say, for readers who have other programs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.release import Release
from subspacedp.release.files import CSV, LEVEL, MARGINS, margin_stem
from subspacedp.tables import Margin

if TYPE_CHECKING:
    from subspacedp.report import PublishedFile

LIMITS = ("lower", "upper")
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
APART = 5_000  # figures, each with a law of its own, whose intervals are worked out one by one


@frozen(eq=False, repr=False, kw_only=True)
class PublishedTable:
    """One table: the cells, or the totals of one margin.

    Parameters
    ----------
    release
        What it is of.
    margin
        What its rows are of; every axis by its labels for the cells.
    file
        The CSV file with the same figures; empty where there is none.
    """

    release: Release
    margin: Margin
    file: str

    @property
    def rows(self) -> int:
        """How many figures it has."""
        return math.prod(self.margin.shape)

    @property
    def words(self) -> str:
        """What the rows are of."""
        titles = [level.title for level in self.margin.levels if level.name]
        return " by ".join(titles) or "the grand total"

    @cached_property
    def labels(self) -> Mapping[str, AnyArray]:
        """Columns that name the figures."""
        names: Mapping[str, AnyArray] = self._estimate.names
        return names

    @cached_property
    def numbers(self) -> Mapping[str, AnyArray]:
        """Value, standard error, and an interval where it can be had, by name."""
        columns = {
            "value": np.reshape(self._estimate.value, -1),
            "stderr": np.reshape(self._estimate.stderr, -1),
        }
        exact = self._estimate.closed or self.rows <= APART
        ends = self._estimate.interval(LEVEL, method="exact" if exact else "normal")
        return columns | {name: np.reshape(end, -1) for name, end in zip(LIMITS, ends, strict=True)}

    @cached_property
    def _estimate(self) -> Any:
        mechanism = self.release.mechanism
        if mechanism.query.workload is None and self.margin == mechanism.domain.cells:
            return self.release.cells()
        return self.release.margin(*self.margin.names)


@frozen(eq=False, repr=False, kw_only=True)
class ReleaseTables:
    """All tables of one release, and the words around them.

    Parameters
    ----------
    tables
        Each once: the cells where they are published with labels, margins, and what is held.
    title, about, contact
        Of the publication; the last two may be empty.
    """

    release: Release
    tables: Sequence[PublishedTable]
    title: str
    about: str = ""
    contact: str = ""


def published_tables(
    release: Release,
    margins: Sequence[Sequence[str]],
    held: Sequence[Sequence[str]],
    *,
    cells: bool,
) -> list[PublishedTable]:
    """The tables of a release in the order in which they are shown, each once."""
    domain = release.mechanism.domain
    out = {domain.cells: CSV} if cells else {}
    for names in margins:
        out.setdefault(domain.margin(*names), f"{MARGINS}/{margin_stem(names)}.csv")
    for names in held:
        out.setdefault(
            domain.margin(*names), "" if cells else f"{MARGINS}/{margin_stem(names)}.csv"
        )
    return [
        PublishedTable(release=release, margin=margin, file=file) for margin, file in out.items()
    ]


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
