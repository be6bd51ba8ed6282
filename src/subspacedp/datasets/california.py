"""What the Census Bureau's own disclosure avoidance made of the counties of California."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subspacedp.datasets.files import rows_of
from subspacedp.tables import Axis, Domain, Table

__all__ = ["OfficialDemonstration", "das_california2022"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OfficialDemonstration:
    """A table of 2010, and the same table as an official demonstration released it."""

    table: Table
    released: npt.NDArray[np.int64]
    names: tuple[str, ...]

    @property
    def errors(self) -> npt.NDArray[np.int64]:
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
    rows = rows_of("das_california_counties_2022-03-16.csv")
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
