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

import numpy as np

Vector = tuple[Fraction, ...]
Counts = tuple[int, ...]
Law = dict[Vector, Fraction]


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
