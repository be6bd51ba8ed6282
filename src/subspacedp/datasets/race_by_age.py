"""Race by age in the counties of Texas and in the tracts of Dallas County, 2010: many small cells.

The files count everybody (`pop_…`) and those of voting age (`vap_…`) by race and ethnicity, with
totals. The tables have one cell for every person: those under 18 are `pop` minus `vap`.
"""

from __future__ import annotations

import numpy as np

from subspacedp.datasets.files import rows_of
from subspacedp.tables import Axis, Domain, Table

__all__ = ["dallas2010", "texas2010"]

RACES = (
    "hispanic",
    "nh_white",
    "nh_black",
    "nh_aian",  # American Indian and Alaska Native
    "nh_asian",
    "nh_nhpi",  # Native Hawaiian and Pacific Islander
    "nh_other",
    "nh_two_or_more",
)


def texas2010() -> Table:
    """The 254 counties of Texas × 8 groups of race and ethnicity × 2 of age.

    The axes are `county`, by GEOID, with the level `state`; `race`; and `age`: `0-17` and `18+`.

    Examples
    --------
    >>> table = texas2010()
    >>> table
    Table(county: 254, race: 8, age: 2; 4,064 cells, counts hidden)
    >>> int(table.counts.sum())
    25145561
    """
    return _table("texas_2010_county_race_by_age18.csv", "county", "state", 2)


def dallas2010() -> Table:
    """The 529 census tracts of Dallas County × 8 groups of race and ethnicity × 2 of age.

    The axes are `tract`, by GEOID, with the level `county`; `race`; and `age`: `0-17` and `18+`.

    Examples
    --------
    >>> table = dallas2010()
    >>> table
    Table(tract: 529, race: 8, age: 2; 8,464 cells, counts hidden)
    >>> int(table.counts.sum())
    2368139
    """
    return _table("dallas_tx_2010_tract_race_by_age18.csv", "tract", "county", 5)


def _table(file: str, place: str, above: str, digits: int) -> Table:
    """Places by race by age; the first digits of a place's code name what it lies in."""
    rows = rows_of(file)
    everybody, adults = (
        np.array([[int(row[f"{part}_{race}"]) for race in RACES] for row in rows])
        for part in ("pop", "vap")
    )
    codes = [row["geoid"] for row in rows]
    places = Axis(place, codes, levels={above: [code[:digits] for code in codes]})
    domain = Domain([places, Axis("race", RACES), Axis("age", ["0-17", "18+"])])
    return Table(np.stack([everybody - adults, adults], axis=-1), domain)
