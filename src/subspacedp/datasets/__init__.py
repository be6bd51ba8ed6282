"""Public data that ship with the package, each with its provenance: tables of the 2010 Census.

Populations and housing units of every county; race by age in the counties of Texas and in the
tracts of Dallas County, where many cells are small; and what the Census Bureau's own disclosure
avoidance made of the counties of California.

The files on race count everybody (`pop_…`) and those of voting age (`vap_…`) by race and ethnicity,
with totals. The tables have one cell for every person: those under 18 are `pop` minus `vap`.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.errors import DataError
from subspacedp.frozen import frozen
from subspacedp.tables import Axis, Domain, Table

__all__ = [
    "OfficialDemonstration",
    "census2010",
    "census2010_housing",
    "county_names",
    "dallas2010",
    "das_california2022",
    "read_das",
    "texas2010",
]

COUNTIES = "census2010_counties.csv"
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
    rows = _rows_of(COUNTIES)
    return Table(np.array([int(row["POP10"]) for row in rows]), Domain([_county(rows)]))


def census2010_housing() -> Table:
    """People and housing units of every county of 2010.

    The axes are `county`, as in `census2010`, and `unit`: `person` or `housing unit`.

    Examples
    --------
    >>> census2010_housing().counts.sum(axis=0).tolist()
    [312471327, 133341676]
    """
    rows = _rows_of(COUNTIES)
    counts = np.array([[int(row["POP10"]), int(row["HU10"])] for row in rows])
    return Table(counts, Domain([_county(rows), Axis("unit", ["person", "housing unit"])]))


def county_names() -> dict[str, str]:
    """The name of every county of 2010 by its GEOID.

    Examples
    --------
    >>> county_names()["17031"]
    'Cook County'
    """
    return {row["GEOID"]: row["NAME"] for row in _rows_of(COUNTIES)}


def _county(rows: list[dict[str, str]]) -> Axis:
    return Axis(
        "county",
        [row["GEOID"] for row in rows],
        levels={"state": [row["USPS"] for row in rows]},
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
    rows = _rows_of(file)
    everybody, adults = (
        np.array([[int(row[f"{part}_{race}"]) for race in RACES] for row in rows])
        for part in ("pop", "vap")
    )
    codes = [row["geoid"] for row in rows]
    places = Axis(place, codes, levels={above: [code[:digits] for code in codes]})
    domain = Domain([places, Axis("race", RACES), Axis("age", ["0-17", "18+"])])
    return Table(np.stack([everybody - adults, adults], axis=-1), domain)


@frozen(eq=False, repr=False, kw_only=True)
class OfficialDemonstration:
    """A table of 2010, and the same table as an official demonstration released it."""

    table: Table
    released: Int64Array
    names: tuple[str, ...]

    @property
    def errors(self) -> Int64Array:
        """Released minus true."""
        return np.asarray(self.released - self.table.counts)

    def __repr__(self) -> str:
        return f"OfficialDemonstration({len(self.names)} places)"


def das_california2022() -> OfficialDemonstration:
    """The 58 counties of California in the demonstration release of 16 March 2022.

    The Census Bureau ran the disclosure avoidance of the 2020 Census (TopDown) on the counts of
    2010 and published both. The axis is `county`, by GEOID, with the level `state`.

    Examples
    --------
    >>> california = das_california2022()
    >>> california
    OfficialDemonstration(58 places)
    >>> int(california.errors.sum()), int(abs(california.errors).max())
    (0, 6)
    """
    rows = _rows_of("das_california_counties_2022-03-16.csv")
    true, released = (
        np.array([int(row[column]) for row in rows]) for column in ("pop_sf1", "pop_das")
    )
    released.setflags(write=False)
    county = Axis("county", [row["geoid"] for row in rows], levels={"state": ["CA" for _ in rows]})
    return OfficialDemonstration(
        table=Table(true, Domain([county])),
        released=released,
        names=tuple(row["name"] for row in rows),
    )


# The total population in files that NHGIS makes of demonstration data: of Summary File 1, or of
# the redistricting file, each with `_sf` (true) and `_dp` (released).
NHGIS_POPULATION = ("H7V001", "H72001")


def read_das(path: str | PathLike[str]) -> OfficialDemonstration:
    """A demonstration of the Census Bureau's disclosure avoidance, from a file of one's own.

    IPUMS NHGIS publishes files with the counts of 2010 as they were and as the Bureau's disclosure
    avoidance released them, which may not be passed on. The one by county
    (`nhgis_ppdd_…_county.csv`) has the columns `gisjoin`, and the total population as `H7V001_sf`
    and `H7V001_dp`, or `H72001_sf` and `H72001_dp`.

    Parameters
    ----------
    path
        That csv file.

    Returns
    -------
    OfficialDemonstration
        The axis is `county`, by GEOID, with the level `state`; counties that are not among those of
        `census2010` are refused.
    """
    where = Path(path)
    try:
        text = where.read_text("utf-8-sig")
    except FileNotFoundError as fault:
        raise DataError(f"There is no demonstration file {str(path)!r}.") from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise DataError(f"The demonstration file {str(path)!r} cannot be read as text.") from fault
    rows = list(csv.DictReader(text.splitlines()))
    columns = set(rows[0]) if rows else set()
    known = [code for code in NHGIS_POPULATION if {f"{code}_sf", f"{code}_dp"} <= columns]
    if "gisjoin" not in columns or not known:
        raise DataError(
            "A demonstration file needs the columns `gisjoin`, and `H7V001_sf` with `H7V001_dp` or "
            f"`H72001_sf` with `H72001_dp`; {where.name} has "
            f"{', '.join(f'`{c}`' for c in sorted(columns, key=str)[:6]) or 'no rows'}."
        )
    counties = {row["GEOID"]: row for row in _rows_of(COUNTIES)}
    codes = [_geoid(row["gisjoin"]) for row in rows]
    for row, code in zip(rows, codes, strict=True):
        if code not in counties:
            raise DataError(
                f"{row['gisjoin']!r} is no county of 2010 in the form of NHGIS, such as 'G0100010' "
                "for Autauga County; take the file of counties."
            )
    if len(set(codes)) < len(codes):
        raise DataError(f"{where.name} has a county twice.")
    true, released = (_whole(rows, f"{known[0]}_{kind}", where.name) for kind in ("sf", "dp"))
    released.setflags(write=False)
    states = [counties[code]["USPS"] for code in codes]
    return OfficialDemonstration(
        table=Table(true, Domain([Axis("county", codes, levels={"state": states})])),
        released=released,
        names=tuple(counties[code]["NAME"] for code in codes),
    )


def _geoid(gisjoin: str) -> str:
    """G, two digits of the state, 0, three of the county, 0: without what NHGIS puts between."""
    return gisjoin[1:3] + gisjoin[4:7] if len(gisjoin) == 8 else gisjoin


def _whole(rows: list[dict[str, str]], column: str, name: str) -> Int64Array:
    try:
        return np.array([int(row[column]) for row in rows], np.int64)
    except (TypeError, ValueError, OverflowError) as fault:
        raise DataError(f"Column `{column}` of {name} has to be whole numbers.") from fault


def _rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a shipped CSV file."""
    text = (files(__package__) / name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
