"""Inequalities the world knows: counts are not negative, stay below public limits, parts in wholes.

Held totals say C x = c; these say that x lies in a polytope. Together they bound every figure
before any noise is looked at, and intervals may end where the truth must. Nothing here sees data:
limits are functions of the published c and of what was declared.
Proofs: `docs/proofs/inequalities.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.arrays import AnyArray, FloatArray
from subspacedp.errors import DomainError, InvariantError
from subspacedp.frozen import frozen
from subspacedp.invariants.held import HeldMargins, HeldValues
from subspacedp.invariants.linear import HeldMatrix
from subspacedp.queries import Query
from subspacedp.tables import Domain, Label, Margin
from subspacedp.tables.axis import is_label

if TYPE_CHECKING:
    from scipy import sparse

Limit = int | Mapping[Label, int] | Sequence[Any] | AnyArray

MAX_ROUNDS = 50
MAX_CHECKED = 10**7  # answers whose limits are all worked out before a release
MAX_EXACT = 2.0**52  # sums of float64 beyond it may be rounded


@frozen(eq=False, repr=False)
class Limits:
    """lower ≤ figure ≤ upper for every figure, ∞ where nothing bounds one.

    Where a `step` is not 0, the figure and its finite limits are multiples of it.
    """

    lower: FloatArray
    upper: FloatArray
    step: FloatArray


@frozen(eq=False, repr=False, kw_only=True)
class Inequalities:
    """What is publicly known of a table of counts beside what is held; counts are never negative.

    Parameters
    ----------
    at_most
        Public limits of totals: for a margin, by the name of its level or a tuple of names, a whole
        number for every total; a mapping from labels to numbers, for one level; or an array of the
        margin's shape. `()` is the grand total, all axes are the cells.
    part_of
        Pairs (part, whole) of labels of one axis: in every combination of the other axes the count
        of the part is at most that of the whole.

    Guarantees
    ----------
    1. A declaration is never compared with confidential counts. If one is false, so may be the
       intervals that use it.

    Examples
    --------
    >>> import subspacedp as sdp
    >>> domain = sdp.Domain([sdp.Axis("hall", ["A", "B"]), sdp.Axis("sex", ["F", "M"])])
    >>> mechanism = sdp.design(domain, sdp.hold("hall"), sdp.PureDP(0.2))
    >>> release = mechanism.release(sdp.Table([[3, 0], [40, 35]], domain), seed=1)
    >>> lower, upper = release.interval(0.95, inequalities=sdp.Inequalities(at_most={"sex": 50}))
    >>> lower.tolist(), upper.tolist()
    ([[0.0, 0.0], [25.0, 29.0]], [[3.0, 3.0], [46.0, 50.0]])
    """

    at_most: Mapping[Any, Limit] | None = None
    part_of: Sequence[tuple[Label, Label]] = ()

    def __post_init__(self) -> None:
        at_most = {} if self.at_most is None else self.at_most
        if not isinstance(at_most, Mapping):
            raise InvariantError(
                "`at_most` must be a mapping from levels to limits, such as {'hall': 200}; got a "
                f"{type(at_most).__name__}."
            )
        limits: dict[tuple[str, ...], Limit] = {}
        for key, limit in at_most.items():
            names = (key,) if isinstance(key, str) else key
            if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names):
                raise InvariantError("`at_most` takes the name of a level, or a tuple of names.")
            limits[names] = _plain(limit, " × ".join(names) or "the grand total")
        pairs = []
        for pair in self.part_of:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise InvariantError("`part_of` takes pairs of labels: a part and its whole.")
            if not all(map(is_label, pair)):
                raise InvariantError("`part_of` takes labels: text or whole numbers.")
            pairs.append((_label(pair[0]), _label(pair[1])))
        object.__setattr__(self, "at_most", limits)
        object.__setattr__(self, "part_of", tuple(pairs))

    def limits_on(self, domain: Domain) -> list[tuple[Margin, FloatArray]]:
        """The margins that have public limits, with those of every group; ∞ where there is none."""
        try:
            limits = [
                (domain.margin(*names), _limits(domain.margin(*names), limit))
                for names, limit in (self.at_most or {}).items()
            ]
        except DomainError as error:
            raise InvariantError(f"`at_most`: {error}", **error.evidence) from None
        crossing = next((margin for margin, _ in limits if margin.grouped), None)
        if crossing is not None:
            raise InvariantError(
                f"`at_most`: limits are of margins of levels, and {crossing!r} names a grouping; "
                "leave it out."
            )
        return limits

    def pairs_on(self, domain: Domain) -> list[tuple[int, int, int]]:
        """For every part its axis, its place there, and the place of its whole."""
        out: list[tuple[int, int, int]] = []
        for part, whole in self.part_of:
            able = [
                a
                for a, axis in enumerate(domain.axes)
                if all(label in axis.chain[0].number for label in (part, whole))
            ]
            if len(able) != 1:
                where = "no axis has both labels" if not able else "more than one axis has both"
                raise InvariantError(f"`part_of` [{part!r}, {whole!r}]: {where}.")
            number = domain.axes[able[0]].chain[0].number
            out.append((able[0], number[part], number[whole]))
        for a, part, _ in out:
            above = {part}
            for _ in out:
                above |= {w for b, p, w in out if b == a and p in above and w != part}
                if any(b == a and p in above and w == part for b, p, w in out):
                    label = domain.axes[a].chain[0].labels[part]
                    raise InvariantError(f"`part_of` makes {label!r} a part of itself.")
        return out

    def check(self, query: Query, held: HeldMargins | HeldMatrix, *, capped: bool) -> Domain:
        """Refuse what does not fit a query, what is held of it, or bounded records; no data.

        Returns the axes of the answers.
        """
        domain = query.axes
        if domain is None or not query.counts_records:
            raise InvariantError(
                "Inequalities are for tables of counts; the answers of this query are none."
            )
        moved = capped and bool(held.rows)
        if moved and (self.at_most or self.part_of or held.apart is None):
            raise InvariantError(
                "Figures of bounded records are moved to agree with held figures that count all "
                "records, so `at_most` and `part_of` need not hold for them, nor need they be "
                "positive where several margins are held; leave the inequalities out."
            )
        if capped and self.part_of:
            raise InvariantError(
                "`part_of` need not hold where the records of a person are bounded: a part may "
                "stay where its whole is left out."
            )
        self.limits_on(domain)
        self.pairs_on(domain)
        return domain

    def given(
        self, query: Query, held: HeldMargins | HeldMatrix, exact: HeldValues, *, capped: bool
    ) -> Feasible:
        """All that held values and inequalities allow of the figures that noise was added to.

        Parameters
        ----------
        query, held, exact
            What was asked, and what is held of it with its values.
        capped
            Whether records of a person were bounded while held values count all.
        """
        domain, moved = self.check(query, held, capped=capped), capped and bool(held.rows)
        totals = [(m, np.asarray(t, np.float64)) for m, t in held.totals(exact)]
        return Feasible(domain=domain, query=query, inequalities=self, totals=totals, moved=moved)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        at_most = [
            {"margin": list(names), "limits": list(limit.values()), "labels": list(limit)}
            if isinstance(limit, Mapping)
            else {"margin": list(names), "limits": limit}
            for names, limit in (self.at_most or {}).items()
        ]
        return {"at_most": at_most, "part_of": [list(pair) for pair in self.part_of]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Inequalities:
        """From plain data."""
        at_most = {
            tuple(entry["margin"]): dict(zip(entry["labels"], entry["limits"], strict=True))
            if "labels" in entry
            else entry["limits"]
            for entry in data["at_most"]
        }
        return cls(at_most=at_most, part_of=[(part, whole) for part, whole in data["part_of"]])

    def __str__(self) -> str:
        words = ["counts are not negative"]
        words += [
            f"{' × '.join(names) or 'grand'} totals within public limits"
            for names in self.at_most or {}
        ]
        words += [f"{part} at most {whole}" for part, whole in self.part_of]
        return "; ".join(words)

    def __repr__(self) -> str:
        return f"Inequalities({self})"


@frozen(eq=False, repr=False, kw_only=True)
class Feasible:
    """The tables of counts that have the held values and satisfy the inequalities.

    Guarantees
    ----------
    1. Every such table has its figures within the limits stated here. They are the least and the
       largest for one held margin without further inequalities, and safe otherwise.
    2. A contradiction among held values and inequalities is refused where the limits show it, in a
       sentence that quotes no value.

    Notes
    -----
    For a margin m and totals or limits b of a margin k, the groups of the meet m ∧ k contain those
    of m and consist of those of k, so a total of m is at most the sum of b over its group there.
    What a held total leaves to a group after all others of its own is passed on until nothing
    changes: t − Σ upper of the others ≤ total ≤ t − Σ lower of the others.
    """

    domain: Domain
    query: Query
    inequalities: Inequalities
    totals: list[tuple[Margin, FloatArray]]
    moved: bool  # figures are not those of a table of whole numbers

    def _counts(self, lower: FloatArray, upper: FloatArray) -> Limits:
        return Limits(lower, upper, np.full(lower.shape, 0.0 if self.moved else 1.0))

    def check(self, *published: Margin) -> None:
        """Refuse held values that the inequalities contradict: of held, limited, published figures.

        Cells are looked at where they are few enough. A refusal depends on held values alone.
        """
        limited = [margin for margin, _ in self.inequalities.limits_on(self.domain)]
        for margin in dict.fromkeys((*(m for m, _ in self.totals), *limited, *published)):
            self.of_margin(margin)
        if self.query.size <= MAX_CHECKED:
            self.of_answers()

    def rows(self) -> tuple[sparse.csr_array, FloatArray]:
        """What is declared of a table as G x ≤ h, x its cells in row-major order.

        Non-negativity and the held totals are not among them, nor are limits of single cells;
        these are in `of_answers()`, for a query of cells.
        """
        from scipy import sparse

        cells = np.arange(self.domain.size).reshape(self.domain.shape)
        at, columns, values, right = [], [], [], []
        number = 0
        for margin, limit in self.inequalities.limits_on(self.domain):
            if all(step == 0 for step in margin.steps):
                continue
            numbers = np.arange(limit.size).reshape(limit.shape)
            group = np.broadcast_to(margin.spread(numbers), cells.shape).reshape(-1)
            finite = np.isfinite(limit.reshape(-1))
            place = np.cumsum(finite) - 1
            inside = finite[group]
            at.append(number + place[group[inside]])
            columns.append(cells.reshape(-1)[inside])
            values.append(np.ones(int(inside.sum())))
            right.append(limit.reshape(-1)[finite])
            number += int(finite.sum())
        for a, part, whole in self.inequalities.pairs_on(self.domain):
            along = np.moveaxis(cells, a, 0)
            parts, wholes = along[part].reshape(-1), along[whole].reshape(-1)
            each = number + np.arange(parts.size)
            at += [each, each]
            columns += [parts, wholes]
            values += [np.ones(parts.size), -np.ones(parts.size)]
            right.append(np.zeros(parts.size))
            number += parts.size
        if not number:
            return sparse.csr_array((0, cells.size)), np.zeros(0)
        where = (np.concatenate(at), np.concatenate(columns))
        matrix = sparse.csr_array((np.concatenate(values), where), shape=(number, cells.size))
        return matrix, np.concatenate(right)

    def of_answers(self) -> Limits:
        """Those of every answer of the query, in their shape."""
        each = [self.of_margin(margin) for margin in self.query.margins_asked or ()]
        lower = np.concatenate([limits.lower.reshape(-1) for limits in each])
        upper = np.concatenate([limits.upper.reshape(-1) for limits in each])
        shape = self.query.shape
        return self._counts(lower.reshape(shape), upper.reshape(shape))

    def of_margin(self, margin: Margin) -> Limits:
        """Those of every total of a margin, in its shape."""
        upper = np.full(margin.shape, np.inf)
        upper[margin.empty] = 0.0
        lower = np.zeros(margin.shape)
        filled, equal = ~margin.empty, {}
        for k, total in self.totals:
            if margin.grouped or k.grouped:
                continue  # no common level: what it tells of these totals is left aside
            meet = margin.meet(k)
            equal[meet] = k.coarsen(total, meet)
            np.minimum(upper, _spread(meet, margin, _up(equal[meet])), out=upper)
        for k, limit in self.inequalities.limits_on(self.domain):
            if margin.grouped:
                continue
            meet = margin.meet(k)
            np.minimum(upper, _spread(meet, margin, k.coarsen(limit, meet)), out=upper)
        pairs = [
            (a, slice(part, part + 1), slice(whole, whole + 1))
            for a, part, whole in self.inequalities.pairs_on(self.domain)
            if margin.steps[a] == 0
        ]
        exact = all(float(np.abs(t).max(initial=0.0)) < MAX_EXACT for t in equal.values())
        for _ in range(MAX_ROUNDS):
            before = _sums(lower, upper)
            for a, part, whole in pairs:
                low, high = np.moveaxis(lower, a, 0), np.moveaxis(upper, a, 0)
                np.minimum(high[part], high[whole], out=high[part])
                np.maximum(low[whole], low[part], out=low[whole])
            for meet, total in equal.items() if exact else ():
                short = _spread(meet, margin, total - margin.coarsen(upper, meet))
                np.maximum(lower, short + upper, out=lower, where=filled)
                spare = _spread(meet, margin, total - margin.coarsen(lower, meet))
                np.minimum(upper, spare + lower, out=upper, where=filled)
                for a, part, whole in pairs:
                    up = margin.axes[a].parents(0, meet.steps[a])
                    if not np.array_equal(up[part], up[whole]):
                        continue
                    # Of what is left to both, the part has at most half.
                    low, high = np.moveaxis(lower, a, 0), np.moveaxis(upper, a, 0)
                    left = np.moveaxis(np.broadcast_to(spare, lower.shape), a, 0)[part]
                    half = np.floor((left + low[part] + low[whole]) / 2)
                    np.minimum(high[part], half, out=high[part])
            if np.any(lower > upper):
                raise InvariantError(
                    "The inequalities contradict the held figures: no table of counts satisfies "
                    "both."
                )
            if _sums(lower, upper) == before:
                break
        return self._counts(lower, upper)

    def of_weights(self, rows: FloatArray) -> Limits:
        """Those of weighted sums of the answers, one for each row of weights."""
        each = rows.reshape(len(rows), -1)
        lower = np.array([-self._largest(-w) for w in rows])
        upper = np.array([self._largest(w) for w in rows])
        ends = [x[np.isfinite(x)] for x in (self._answers.lower, self._answers.upper)]
        largest = max(float(np.abs(x).max(initial=0.0)) for x in ends)
        sizes = np.abs(each).sum(axis=1) * largest
        whole = (each == np.rint(each)).all(axis=1) & (sizes < MAX_EXACT) & (not self.moved)
        step = np.zeros(len(rows))
        step[whole] = [float(np.gcd.reduce(w.astype(np.int64))) or 1.0 for w in each[whole]]
        # Sums of rounded products are exact for whole numbers, and where every term is 0.
        room = np.where(whole, 0.0, 1e-9 * sizes)
        nothing = (lower == 0) & (each >= 0).all(axis=1)
        return Limits(np.where(nothing, 0.0, lower - room), upper + room, step)

    def _largest(self, weights: FloatArray) -> float:
        """At least Σ wᵢ·answerᵢ of every such table."""
        answers = self._answers
        if not self.query.is_histogram:
            return _box(weights, answers.lower, answers.upper)
        w, best = weights.copy(), 0.0
        for a, at_part, at_whole in self.inequalities.pairs_on(self.domain):
            part, whole = slice(at_part, at_part + 1), slice(at_whole, at_whole + 1)
            of, low, high = (np.moveaxis(x, a, 0) for x in (w, answers.lower, answers.upper))
            bound = (of[part] > 0) & (of[whole] < 0)
            # On x_p ≤ x_w the largest w_p x_p + w_w x_w has x_w as small as x_p lets it.
            gain = of[part] + of[whole] > 0
            x = np.where(gain, high[part], np.minimum(high[part], low[whole]))[bound]
            if np.any(np.isinf(x)):
                best = np.inf
            else:
                x_whole = np.maximum(low[whole][bound], x)
                best += float(of[part][bound] @ x + of[whole][bound] @ x_whole)
            of[part][bound], of[whole][bound] = 0.0, 0.0
        best += _box(w, answers.lower, answers.upper)
        for margin, total in self.totals:
            groups = np.broadcast_to(
                margin.spread(np.arange(total.size).reshape(total.shape)), weights.shape
            )
            most = np.full(total.size, -np.inf)
            np.maximum.at(most, groups.reshape(-1), weights.reshape(-1))
            filled = np.isfinite(most)
            best = min(best, float(total.reshape(-1)[filled] @ most[filled]))
        return best

    @cached_property
    def _answers(self) -> Limits:
        return self.of_answers()


def _box(weights: FloatArray, lower: FloatArray, upper: FloatArray) -> float:
    """The largest Σ wᵢxᵢ with lower ≤ x ≤ upper."""
    up, down = weights > 0, weights < 0
    return float(weights[up] @ upper[up] + weights[down] @ lower[down])


def _spread(coarse: Margin, fine: Margin, values: FloatArray) -> FloatArray:
    """Every group's value of the coarser group that it is in, in the shape of the finer margin."""
    out = values
    for a, axis in enumerate(fine.axes):
        if fine.steps[a] != coarse.steps[a]:
            out = np.take(out, axis.parents(fine.steps[a], coarse.steps[a]), axis=a)
    return out


def _sums(lower: FloatArray, upper: FloatArray) -> tuple[float, float, int]:
    """What any narrowing of limits changes."""
    finite = np.isfinite(upper)
    return float(lower.sum()), float(upper[finite].sum()), int(np.count_nonzero(finite))


def _up(totals: FloatArray) -> FloatArray:
    """Whole numbers as float64 that are not too small."""
    return np.where(np.abs(totals) < MAX_EXACT, totals, np.nextafter(totals, np.inf))


def _limits(margin: Margin, limit: Limit) -> FloatArray:
    """The limit of every group of a margin."""
    named = " × ".join(margin.names) or "the grand total"
    kept = tuple(level.groups for level in margin.levels if level.name)
    if isinstance(limit, Mapping):
        if len(kept) != 1:
            raise InvariantError(f"`at_most` of {named}: limits by label are for one level.")
        level = next(level for level in margin.levels if level.name)
        unknown = next((label for label in limit if label not in level.number), None)
        if unknown is not None:
            raise InvariantError(f"`at_most`: `{named}` has no label {unknown!r}.")
        out = np.full(kept, np.inf)
        for label, value in limit.items():
            out[level.number[label]] = value
        return out.reshape(margin.shape)
    given = np.asarray(limit, np.float64)
    if given.ndim and given.shape not in (kept, margin.shape):
        raise InvariantError(
            f"`at_most` of {named} must have the shape {kept} of the margin; got {given.shape}."
        )
    return np.full(margin.shape, given if given.ndim == 0 else given.reshape(margin.shape))


def _plain(limit: Limit, named: str) -> Limit:
    """One whole number, one for every label, or a list of them for every axis."""
    if isinstance(limit, Mapping):
        if not all(map(is_label, limit)):
            raise InvariantError(f"`at_most` of {named} takes labels: text or whole numbers.")
        return {_label(label): _whole(value, named) for label, value in limit.items()}
    if isinstance(limit, Sequence | np.ndarray) and not isinstance(limit, str | bytes):
        given = np.asarray(limit, object)
        each = [_whole(value, named) for value in given.reshape(-1)]
        return np.array(each, np.int64).reshape(given.shape).tolist()
    return _whole(limit, named)


def _whole(value: Any, named: str) -> int:
    number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        number = value == math.floor(value)
    if not number or not 0 <= value < MAX_EXACT:
        raise InvariantError(
            f"`at_most` of {named} must be whole numbers from 0 to 2**52; got {value!r}."
        )
    return int(value)


def _label(label: Any) -> Label:
    return int(label) if isinstance(label, np.integer) else label
