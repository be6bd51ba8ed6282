"""How far a long release is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Reporter", "Tell"]

SECOND_PASS = 3.0  # its cost in first passes, until it has been measured


@dataclass(frozen=True)
class Progress:
    """A moment of a release: public figures only.

    Parameters
    ----------
    stage
        What is being done, in words.
    done, total
        Cells of this stage.
    elapsed, left
        Seconds since the start, and until the end of all stages as far as can be told.
    """

    stage: str
    done: int
    total: int
    elapsed: float
    left: float | None

    @property
    def time_left(self) -> str:
        """The time left in words; empty while it cannot be told."""
        return "" if self.left is None else f"{_duration(self.left)} left"

    def __str__(self) -> str:
        share = f"{self.stage}: {100 * self.done // max(self.total, 1)} %"
        return f"{share}, {self.time_left}" if self.time_left else share


Tell = Callable[[Progress], None]


class Reporter:
    """Counts cells and passes them on as `Progress`."""

    def __init__(self, tell: Tell | None, cells: int) -> None:
        self._tell, self._cells = tell, cells
        self._begun = self._since = time.monotonic()
        self._stage, self._after, self._done, self._own = "", 0.0, 0, 0

    def begin(self, stage: str, *, after: float = 0.0) -> None:
        """Start a stage; `after` is the cost of what follows it, in stages like this one."""
        self._stage, self._after, self._done, self._own = stage, after, 0, 0
        self._since = time.monotonic()
        self._report()

    def add(self, cells: int, *, again: bool = False) -> None:
        """So many more cells are done; `again` where an earlier run had done them already.

        The time left is told by what this run does, from the last such cells on.
        """
        self._done += cells
        if again:
            self._own, self._since = 0, time.monotonic()
        else:
            self._own += cells
        self._report()

    def _report(self) -> None:
        if self._tell is None:
            return
        now = time.monotonic()
        left = None
        if self._own:
            each = (now - self._since) / self._own
            left = each * (self._cells - self._done + self._after * self._cells)
        self._tell(Progress(self._stage, self._done, self._cells, now - self._begun, left))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
