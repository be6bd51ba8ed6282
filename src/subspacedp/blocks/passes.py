"""A release piece by piece: look at the data, then two passes over them.

Before anything is paid, every block is looked at and tagged (`survey`). The passes read each block
again and compare it with its tag: the same noise on two tables tells their difference, so a table
that changed is refused, whoever reads it and however often. Proofs: `docs/proofs/blocks.md`.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.blocks.digests import Part, TreeHash, npy_header
from subspacedp.blocks.memory import block_cells
from subspacedp.blocks.progress import Progress, Reporter
from subspacedp.blocks.runners import Runner, Threads
from subspacedp.blocks.sources import Source, first_cell
from subspacedp.blocks.stores import Store
from subspacedp.errors import DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.invariants import HeldValues
from subspacedp.mechanisms.block_view import BlockView, CountFacts
from subspacedp.noise import KeySource, ReleaseKeys
from subspacedp.noise.words import KEY_BYTES
from subspacedp.parallel import thread_count
from subspacedp.tables.domain import Box

if TYPE_CHECKING:
    from concurrent.futures import Future

COUNTS, EVERYTHING = 0, 1  # which table a tag is of
TAG = 16  # bytes
# What the passes cost, in passes like the one before it, until they have been measured.
AFTER_LOOKING, AFTER_FIRST = 4.0, 3.0


class BlockTags:
    """Keyed tags of blocks: whoever lacks the key learns nothing from one, and cannot make one.

    GMAC under a key drawn for one survey, with the place of the block for a nonce. Tags are not
    stored: what is kept of a survey is one HMAC of all of them.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, table: int, number: int, counts: Int64Array) -> bytes:
        """The tag of a block of a table."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES256
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        nonce = table.to_bytes(4, "big") + number.to_bytes(8, "big")
        cipher = Cipher(AES256(self._key), GCM(nonce)).encryptor()
        data = counts.reshape(-1).view(np.uint8).data
        for at in range(0, len(data), 1 << 24):
            cipher.authenticate_additional_data(data[at : at + (1 << 24)])
        cipher.finalize()
        return cipher.tag

    def __repr__(self) -> str:
        return "BlockTags(key hidden)"


@frozen(eq=False, repr=False, kw_only=True)
class Survey:
    """What is known of confidential tables after they were looked at once. Confidential.

    Parameters
    ----------
    exact
        The held values c.
    boxes
        The pieces in which the table was read.
    tag_key, tags
        A key of its own, and under it a tag for every piece of every table.
    """

    exact: HeldValues
    boxes: list[Box]
    tag_key: bytes
    tags: tuple[bytes, ...]

    @property
    def tag(self) -> str:
        """One keyed tag of all data: to be kept, with its key, in a file of its owner alone."""
        return hmac.new(self.tag_key, b"".join(self.tags), "sha256").hexdigest()

    def __repr__(self) -> str:
        return f"Survey({len(self.boxes):,} blocks, hidden)"


def survey(
    view: BlockView,
    counts: Source,
    everything: Source | None = None,
    *,
    runner: Runner | None = None,
    tag_key: bytes | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Survey:
    """Look at the data once, before anything is paid; an error for what cannot be released.

    Parameters
    ----------
    counts, everything
        The table that is measured; and with a contribution bound the table of all records, which
        held values come from.
    tag_key
        That of an earlier survey, to compare its `tag` with; a new one by default.
    """
    mechanism, shape = view.mechanism, view.answers_shape
    if (everything is not None) != mechanism.capped:
        raise ReleaseError(
            "A design with capped=True takes the bounded table and `everything`, the table of "
            "all records; other designs take one table."
        )
    sources = [counts] if everything is None else [counts, everything]
    for source in sources:
        if source.shape not in (shape, (int(np.prod(shape)),)):
            raise DataError(f"The counts must have the domain's shape {shape}; got {source.shape}.")
    key = os.urandom(KEY_BYTES) if tag_key is None else tag_key
    boxes = view.boxes(block_cells(int(np.prod(shape))))
    report = Reporter(progress, sum(box.size for box in boxes))
    report.begin("reading", after=AFTER_LOOKING)
    runner = runner or Threads(thread_count())
    check_shared(runner, sources)
    looked = runner.sum(_Look(view, sources, key), list(enumerate(boxes)), report)
    for facts in looked.facts:
        view.check(facts)
    exact = view.exact(looked.totals)
    mechanism.check_held(exact)
    return Survey(
        exact=exact,
        boxes=boxes,
        tag_key=key,
        tags=tuple(looked.tags[number] for number in range(len(boxes))),
    )


def check_shared(runner: Runner, sources: Sequence[Source]) -> None:
    """Workers of a cluster read and write files that all of them see."""
    if runner.remote and not all(source.shared for source in sources):
        raise ReleaseError(
            "The workers of a cluster read the table from files that all of them see; save it as "
            ".npy, Parquet or zarr, and give its path."
        )


@dataclass(eq=False, repr=False)
class _Looked:
    """What a sweep over the data finds."""

    facts: list[CountFacts]
    totals: Any
    tags: dict[int, bytes]


@frozen(eq=False, repr=False)
class _Look:
    """Reads a piece of every table: facts, held totals of the last one, and a tag of each."""

    view: BlockView
    sources: list[Source]
    tag_key: bytes

    def __call__(self, number: int, box: Box, room: Int64Array, total: _Looked | None) -> _Looked:
        out = total or _Looked([CountFacts() for _ in self.sources], None, {})
        tags, tag = BlockTags(self.tag_key), b""
        for table, source in enumerate(self.sources):
            source.read(box, self.view.answers_shape, room)
            tag += tags.of(table, number, room)
            out.facts[table] = out.facts[table] + self.view.look(box, room)
        out.tags[number] = tag
        out.totals = self.view.held_totals(box, room, out.totals)
        return out

    def add(self, total: _Looked, other: _Looked) -> _Looked:
        facts = [a + b for a, b in zip(total.facts, other.facts, strict=True)]
        totals = self.view.add_totals(total.totals, other.totals)
        return _Looked(facts, totals, total.tags | other.tags)


@frozen(eq=False, repr=False)
class _Reading:
    """Reads pieces of the table that is measured, if they are those of its survey."""

    view: BlockView
    source: Source
    survey: Survey

    def __call__(self, number: int, box: Box, room: Int64Array) -> Int64Array:
        self.source.read(box, self.view.answers_shape, room)
        tag = BlockTags(self.survey.tag_key).of(COUNTS, number, room)
        if not hmac.compare_digest(tag, self.survey.tags[number][:TAG]):
            raise DataError(
                "The data changed after they were looked at: the same noise must not serve other "
                "data. Release them anew.",
                changed=True,
            )
        return room


@frozen(eq=False, repr=False)
class _First:
    """The first pass over a piece."""

    view: BlockView
    keys: KeySource
    reading: _Reading | None

    def __call__(self, number: int, box: Box, room: Int64Array, total: Any) -> Any:
        counts = None if self.reading is None else self.reading(number, box, room)
        return self.view.first(self.keys, box, counts, total)

    def add(self, total: Any, other: Any) -> Any:
        return self.view.add(total, other)


@frozen(eq=False, repr=False)
class _Values:
    """The second pass over a piece: measured, reconstructed, written, and its share of the digest.

    `header` has the bytes before the values, as `numpy.save` writes them.
    """

    view: BlockView
    keys: KeySource
    reading: _Reading
    shared: Any
    store: Store
    header: bytes
    flush: bool

    def __call__(self, number: int, box: Box, room: Int64Array) -> Part:
        counts = self.reading(number, box, room)
        values = self.view.values(self.shared, self.keys, box, counts)
        self.store.write(number, box, values)
        if self.flush:
            self.store.flush()
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        at = first_cell(box, self.view.mechanism.query.shape) * values.itemsize
        return Part.of(data, len(self.header) + at)


def carry_out(
    view: BlockView,
    keys: ReleaseKeys,
    counts: Source,
    store: Store,
    surveyed: Survey,
    *,
    runner: Runner | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> str:
    """Measure and reconstruct a table block by block into a store; the digest of all values.

    Whoever makes a block computes the digests of its chunks; here they are put together.

    What was written is on disk once the caller has flushed the folder.

    Guarantees
    ----------
    1. With the same keys and data the values are those of `Design.release`, bit for bit, for any
       blocks, threads, processes or machines.
    2. Every block that noise is added to reads as it did in the survey, or there is an error.
    3. Memory: the blocks that are worked on, and tables of the size of the held margins. Noise is
       never stored.
    """
    runner = runner or Threads(thread_count())
    check_shared(runner, [counts])
    if runner.remote and not store.shared:
        raise ReleaseError("The workers of a cluster write to files that all of them see.")
    pieces = list(enumerate(surveyed.boxes))
    cells = sum(box.size for box in surveyed.boxes)
    report = Reporter(progress, cells)
    given = runner.keys(keys, view)
    reading = _Reading(view, counts, surveyed)
    report.begin("first pass", after=AFTER_FIRST)
    first = _First(view, given, reading if view.reads_first else None)
    total = runner.sum(first, pieces, report)
    shared = view.shared(total, keys, surveyed.exact)
    report.begin("second pass")
    store.create(surveyed.boxes)
    shape, whole = view.mechanism.query.shape, view.mechanism.decimals == 0
    header = npy_header(shape, "<i8" if whole else "<f8")
    digest = TreeHash(header)
    task = _Values(view, given, reading, shared, store, header, runner.remote)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as beside:
        flushing: Future[None] = beside.submit(store.flush)
        for (_, box), part in zip(pieces, runner.each(task, pieces), strict=True):
            digest.join(part)
            report.add(box.size)
            if flushing.done():  # while the next blocks are computed
                flushing.result()  # a disk that failed says so once, and to no later flush
                flushing = beside.submit(store.flush)
        flushing.result()
    store.finish()
    return digest.hexdigest()
