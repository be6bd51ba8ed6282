"""What held totals and non-negativity say of every cell: closed forms for margins.

Levels of one axis count as variables of their own (county, state), of which a margin keeps all
those from its level up. Where the held margins can be taken off one after another, each meeting the
rest in a margin that one of the others determines (a junction tree), the sharp bounds are

    min over margins of n_m  ≥  cell  ≥  max(0, Σ n_m − Σ n_s),

s the separators. Otherwise bounds are passed on from margin to margin until nothing changes (the
shuttle), which is safe but not always sharp. Proofs: docs/proofs/disclosure.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from subspacedp.arrays import BoolArray, Int64Array
from subspacedp.errors import InvariantError
from subspacedp.invariants import Limits
from subspacedp.tables import Domain, Margin

Totals = Sequence[tuple[Margin, Int64Array]]

UNBOUNDED = int(np.iinfo(np.int64).max)
MAX_SHUTTLE_ROUNDS = 50


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CellBounds:
    """The range of every cell over all tables of counts with the held values.

    Guarantees
    ----------
    1. Every such table has `lower` ≤ cell ≤ `upper`; `UNBOUNDED` where nothing bounds a cell.
    2. Where `sharp`, both limits are attained by such a table of whole numbers.
    3. Where `settled`, the range is sharp, or tables were found that differ there by more than
       what counts as narrow.
    """

    lower: Int64Array
    upper: Int64Array
    sharp: BoolArray
    settled: BoolArray
    method: str
    programs: int = 0

    @property
    def width(self) -> Int64Array:
        """Upper minus lower."""
        return np.where(self.upper == UNBOUNDED, UNBOUNDED, self.upper - self.lower)

    @property
    def pinned(self) -> BoolArray:
        """The cells that can have one count only."""
        return np.asarray(self.lower == self.upper)

    @property
    def open(self) -> int:
        """The number of cells that nothing is known about beyond safe bounds."""
        return int(np.count_nonzero(~self.settled))

    def within(self, limits: Limits) -> CellBounds:
        """The ranges of the tables that keep further limits too; sharp where one count is left."""
        finite = np.isfinite(limits.upper)
        upper = np.where(finite, limits.upper, 0).astype(np.int64)
        lower = np.maximum(self.lower, limits.lower.astype(np.int64))
        upper = np.where(finite, np.minimum(self.upper, upper), self.upper)
        return replace(self, lower=lower, upper=upper, sharp=np.asarray(lower == upper))

    def __repr__(self) -> str:
        return f"CellBounds({self.lower.size:,} cells, {int(self.pinned.sum()):,} pinned)"


def finest_steps(margin: Margin) -> tuple[int, ...]:
    """On every axis the finest step with the same groups: levels may differ in name only."""
    out = []
    for axis, step in zip(margin.axes, margin.steps, strict=True):
        groups = axis.step(step).nonempty
        out.append(next(s for s in range(step + 1) if axis.step(s).nonempty == groups))
    return tuple(out)


def essential(margins: Sequence[Margin]) -> list[Margin]:
    """The margins that no other one determines; of two with the same groups the first."""
    kept: list[Margin] = []
    steps = [finest_steps(m) for m in margins]
    for i, m in enumerate(margins):
        implied = any(
            _finer(other, steps[i]) and (other != steps[i] or j < i)
            for j, other in enumerate(steps)
            if j != i
        )
        if not implied:
            kept.append(m)
    return kept


def junction(margins: Sequence[Margin]) -> list[tuple[Margin, Margin | None]] | None:
    """The margins with their separators in an order that takes them off one by one.

    Returns None when there is none: the family is not decomposable. The last one has no separator.
    """
    rest = essential(margins)
    out: list[tuple[Margin, Margin | None]] = []
    while len(rest) > 1:
        ear = next(((m, s) for m in rest if (s := _separator(m, rest)) is not None), None)
        if ear is None:
            return None
        out.append(ear)
        rest = [m for m in rest if m is not ear[0]]
    return [*out, *((m, None) for m in rest)]


def _separator(margin: Margin, family: Sequence[Margin]) -> Margin | None:
    """What the margin shares with all others, if one of them shares as much; else None."""
    steps = finest_steps(margin)
    others = [finest_steps(m) for m in family if m is not margin]
    shared = _coarser(steps, tuple(map(min, zip(*others, strict=True))))
    if not any(_coarser(steps, other) == shared for other in others):
        return None
    return Margin(margin.axes, _coarser(margin.steps, shared))


def _coarser(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(s, t) for s, t in zip(a, b, strict=True))


def _finer(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(s <= t for s, t in zip(a, b, strict=True))


def unknown(domain: Domain) -> CellBounds:
    """Nothing is held: every count is possible."""
    return CellBounds(
        lower=np.zeros(domain.shape, np.int64),
        upper=np.full(domain.shape, UNBOUNDED),
        sharp=np.ones(domain.shape, bool),
        settled=np.ones(domain.shape, bool),
        method="nothing is held",
    )


def closed_form(domain: Domain, totals: Totals) -> CellBounds | None:
    """Sharp bounds of all cells where the held margins are decomposable; else None."""
    if not totals:
        return unknown(domain)
    order = junction([m for m, _ in totals])
    if order is None:
        return None
    of = {m.steps: t for m, t in totals}
    upper = upper_bound(domain, totals)
    excess = np.zeros(domain.shape, np.int64)
    for margin, separator in order:
        excess += margin.spread(of[margin.steps])
        if separator is not None:
            excess -= separator.spread(margin.coarsen(of[margin.steps], separator))
    steps = tuple(map(min, zip(*(finest_steps(m) for m, _ in order), strict=True)))
    join = Margin(tuple(domain.axes), steps)
    alone = np.broadcast_to(join.spread(join.sizes) == 1, domain.shape)
    # A group of several cells can keep all its people in the others.
    lower = np.where(alone, np.maximum(excess, 0), 0)
    yes = np.ones(domain.shape, bool)
    one = len(order) == 1
    return CellBounds(
        lower=lower,
        upper=upper,
        sharp=yes,
        settled=yes,
        method="one held margin" if one else "closed form (decomposable margins)",
    )


def upper_bound(domain: Domain, totals: Totals) -> Int64Array:
    """The smallest held total above every cell."""
    out = np.full(domain.shape, UNBOUNDED)
    for margin, total in totals:
        np.minimum(out, margin.spread(total), out=out, where=margin.inside)
    return out


def shuttle(
    domain: Domain, totals: Totals, empty: BoolArray | None = None
) -> tuple[Int64Array, Int64Array]:
    """Safe bounds for any margins: what a total leaves to a cell after all others of its group.

    cell ≤ n_g − Σ lower of the others, cell ≥ n_g − Σ upper of the others, again and again.
    """
    lower, upper = np.zeros(domain.shape, np.int64), upper_bound(domain, totals)
    if empty is not None:
        upper[empty] = 0
    largest = max(int((t * m.sizes).max(initial=0)) for m, t in totals)
    if largest >= 2**62:  # the sums below could wrap
        return lower, upper
    for _ in range(MAX_SHUTTLE_ROUNDS):
        before = int(lower.sum()), int(upper.sum())
        for margin, total in totals:
            inside = margin.inside
            least = margin.spread(total - margin.sum(upper)) + upper
            np.maximum(lower, least, out=lower, where=inside)
            most = margin.spread(total - margin.sum(lower)) + lower
            np.minimum(upper, most, out=upper, where=inside)
        if np.any(lower > upper):
            raise InvariantError(
                "The held values contradict each other: no table of counts has them all."
            )
        if (int(lower.sum()), int(upper.sum())) == before:
            break
    return lower, upper
