"""A release: the published values with everything a data user may know about them."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.privacy import Guarantee
from subspacedp.release.design import Design
from subspacedp.release.verify import Verification, verify_release
from subspacedp.tables.frames import frame_from_columns

__all__ = ["Release"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Release:
    """Published values, the exact totals they keep, and the public design behind them.

    Parameters
    ----------
    design
        Everything known before the data were touched.
    values
        In the domain's shape: float64, or int64 with `decimals=0`.
    exact
        The held totals, one integer array a held margin.
    release_id
        Random and public; names the release.
    seeded
        True when the noise came from a chosen seed: not for publication.
    """

    design: Design
    values: npt.NDArray[Any]
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str

    def __post_init__(self) -> None:
        if self.values.shape != self.design.query.shape:
            raise ReleaseError(
                f"The values must have the shape {self.design.query.shape} of the answers; "
                f"got {self.values.shape}."
            )
        self.values.setflags(write=False)
        for held in self.exact:
            held.setflags(write=False)

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.design.guarantee

    def stderr(self) -> npt.NDArray[np.float64]:
        """The standard error of every cell; 0 where the invariants fix it."""
        return np.sqrt(self.design.noise.cell_variance())

    def verify(self) -> Verification:
        """Every check that a reader can repeat; `.ok` when all hold."""
        return verify_release(self)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """One row an answer: labels (and their levels), value, standard error."""
        return {
            **self.design.query.columns(),
            "value": self.values.ravel(),
            "stderr": self.stderr().ravel(),
        }

    def to_frame(self, backend: str = "pyarrow") -> Any:
        """One row a cell, as a dataframe of pyarrow, pandas or polars."""
        return frame_from_columns(self.columns(), backend)

    def to_xarray(self) -> Any:
        """An xarray Dataset with `value` and `stderr`."""
        try:
            import xarray as xr
        except ImportError:
            raise ReleaseError(
                "`xarray` is not installed; it comes with subspacedp[frames]."
            ) from None
        axes = self.design.domain.axes
        names = [axis.name for axis in axes]
        coords: dict[str, Any] = {}
        for axis in axes:
            for level in axis.chain:
                coords[level.name] = (axis.name, np.asarray(level.labels)[level.codes])
        return xr.Dataset(
            {"value": (names, np.asarray(self.values)), "stderr": (names, self.stderr())},
            coords=coords,
        )

    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says: the promise, its terms, and how to check them."""
        from subspacedp.release.certificate import certificate

        return certificate(self)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write values (Parquet and CSV) and the certificate; all or nothing."""
        from subspacedp.release.files import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Release:
        """Read a saved release."""
        from subspacedp.release.files import load

        return load(folder)

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"Release({self.design!r}, guarantee {self.guarantee.kind}{stamp})"
