"""The 2010 Census population of every county: public data for demonstrations and tests."""

from __future__ import annotations

import numpy as np

from subspacedp.datasets.files import rows_of
from subspacedp.tables import Axis, Domain, Table

__all__ = ["census2010", "census2010_housing", "county_names"]


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
    rows = _rows()
    return Table(np.array([int(row["POP10"]) for row in rows]), Domain([_county(rows)]))


def census2010_housing() -> Table:
    """People and housing units of every county of 2010.

    The axes are `county`, as in `census2010`, and `unit`: `person` or `housing unit`.

    Examples
    --------
    >>> census2010_housing().counts.sum(axis=0).tolist()
    [312471327, 133341676]
    """
    rows = _rows()
    counts = np.array([[int(row["POP10"]), int(row["HU10"])] for row in rows])
    return Table(counts, Domain([_county(rows), Axis("unit", ["person", "housing unit"])]))


def county_names() -> dict[str, str]:
    """The name of every county of 2010 by its GEOID.

    Examples
    --------
    >>> county_names()["17031"]
    'Cook County'
    """
    return {row["GEOID"]: row["NAME"] for row in _rows()}


def _rows() -> list[dict[str, str]]:
    return rows_of("census2010_counties.csv")


def _county(rows: list[dict[str, str]]) -> Axis:
    return Axis(
        "county",
        [row["GEOID"] for row in rows],
        levels={"state": [row["USPS"] for row in rows]},
    )
