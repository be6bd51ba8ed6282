"""A release whose values stay on disk: reading, certifying and verifying it block by block."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import margins_of
from subspacedp.distributed.kept_totals import KeptTotals
from subspacedp.distributed.stores import PARQUET, Store, kind_of_store, open_store
from subspacedp.distributed.total_error import total_squared_error
from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.privacy import Guarantee
from subspacedp.release import Check, Design, ExpectedError, Release, Verification
from subspacedp.release.certificate import FORMAT, certificate
from subspacedp.release.rebuild import held_values, rebuild_design
from subspacedp.release.verify import SEEDED
from subspacedp.stated import read_json
from subspacedp.tables.boxes import Box, blocks

__all__ = ["StreamedRelease", "load_stream", "verify_stream"]

CERTIFICATE = "certificate.json"
READ = 1 << 22  # cells read at a time, where the store leaves the choice


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StreamedRelease:
    """A release in a folder, with values that are read when asked for.

    The fields are those of `Release`; `sha256` is the digest of all values.
    """

    folder: Path
    design: Design
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str
    sha256: str
    store: str

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.design.guarantee

    def values(self) -> Any:
        """All values: mapped into memory (npy), a zarr array, or a dataset of rows (Parquet)."""
        return self._store(self.boxes()).open()

    def boxes(self) -> list[Box]:
        """The blocks that `blocks_of_values` gives, in order."""
        shape = self.design.query.shape
        if self.store != "parquet":
            return blocks(shape, READ)
        from subspacedp.distributed.parquet_store import rows_of_first

        return blocks(shape, rows_of_first(self.folder / PARQUET))

    def blocks_of_values(self) -> Iterator[tuple[Box, npt.NDArray[Any]]]:
        """Every block: where its cells are, and their values, flat in row-major order."""
        boxes = self.boxes()
        store = self._store(boxes)
        store.check()
        for number, box in enumerate(boxes):
            yield box, store.read(number, box)

    def check_files(self) -> None:
        """An error unless every block has its file and there are no others, where these count."""
        if self.store == "parquet":
            from subspacedp.distributed.parquet_store import check_files

            check_files(self.folder / PARQUET, len(self.boxes()))

    def _store(self, boxes: list[Box]) -> Store:
        dtype = np.int64 if self.design.decimals == 0 else np.float64
        return open_store(self.store, self.folder, self.design.query.shape, dtype, boxes)

    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says."""
        design = _LargeDesign(**{f.name: getattr(self.design, f.name) for f in fields(self.design)})
        whole = self.design.decimals == 0
        stated = certificate(
            Release(
                design=design,
                values=_Elsewhere(design.query.shape, np.int64 if whole else np.float64),  # type: ignore[arg-type]  # values are on disk
                exact=self.exact,
                release_id=self.release_id,
                seeded=self.seeded,
                version=self.version,
            )
        )
        stated["values"]["sha256"] = self.sha256
        return stated

    def verify(self) -> Verification:
        """Every check that a reader can repeat, in one pass over the values."""
        return verify_stream(self.folder)

    def to_release(self) -> Release:
        """The release with its values in memory: for standard errors and intervals of its cells."""
        parts = [part for _, part in self.blocks_of_values()]
        return Release(
            design=self.design,
            values=np.concatenate(parts).reshape(self.design.query.shape),
            exact=self.exact,
            release_id=self.release_id,
            seeded=self.seeded,
            version=self.version,
        )

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"StreamedRelease({self.design!r}, guarantee {self.guarantee.kind}{stamp})"


class _LargeDesign(Design):
    """A design whose total error is computed without a table of cells."""

    def expected_error(self) -> ExpectedError:
        return ExpectedError(total=total_squared_error(self), per_cell=np.zeros(0))


class _Elsewhere:
    """Stands for values that are on disk: their shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    def setflags(self, *, write: bool) -> None:
        """Nothing here can be written to."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.zeros(0, dtype or self.dtype)


def load_stream(folder: str | PathLike[str]) -> StreamedRelease:
    """Read a streamed release: its certificate now, its values when asked for."""
    source = Path(folder)
    return _load(source, _read_certificate(source))


def verify_stream(folder: str | PathLike[str]) -> Verification:
    """All checks of a streamed release, in one pass over its values (two for coarse floats).

    Guarantees
    ----------
    1. Digits: every held total is compared in exact integers that cannot wrap.
    2. Real values: as exact fractions recovered from float64 where it is fine enough for that.
    """
    source = Path(folder)
    data = _read_certificate(source)
    made = _load(source, data)
    held = margins_of(made.design)
    found = held.contradiction(made.exact)
    checks = [
        Check(
            "held totals agree with each other",
            not found,
            found or f"{sum(t.size for t in made.exact):,} totals",
        )
    ]
    try:
        checks += _check_values(made) if not found else []
    except ReleaseError as error:
        checks.append(Check("values", False, str(error)))
    checks.append(_check_restated(made, data))
    return Verification(tuple(checks), SEEDED if made.seeded else "")


def _load(source: Path, data: dict[str, Any]) -> StreamedRelease:
    design = rebuild_design(data["design"])
    held = margins_of(design)
    try:
        return StreamedRelease(
            folder=source,
            design=design,
            exact=held_values(data, held),
            release_id=str(data["release_id"]),
            seeded=data["for_publication"] is not True,
            version=str(data["software"]["version"]),
            sha256=str(data["values"]["sha256"]),
            store=kind_of_store(source),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(f"`{source / CERTIFICATE}` is not usable.") from None


def _read_certificate(source: Path) -> dict[str, Any]:
    try:
        data = read_json(source / CERTIFICATE)
    except OSError:
        raise ReleaseError(f"`{source}` has no readable {CERTIFICATE}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReleaseError(f"`{source / CERTIFICATE}` is not a certificate this version can read.")
    missing = {"design", "values", "invariants", "software", "release_id"} - set(data)
    if missing:
        raise ReleaseError(f"`{source / CERTIFICATE}` lacks `{min(missing)}`.")
    return data


def _check_values(made: StreamedRelease) -> list[Check]:
    """The digest of the values and the totals they keep, in one pass."""
    kind = "<i8" if made.design.decimals == 0 else "<f8"
    digest = hashlib.sha256(f"{kind} {made.design.query.shape}".encode())
    kept = KeptTotals(made.design, made.exact)
    number = 0
    made.check_files()
    for box, values in made.blocks_of_values():
        digest.update(np.ascontiguousarray(values, kind).view(np.uint8).data)
        kept.add(box, values)
        number += values.size
    same = digest.hexdigest() == made.sha256
    fits = f"{number:,} values" if same else "they are not the ones the certificate was made for"
    return [Check("values", same, fits), kept.check()]


def _check_restated(made: StreamedRelease, data: dict[str, Any]) -> Check:
    """Everything the certificate says follows from its design: derive it again and compare."""
    name = "the certificate follows from its design"
    fresh = json.loads(json.dumps(made.certificate()))
    for key in [*fresh, *data]:
        if key not in fresh or key not in data or fresh[key] != data[key]:
            return Check(name, False, f"`{key}` is not what the design implies")
    return Check(name, True, "guarantee, noise law and stated error derived again, all equal")
