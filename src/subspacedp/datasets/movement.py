"""Where the telephones of a hundred people in Hangzhou were seen."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["phone_records"]


def phone_records() -> Path:
    """The file of 26,081 sightings in August and October 2012, one row each.

    Columns: `person`, `person_day` (person and date), `hour`, `lon`, `lat`. Provenance is in
    `PROVENANCE.md` beside the data.

    Examples
    --------
    >>> phone_records().name
    'movr_hangzhou_100users.csv.gz'
    """
    return Path(str(files("subspacedp.datasets") / "movr_hangzhou_100users.csv.gz"))
