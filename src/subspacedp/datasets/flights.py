"""Flights out of New York in July 2013, with the aircraft in place of a person."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["flight_records"]


def flight_records() -> Path:
    """The file of 18,919 flights to the twenty busiest destinations, one row a flight.

    Columns: `day`, `hour` (scheduled departure), `tailnum` (the aircraft; blank for 177 flights),
    `origin` (EWR, JFK, LGA), `dest`. Provenance is in `PROVENANCE.md` beside the data.

    Examples
    --------
    >>> flight_records().name
    'nycflights13_july2013.csv.gz'
    """
    return Path(str(files("subspacedp.datasets") / "nycflights13_july2013.csv.gz"))
