"""The same release on a Dask array: any chunks, any cluster, one process or many.

Noise, totals and values of a chunk depend on the keys, the chunk's place in the table and the
totals of the noise alone, so chunks need nothing from each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate, pairwise, product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.distributed.blocks import margins_of, read_design, split_totals
from subspacedp.distributed.dask_tasks import (
    Tasks,
    WorkerKeys,
    first,
    noise_of,
    reconstruction_of,
    second,
    tag_of,
    unchanged,
    values_of,
)
from subspacedp.distributed.stores import NPY, NpyFile, check_kind
from subspacedp.distributed.streaming import release_keys
from subspacedp.errors import DataError, ReleaseError
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.base import Mechanism
from subspacedp.parallel import compiled
from subspacedp.problem import Guarantee
from subspacedp.release import Release, new_folder, write_digests
from subspacedp.release.certificate import certificate_text
from subspacedp.release.designs import Design, package_version
from subspacedp.release.files import CERTIFICATE
from subspacedp.release.stored import StreamedRelease, load_stream
from subspacedp.release.stored_values import READ
from subspacedp.tables.boxes import Box, blocks

__all__ = ["DaskRelease", "WorkerKeys", "release_dask"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DaskRelease:
    """A release whose values are a Dask array, computed and kept by the cluster.

    The other fields are those of `Release`. The array holds results, not the way to them: neither
    keys nor the confidential table can be reached from it.
    """

    mechanism: Mechanism
    values: Any
    exact: HeldValues
    release_id: str
    seeded: bool
    version: str

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.mechanism.guarantee

    def to_release(self) -> Release:
        """The release with its values in this process's memory."""
        return Release(
            mechanism=self.mechanism,
            values=np.ascontiguousarray(self.values.compute()),
            exact=self.exact,
            release_id=self.release_id,
            seeded=self.seeded,
            version=self.version,
        )

    def save(self, folder: str | PathLike[str]) -> StreamedRelease:
        """Write values and certificate to a new folder, as `stream_release` does; all or nothing.

        Values come to this process block by block.
        """
        shape = self.mechanism.query.shape
        kind = np.dtype("<i8" if self.mechanism.decimals == 0 else "<f8")
        digest = hashlib.sha256(f"{kind.str} {shape}".encode())
        with new_folder(folder) as scratch:
            store = NpyFile(scratch / NPY, shape, kind)
            store.create()
            for number, box in enumerate(blocks(shape, READ)):
                place = tuple(slice(lo, hi) for lo, hi in zip(box.lower, box.upper, strict=True))
                part = np.ascontiguousarray(self.values[place].compute(), kind).reshape(-1)
                digest.update(part.view(np.uint8).data)
                store.write(number, box, part)
            made = StreamedRelease(
                folder=Path(folder),
                mechanism=self.mechanism,
                exact=self.exact,
                release_id=self.release_id,
                seeded=self.seeded,
                version=self.version,
                sha256=digest.hexdigest(),
                store="npy",
            )
            text = certificate_text(made.certificate()) + "\n"
            (scratch / CERTIFICATE).write_text(text, "utf-8")
            write_digests(scratch)
        return load_stream(folder)

    def __repr__(self) -> str:
        stamp = ", NOT FOR PUBLICATION (seeded)" if self.seeded else ""
        return f"DaskRelease({self.mechanism!r}, guarantee {self.guarantee.kind}{stamp})"


def release_dask(design: Design, array: Any, *, seed: int | None = None) -> DaskRelease:
    """Release a table of counts that is a Dask array.

    Parameters
    ----------
    design
        A projected mechanism on the cells of a domain, with margins held.
    array
        The confidential counts as a Dask array of the domain's shape, in any chunks.
    seed
        Only for examples and tests, as in `Design.release`.

    Guarantees
    ----------
    1. Values and held totals are those of `design.release` with the same keys, bit for bit,
       for any chunks and any scheduler.
    2. Everything is computed before it returns. Each chunk of the result is of one reading, the one
       that was tagged. Where a cluster loses results and computes them again, from the array as it
       is by then, a chunk that reads differently is refused: the same noise on two tables tells
       their difference.
    3. Neither keys nor the confidential table can be reached from the array that is returned. The
       scheduler of a cluster keeps the tasks, and the keys in them, as long as that array lives.

    Notes
    -----
    It runs where Dask runs: on the cluster of the current `distributed.Client`, else on the local
    scheduler. The keys go along; see `WorkerKeys` for who must be trusted with them.
    """
    mechanism = read_design(design)
    table = _checked(array, mechanism)
    dask, da = _module("dask"), _module("dask.array")
    keys = release_keys(mechanism, seed)
    worker = WorkerKeys(keys, mechanism.law)
    boxes = _boxes(table.chunks)
    shared = dask.delayed(mechanism, pure=False, traverse=False)
    task = Tasks(dask.delayed)
    residual = task.sum([task.call(noise_of, shared, worker, box) for box in boxes])
    reconstruct = task.call(reconstruction_of, shared, residual)
    chunks = list(table.to_delayed().ravel())
    pairs = [
        task.call(values_of, reconstruct, worker, box, chunk)
        for box, chunk in zip(boxes, chunks, strict=True)
    ]
    pairs = list(dask.persist(*pairs))
    tags = dask.compute(*(task.call(tag_of, pair) for pair in pairs))
    # Whatever is computed again from here on is refused unless it reads what was tagged.
    kept = [task.call(unchanged, pair, tag) for pair, tag in zip(pairs, tags, strict=True)]
    values = [task.call(first, pair) for pair in kept]
    facts = task.sum([task.call(second, pair) for pair in kept])
    *values, facts = dask.persist(*values, facts)
    totals, seen = facts.compute()
    seen.check(mechanism)
    return DaskRelease(
        mechanism=mechanism,
        values=_assembled(da, values, boxes, table.chunks, mechanism),
        exact=split_totals(margins_of(mechanism), totals),
        release_id=keys.release_id,
        seeded=seed is not None,
        version=package_version(),
    )


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ReleaseError("`dask` is not installed; it comes with subspacedp[large].") from None


def _checked(array: Any, mechanism: Mechanism) -> Any:
    if not isinstance(array, _module("dask.array").Array):
        raise DataError(f"The counts must be a Dask array; got a {type(array).__name__}.")
    if array.shape != mechanism.query.shape:
        raise DataError(
            f"The counts must have the domain's shape {mechanism.query.shape}; got {array.shape}."
        )
    check_kind(array.dtype, "The Dask array")
    # Small tables are made by NumPy, all at once, as in memory.
    return array if compiled(mechanism.query.size) else array.rechunk(-1)


def _boxes(chunks: Sequence[Sequence[int]]) -> list[Box]:
    stretches = [list(pairwise(accumulate(sizes, initial=0))) for sizes in chunks]
    return [
        Box(tuple(lo for lo, _ in place), tuple(hi for _, hi in place))
        for place in product(*stretches)
    ]


def _assembled(
    da: Any,
    values: list[Any],
    boxes: list[Box],
    chunks: Sequence[Sequence[int]],
    mechanism: Mechanism,
) -> Any:
    """The chunks as one array again."""
    kind = np.int64 if mechanism.decimals == 0 else np.float64
    nested = np.empty([len(sizes) for sizes in chunks], object)
    for place, value, box in zip(np.ndindex(*nested.shape), values, boxes, strict=True):
        nested[place] = da.from_delayed(value, box.shape, kind)
    return da.block(nested.tolist())
