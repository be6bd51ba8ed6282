"""Threads over fixed pieces of work; results never depend on how many threads there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, update_wrapper
from itertools import pairwise
from typing import Any, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Below so many cells NumPy does the work: compiled kernels would cost more to load than they save.
KERNEL_FROM = 1 << 16


def compiled(cells: int) -> bool:
    """Whether a table of so many cells is worth a compiled kernel."""
    return cells >= KERNEL_FROM


class _Kernel:
    """A function that is compiled when it is first called, with the kernels that it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __call__(self, *given: Any) -> Any:
        return self.compiled(*given)

    @cached_property
    def compiled(self) -> Any:
        """The function for numba, in place of this one wherever its module names it."""
        from numba import njit

        names = self.function.__globals__
        for name in self.function.__code__.co_names:
            if isinstance(names.get(name), _Kernel):
                names[name] = names[name].compiled
        try:
            return njit(cache=True, nogil=True)(self.function)
        except RuntimeError:  # "no locator available": no folder takes the cache
            return njit(nogil=True)(self.function)


def kernel(function: F) -> F:
    """A loop that is compiled when first called, and then lets other threads run.

    Its machine code is kept for the next process. Where nothing can be kept (an installation and a
    home that are read-only), it is compiled anew in every process.
    """
    return cast("F", _Kernel(function))


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
