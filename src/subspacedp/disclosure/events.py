"""Events that may tell two tables apart: thresholds and sets of values of a few statistics.

They are chosen on one half of the runs and judged on the other, so a poor choice costs power and
never confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.errors import DataError, ReleaseError

__all__ = ["Event", "best_event", "statistics_of"]

FloatArray = npt.NDArray[np.float64]
Statistic = Callable[[FloatArray], FloatArray]  # (runs, answers) → (runs,)

MOST_CELLS = 64  # single cells that are looked at
MOST_THRESHOLDS = 200
FEW_VALUES = 20_000  # a statistic with so few values is looked at value by value


@dataclass(frozen=True, eq=False, kw_only=True)
class Event:
    """An event of one run, and under which table it is the likelier one."""

    statistic: Statistic
    words: str
    forward: bool
    values: FloatArray | None = None  # a set of values, or a threshold
    threshold: float = 0.0
    above: bool = True

    def holds(self, y: FloatArray) -> npt.NDArray[np.bool_]:
        """In which of the runs it happened."""
        t = self.statistic(y)
        if self.values is not None:
            return np.isin(t, self.values)
        return t >= self.threshold if self.above else t <= self.threshold


def statistics_of(
    first: FloatArray, second: FloatArray, x: FloatArray | None, y: FloatArray | None,
    look: Callable[[FloatArray], FloatArray] | None,
    further: Sequence[Callable[[FloatArray], npt.ArrayLike]],
) -> list[tuple[str, Statistic]]:  # fmt: skip
    """Numbers of a run that may tell the tables apart; all found on the first half."""
    out: list[tuple[str, Statistic]] = []
    width = first.shape[1]
    if x is not None and y is not None and x.size == y.size == width:
        if look is not None:
            x, y = look(x[None])[0], look(y[None])[0]
        out.append(("the answers along the difference of the tables", _linear(y - x)))
        out.append(("the likelihood ratio of Laplace noise", _laplace(x, y)))
    gap = second.mean(axis=0) - first.mean(axis=0)
    spread = first.var(axis=0) + second.var(axis=0)
    direction = np.where(spread > 0, gap / np.where(spread > 0, spread, 1.0), np.sign(gap))
    out.append(("the answers along the difference of the means", _linear(direction)))
    if width > 1:
        size = np.abs(direction)
        order = np.argsort(-size, kind="stable")[:MOST_CELLS].tolist()
        out.extend((f"answer {cell}", _one(cell)) for cell in order)
        out.append(("the whole output", _whole(width)))
    for i, function in enumerate(further):
        out.append((f"the statistic {i + 1} that was given", _given(function)))
    return out


def _linear(direction: FloatArray) -> Statistic:
    largest = float(np.abs(direction).max(initial=0.0)) or 1.0
    return lambda y: np.asarray(np.round(y @ (direction / largest), 6))


def _laplace(a: FloatArray, b: FloatArray) -> Statistic:
    moved = np.abs(a - b) > 1e-9
    a, b = a[moved], b[moved]
    return lambda y: np.round((np.abs(y[:, moved] - a) - np.abs(y[:, moved] - b)).sum(axis=1), 6)


def _one(cell: int) -> Statistic:
    return lambda y: np.asarray(np.round(y[:, cell], 6))


def _whole(width: int) -> Statistic:
    """All answers as one number; two outputs that collide are looked at together, no more."""
    weights = np.random.default_rng(0).uniform(1.0, 2.0, width)
    return lambda y: np.asarray(np.round(np.round(y, 6) @ weights, 6))


def _given(function: Callable[[FloatArray], npt.ArrayLike]) -> Statistic:
    def call(y: FloatArray) -> FloatArray:
        found = np.asarray(function(y), np.float64)
        if found.shape != (len(y),):
            raise ReleaseError("A statistic in `events` must give one number a run.")
        return found

    return call


def best_event(
    statistics: Sequence[tuple[str, Statistic]], first: FloatArray, second: FloatArray, delta: float
) -> Event:
    """The event whose loss stands out most on the first half."""
    best, score = None, -math.inf
    for words, statistic in statistics:
        a, b = statistic(first), statistic(second)
        for found, event in _candidates(words, statistic, a, b, delta):
            if found > score:
                best, score = event, found
    if best is None:
        raise DataError("The mechanism's outputs have nothing to compare.")
    return best


def _candidates(
    words: str, statistic: Statistic, a: FloatArray, b: FloatArray, delta: float
) -> list[tuple[float, Event]]:
    out = []
    both = np.unique(np.concatenate([a, b]))
    cuts = both
    if both.size > MOST_THRESHOLDS:
        cuts = np.unique(np.quantile(both, np.linspace(0, 1, MOST_THRESHOLDS), method="nearest"))
    below = [np.searchsorted(np.sort(t), cuts, side="left") for t in (a, b)]
    upto = [np.searchsorted(np.sort(t), cuts, side="right") for t in (a, b)]
    for above, hits in ((True, [a.size - n for n in below]), (False, upto)):
        for forward in (True, False):
            p, q = (hits[0], hits[1]) if forward else (hits[1], hits[0])
            scores = _scores(p, q, a.size, delta)
            i = int(np.argmax(scores))
            sign = "at least" if above else "at most"
            out.append(
                (float(scores[i]),
                 Event(statistic=statistic, words=f"{words}: {sign} {cuts[i]:.6g}",
                        forward=forward, threshold=float(cuts[i]), above=above))
            )  # fmt: skip
    if both.size <= FEW_VALUES:
        # Values in the order of their ratio on one part, how many of them by the other: a set
        # chosen and scored on the same runs would look better than it is.
        part = a.size // 2
        both = np.unique(np.concatenate([a[:part], b[:part]]))
        ranked = [_counts(t[:part], both) for t in (a, b)]
        scored = [_counts(t[part:], both) for t in (a, b)]
        for forward in (True, False):
            p, q = ranked if forward else ranked[::-1]
            order = np.argsort(-(p + 0.5) / (q + 0.5), kind="stable")
            p, q = scored if forward else scored[::-1]
            up = a.size / (a.size - part)
            scores = _scores(np.cumsum(p[order]) * up, np.cumsum(q[order]) * up, a.size, delta)
            i = int(np.argmax(scores))
            out.append(
                (float(scores[i]),
                 Event(statistic=statistic, words=f"{words}: one of {i + 1} values",
                       forward=forward, values=np.sort(both[order[: i + 1]])))
            )  # fmt: skip
    return out


def _counts(values: FloatArray, of: FloatArray) -> npt.NDArray[np.int64]:
    """How often each of some sorted values occurs."""
    ordered = np.sort(values)
    return np.asarray(
        np.searchsorted(ordered, of, side="right") - np.searchsorted(ordered, of, side="left")
    )


def _scores(p: Any, q: Any, runs: int, delta: float) -> FloatArray:
    """A cautious estimate of ln((p − δ)/q): two and a half standard errors below."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    low = (p - 2.5 * np.sqrt(p)) / runs - delta
    high = (q + 2.5 * np.sqrt(q) + 4.0) / runs
    return np.asarray(np.log(np.maximum(low, 1e-300) / high))
