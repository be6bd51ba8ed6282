"""From a specification and its source to the confidential answers, each checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.io import Source, labels_from_data, open_source
from subspacedp.publication.releases import Progress, ReleaseSpecification
from subspacedp.publication.specification import Specification
from subspacedp.release import Design
from subspacedp.tables import Label

__all__ = ["Confidential", "found_labels", "open_data", "tabulate_release"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Confidential:
    """The data of one release, checked; nothing of them is shown.

    Parameters
    ----------
    answers, full
        What is measured, and what held values come from, as `Mechanism.check` returns them.
    dropped, records
        How many records the bound left out, and how many there are.
    """

    answers: Int64Array
    full: Int64Array
    dropped: int
    records: int

    @property
    def pair(self) -> tuple[Int64Array, Int64Array]:
        """What a release is made from."""
        return self.answers, self.full

    def __repr__(self) -> str:
        return "Confidential(hidden)"


def open_data(specification: Specification) -> Source:
    """Open the source of a specification."""
    data = specification.data
    return open_source(data.address, base=specification.folder, table=data.table)


def found_labels(
    specification: Specification, source: Source, progress: Progress
) -> dict[str, Sequence[Label]]:
    """The labels of axes with `labels: from-data`; they are not protected."""
    axes = {axis for table in specification.tables for axis in table.from_data}
    out: dict[str, Sequence[Label]] = {}
    for axis in sorted(axes):
        progress(f"reading the labels of `{axis}` off the data")
        out[axis] = labels_from_data(source, specification.column(axis))
    return out


def tabulate_release(
    wanted: ReleaseSpecification, design: Design, source: Source, progress: Progress
) -> Confidential:
    """Have what one release needs counted, and refuse what cannot be released."""
    counted = wanted.count(design.mechanism.domain, source, progress)
    answers, full = design.check(counted.protected, everything=counted.everything)
    return Confidential(
        answers=answers, full=full, dropped=counted.dropped, records=counted.records
    )
