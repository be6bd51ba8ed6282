"""Public data that ship with the package, each with its provenance."""

from subspacedp.datasets.census import (
    OfficialDemonstration,
    census2010,
    census2010_housing,
    county_names,
    dallas2010,
    das_california2022,
    read_das,
    texas2010,
)

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
