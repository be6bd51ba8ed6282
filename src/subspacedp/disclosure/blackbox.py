"""A statistical lower bound on the privacy loss of any mechanism, from its outputs alone.

Two neighbouring tables are released many times. On the first half of the runs the event that tells
the two apart best is chosen; on the second half its probabilities p and q are bounded by
Clopper and Pearson, and

    ε ≥ ln((p − δ)/q)    at the stated confidence,

because an (ε, δ)-private mechanism has p ≤ e^ε q + δ for every event. The bound can be far below
the truth; it is above it with probability at most 1 − confidence. Proof: docs/proofs/disclosure.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from subspacedp.disclosure.events import best_event, statistics_of
from subspacedp.disclosure.moves import people, smallest_epsilon
from subspacedp.errors import BudgetError, DataError, ReleaseError
from subspacedp.privacy import PureDP
from subspacedp.release import Design
from subspacedp.tables import Table

__all__ = ["Batched", "PrivacyLowerBound", "audit_privacy"]

FloatArray = npt.NDArray[np.float64]
Claim = tuple[float | None, Callable[[FloatArray], FloatArray] | None]  # ε, and what it is about
DENSE_CELLS = 500  # of a table whose projector is formed


@dataclass(frozen=True, eq=False)
class Batched:
    """A mechanism that makes many independent runs at once: `function(table, runs)`."""

    function: Callable[[Any, int], npt.ArrayLike]

    def outputs(self, data: Any, runs: int, seed: int | None, stage: int) -> npt.ArrayLike:
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


@dataclass(frozen=True, eq=False)
class _Ours:
    """A mechanism of ours, with what it promises."""

    design: Design

    def outputs(self, data: Any, runs: int, seed: int | None, stage: int) -> npt.ArrayLike:
        """One release a run."""
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


def _counts(data: Any) -> npt.NDArray[np.int64] | None:
    return data.counts if isinstance(data, Table) else None


@dataclass(frozen=True, kw_only=True)
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
    mechanism: Design | Batched | Callable[[Any], npt.ArrayLike],
    table: Any,
    neighbour: Any,
    *,
    runs: int = 4000,
    confidence: float = 0.99,
    delta: float = 0.0,
    seed: int | None = None,
    events: Sequence[Callable[[FloatArray], npt.ArrayLike]] | None = None,
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
        Further statistics: functions from an array (runs × answers) to a number a run. Thresholds
        on them are tried as well.

    Guarantees
    ----------
    1. P(`epsilon` > true ε at δ) ≤ 1 − confidence, for every mechanism whose runs are independent.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> loud = Batched(lambda x, runs: x + rng.laplace(scale=1.0, size=(runs, 1)))
    >>> found = audit_privacy(loud, np.array([0.0]), np.array([1.0]), runs=20_000)
    >>> 0.8 < found.epsilon <= 1.0
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


def _finite(outputs: npt.ArrayLike, runs: int) -> FloatArray:
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
    if isinstance(mechanism.budget, PureDP):
        claimed = steps * mechanism.budget.epsilon
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
    if size <= DENSE_CELLS:  # one product instead of one projection a run
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
