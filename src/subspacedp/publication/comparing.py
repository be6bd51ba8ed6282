"""A comparison with the confidential counts, for the curator's eyes only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.publication.releases import Confidential
from subspacedp.release import Design, Release
from subspacedp.release.drawing import MAX_LABELLED
from subspacedp.release.label_columns import LabelColumns, write_rows

__all__ = ["check_comparison", "write_comparison"]

WARNING = """CONFIDENTIAL: these files compare a release with the data it was made from.

They are for the curator alone and must not be published: together with the release they
reveal the noise, and with it every count.

confidential: the figure that noise protects, with at most the agreed number of records a person.
all_records: the same without that bound, where there is one.
without_noise: what would have been released without noise, where held totals count all records.
error: released less that; in standard errors it is beyond 2 for about one cell in twenty.
"""


def write_comparison(
    releases: Mapping[str, Release], data: Mapping[str, Confidential], folder: Path
) -> None:
    """Write every release beside what it protects, to a folder that is its owner's alone."""
    with _private(folder / "CONFIDENTIAL.txt") as file:
        file.write(WARNING.encode())
    for name, release in releases.items():
        labels = LabelColumns.of_query(release.mechanism.query)
        with _private(folder / f"{name}.csv") as file:
            write_rows(labels, _numbers(release, data[name]), csv=file)


def check_comparison(designs: Mapping[str, Design]) -> None:
    """Refuse what would be compared row by row for too many rows; ask before anything is paid."""
    for name, design in designs.items():
        size = design.mechanism.query.size
        if size > MAX_LABELLED:
            raise ReleaseError(
                f"A comparison has one row per figure, and at most {MAX_LABELLED:,}; `{name}` has "
                f"{size:,}. Publish it without a comparison.",
                cells=size,
            )


def _numbers(release: Release, data: Confidential) -> dict[str, npt.NDArray[Any]]:
    """The confidential figures, the released ones, and how far these are off."""
    mechanism, grid = release.mechanism, float(release.mechanism.query.grid)
    answers, full = data.arrays(mechanism.blocks().answers_shape)

    def figures(answers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # Totals of held margins that no figure shows come after those of the query.
        return answers.reshape(-1)[: mechanism.query.size] * grid

    without_noise = figures(answers)
    columns: dict[str, npt.NDArray[Any]] = {"confidential": without_noise}
    if mechanism.capped:
        columns["all_records"] = figures(full)
        if mechanism.space.rank:
            without_noise = figures(mechanism.without_noise(answers, release.exact))
            columns["without_noise"] = without_noise
    error = release.values.ravel() - without_noise
    stderr = release.stderr().ravel()
    return {
        **columns,
        "released": release.values.ravel(),
        "error": error,
        "error_in_standard_errors": np.divide(
            error, stderr, out=np.zeros(error.shape), where=stderr > 0
        ),
    }


def _private(path: Path) -> BinaryIO:
    """A new file that its owner alone can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
