"""A comparison with the confidential counts, for the curator's eyes only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.mechanisms.level_strategy import LevelStrategy
from subspacedp.publication.tabulating import Confidential
from subspacedp.release import Release
from subspacedp.subspace import WorkloadSpace

__all__ = ["write_comparison"]

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
    import pyarrow as pa
    import pyarrow.csv

    _write_private(folder / "CONFIDENTIAL.txt", WARNING.encode())
    for name, release in releases.items():
        buffer = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.table(_columns(release, data[name])), buffer)
        _write_private(folder / f"{name}.csv", buffer.getvalue().to_pybytes())


def _columns(release: Release, data: Confidential) -> dict[str, Any]:
    """Labels, the confidential figures, the released ones, and how far these are off."""
    query, grid = release.design.query, float(release.design.query.grid)
    bounded = query.answers(data.protected)
    without_noise = bounded.ravel() * grid
    columns: dict[str, Any] = {**query.columns(), "confidential": without_noise}
    if data.everything is not None:
        columns["all_records"] = query.answers(data.everything).ravel() * grid
        if release.design.space.rank:
            without_noise = _without_noise(release, data).ravel() * grid
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


def _without_noise(release: Release, data: Confidential) -> npt.NDArray[Any]:
    """What would have been released without noise, where held totals count more records.

    For cells bounded + C⁺(c − C·bounded), or what least squares over levels makes of it; for
    margins the contrasts that are held from c, and the others from the bounded records.
    """
    design, exact = release.design, release.exact
    held, space = design.held, design.space
    if isinstance(space, WorkloadSpace):
        contrasts, known = space.contrasts, space.held
        tables = known.split(known.query.vector(data.protected, known.sources))
        free = set(contrasts.free)
        found = {
            part: contrasts.project(
                np.asarray(
                    known.of_sources(tables, part) if part in free else known.of(exact, part),
                    np.float64,
                ),
                part,
            )
            for part in contrasts.parts
        }
        parts = [contrasts.margin_from(found, m).reshape(-1) for m in known.query.margins]
        return np.concatenate(parts)
    bounded = design.query.answers(data.protected)
    residual = held.residual(bounded, exact)
    if isinstance(design.strategy, LevelStrategy):
        estimate = design.strategy.estimate(design)
        if estimate.constrained:
            zeros = {
                level: np.zeros(total.shape)
                for level, total in estimate.sums(estimate.rows(bounded)).items()
            }
            return np.asarray(bounded + estimate.table(estimate.correction(zeros, residual)))
    return np.asarray(space.subtract_lift(bounded, residual))


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
