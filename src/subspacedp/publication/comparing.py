"""A comparison with the confidential counts, for the curator's eyes only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.release import Release, new_folder

__all__ = ["write_comparison"]

WARNING = """CONFIDENTIAL: these files compare a release with the data it was made from.

They are for the curator alone and must not be published: together with the release they
reveal the noise, and with it every count.
"""


def write_comparison(
    releases: Mapping[str, Release], tables: Mapping[str, Any], folder: Path
) -> None:
    """Write every release beside what it protects; the folder is its owner's alone."""
    import pyarrow as pa
    import pyarrow.csv

    with new_folder(folder, mode=0o700) as scratch:
        _write_private(scratch / "CONFIDENTIAL.txt", WARNING.encode())
        for name, release in releases.items():
            truth = release.design.query.answers(tables[name])
            exact = truth.ravel() * float(release.design.query.grid)
            error = release.values.ravel() - exact
            stderr = release.stderr().ravel()
            columns = {
                **release.design.query.columns(),
                "confidential": exact,
                "released": release.values.ravel(),
                "error": error,
                "error_in_standard_errors": np.divide(
                    error, stderr, out=np.zeros(error.shape), where=stderr > 0
                ),
            }
            buffer = pa.BufferOutputStream()
            pyarrow.csv.write_csv(pa.table(columns), buffer)
            _write_private(scratch / f"{name}.csv", buffer.getvalue().to_pybytes())


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
