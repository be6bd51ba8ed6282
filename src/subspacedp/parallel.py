"""Threads over fixed pieces of work; results never depend on how many threads there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Below so many cells NumPy does the work: compiled kernels would cost more to load than they save.
KERNEL_FROM = 1 << 16


def compiled(cells: int) -> bool:
    """Whether a table of so many cells is worth a compiled kernel."""
    return cells >= KERNEL_FROM


def kernel(function: F) -> F:
    """A compiled loop that lets other threads run; its machine code is kept for the next process.

    Where nothing can be kept (an installation and a home that are read-only), it is compiled anew
    in every process.
    """
    from numba import njit

    try:
        return cast("F", njit(cache=True, nogil=True)(function))
    except RuntimeError:  # "no locator available": no folder takes the cache
        return cast("F", njit(nogil=True)(function))


def thread_count() -> int:
    """The number of threads: SUBSPACEDP_THREADS, or the processors this process may use."""
    wanted = os.environ.get("SUBSPACEDP_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pieces(total: int, number: int) -> list[tuple[int, int]]:
    """Consecutive ranges of `range(total)`, at most `number` of them, all about as long."""
    number = max(1, min(number, total))
    bounds = [total * i // number for i in range(number + 1)]
    return list(pairwise(bounds))


def for_each(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Call `work` on every item, on as many threads as there are; the first error is raised."""
    threads = min(thread_count(), len(items))
    if threads <= 1:
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()
