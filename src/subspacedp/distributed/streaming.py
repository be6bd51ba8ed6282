"""Release of a table larger than memory: two passes over its blocks, noise drawn twice.

residual = C·noise (first pass, no data are read), then values = counts + noise − lift(residual),
block by block (second pass). C·noisy − c is the same number as C·noise, so the release is the one
that `Mechanism.release` makes in memory with the same keys; but the table is read only once, and
held totals and values come from one and the same reading of it.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from subspacedp.distributed.blocks import margins_of, read_design, split_totals
from subspacedp.distributed.commit import discard, finish, is_complete, unfinished_folder
from subspacedp.distributed.passes import SecondPass, first_pass, source_changed
from subspacedp.distributed.progress import SECOND_PASS, Reporter, Tell
from subspacedp.distributed.resume import Workspace
from subspacedp.distributed.stores import NpySource, Source, Store, open_source, open_store, writing
from subspacedp.distributed.zarr_store import ZarrSource
from subspacedp.errors import DataError, ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.parallel import compiled
from subspacedp.release.certificate import certificate_text
from subspacedp.release.designs import Design, package_version
from subspacedp.release.durable import sync_folder
from subspacedp.release.folders import check_room
from subspacedp.release.stored import StreamedRelease, load_stream
from subspacedp.tables.boxes import Box, blocks

__all__ = ["release_keys", "stream_release"]

SMALLEST, LARGEST = 1 << 18, 1 << 24  # cells of a block, unless asked otherwise


def stream_release(
    design: Design,
    source: Any,
    folder: str | PathLike[str],
    *,
    store: str = "npy",
    column: str | None = None,
    block_cells: int | None = None,
    resume: bool = False,
    seed: int | None = None,
    progress: Tell | None = None,
) -> StreamedRelease:
    """Release a table that need not fit in memory.

    Parameters
    ----------
    design
        A projected mechanism on the cells of a domain, with margins held.
    source
        The confidential counts: a path to a `.npy` file, to Parquet (one row a cell in row-major
        order; a file, or a folder of files in the order of their names) or to a zarr array; or an
        array.
    folder
        Where the release goes: a new folder with the values and the certificate.
    store
        How values are written: "npy", "parquet" or "zarr".
    column
        The column with the counts, in Parquet; needed where several hold whole numbers.
    block_cells
        Cells of a block, at most. Memory grows with it.
    resume
        Go on with a release to this folder that did not finish; begins anew if there is none.
    seed
        Only for examples and tests, as in `Mechanism.release`.
    progress
        Called with a `Progress` after every block.

    Guarantees
    ----------
    1. Values, held totals and release are those of `design.release` with the same keys, bit for
       bit, for any blocks and any number of threads.
    2. Memory: a few blocks and the held margins. Noise is never stored.
    3. The folder appears complete or not at all. Killed at any moment and resumed, the result is
       that of an uninterrupted run: same key, same data; other data are refused.
    4. The key is in one file that its owner alone can read, inside the unfinished release, and is
       destroyed before the release is in place.
    """
    mechanism = read_design(design)
    target = Path(folder)
    again = unfinished_folder(target).is_dir() and resume
    if again and is_complete(target):
        return _finish(mechanism, target)
    _check_block_cells(block_cells)
    keys = release_keys(mechanism, seed)
    with ExitStack() as open_files:
        table = open_source(source, column)
        if table is not source and isinstance(table, NpySource):
            open_files.callback(table.close)
        _check_shape(mechanism, table)
        if again:
            space = Workspace.resume(target, mechanism.context)
        else:
            check_room({target: 9 * mechanism.query.size})
            plan = {
                "context": mechanism.context.hex(),
                "store": store,
                "block_cells": _block_cells(mechanism, block_cells),
                "source": _fingerprint(table, target),
                "seeded": seed is not None,
            }
            _open(store, target, mechanism, [Box((), ())])  # refuses a kind that does not exist
            space = Workspace.begin(target, keys, plan)
        open_files.callback(space.close)
        try:
            return _run(mechanism, table, space, store, progress, again=again)
        except DataError as error:
            # These data cannot be released: nothing to go on with. What changed is another matter.
            space.close()
            if not getattr(error, "changed", False):
                discard(target)
            raise


def _finish(mechanism: Mechanism, target: Path) -> StreamedRelease:
    made = load_stream(unfinished_folder(target))
    if made.mechanism.context != mechanism.context:
        raise ReleaseError(
            f"The unfinished release to `{target}` was begun with another design; discard it, or "
            "ask with the design it was begun with."
        )
    finish(target)
    return load_stream(target)


def release_keys(mechanism: Mechanism, seed: int | None) -> ReleaseKeys:
    """Keys of a new release: fresh, or from a seed for examples and tests."""
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ReleaseError(f"`seed` must be a whole number; got a {type(seed).__name__}.")
    context = mechanism.context
    return ReleaseKeys.fresh(context) if seed is None else ReleaseKeys.from_seed(seed, context)


def _check_shape(mechanism: Mechanism, table: Source) -> None:
    """The domain's shape; or a list of its cells, where these can be read as one stretch."""
    shape, flat = mechanism.query.shape, (mechanism.query.size,)
    if table.shape != shape and (table.shape != flat or isinstance(table, ZarrSource)):
        raise DataError(f"The counts must have the domain's shape {shape}; got {table.shape}.")


def _fingerprint(table: Source, target: Path) -> str:
    try:
        return table.fingerprint
    except OSError:  # a file of it is gone
        raise source_changed(target) from None


def _check_block_cells(cells: int | None) -> None:
    if cells is not None and (not isinstance(cells, int) or isinstance(cells, bool) or cells < 1):
        raise ReleaseError("`block_cells` must be a positive whole number.")


def _block_cells(mechanism: Mechanism, asked: int | None) -> int:
    size = mechanism.query.size
    if not compiled(size):
        return size  # small tables are made by NumPy, all at once
    return asked or min(LARGEST, max(SMALLEST, size // 32))


def _open(kind: str, folder: Path, mechanism: Mechanism, boxes: list[Box]) -> Store:
    dtype = np.int64 if mechanism.decimals == 0 else np.float64
    return open_store(kind, folder, mechanism.query.shape, dtype, boxes)


def _run(
    mechanism: Mechanism,
    table: Source,
    space: Workspace,
    kind: str,
    progress: Tell | None,
    *,
    again: bool,
) -> StreamedRelease:
    if space.plan["store"] != kind:
        raise ReleaseError(
            f"The unfinished release to `{space.target}` was begun with store="
            f'"{space.plan["store"]}"; discard it, or ask for that.'
        )
    if space.plan["source"] != _fingerprint(table, space.target):
        raise source_changed(space.target)
    boxes = blocks(mechanism.query.shape, int(space.plan["block_cells"]))
    with closing(_open(kind, space.folder, mechanism, boxes)) as target:
        if again and space.done:
            target.check()
        elif not (again and _made(target)):
            writing(target.create, space.folder)
            sync_folder(space.folder)
        report = Reporter(progress, mechanism.query.size)
        report.begin("first pass", after=SECOND_PASS)
        residual = first_pass(mechanism, space.keys, boxes, report)
        report.begin("second pass")
        work = SecondPass(mechanism, table, space, target, residual, report)
        work.run(boxes)
    if space.plan["source"] != _fingerprint(table, space.target):
        raise source_changed(space.target)
    made = StreamedRelease(
        folder=space.target,
        mechanism=mechanism,
        exact=split_totals(margins_of(mechanism), work.totals),
        release_id=space.keys.release_id,
        seeded=bool(space.plan["seeded"]),
        version=package_version(),
        sha256=work.digest.hexdigest(),
        store=kind,
    )
    writing(lambda: space.commit(certificate_text(made.certificate()) + "\n"), space.folder)
    return made


def _made(target: Store) -> bool:
    """Whether an earlier run got as far as making the store."""
    try:
        target.check()
    except ReleaseError:
        return False
    return True
