"""How far a long release is, and how long it will take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from subspacedp.frozen import frozen


@frozen
class Progress:
    """A moment of a release: public figures only.

    Parameters
    ----------
    stage
        What is being done, in words.
    done, total
        Cells of this stage.
    elapsed, left
        Seconds since the start, and until the end of this stage and what follows it, where known.
    """

    stage: str
    done: int
    total: int
    elapsed: float
    left: float | None

    @property
    def time_left(self) -> str:
        """The time left in words; empty while it cannot be told."""
        return "" if self.left is None else f"{duration(self.left)} left"

    def __str__(self) -> str:
        share = f"{self.stage}: {100 * self.done // max(self.total, 1)} %"
        return f"{share}, {self.time_left}" if self.time_left else share


class Reporter:
    """Counts cells and passes them on as `Progress`; several threads may count."""

    def __init__(self, progress: Callable[[Progress], None] | None, cells: int) -> None:
        self._progress, self._cells = progress, cells
        self._begun = self._since = time.monotonic()
        self._stage, self._after, self._done = "", 0.0, 0
        self._lock = threading.Lock()

    def begin(self, stage: str, *, after: float = 0.0) -> None:
        """Start a stage; `after` is the cost of what follows it, in stages like this one."""
        with self._lock:
            self._stage, self._after, self._done = stage, after, 0
            self._since = time.monotonic()
            self._report()

    def add(self, cells: int) -> None:
        """So many more cells are done."""
        with self._lock:
            self._done += cells
            self._report()

    def _report(self) -> None:
        if self._progress is None:
            return
        now, left = time.monotonic(), None
        if self._done:
            each = (now - self._since) / self._done
            left = each * (self._cells - self._done + self._after * self._cells)
        self._progress(Progress(self._stage, self._done, self._cells, now - self._begun, left))


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
