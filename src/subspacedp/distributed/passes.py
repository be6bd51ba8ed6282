"""The two passes over the blocks of a table: totals of the noise, then values."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.distributed.blocks import (
    BoxFacts,
    Reconstruction,
    add_totals,
    empty_totals,
    margins_of,
    measure,
    noise_totals,
    split_totals,
)
from subspacedp.distributed.cell_noise import CellNoise
from subspacedp.distributed.progress import Reporter
from subspacedp.distributed.resume import BlockTags, Workspace
from subspacedp.distributed.stores import Source, Store, writing
from subspacedp.errors import DataError, ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.noise import ReleaseKeys
from subspacedp.parallel import thread_count
from subspacedp.tables.boxes import Box

__all__ = ["SecondPass", "first_pass", "source_changed"]

Int64Array = npt.NDArray[np.int64]
ROOMS = 1 << 29  # bytes for the blocks of all threads together, on a machine of many processors


def source_changed(target: Path) -> DataError:
    """Why an unfinished release is not gone on with."""
    return DataError(
        f"The source changed since the release to `{target}` was begun: its noise must not serve "
        "other data. Discard it and begin anew.",
        changed=True,
    )


def first_pass(
    mechanism: Mechanism, keys: ReleaseKeys, boxes: list[Box], report: Reporter
) -> tuple[Int64Array, ...]:
    """C·noise, in exact integers modulo 2**64."""
    held = margins_of(mechanism)
    noise = CellNoise(mechanism.law, keys)
    totals = empty_totals(held)
    lock, local = threading.Lock(), threading.local()
    partial: list[Int64Array] = []

    def work(box: Box) -> None:
        if not hasattr(local, "totals"):
            local.totals = empty_totals(held)
            with lock:
                partial.append(local.totals)
        noise_totals(mechanism, noise, box, local.totals)
        with lock:
            report.add(box.size)

    _each(work, boxes, thread_count())
    for part in partial:
        totals += part
    return split_totals(held, totals)


class SecondPass:
    """Counts in, values out; totals of the counts and the digest of the values on the way."""

    def __init__(
        self, mechanism: Mechanism, table: Source, space: Workspace, target: Store,
        residual: tuple[Int64Array, ...], report: Reporter,
    ) -> None:  # fmt: skip
        self.mechanism, self.table = mechanism, table
        self.space, self.target, self.report = space, target, report
        self.held = margins_of(mechanism)
        self.shape = mechanism.query.shape
        self.noise = CellNoise(mechanism.law, space.keys)
        self.dither = space.keys.stream("dither")
        self.tags = BlockTags(space.keys)
        self.reconstruction = Reconstruction(mechanism, residual)
        self.reconstruction.prepare()
        kind = "<i8" if mechanism.decimals == 0 else "<f8"
        self.digest = hashlib.sha256(f"{kind} {self.shape}".encode())
        self.totals, self.facts = empty_totals(self.held), BoxFacts()
        self._turn, self._failed = 0, False
        self._order, self._lock = threading.Condition(), threading.Lock()
        self._local = threading.local()

    def run(self, boxes: list[Box]) -> None:
        """All blocks; one thread more than processors, so that none waits for the disk."""
        longest = max(box.size for box in boxes)
        workers = min(len(boxes), thread_count() + 1, max(2, ROOMS // (8 * longest)))
        partial: list[Int64Array] = []

        def work(item: tuple[int, Box]) -> None:
            try:
                if not hasattr(self._local, "room"):
                    self._local.totals = empty_totals(self.held)
                    self._local.room = np.empty(longest, np.int64)
                    with self._lock:
                        partial.append(self._local.totals)
                self._block(*item)
            except BaseException:
                self._stop()
                raise

        _each(work, enumerate(boxes), workers, self._stop)
        for part in partial:
            self.totals += part
        self.facts.check(self.mechanism)

    def _stop(self) -> None:
        """Let no thread wait for a block that will not come."""
        with self._order:
            self._failed = True
            self._order.notify_all()

    def _block(self, number: int, box: Box) -> None:
        counts: Int64Array = self._local.room[: box.size]
        self.table.read(box, self.shape, counts)
        known = self.space.done.get(number)
        values = (
            self._release(number, box, counts)
            if known is None
            else self._again(number, box, counts, *known)
        )
        self._hash(number, values)
        with self._lock:
            self.report.add(box.size, again=known is not None)

    def _release(self, number: int, box: Box, counts: Int64Array) -> npt.NDArray[Any]:
        """Measure, reconstruct and write a block, in the memory of its counts."""
        read = self.tags.make("read", number, counts)
        for found in measure(self.mechanism, self.noise, box, counts, self._local.totals):
            self._look(found)
        values = self.reconstruction.apply(counts, box, self.dither)
        writing(lambda: self.target.write(number, box, values), self.space.folder)
        written = self.tags.make("written", number, values)
        writing(lambda: self.space.record(number, read, written), self.space.folder)
        return values

    def _again(
        self, number: int, box: Box, counts: Int64Array, read: str, written: str
    ) -> npt.NDArray[Any]:
        """A block that was finished before: the same data still, and the same values."""
        if not self.tags.fits(read, "read", number, counts):
            raise source_changed(self.space.target)
        self._look(BoxFacts.of(counts))
        add_totals(self.held, box, counts, self._local.totals)
        values = self.target.read(number, box)
        if not self.tags.fits(written, "written", number, values):
            raise ReleaseError(
                f"Block {number} of the unfinished release to `{self.space.target}` is not what "
                "was written there: it was truncated or altered. Discard the release and begin "
                "anew."
            )
        return values

    def _look(self, facts: BoxFacts) -> None:
        """Refuse counts that no release can be made of; what is refused depends on them alone."""
        if facts.negative:
            raise DataError(f"At least {facts.negative} of the counts are negative.")
        with self._lock:
            self.facts = self.facts + facts
            self.facts.check(self.mechanism)

    def _hash(self, number: int, values: npt.NDArray[Any]) -> None:
        """Add a block to the digest of all values when its turn has come."""
        with self._order:
            self._order.wait_for(lambda: self._turn == number or self._failed)
            if self._failed:
                return
        self.digest.update(values.reshape(-1).view(np.uint8).data)
        with self._order:
            self._turn += 1
            self._order.notify_all()


def _each(
    work: Callable[[Any], None],
    items: Iterable[Any],
    workers: int,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Call `work` on all items, in their order, by some threads; the first error ends it.

    So does an interrupt; `stop` then tells what is under way not to wait for what will not come.
    """
    pending: list[Future[None]] = []
    with ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            pending.extend(pool.submit(work, item) for item in items)
            for one in pending:
                one.result()
        except BaseException:
            stop()
            for one in pending:
                one.cancel()
            raise
