"""The 2010 Census population of every county: public data for demonstrations and tests."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np

from subspacedp.tables import Axis, Domain, Table

__all__ = ["census2010"]


def census2010() -> Table:
    """Populations of the 3,221 counties of 2010, in 52 states and territories.

    One axis, `county`, labelled by GEOID, with the level `state` (postal codes). Provenance is in
    `PROVENANCE.md` beside the data.

    Examples
    --------
    >>> table = census2010()
    >>> table
    Table(county: 3221; 3,221 cells, counts hidden)
    >>> int(table.counts.sum())
    312471327
    """
    text = (files("subspacedp.datasets") / "census2010_counties.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    county = Axis(
        "county",
        [row["GEOID"] for row in rows],
        levels={"state": [row["USPS"] for row in rows]},
    )
    return Table(np.array([int(row["POP10"]) for row in rows]), Domain([county]))
