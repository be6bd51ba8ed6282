"""A release whose values stay on disk: reading, certifying and verifying it block by block."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import add_totals, empty_totals, margins_of, split_totals
from subspacedp.distributed.stores import PARQUET, Store, kind_of_store, open_store
from subspacedp.distributed.total_error import total_squared_error
from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldMargins, HeldValues
from subspacedp.privacy import Guarantee
from subspacedp.release import Check, Design, ExpectedError, Release, Verification
from subspacedp.release.certificate import FORMAT, certificate
from subspacedp.release.rebuild import rebuild_design
from subspacedp.release.verify import SEEDED, recover, whole_steps
from subspacedp.subspace import MarginNullSpace
from subspacedp.tables.boxes import Box, blocks

__all__ = ["StreamedRelease", "load_stream", "verify_stream"]

CERTIFICATE = "certificate.json"
READ = 1 << 22  # cells read at a time, where the store leaves the choice
HALF = 31  # sums are taken of high and low halves apart, so that none can wrap


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
        checks += _check_values(made, held) if not found else []
    except ReleaseError as error:
        checks.append(Check("values", False, str(error)))
    checks.append(_check_restated(made, data))
    return Verification(tuple(checks), SEEDED if made.seeded else "")


def _load(source: Path, data: dict[str, Any]) -> StreamedRelease:
    design = rebuild_design(data["design"])
    held = margins_of(design)
    try:
        exact = tuple(
            np.asarray(item["values"], np.int64).reshape(shape)
            for shape, item in zip(held.value_shapes, data["invariants"], strict=True)
        )
        return StreamedRelease(
            folder=source,
            design=design,
            exact=exact,
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
        data = json.loads((source / CERTIFICATE).read_text("utf-8"))
    except (OSError, ValueError):
        raise ReleaseError(f"`{source}` has no readable {CERTIFICATE}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ReleaseError(f"`{source / CERTIFICATE}` is not a certificate this version can read.")
    missing = {"design", "values", "invariants", "software", "release_id"} - set(data)
    if missing:
        raise ReleaseError(f"`{source / CERTIFICATE}` lacks `{min(missing)}`.")
    return data


class _Totals:
    """Held totals of integers that cannot wrap."""

    def __init__(self, held: HeldMargins) -> None:
        self._held = held
        self._high, self._low = empty_totals(held), empty_totals(held)

    def add(self, box: Box, values: npt.NDArray[np.int64]) -> None:
        add_totals(self._held, box, values >> HALF, self._high)
        add_totals(self._held, box, values & (2**HALF - 1), self._low)

    def result(self) -> tuple[npt.NDArray[Any], ...]:
        exact = self._high.astype(object) * 2**HALF + self._low.astype(object)
        return tuple(split_totals(self._held, exact))


def _check_values(made: StreamedRelease, held: HeldMargins) -> list[Check]:
    """The digest of the values and the totals they keep, in one pass."""
    kind = "<i8" if made.design.decimals == 0 else "<f8"
    digest = hashlib.sha256(f"{kind} {made.design.query.shape}".encode())
    kept = _Kept(made, held)
    number = 0
    for box, values in made.blocks_of_values():
        digest.update(np.ascontiguousarray(values, kind).view(np.uint8).data)
        kept.add(box, values)
        number += values.size
    same = digest.hexdigest() == made.sha256
    fits = f"{number:,} values" if same else "they are not the ones the certificate was made for"
    return [Check("values", same, fits), kept.check()]


class _Kept:
    """Compares group sums of values with held totals."""

    def __init__(self, made: StreamedRelease, held: HeldMargins) -> None:
        self._made, self._held = made, held
        self._decimals = made.design.decimals
        self._step = 1 if self._decimals is None else 10**self._decimals
        self._whole, self._wrong = _Totals(held), ""
        self._parts: dict[int, _Totals] = {}  # by denominator
        self._space = MarginNullSpace(held)
        # For values that float64 carries too coarsely: their sums, and the sums of their sizes.
        number = empty_totals(held).size
        self._sum, self._size, self._coarse = np.zeros(number), np.zeros(number), False

    def add(self, box: Box, values: npt.NDArray[Any]) -> None:
        if self._wrong:
            return
        if not np.all(np.isfinite(values)):
            self._wrong = "some values are not finite"
        elif self._decimals is None:
            self._add_real(box, values)
        else:
            steps = whole_steps(values, self._step)
            if steps is None:
                self._wrong = f"some values do not have {self._decimals} decimals"
            else:
                self._whole.add(box, steps)

    def _add_real(self, box: Box, values: npt.NDArray[Any]) -> None:
        add_totals(self._held, box, values, self._sum)
        add_totals(self._held, box, np.abs(values), self._size)
        d = self._denominators(box)
        found = None if self._coarse else recover(values.reshape(box.shape), d)
        if found is None:
            self._coarse = True
        elif isinstance(found, int):
            self._wrong = f"{found} values are not what this design can release"
        else:
            self._whole.add(box, found.whole)
            spread = np.broadcast_to(d, box.shape)
            for size in np.unique(d).tolist():
                own = self._parts.setdefault(size, _Totals(self._held))
                own.add(box, np.where(spread == size, found.numerator, 0).astype(np.int64))

    def _denominators(self, box: Box) -> npt.NDArray[Any]:
        out, members = self._space.denominator_classes
        for a, member in enumerate(members):
            if out.shape[a] > 1:
                out = np.take(out, member[box.lower[a] : box.upper[a]], axis=a)
        return out

    def check(self) -> Check:
        name, rows = "held totals are kept", self._held.rows
        if self._wrong:
            return Check(name, False, self._wrong)
        if self._coarse:
            return self._check_rounded(name)
        sums = self._whole.result()
        for size, part in self._parts.items():
            sums = tuple(
                s + p * Fraction(1, size) for s, p in zip(sums, part.result(), strict=True)
            )
        broken = sum(
            int(np.count_nonzero(s != t.astype(object) * self._step))
            for s, t in zip(sums, self._made.exact, strict=True)
        )
        how = "as exact fractions" if self._decimals is None else "in whole numbers"
        if broken:
            return Check(name, False, f"{broken} of {rows:,} totals are not kept, checked {how}")
        return Check(name, True, f"all {rows:,}, {how}")

    def _check_rounded(self, name: str) -> Check:
        """As `verify_release` does where fractions cannot be recovered: within rounding error."""
        slack = self._size * 2.0**-51 * (2 + np.log2(self._made.design.query.size))
        wanted = np.concatenate([t.ravel() for t in self._made.exact])
        broken = int(np.count_nonzero(np.abs(self._sum - wanted) > slack))
        how = "within the rounding of float64"
        if broken:
            return Check(name, False, f"{broken} totals are not kept, checked {how}")
        return Check(name, True, f"all {self._held.rows:,}, {how}")


def _check_restated(made: StreamedRelease, data: dict[str, Any]) -> Check:
    """Everything the certificate says follows from its design: derive it again and compare."""
    name = "the certificate follows from its design"
    fresh = json.loads(json.dumps(made.certificate()))
    for key in [*fresh, *data]:
        if key not in fresh or key not in data or fresh[key] != data[key]:
            return Check(name, False, f"`{key}` is not what the design implies")
    return Check(name, True, "guarantee, noise law and stated error derived again, all equal")
