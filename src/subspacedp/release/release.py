"""A release: the published values with everything a data user may know about them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.arrays import AnyArray
from subspacedp.blocks.digests import values_hash
from subspacedp.blocks.stores import StoredValues
from subspacedp.errors import ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldMargins, HeldMatrix, HeldValues, Inequalities
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.error_laws import JointNoise
from subspacedp.mechanisms.figures import Figures
from subspacedp.problem import Guarantee
from subspacedp.queries import Query
from subspacedp.release.certificate import Distributed
from subspacedp.release.facts import NO_FACTS, Facts
from subspacedp.release.published import PublishedValues
from subspacedp.release.verify import Verification, verify_release
from subspacedp.tables import Domain, Margin, RowPlan
from subspacedp.tables.domain import Box
from subspacedp.tables.table import frame_from_columns


def package_version() -> str:
    """The version that a certificate names; metadata say the same, and take a parser of mail."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


class _Values:
    """The field `values`: an array, or values on disk that become one when they are asked for."""

    def __get__(self, release: Release | None, owner: Any = None) -> AnyArray:
        if release is None:
            raise AttributeError("values")  # a field without a default
        stored = release.stored
        if stored is None:
            return release.__dict__["_values"]  # type: ignore[no-any-return]
        if "_read" not in release.__dict__:
            array = stored.array()
            array.setflags(write=False)
            release.__dict__["_read"] = array
        return release.__dict__["_read"]  # type: ignore[no-any-return]

    def __set__(self, release: Release, values: AnyArray | StoredValues) -> None:
        release.__dict__["_values"] = values


@frozen(eq=False, repr=False, kw_only=True)
class Release(PublishedValues):
    """Published values, the exact totals they keep, and the public design behind them.

    Parameters
    ----------
    mechanism
        Everything known before the data were touched.
    values
        In the domain's shape: float64, or int64 with `decimals=0`. Values in a store are mapped
        into memory (npy), or read when they are first asked for.
    exact
        The held totals, one integer array per held margin.
    release_id
        Random and public; names the release.
    seeded
        True when the noise came from a chosen seed: not for publication.
    distributed
        How the release was put together, where no one had the whole table.
    facts
        What is said of the publication beside its figures.
    """

    mechanism: Mechanism
    values: _Values = _Values()
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str
    distributed: Distributed | None = None
    facts: Facts = NO_FACTS

    def __post_init__(self) -> None:
        shape = (self.stored or self.values).shape
        if shape != self.mechanism.query.shape:
            raise ReleaseError(
                f"The values must have the shape {self.mechanism.query.shape} of the answers; "
                f"got {shape}."
            )
        if self.stored is None:
            self.values.setflags(write=False)
        for held in self.exact:
            held.setflags(write=False)

    @property
    def stored(self) -> StoredValues | None:
        """Where the values are, if they are in a store; None for values in memory."""
        given = self.__dict__["_values"]
        return given if isinstance(given, StoredValues) else None

    @cached_property
    def sha256(self) -> str:
        """The digest of all values as a `.npy` file of little-endian 64-bit numbers.

        Of values in a store it is a tree of SHA-256 digests (docs/large-tables.md), else plain.
        """
        if self.stored is not None:
            return self.stored.sha256
        digest = values_hash(self.values.shape, whole=self.whole)
        kind = "<i8" if self.whole else "<f8"
        digest.update(np.ascontiguousarray(self.values, kind).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @property
    def file_digests(self) -> dict[str, str]:
        """Digests of files of a store, by their names, that follow from that of the values."""
        return {} if self.stored is None else self.stored.file_digests

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return bool((self.stored or self.values).dtype.kind == "i")

    def moved_to(self, folder: Path) -> Release:
        """The same release after the folder of its store has been renamed."""
        if self.stored is None:
            return self
        return replace(self, values=replace(self.stored, folder=folder))

    @property
    def query(self) -> Query:
        """What was asked."""
        return self.mechanism.query

    @property
    def domain(self) -> Domain:
        """The axes of the answers; a query without any has none."""
        return self.mechanism.domain

    @property
    def held(self) -> HeldMargins | HeldMatrix:
        """The invariants."""
        return self.mechanism.held

    @property
    def noise(self) -> JointNoise:
        """The joint law of values minus truth."""
        return self.mechanism.noise

    @property
    def designs(self) -> tuple[Mechanism, ...]:
        """The public designs behind the values: one."""
        return (self.mechanism,)

    @property
    def declared_inequalities(self) -> Inequalities | None:
        """What the design declares of the counts: what intervals use by default."""
        return self.mechanism.problem.inequalities

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.mechanism.guarantee

    def _cell_figures(self) -> Figures:
        return self.mechanism.cell_figures()

    def _margin_figures(self, margin: Margin, *, fixed: bool) -> Figures:
        del fixed  # variances in closed form say so
        return self.mechanism.margin_figures(margin)

    def _totals(self, margin: Margin) -> AnyArray:
        """The totals of a margin's groups; those of values in a store are added up in blocks."""
        if self.stored is None or self.query.workload is not None:
            return super()._totals(margin)
        for held, known in self.held.totals(self.exact):
            if held == margin:  # no need to read the store
                return known.astype(self.stored.dtype)
        whole = RowPlan((margin,))
        totals = np.zeros(int(whole.starts[-1]), self.stored.dtype)
        for box, values in self.blocks_of_values():
            RowPlan((margin,), box).add_sums(values, totals)
        return whole.split(totals)[0]

    def blocks_of_values(self) -> Iterator[tuple[Box, AnyArray]]:
        """All values, flat in row-major order: in memory one block; a store is read in several."""
        if self.stored is not None:
            yield from self.stored.blocks()
            return
        shape = self.values.shape
        yield Box((0,) * len(shape), shape), self.values.reshape(-1)

    def verify(self) -> Verification:
        """Every check that a reader can repeat; `.ok` when all hold."""
        return verify_release(self)

    def columns(self) -> dict[str, AnyArray]:
        """One row per answer: labels (and their levels), value, standard error."""
        return {
            **self.mechanism.query.columns(),
            "value": self.values.ravel(),
            "stderr": self.stderr().ravel(),
        }

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per answer, as a dataframe of pandas, polars or pyarrow: as named, or as is."""
        return frame_from_columns(self.columns(), backend)

    def to_xarray(self) -> Any:
        """An xarray Dataset with `value` and `stderr`."""
        try:
            import xarray as xr
        except ImportError:
            raise ReleaseError(
                "`xarray` is not installed; it comes with subspacedp[frames]."
            ) from None
        if self.mechanism.query.workload is not None:
            raise ReleaseError(
                "Several margins are no one array; take one of them with `margin(...)`."
            )
        axes = self.mechanism.domain.axes
        names = [axis.name for axis in axes]
        coords: dict[str, Any] = {}
        for axis in axes:
            for level in axis.named:
                coords[level.name] = (axis.name, level.label_of_each)
        return xr.Dataset(
            {"value": (names, np.asarray(self.values)), "stderr": (names, self.stderr())},
            coords=coords,
        )

    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says: the promise, its terms, and how to check them."""
        from subspacedp.release.certificate import certificate

        return certificate(self)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write values, certificate and digests to a new folder; all or nothing.

        Values in memory go to CSV and Parquet with their labels and standard errors; those of a
        store to another of its kind.
        """
        from subspacedp.release.files import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Release:
        """Read a saved release, whatever its size; values in a store when they are asked for."""
        from subspacedp.release.files import load

        return load(folder)

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"Release({self.mechanism!r}, guarantee {self.guarantee.kind}{stamp})"

    def __str__(self) -> str:
        return repr(self) if self.stored is not None else self.cells().shown(repr(self)).text()

    def _repr_html_(self) -> str | None:
        return None if self.stored is not None else self.cells().shown(repr(self)).html()
