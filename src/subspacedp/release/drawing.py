"""A release drawn into a folder, for a table of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.blocks.memory import block_cells, blocks_at_once
from subspacedp.blocks.passes import Survey, carry_out, survey
from subspacedp.blocks.progress import Progress
from subspacedp.blocks.runners import Runner, open_runner
from subspacedp.blocks.sources import ArraySource, Source, is_large_table, open_source
from subspacedp.blocks.stores import STORES, ArrayStore, StoredValues, open_store
from subspacedp.errors import DataError, ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.release.facts import Facts
from subspacedp.release.files import write_files
from subspacedp.release.folders import check_room, new_folder
from subspacedp.release.release import Release, package_version
from subspacedp.release.signature import write_digests
from subspacedp.tables.domain import Box

if TYPE_CHECKING:
    from subspacedp.release.designs import Design

MAX_LABELLED = 2_000_000  # figures that are published with their labels and standard errors
LABELLED = "csv"  # rows with labels, as text and as Parquet
SCRATCH = "npy"  # where workers of a cluster put figures that will have labels
Report = Callable[[Progress], None]


def store_kind(mechanism: Mechanism, store: str | None) -> str:
    """How values are written: as asked for, else by their number alone."""
    if store is None:
        return LABELLED if mechanism.query.size <= MAX_LABELLED else "npy"
    if store not in (LABELLED, *STORES):
        raise ReleaseError(
            f"`store` must be one of {', '.join((LABELLED, *STORES))}; got {store!r}."
        )
    return store


def open_data(
    design: Design, data: Any, everything: Any = None, column: str | None = None
) -> tuple[Source, Source | None]:
    """Confidential data as sources that are read in blocks; everything else is checked at once.

    Parameters
    ----------
    data, everything
        As `Design.release` takes them; or, for the cells of a table, an array of its shape or a
        path to a `.npy` file, to Parquet or to zarr.
    column
        The column with the counts, in Parquet.
    """
    if (everything is not None) != design.mechanism.capped:
        raise ReleaseError(
            "A design with capped=True takes the bounded table and `everything`, the table of "
            "all records; other designs take one table."
        )
    if is_large_table(data):
        if not design.mechanism.query.is_histogram:
            raise DataError("A table is read in blocks for a query of its cells, and no other.")
        whole = None if everything is None else open_source(everything, column)
        return open_source(data, column), whole
    answers, full = design.mechanism.check(data, everything=everything)
    return ArraySource(answers), None if everything is None else ArraySource(full)


def look_at(
    design: Design,
    counts: Source,
    everything: Source | None = None,
    *,
    memory: int | None = None,
    engine: str | None = None,
    tag_key: bytes | None = None,
    progress: Report | None = None,
) -> Survey:
    """Look at the data once, before anything is paid; see `survey` and `release_to`."""
    view = design.mechanism.blocks()
    with _runner(design.mechanism, None, memory, engine) as runner:
        return survey(
            view, counts, everything,
            runner=runner, tag_key=tag_key, progress=progress,
        )  # fmt: skip


@contextmanager
def _runner(
    mechanism: Mechanism, boxes: list[Box] | None, memory: int | None, engine: str | None
) -> Iterator[Runner]:
    """Threads that fit into memory, or a cluster; one piece is done here."""
    view = mechanism.blocks()
    pieces = boxes or view.boxes(block_cells(int(np.prod(view.answers_shape))))
    at_once = blocks_at_once(view, max(box.size for box in pieces), memory)
    with open_runner(engine if len(pieces) > 1 else None, at_once) as runner:
        yield runner


def draw_to(
    folder: Path,
    design: Design,
    keys: ReleaseKeys,
    counts: Source,
    *,
    surveyed: Survey,
    seeded: bool,
    store: str | None = None,
    memory: int | None = None,
    engine: str | None = None,
    facts: Facts | None = None,
    progress: Report | None = None,
) -> Release:
    """Draw a release into a folder that exists: values and certificate, and nothing else.

    Keys must serve one release only: two with the same words tell the difference of their data.
    What is written is on disk once the caller has flushed the folder. See `release_to`.
    """
    mechanism = design.mechanism
    kind, query = store_kind(mechanism, store), mechanism.query
    dtype = np.dtype(np.int64 if mechanism.decimals == 0 else np.float64)
    with _runner(mechanism, surveyed.boxes, memory, engine) as runner:
        on_disk = SCRATCH if kind == LABELLED else kind
        target = (
            ArrayStore(query.shape, dtype)
            if kind == LABELLED and not runner.remote
            else open_store(on_disk, folder, query.shape, dtype)
        )
        with closing(target):
            sha256 = carry_out(
                mechanism.blocks(), keys, counts, target, surveyed,
                runner=runner, progress=progress,
            )  # fmt: skip
    if isinstance(target, ArrayStore):
        values: Any = target.values
    else:
        values = StoredValues(
            kind=on_disk, folder=folder, shape=query.shape, dtype=dtype, sha256=sha256
        )
        if kind == LABELLED:
            values, scratch = np.array(values.array()), folder / STORES[SCRATCH]
            scratch.unlink()
    release = Release(
        mechanism=mechanism,
        values=values,
        exact=surveyed.exact,
        release_id=keys.release_id,
        seeded=seeded,
        version=package_version(),
        facts=facts or Facts(),
    )
    write_files(release, folder)
    return release


def release_to(
    design: Design,
    folder: str | PathLike[str],
    source: Any,
    *,
    everything: Any = None,
    store: str | None = None,
    memory: int | None = None,
    engine: str | None = None,
    column: str | None = None,
    seed: int | None = None,
    progress: Report | None = None,
) -> Release:
    """See `Design.release_to`."""
    kind = store_kind(design.mechanism, store)
    if memory is not None and (type(memory) is not int or memory <= 0):
        raise ReleaseError("`memory` must be a whole number of bytes.")
    keys = design.keys(seed)
    with new_folder(folder) as scratch, ExitStack() as opened:
        counts, full = open_data(design, source, everything, column)
        for table, given in ((counts, source), (full, everything)):
            if table is not None and table is not given:
                opened.callback(table.close)
        if kind != LABELLED:
            check_room({Path(folder): 9 * design.mechanism.query.size})
        surveyed = look_at(design, counts, full, memory=memory, engine=engine, progress=progress)
        drawn = draw_to(
            scratch, design, keys, counts,
            surveyed=surveyed, seeded=seed is not None, store=kind, memory=memory,
            engine=engine, progress=progress,
        )  # fmt: skip
        write_digests(scratch, known=drawn.file_digests)
    return drawn.moved_to(Path(folder))
