"""Ratios of times on a noisy machine: both sides in turn, many times, and the best of each.

The best of several interleaved runs is the least disturbed one; a disturbance that lasts hits
both sides. The same is done for every peer.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Ratio", "best_times"]


@dataclass(frozen=True)
class Ratio:
    """One measured ratio with its target."""

    name: str
    value: float
    target: float
    at_least: bool  # whether larger is better
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return bool(self.value >= self.target if self.at_least else self.value <= self.target)

    def as_dict(self) -> dict[str, Any]:
        """For `latest.json`."""
        sign = ">=" if self.at_least else "<="
        return {
            "ratio": float(f"{self.value:.4g}"),
            "target": f"{sign} {self.target:g}",
            "met": self.met,
            "note": self.note,
        }


def best_times(*sides: Callable[[], object], rounds: int) -> list[float]:
    """The best time of each side in seconds, over so many interleaved rounds."""
    best = [float("inf")] * len(sides)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for i, side in enumerate(sides):
                start = time.perf_counter()
                side()
                best[i] = min(best[i], time.perf_counter() - start)
    finally:
        gc.enable()
    return best
