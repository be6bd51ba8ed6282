"""The campus question on real records with an id: flights by aircraft, telephones by grid cell.

A person, or an aircraft, has many records. Noise that protects all of them needs a bound on their
number, and records beyond the bound are left out of what is measured, not of what is held. Both
parts of the error are computed here, which only public data allow.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.frozen import frozen
from subspacedp.release import Design

__all__ = [
    "CASES",
    "Case",
    "Trial",
    "flight_records",
    "phone_records",
    "publish_case",
    "tabulated",
    "trials",
]

DATA = Path(__file__).parent / "data"

FLIGHTS = """\
title: Flights out of New York to twenty destinations, July 2013
about: Aircraft stand in for people. The timetable of every airport, and how often each route is
  flown, are public; which aircraft flew when is not.
data:
  source: {source}
  unit: {unit}
  records: {records}          # at most so many flights of an aircraft are measured
  per_cell: {per_cell}
  without_unit: leave-out
axes:
  origin: {{labels: [EWR, JFK, LGA]}}
  hour: {{bins: [0, 8, 11, 14, 17, 20]}}
  dest: {{labels: [ATL, BNA, BOS, CLT, DCA, DEN, DFW, DTW, FLL, IAH, LAS, LAX, MCO, MIA, MSP, ORD,
                  RDU, SFO, SJU, TPA]}}
hold: [[origin, hour], [origin, dest]]
privacy: {{epsilon: 1, delta: 0.000001, neighbours: replace-one}}
mechanism: projected
publish: {{to: release}}
"""

PHONES = """\
title: Sightings of telephones in Hangzhou by grid cell and time of day
about: How many sightings every grid cell has, and every time of day, is held; when people are where
  is not.
data:
  source: {source}
  unit: {unit}
  records: {records}          # at most so many sightings are measured
  per_cell: {per_cell}
axes:
  north: {{column: lat, bins: [30, 30.25, 30.3]}}
  east: {{column: lon, bins: [120, 120.15, 120.2]}}
  hour: {{bins: [0, 8, 12, 16, 20]}}
hold: [[north, east], [hour]]
privacy: {{epsilon: 1, delta: 0.000001, neighbours: replace-one}}
mechanism: projected
publish: {{to: release}}
"""


def flight_records() -> Path:
    """The file of 18,919 flights to the twenty busiest destinations, one row per flight.

    Columns: `day`, `hour` (scheduled departure), `tailnum` (the aircraft; blank for 177 flights),
    `origin` (EWR, JFK, LGA), `dest`. Provenance is in `PROVENANCE.md` beside the data.
    """
    return DATA / "nycflights13_july2013.csv.gz"


def phone_records() -> Path:
    """The file of 26,081 sightings in August and October 2012, one row each.

    Columns: `person`, `person_day` (person and date), `hour`, `lon`, `lat`. Provenance is in
    `PROVENANCE.md` beside the data.
    """
    return DATA / "movr_hangzhou_100users.csv.gz"


@frozen(kw_only=True)
class Case:
    """Records of one kind: their specification, and bounds to compare; the first one is published.

    Parameters
    ----------
    bounds
        Whose records (a column), how many of them at most, and how many in a cell.
    licence
        The file beside the records that must go wherever they go; none for the public domain.
    """

    name: str
    title: str
    source: Callable[[], Path]
    template: str
    bounds: tuple[tuple[str, int, int], ...]
    licence: str = ""

    def specification(self, source: str, unit: str, records: int, per_cell: int) -> str:
        """The specification for one bound."""
        return self.template.format(source=source, unit=unit, records=records, per_cell=per_cell)


CASES = (
    Case(
        name="flights",
        title="Flights by aircraft",
        source=flight_records,
        template=FLIGHTS,
        bounds=(("tailnum", 5, 1), ("tailnum", 10, 1), ("tailnum", 20, 2), ("tailnum", 40, 4)),
    ),
    Case(
        name="phones",
        title="Telephones by grid cell",
        source=phone_records,
        template=PHONES,
        bounds=(("person_day", 20, 4), ("person_day", 5, 1), ("person", 5, 1), ("person", 20, 4)),
        licence="LICENSE-movr.txt",
    ),
)


@frozen(kw_only=True)
class Trial:
    """What one bound costs: root mean squares over the cells, beside the table of all records.

    Parameters
    ----------
    left_out
        The share of records beyond the bound.
    noise
        The standard error of a cell by the design: it needs no data.
    left_out_error
        What leaving out records does to the cells after the held totals are put right.
    held_alone
        The error of knowing the held totals and nothing else: the least-squares fit to them.
    """

    unit: str
    records: int
    per_cell: int
    cells: int
    mean_count: float
    left_out: float
    noise: float
    left_out_error: float
    held_alone: float

    @property
    def error(self) -> float:
        """Both parts together."""
        return float(np.hypot(self.noise, self.left_out_error))

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "error": self.error}


def trials(case: Case) -> tuple[Trial, ...]:
    """The error of every bound of a case, from its public records."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(_trial(case, Path(folder), *bound) for bound in case.bounds)


def tabulated(
    case: Case, folder: Path, unit: str, records: int, per_cell: int
) -> tuple[Design, Any]:
    """The mechanism for one bound, and the tables it would release.

    The specification is written to the folder; the tables are those within the bound and of
    everything, with how many `records` there are and how many were `dropped`.
    """
    from subspacedp.publication import read_specification
    from subspacedp.publication.releases import open_data, releases_of, tabulate_release

    path = folder / f"{unit}-{records}-{per_cell}.yaml"
    path.write_text(case.specification(f'"{case.source()}"', unit, records, per_cell), "utf-8")
    specification = read_specification(path)
    (wanted,) = releases_of(specification)
    mechanism = wanted.design(wanted.table.domain())
    with open_data(specification) as source:
        return mechanism, tabulate_release(wanted, mechanism, source, lambda sentence: None)


def _trial(case: Case, folder: Path, unit: str, records: int, per_cell: int) -> Trial:
    mechanism, found = tabulated(case, folder, unit, records, per_cell)
    bounded, all_counts = found.arrays(mechanism.mechanism.query.shape)
    space = mechanism.mechanism.null_space

    def size(table: Any) -> float:
        return float(np.sqrt(np.mean(np.square(space.project(table.astype(np.float64))))))

    return Trial(
        unit=unit,
        records=records,
        per_cell=per_cell,
        cells=all_counts.size,
        mean_count=float(all_counts.mean()),
        left_out=found.dropped / found.records,
        noise=float(np.sqrt(mechanism.expected_error().per_cell.mean())),
        left_out_error=size(all_counts - bounded),
        held_alone=size(all_counts),
    )


def publish_case(case: Case, folder: Path, seed: int | None = None) -> None:
    """A folder with the records, their licence and specification, and the release it asks for."""
    from subspacedp.publication import run

    home = folder / case.name
    home.mkdir()
    records = case.source()
    for name in filter(None, (records.name, case.licence)):
        shutil.copyfile(records.with_name(name), home / name)
    path = home / f"{case.name}.yaml"
    path.write_text(case.specification(records.name, *case.bounds[0]), "utf-8")
    run(path, seed=seed)
