"""A release whose values stay on disk: its certificate is read, its values when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.mechanisms.registry import mechanism_from
from subspacedp.problem import Guarantee
from subspacedp.release.certificate import certificate
from subspacedp.release.files import CERTIFICATE, read_certificate
from subspacedp.release.rebuild import held_values
from subspacedp.release.release import Release
from subspacedp.release.stored_values import STORES, open_values, read_blocks
from subspacedp.release.total_error import total_squared_error
from subspacedp.release.verify import Verification
from subspacedp.tables.boxes import Box

__all__ = ["StreamedRelease", "load_stream", "stored_release"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StreamedRelease:
    """A release in a folder, with values that are read when asked for.

    The fields are those of `Release`; `sha256` is the digest of all values.
    """

    folder: Path
    mechanism: Mechanism
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str
    sha256: str
    store: str

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.mechanism.guarantee

    def values(self) -> Any:
        """All values: mapped into memory (npy), a zarr array, or a dataset of rows (Parquet)."""
        return open_values(self.store, self.folder)

    def blocks_of_values(self) -> Iterator[tuple[Box, npt.NDArray[Any]]]:
        """Every block: where its cells are, and their values, flat in row-major order."""
        return read_blocks(self.store, self.folder, self.mechanism.query.shape, self._dtype)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64 if self.mechanism.decimals == 0 else np.float64)

    def certificate(self) -> dict[str, Any]:
        """What `certificate.json` says."""
        stated = certificate(
            Release(
                mechanism=self.mechanism,
                values=_Elsewhere(self.mechanism.query.shape, self._dtype),  # type: ignore[arg-type]  # values are on disk
                exact=self.exact,
                release_id=self.release_id,
                seeded=self.seeded,
                version=self.version,
            ),
            expected_error=total_squared_error(self.mechanism),
        )
        stated["values"] = {"store": self.store, **stated["values"], "sha256": self.sha256}
        return stated

    def verify(self) -> Verification:
        """Every check that a reader can repeat, as `subspacedp verify` does."""
        from subspacedp.release.folder_checks import verify_folder

        return verify_folder(self.folder)

    def to_release(self) -> Release:
        """The release with its values in memory: for standard errors and intervals of its cells."""
        parts = [part for _, part in self.blocks_of_values()]
        return Release(
            mechanism=self.mechanism,
            values=np.concatenate(parts).reshape(self.mechanism.query.shape),
            exact=self.exact,
            release_id=self.release_id,
            seeded=self.seeded,
            version=self.version,
        )

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"StreamedRelease({self.mechanism!r}, guarantee {self.guarantee.kind}{stamp})"


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
    return stored_release(source, read_certificate(source))


def stored_release(source: Path, data: dict[str, Any]) -> StreamedRelease:
    """The streamed release that a certificate describes."""
    mechanism = mechanism_from(data["design"])
    held = mechanism.held
    if (
        held.family is None
        or not mechanism.query.is_histogram
        or not mechanism.measures_counts
        or mechanism.capped
    ):
        raise ReleaseError(
            f"`{source / CERTIFICATE}` is not usable: a streamed release has the cells of one "
            "table by the projected mechanism."
        )
    try:
        store = str(data["values"]["store"])
        if store not in STORES:
            raise ReleaseError(
                f"`{source / CERTIFICATE}` is not usable: `values.store` must be one of "
                f"{', '.join(STORES)}."
            )
        return StreamedRelease(
            folder=source,
            mechanism=mechanism,
            exact=held_values(data, held),
            release_id=str(data["release_id"]),
            seeded=data["for_publication"] is not True,
            version=str(data["software"]["version"]),
            sha256=str(data["values"]["sha256"]),
            store=store,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(
            f"`{source}` is no streamed release: its certificate states no store, or lacks a part."
        ) from None
