"""Who does the pieces of a table: threads of this process, or the workers of a Dask cluster."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from subspacedp.arrays import Int64Array
from subspacedp.blocks.progress import Reporter
from subspacedp.errors import ReleaseError, SubspaceDPError
from subspacedp.mechanisms.block_view import BlockView
from subspacedp.noise import KeySource, Keystream, ReleaseKeys
from subspacedp.parallel import pieces as split
from subspacedp.tables.domain import Box

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
Piece = tuple[int, Box]  # the number of a box among all, and the box
TASKS = 4  # runs of pieces per thread of a cluster
TOGETHER = 4  # totals of runs that a task adds up
AHEAD = 8  # pieces per thread of this process that are done or waiting while one is asked for
LONGEST_RUN = 16  # pieces, which are done again where a worker is lost


class Task(Protocol):
    """Something to do with every piece; it can be pickled."""

    def __call__(self, number: int, box: Box, room: Int64Array) -> Any:
        """Do a piece in the given memory; what is returned is small, and no view of it."""


class Sum(Protocol):
    """Something to add up over all pieces; it can be pickled."""

    def __call__(self, number: int, box: Box, room: Int64Array, total: Any) -> Any:
        """The total with a piece added; None is the total of no pieces."""

    def add(self, total: Any, other: Any) -> Any:
        """Two totals as one."""


class Runner(Protocol):
    """Does all pieces of a table, several at a time."""

    remote: bool  # whether other processes do them

    def sum(self, task: Sum, pieces: Sequence[Piece], report: Reporter) -> Any:
        """The total over all pieces, of which there is at least one."""

    def each(self, task: Task, pieces: Sequence[Piece]) -> Iterator[Any]:
        """What the task returns for every piece, in order."""

    def keys(self, keys: ReleaseKeys, view: BlockView) -> KeySource:
        """The keys as those who do the pieces get them."""


class Threads:
    """Threads of this process; memory for blocks is kept and used again."""

    remote = False

    def __init__(self, number: int) -> None:
        self._number = number

    def keys(self, keys: ReleaseKeys, view: BlockView) -> KeySource:
        """The keys themselves."""
        del view
        return keys

    def sum(self, task: Sum, pieces: Sequence[Piece], report: Reporter) -> Any:
        """Every thread has a total of its own until the end."""
        longest = max(box.size for _, box in pieces)
        local = threading.local()
        parts: list[list[Any]] = []

        def work(number: int, box: Box) -> None:
            if not hasattr(local, "total"):
                local.room, local.total = np.empty(longest, np.int64), [None]
                parts.append(local.total)
            local.total[0] = task(number, box, local.room[: box.size], local.total[0])
            report.add(box.size)

        with _pool(min(self._number, len(pieces))) as pool:
            for future in [pool.submit(work, number, box) for number, box in pieces]:
                future.result()
        total = parts[0][0]
        for part in parts[1:]:
            total = task.add(total, part[0])
        return total

    def each(self, task: Task, pieces: Sequence[Piece]) -> Iterator[Any]:
        """Every thread has memory of its own; results wait for whoever asks, a few at a time."""
        longest = max(box.size for _, box in pieces)
        local = threading.local()

        def work(number: int, box: Box) -> Any:
            if not hasattr(local, "room"):
                local.room = np.empty(longest, np.int64)
            return task(number, box, local.room[: box.size])

        with _pool(min(self._number, len(pieces))) as pool:
            waiting = deque[Any]()
            for number, box in pieces:
                if len(waiting) >= AHEAD * self._number:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, number, box))
            while waiting:
                yield waiting.popleft().result()


@contextmanager
def _pool(number: int) -> Iterator[ThreadPoolExecutor]:
    """Threads; after an error or an interrupt, what has not begun is not begun."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(max(1, number))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class WorkerKeys:
    """The subkeys of one release, raw, for workers: unlike any other key here it can be pickled.

    Whoever has one can compute the noise of every cell and take it out of what is published. It is
    part of the tasks, so it reaches the scheduler and every worker, through whatever network is
    between them: all of these must be trusted with the confidential table itself (which they read
    anyway), connections that leave a machine need TLS, and no graph that holds it may be stored or
    shown. It is kept out of the names of tasks.
    """

    def __init__(self, keys: ReleaseKeys, purposes: Sequence[str]) -> None:
        self._raw = {purpose: keys.subkey(purpose) for purpose in purposes}

    def stream(self, purpose: str) -> Keystream:
        """The keystream of one purpose."""
        return Keystream(self._raw[purpose])

    def __repr__(self) -> str:
        return "WorkerKeys(keys hidden)"

    def __dask_tokenize__(self) -> str:
        raise TypeError("keys are secret: no name is derived from them")


class OnDask:
    """The workers of a Dask cluster, which see the same files as this process."""

    remote = True

    def __init__(self, client: Any) -> None:
        self._client = client

    def keys(self, keys: ReleaseKeys, view: BlockView) -> WorkerKeys:
        """Raw subkeys, for what the mechanism needs and nothing else."""
        return WorkerKeys(keys, view.purposes)

    def sum(self, task: Sum, pieces: Sequence[Piece], report: Reporter) -> Any:
        """Every task adds up a run of pieces, and workers add their totals up: one comes here."""
        return _answered(lambda: self._sum(task, pieces, report))

    def _sum(self, task: Sum, pieces: Sequence[Piece], report: Reporter) -> Any:
        distributed: Any = import_module("distributed")
        shared = self._submit(_itself, task)
        runs = {self._submit(_sum, shared, run): run for run in self._runs(pieces, len(pieces))}
        parts, later = list(runs), []
        while len(parts) > 1:
            groups = [parts[at : at + TOGETHER] for at in range(0, len(parts), TOGETHER)]
            parts = [self._submit(_added, shared, group) for group in groups]
            later += parts
        total = parts.pop()
        del parts
        try:
            for future in distributed.as_completed(list(runs), loop=self._client.loop):
                if future.status != "finished":  # the total has its error
                    break
                report.add(sum(box.size for _, box in runs.pop(future)))
            return total.result()
        finally:
            self._client.cancel([*runs, *later])

    def each(self, task: Task, pieces: Sequence[Piece]) -> Iterator[Any]:
        """Values stay with the workers, in files; every task does a run of pieces."""
        waiting = _answered(lambda: self._begun(task, pieces))
        try:
            while waiting:
                yield from _answered(waiting.popleft().result)
        finally:
            self._client.cancel(list(waiting))

    def _begun(self, task: Task, pieces: Sequence[Piece]) -> deque[Any]:
        shared = self._submit(_itself, task)
        return deque(self._submit(_done, shared, run) for run in self._runs(pieces, LONGEST_RUN))

    def _runs(self, pieces: Sequence[Piece], longest: int) -> list[Sequence[Piece]]:
        """Runs of pieces, some for every thread: a task costs milliseconds of this process."""
        number = TASKS * max(1, sum(self._client.nthreads().values()))
        number = max(number, -(-len(pieces) // longest))
        return [pieces[lo:hi] for lo, hi in split(len(pieces), number)]

    def _submit(self, function: Any, *arguments: Any) -> Any:
        """A task without a name that depends on its arguments.

        Tables that all pieces share are in the graph, so that they outlive any worker.
        """
        dask: Any = import_module("dask")
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            return self._client.submit(function, *arguments, pure=False)


def _answered(call: Callable[[], T]) -> T:
    """What the cluster answers; what is wrong with the cluster itself, in one sentence.

    What tasks say of data and disks is passed on.
    """
    distributed: Any = import_module("distributed")
    comm: Any = import_module("distributed.comm")
    try:
        return call()
    except SubspaceDPError:
        raise
    except (comm.CommClosedError, distributed.CancelledError):
        sentence = "The connection to the Dask scheduler was lost."
    except distributed.KilledWorker:
        sentence = (
            "Workers of the Dask cluster ended again and again on one piece: they may have too "
            "little memory."
        )
    except OSError:
        raise
    except Exception as error:
        sentence = (
            f"The Dask cluster did not do its part ({type(error).__name__}): scheduler and workers "
            "need what this machine has installed, and memory."
        )
    raise ReleaseError(sentence)


_KEPT = threading.local()


def _room(size: int) -> Int64Array:
    """Memory of this thread of a worker, kept for its next piece."""
    if getattr(_KEPT, "room", np.empty(0)).size < size:
        _KEPT.room = np.empty(size, np.int64)
    return _KEPT.room[:size]  # type: ignore[no-any-return]


def _itself(task: Any) -> Any:
    return task


def _sum(task: Sum, pieces: Sequence[Piece]) -> Any:
    total = None
    for number, box in _while_wanted(pieces):
        total = task(number, box, _room(box.size), total)
    return total


def _added(task: Sum, totals: Sequence[Any]) -> Any:
    """Totals as one. Those of the workers stay as they are: a task may be done again."""
    first, *others = totals
    return reduce(task.add, others, deepcopy(first))


def _done(task: Task, pieces: Sequence[Piece]) -> list[Any]:
    return [task(number, box, _room(box.size)) for number, box in _while_wanted(pieces)]


def _while_wanted(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces of a run; an error, which nobody sees, once it has been cancelled."""
    worker: Any = import_module("distributed").get_worker()
    key = worker.get_current_task()
    for piece in pieces:
        run = worker.state.tasks.get(key)
        if run is None or run.state == "cancelled":
            raise ReleaseError("This run was cancelled.")
        yield piece


@contextmanager
def open_runner(engine: str | None, at_once: int) -> Iterator[Runner]:
    """Threads for None; "dask" for the current client, or a local cluster; or an address.

    Parameters
    ----------
    engine
        None, "dask", or the address of a scheduler, such as "tcp://10.0.0.1:8786".
    at_once
        How many blocks are in this process's memory at a time.
    """
    if engine is None:
        yield Threads(at_once)
        return
    try:
        distributed: Any = import_module("distributed")  # of Dask, which has no types
    except ImportError:
        raise ReleaseError("`dask` is not installed; it comes with subspacedp[large].") from None
    with ExitStack() as opened:
        if engine != "dask":
            opened.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            try:
                client = opened.enter_context(distributed.Client(engine, set_as_default=False))
            except (OSError, TypeError, ValueError):  # TypeError: TLS that is not configured
                tls = ", or Dask's configuration lacks its certificates" * engine.startswith("tls")
                raise ReleaseError(f"There is no Dask scheduler at `{engine}`{tls}.") from None
        else:
            try:
                client = distributed.default_client()
            except ValueError:
                client = opened.enter_context(_local_client(distributed))
        yield OnDask(client)


@contextmanager
def _local_client(distributed: Any) -> Iterator[Any]:
    """A cluster of this machine's processors; without TLS all its users could run code there.

    What workers spill has keys in it: it goes to a folder of this user alone.
    """
    from tempfile import TemporaryDirectory

    config: Any = import_module("dask.config")
    place = config.get("temporary-directory", None)
    with ExitStack() as opened:
        try:
            spilled = TemporaryDirectory(prefix="dask-", dir=place, ignore_cleanup_errors=True)
            cluster = distributed.LocalCluster(
                security=True,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                local_directory=opened.enter_context(spilled),
            )
        except (OSError, RuntimeError):
            raise ReleaseError(
                "A local Dask cluster could not be started; a script that asks for one does so "
                'below `if __name__ == "__main__":`.'
            ) from None
        opened.enter_context(cluster)
        yield opened.enter_context(distributed.Client(cluster, set_as_default=False))
