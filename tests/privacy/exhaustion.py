"""Proof by exhaustion: exact laws of what is published from small tables, in rational arithmetic.

Discrete Laplace noise with q = e^{-rate} has P(z) ∝ q^{|z|}, and a claim of ε at ℓ₁ sensitivity Δ₁
is a claim of e^ε = q^{-Δ₁}. Both sides are powers of q, so an exact rational q (another budget,
nothing else) decides every comparison without rounding.

The measurement is looked at in a window: what falls outside is replaced by one extra symbol, which
is post-processing of the measurement, so a correct claim has to survive it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache

import numpy as np

from subspacedp import Axis, Domain, PureDP, design

Vector = tuple[Fraction, ...]
Counts = tuple[int, ...]
Law = dict[Vector, Fraction]

Q = Fraction(2, 3)
TOP = 2**64 - 1


# --------------------------------------------------------------------------- tables and neighbours


def tables(cells: int, most: int) -> list[Counts]:
    """All tables with at most that many records."""
    return [x for x in itertools.product(range(most + 1), repeat=cells) if sum(x) <= most]


def persons(cells: int, relation) -> list[Counts]:
    """All tables that one person can make: what the neighbour relation allows him."""
    cap = relation.per_cell or relation.records
    out = [x for x in itertools.product(range(cap + 1), repeat=cells) if sum(x) <= relation.records]
    return [x for x in out if sum(x) == relation.records] if relation.keeps_total else out


def changes(cells: int, relation) -> set[Counts]:
    """All differences between neighbouring tables, from the words of the relation alone."""
    one = persons(cells, relation)
    if relation.name == "replace-one":
        moved = {_minus(u, v) for u in one for v in one}
    else:
        moved = {*one, *(tuple(-i for i in u) for u in one)}
    return moved - {(0,) * cells}


def neighbours(x: Counts, relation) -> Iterator[Counts]:
    """The tables next to x."""
    for change in changes(len(x), relation):
        y = tuple(a + b for a, b in zip(x, change, strict=True))
        if min(y) >= 0:
            yield y


def distance(x: Counts, y: Counts) -> int:
    """‖x − y‖₁."""
    return sum(abs(a - b) for a, b in zip(x, y, strict=True))


def _minus(u: Counts, v: Counts) -> Counts:
    return tuple(a - b for a, b in zip(u, v, strict=True))


# ---------------------------------------------------------------------------------- exact geometry


def held_rows(held) -> list[Counts]:
    """The rows of C as indicators of the groups, from the codes of the levels alone."""
    domain = held.domain
    rows = []
    for margin in held.margins:
        codes = [level.codes for level in margin.levels]
        rows += [
            tuple(
                int(all(c[i] == g for c, i, g in zip(codes, cell, group, strict=True)))
                for cell in np.ndindex(domain.shape)
            )
            for group in np.ndindex(margin.shape)
        ]
    return rows


def row_space_part(rows: Iterable[Counts]) -> Callable[[Iterable], Vector]:
    """Π_R exactly, by orthogonalising the rows without roots."""
    basis: list[Vector] = []

    def part(v: Iterable) -> Vector:
        v = tuple(map(Fraction, v))
        total = (Fraction(0),) * len(v)
        for b in basis:
            share = _dot(v, b) / _dot(b, b)
            total = tuple(t + share * k for t, k in zip(total, b, strict=True))
        return total

    for row in rows:
        rest = tuple(Fraction(r) - p for r, p in zip(row, part(row), strict=True))
        if any(rest):
            basis.append(rest)
    return part


def null_space_part(rows: Iterable[Counts]) -> Callable[[Iterable], Vector]:
    """Π_N exactly."""
    part = row_space_part(rows)

    def rest(v: Iterable) -> Vector:
        v = tuple(map(Fraction, v))
        return tuple(a - b for a, b in zip(v, part(v), strict=True))

    return rest


def _dot(u: Vector, v: Vector) -> Fraction:
    return sum((a * b for a, b in zip(u, v, strict=True)), Fraction(0))


# -------------------------------------------------------------------------------------- exact laws


def window(cells: int, low: int, high: int) -> list[Counts]:
    """All measurements with every entry between two bounds."""
    return list(itertools.product(range(low, high + 1), repeat=cells))


def weight(noisy: Counts, x: Counts, q: Fraction) -> Fraction:
    """P(noisy | x) up to the constant ((1 − q)/(1 + q))^cells, which is the same for all x."""
    return q ** distance(noisy, x)


Outcomes = Iterable[tuple[Vector, Fraction]]


def law_of(
    x: Counts, q: Fraction, seen: Iterable[Counts], output: Callable[[Counts], Outcomes]
) -> Law:
    """The law of what is published: `output` gives every outcome and its chance, given noisy."""
    law: Law = {}
    for noisy in seen:
        mass = weight(noisy, x, q)
        for value, chance in output(noisy):
            law[value] = law.get(value, Fraction(0)) + mass * chance
    return law


def violations(first: Law, second: Law, bound: Fraction) -> list[Vector]:
    """The atoms that one law has more than `bound` times as often as the other."""
    zero = Fraction(0)
    return [
        atom
        for atom in {**first, **second}
        if first.get(atom, zero) > bound * second.get(atom, zero)
        or second.get(atom, zero) > bound * first.get(atom, zero)
    ]


# ------------------------------------------------------------------------------- a mechanism's law


def line(n: int) -> Domain:
    """A domain of n cells in a row."""
    return Domain([Axis("a", range(n))])


class Case:
    """A design on a small domain, with its release as exact outcomes and their chances."""

    def __init__(self, domain, held, relation, decimals):
        self.mechanism = design(domain, held, PureDP(1.0), neighbours=relation, decimals=decimals)
        self.mechanism = self.mechanism.mechanism
        self.shape, self.cells = domain.shape, domain.size
        self.relation = relation
        self.rows = held_rows(self.mechanism.held)
        self.bound = Q**-relation.l1  # e^ε for the budget whose rate makes e^{-rate} = Q
        self.lifted = row_space_part(self.rows)
        self.protected = cache(null_space_part(self.rows))
        self.outcomes = cache(self.outcomes)

    def totals(self, x):
        """C x, in the form that `reconstruct` takes."""
        counts = np.array(x).reshape(self.shape)
        return tuple(m.sum(counts) for m in self.mechanism.held.margins)

    def held(self, x):
        """C x, as a key."""
        return tuple(sum(r * v for r, v in zip(row, x, strict=True)) for row in self.rows)

    def outcomes(self, noisy, x_for_totals):
        """Every release that `reconstruct` can make of a measurement, with its exact chance."""
        exact = self.totals(x_for_totals)
        array = np.array(noisy).reshape(self.shape)
        if self.mechanism.decimals is None:
            residual = self.mechanism.held.residual(array, exact)
            released = self.mechanism.space.lift_exact(residual).rsub(array)
            made = self.mechanism.reconstruct(array, exact, None)
            assert np.array_equal(made, released.to_float())
            return [(tuple(released.fractions().ravel()), Fraction(1))]
        return list(self.rounded(array, exact, noisy, x_for_totals))

    def rounded(self, array, exact, noisy, x):
        """All outcomes of the dither: entry by entry up or down, with its fraction's chance."""
        step = self.mechanism.rounding.step
        entries = self.cumulated(
            [step * v for v in self.lifted([a - b for a, b in zip(noisy, x, strict=True)])]
        )
        free = [j for j, v in enumerate(entries) if v.denominator > 1]
        found = set()
        for chosen in itertools.product((0, TOP), repeat=len(free)):
            words = dict(zip(free, chosen, strict=True))
            dither = DitherWords([words.get(j, 0) for j in range(self.cells)])
            made = np.asarray(self.mechanism.reconstruct(array, exact, dither)) * step
            units = [int(v) for v in np.rint(made).astype(int).ravel()]
            correction = [step * n - u for n, u in zip(noisy, units, strict=True)]
            chance = Fraction(1)
            for got, true in zip(self.cumulated(correction), entries, strict=True):
                assert abs(got - true) < 1
                part = true - true.__floor__()
                chance *= 1 if got == true else part if got > true else 1 - part
            found.add(tuple(units))
            yield tuple(Fraction(u, step) for u in units), chance
        assert len(found) == 2 ** len(free)  # every word was looked at, and by itself

    def cumulated(self, values):
        """Cumulative sums along the plan's axes; the small domains here are in order already."""
        table = np.array([Fraction(v) for v in values], object).reshape(
            self.mechanism.rounding.shape
        )
        for a in range(table.ndim):
            table = np.cumsum(table, axis=a)
        return list(table.ravel())

    def laws(self, seen, part=None):
        """The law of the release, or of a part of it, as a function of the table; kept."""
        return cache(lambda x: self.law(x, seen, part=part))

    def law(self, x, seen, *, part=None, q=Q):
        """The law of the release, or of a part of it, for one table."""

        def output(noisy):
            made = self.outcomes(noisy, self.like(x))
            return made if part is None else [(part(v), p) for v, p in made]

        return law_of(x, q, seen, output)

    @cache  # noqa: B019  # a handful of small objects, for the life of a test run
    def like(self, x):
        """A fixed table with the same held totals, so that outcomes are computed once."""
        return next(y for y in tables(self.cells, sum(x)) if self.held(y) == self.held(x))


class DitherWords:
    """Dither words chosen one by one."""

    def __init__(self, words):
        self.chosen = np.array(words, np.uint64)

    def words(self, start, count, scratch=None):
        return self.chosen[start : start + count].copy()
