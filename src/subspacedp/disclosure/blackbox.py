"""A statistical lower bound on the privacy loss of any mechanism, from its outputs alone.

Two neighbouring tables are released many times. On the first half of the runs the event that tells
the two apart best is chosen, among thresholds and sets of values of a few statistics: a poor choice
costs power and never confidence. On the second half its probabilities p and q are bounded by
Clopper and Pearson, and

    ε ≥ ln((p − δ)/q)    at the stated confidence,

because an (ε, δ)-private mechanism has p ≤ e^ε q + δ for every event. The bound can be far below
the truth; it is above it with probability at most 1 − confidence. Proof: docs/proofs/disclosure.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from subspacedp.arrays import ArrayLike, BoolArray, FloatArray, Int64Array
from subspacedp.disclosure.moves import people, smallest_epsilon
from subspacedp.errors import BudgetError, DataError, ReleaseError
from subspacedp.frozen import frozen
from subspacedp.release import Design
from subspacedp.tables import Table

Claim = tuple[float | None, Callable[[FloatArray], FloatArray] | None]  # ε, and what it is about
MAX_DENSE_CELLS = 500  # of a table whose projector is formed

Statistic = Callable[[FloatArray], FloatArray]  # (runs, answers) → (runs,)

MAX_SINGLE_CELLS = 64  # single cells that are looked at
MAX_THRESHOLDS = 200
MAX_VALUES = 20_000  # a statistic with so few values is looked at value by value


@frozen(eq=False)
class Batched:
    """A mechanism that makes many independent runs at once: `function(table, runs)`."""

    function: Callable[[Any, int], ArrayLike]

    def outputs(self, data: Any, runs: int, seed: int | None, stage: int) -> ArrayLike:
        """All runs at once."""
        del seed, stage
        return self.function(data, runs)

    def claim(self, table: Any, neighbour: Any, delta: float) -> Claim:
        """Nothing is known of what it promises."""
        del table, neighbour, delta
        return None, None

    def answers(self, data: Any) -> FloatArray | None:
        """The data themselves, where they are numbers."""
        counts = _counts(data)
        try:
            return np.asarray(data if counts is None else counts, np.float64).reshape(-1)
        except (TypeError, ValueError):
            return None


@frozen(eq=False)
class _Ours:
    """A mechanism of ours, with what it promises."""

    design: Design

    def outputs(self, data: Any, runs: int, seed: int | None, stage: int) -> ArrayLike:
        """One release per run."""
        if seed is None:
            return [self.design.release(data).values for _ in range(runs)]
        return [
            self.design.release(data, seed=int(s)).values
            for s in np.random.default_rng([seed, stage]).integers(0, 2**62, runs)
        ]

    def claim(self, table: Any, neighbour: Any, delta: float) -> Claim:
        """What is promised for these two tables, and what part of the output it speaks of."""
        return _claim(self.design, table, neighbour, delta)

    def answers(self, data: Any) -> FloatArray | None:
        """Those of its query."""
        query = self.design.problem.query
        return np.asarray(query.answers(data).reshape(-1) * float(query.grid))


def _runs_of(mechanism: Any) -> Batched | _Ours:
    """Anything that releases, as something that can be run often."""
    if isinstance(mechanism, Batched):
        return mechanism
    if isinstance(mechanism, Design):
        return _Ours(mechanism)
    if not callable(mechanism):
        raise ReleaseError(
            f"The mechanism must be a function of a table; got a {type(mechanism).__name__}."
        )
    return Batched(lambda data, runs: [mechanism(data) for _ in range(runs)])


def _counts(data: Any) -> Int64Array | None:
    return data.counts if isinstance(data, Table) else None


@frozen(kw_only=True)
class PrivacyLowerBound:
    """What the outputs prove about ε.

    `epsilon` is a lower bound of the true loss between the two tables at `delta`, wrong with
    probability at most 1 − `confidence`. `claimed` is what the mechanism promises for these two
    tables, if it says so; None otherwise.
    """

    epsilon: float
    delta: float
    confidence: float
    runs: int
    event: str
    probability: tuple[float, float]  # a lower bound under one table, an upper one under the other
    claimed: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether the outputs refute the claim."""
        return self.claimed is not None and self.epsilon > self.claimed

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "epsilon_at_least": self.epsilon,
            "delta": self.delta,
            "confidence": self.confidence,
            "runs": self.runs,
            "event": self.event,
            "claimed": self.claimed,
            "exceeds": self.exceeds,
        }

    def __str__(self) -> str:
        at = f" at δ = {self.delta:g}" if self.delta else ""
        text = (
            f"With confidence {self.confidence:.4g} the privacy loss between these two tables is "
            f"at least ε = {self.epsilon:.4g}{at}, by {self.runs:,} runs of each and the event "
            f"“{self.event}”."
        )
        if self.claimed is None:
            return text
        verdict = "which refutes the claim" if self.exceeds else "which does not contradict it"
        return f"{text} Claimed is ε = {self.claimed:.4g}, {verdict}."


def audit_privacy(
    mechanism: Design | Batched | Callable[[Any], ArrayLike],
    table: Any,
    neighbour: Any,
    *,
    runs: int = 4000,
    confidence: float = 0.99,
    delta: float = 0.0,
    seed: int | None = None,
    events: Sequence[Callable[[FloatArray], ArrayLike]] | None = None,
) -> PrivacyLowerBound:
    """Bound the privacy loss of a mechanism from below by running it.

    Parameters
    ----------
    mechanism
        One of ours, a function from a table to an array of numbers, or `Batched`. Of ours with the
        S guarantee the part orthogonal to the invariants is looked at, which is what S speaks of;
        with G the two tables must have the same held values.
    table, neighbour
        The two tables; for ours `Table`s on its domain. They need not be confidential: made-up ones
        are the better choice.
    runs
        How often each table is released; half of the runs choose the event.
    confidence
        The probability, at least, with which the bound is below the true loss.
    delta
        The δ at which ε is bounded; needed for Gaussian noise.
    seed
        Makes the runs of ours reproducible.
    events
        Further statistics: functions from an array (runs × answers) to one number per run.
        Thresholds on them are tried as well.

    Guarantees
    ----------
    1. P(`epsilon` > true ε at δ) ≤ 1 − confidence, for every mechanism whose runs are independent.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> loud = Batched(lambda x, runs: x + rng.laplace(scale=1.0, size=(runs, 1)))
    >>> bound = audit_privacy(loud, np.array([0.0]), np.array([1.0]), runs=20_000)
    >>> 0.8 < bound.epsilon <= 1.0
    True
    """
    number = _whole("runs", runs, 20)
    if not (isinstance(confidence, int | float) and 0 < confidence < 1):
        raise BudgetError(f"`confidence` must be between 0 and 1; got {confidence!r}.")
    if not (isinstance(delta, int | float) and 0 <= delta < 1):
        raise BudgetError(f"`delta` must be at least 0 and below 1; got {delta!r}.")
    many = _runs_of(mechanism)
    claimed, look = many.claim(table, neighbour, float(delta))
    outputs = [
        _finite(many.outputs(data, number, seed, stage), number)
        for stage, data in enumerate((table, neighbour))
    ]
    if outputs[0].shape != outputs[1].shape:
        raise DataError("The mechanism must release arrays of one shape from both tables.")
    if look is not None:
        outputs = [look(y) for y in outputs]
    half = number // 2
    statistics = statistics_of(outputs[0][:half], outputs[1][:half], many.answers(table),
                             many.answers(neighbour), look, events or ())  # fmt: skip
    event = best_event(statistics, outputs[0][:half], outputs[1][:half], delta)
    tail = (1 - confidence) / 2
    hits = [int(event.holds(y[half:]).sum()) for y in outputs]
    first, second = hits if event.forward else hits[::-1]
    low, _ = _proportion(first, number - half, tail)
    _, high = _proportion(second, number - half, tail)
    low, high = float(low), float(high)
    return PrivacyLowerBound(
        epsilon=max(0.0, math.log((low - delta) / high)) if low > delta else 0.0,
        delta=float(delta),
        confidence=float(confidence),
        runs=number,
        event=event.words,
        probability=(low, high),
        claimed=claimed,
    )


def _finite(outputs: ArrayLike, runs: int) -> FloatArray:
    array = np.asarray(outputs, np.float64)
    if array.shape[:1] != (runs,):
        raise ReleaseError(f"A batched mechanism must give one output for each of {runs:,} runs.")
    if not np.all(np.isfinite(array)):
        raise ReleaseError("The mechanism released a number that is not finite.")
    return array.reshape(runs, -1)


def _claim(design: Design, table: Any, neighbour: Any, delta: float) -> Claim:
    """What is promised for these two tables, and what part of the output it speaks of."""
    mechanism = design.mechanism
    counts = [mechanism.query.answers(data) for data in (table, neighbour)]
    kind = mechanism.guarantee.kind
    same = all(np.array_equal(a, b) for a, b in zip(*map(mechanism.held.sums, counts), strict=True))
    if not same and kind == "G":
        raise DataError(
            "The two tables must have the same held values: this release is private given them "
            "only."
        )
    before, after = _counts(table), _counts(neighbour)
    moved = np.zeros(1, np.int64) if before is None or after is None else after - before
    steps = max(1, people(moved.reshape(-1).tolist(), mechanism.neighbours))
    claimed: float | None = None
    if mechanism.budget.pure:
        claimed = steps * mechanism.budget.amount
    elif mechanism.only_stated:  # only an (ε, δ) as declared is a claim at this δ
        stated = getattr(mechanism.budget, "epsilon", None)
        if stated is not None and steps == 1 and delta >= getattr(mechanism.budget, "delta", 1.0):
            claimed = float(stated)
    elif delta > 0:
        claimed = smallest_epsilon(steps * mechanism.budget.gaussian_mu, delta)
    if kind != "S" or same:
        return claimed, None
    shape, size, grid = mechanism.query.shape, mechanism.query.size, float(mechanism.query.grid)
    projector = None
    if size <= MAX_DENSE_CELLS:  # one product instead of one projection per run
        projector = np.stack(
            [mechanism.null_space.project(unit.reshape(shape)).reshape(-1) for unit in np.eye(size)]
        )

    def protected(y: FloatArray) -> FloatArray:
        """Π_N of every run, on a grid that float64 cannot blur."""
        units = y / grid
        if projector is not None:
            return np.asarray(np.round(units @ projector, 6))
        inside = [mechanism.null_space.project(run.reshape(shape)).reshape(-1) for run in units]
        return np.asarray(np.round(inside, 6))

    return claimed, protected


def _proportion(hits: int, trials: int, tail: float) -> tuple[float, float]:
    """Clopper and Pearson: each bound fails with probability at most `tail`."""
    from scipy.special import betaincinv

    low = betaincinv(hits, trials - hits + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, trials - hits, 1 - tail) if hits < trials else 1.0
    return float(low), float(high)


def _whole(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BudgetError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")
    return value


@frozen(eq=False, kw_only=True)
class Event:
    """An event of one run, and under which table it is the likelier one."""

    statistic: Statistic
    words: str
    forward: bool
    values: FloatArray | None = None  # a set of values, or a threshold
    threshold: float = 0.0
    above: bool = True

    def holds(self, y: FloatArray) -> BoolArray:
        """In which of the runs it happened."""
        t = self.statistic(y)
        if self.values is not None:
            return np.isin(t, self.values)
        return t >= self.threshold if self.above else t <= self.threshold


def statistics_of(
    first: FloatArray, second: FloatArray, x: FloatArray | None, y: FloatArray | None,
    look: Callable[[FloatArray], FloatArray] | None,
    further: Sequence[Callable[[FloatArray], ArrayLike]],
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
        order = np.argsort(-size, kind="stable")[:MAX_SINGLE_CELLS].tolist()
        out.extend((f"answer {cell}", _one(cell)) for cell in order)
        out.append(("the whole output", _all_answers(width)))
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


def _all_answers(width: int) -> Statistic:
    """All answers as one number; two outputs that collide are looked at together, no more."""
    weights = np.random.default_rng(0).uniform(1.0, 2.0, width)
    return lambda y: np.asarray(np.round(np.round(y, 6) @ weights, 6))


def _given(function: Callable[[FloatArray], ArrayLike]) -> Statistic:
    def call(y: FloatArray) -> FloatArray:
        numbers = np.asarray(function(y), np.float64)
        if numbers.shape != (len(y),):
            raise ReleaseError("A statistic in `events` must give one number per run.")
        return numbers

    return call


def best_event(
    statistics: Sequence[tuple[str, Statistic]], first: FloatArray, second: FloatArray, delta: float
) -> Event:
    """The event whose loss stands out most on the first half."""
    best, score = None, -math.inf
    for words, statistic in statistics:
        a, b = statistic(first), statistic(second)
        for candidate_score, event in _candidates(words, statistic, a, b, delta):
            if candidate_score > score:
                best, score = event, candidate_score
    if best is None:
        raise DataError("The mechanism's outputs have nothing to compare.")
    return best


def _candidates(
    words: str, statistic: Statistic, a: FloatArray, b: FloatArray, delta: float
) -> list[tuple[float, Event]]:
    out = []
    both = np.unique(np.concatenate([a, b]))
    cuts = both
    if both.size > MAX_THRESHOLDS:
        cuts = np.unique(np.quantile(both, np.linspace(0, 1, MAX_THRESHOLDS), method="nearest"))
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
    if both.size <= MAX_VALUES:
        # Values in the order of their ratio on one part, how many of them by the other: a set
        # chosen and scored on the same runs would look better than it is.
        part = a.size // 2
        both = np.unique(np.concatenate([a[:part], b[:part]]))
        ranked = [_occurrences(t[:part], both) for t in (a, b)]
        scored = [_occurrences(t[part:], both) for t in (a, b)]
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


def _occurrences(values: FloatArray, of: FloatArray) -> Int64Array:
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
