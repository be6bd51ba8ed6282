"""Public data that ship with the package, each with its provenance."""

from subspacedp.datasets.california import OfficialDemonstration, das_california2022
from subspacedp.datasets.census import census2010, census2010_housing, county_names
from subspacedp.datasets.flights import flight_records
from subspacedp.datasets.movement import phone_records
from subspacedp.datasets.race_by_age import dallas2010, texas2010

__all__ = [
    "OfficialDemonstration",
    "census2010",
    "census2010_housing",
    "county_names",
    "dallas2010",
    "das_california2022",
    "flight_records",
    "phone_records",
    "texas2010",
]
