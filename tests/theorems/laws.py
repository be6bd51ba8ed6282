"""Exact laws of mechanisms on small data: dictionaries from outcomes to fractions.

Outcomes are tuples of fractions; noise has finite support, so every law is complete and every
comparison is decided without rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache

import numpy as np
from tests.privacy.exhaustion import Counts, Law, Vector, neighbours, tables

Mechanism = Callable[[Counts], Law]

# Noise on 0 … RING − 1, added modulo RING: pure ε with a finite support. Neighbouring residues
# differ by the factor ODDS at most.
RING, ODDS = 4, Fraction(2)


@cache
def ring_noise(z: int) -> Fraction:
    """P(z) ∝ ODDS^(−distance to 0 on the ring)."""
    weights = [ODDS ** -min(k, RING - k) for k in range(RING)]
    return weights[z % RING] / sum(weights)


@cache
def ring_mechanism(x: Counts) -> Law:
    """Counts plus independent noise on the ring, as vectors of residues: private, finite."""
    return {
        tuple(map(Fraction, y)): _product(ring_noise(a - b) for a, b in zip(y, x, strict=True))
        for y in itertools.product(range(RING), repeat=len(x))
    }


def ring_bound(l1: int) -> Fraction:
    """e^ε of the ring mechanism for neighbours at ℓ₁ distance `l1`."""
    return ODDS**l1


def push(law: Law, function: Callable[[Vector], Vector]) -> Law:
    """The law of a function of the outcome."""
    out: Law = {}
    for y, mass in law.items():
        z = function(y)
        out[z] = out.get(z, Fraction(0)) + mass
    return out


def mix(first: Law, second: Law, share: Fraction) -> Law:
    """A mixture."""
    zero = Fraction(0)
    return {
        y: share * first.get(y, zero) + (1 - share) * second.get(y, zero)
        for y in {**first, **second}
    }


def pair(first: Law, second: Law) -> Law:
    """Two independent outcomes side by side."""
    return {a + b: p * q for (a, p), (b, q) in itertools.product(first.items(), second.items())}


def worst_ratio(mechanism: Mechanism, data: Iterable[Counts], relation) -> Fraction | None:
    """The smallest e^ε with δ = 0 over all neighbours in `data`; None when there is none.

    On a finite space the ratio of every event is at most that of its worst atom.
    """
    known, worst = set(data), Fraction(1)
    laws = {x: mechanism(x) for x in known}
    for x in known:
        for y in neighbours(x, relation):
            if y not in known:
                continue
            for atom in {**laws[x], **laws[y]}:
                p, q = laws[x].get(atom, Fraction(0)), laws[y].get(atom, Fraction(0))
                if p and not q:
                    return None
                if q:
                    worst = max(worst, p / q)
    return worst


def smallest_delta(mechanism: Mechanism, data: Iterable[Counts], relation, odds: Fraction):
    """The smallest δ at e^ε = odds: the largest Σ (p − odds·q)⁺."""
    known, worst = set(data), Fraction(0)
    laws = {x: mechanism(x) for x in known}
    for x in known:
        for y in neighbours(x, relation):
            if y in known:
                excess = (p - odds * laws[y].get(a, Fraction(0)) for a, p in laws[x].items())
                worst = max(worst, sum((e for e in excess if e > 0), Fraction(0)))
    return worst


def small_tables(cells: int, most: int = 2) -> list[Counts]:
    """All tables with at most that many records."""
    return tables(cells, most)


def add(u: Iterable, v: Iterable) -> Vector:
    """u + v."""
    return tuple(Fraction(a) + Fraction(b) for a, b in zip(u, v, strict=True))


def times(matrix: Iterable[Iterable[int]], v: Iterable) -> Vector:
    """A matrix times a vector, in fractions."""
    v = tuple(map(Fraction, v))
    return tuple(sum((Fraction(int(m)) * x for m, x in zip(row, v, strict=True)), Fraction(0))
                 for row in np.asarray(matrix).tolist())  # fmt: skip


def _product(factors: Iterable[Fraction]) -> Fraction:
    out = Fraction(1)
    for factor in factors:
        out *= factor
    return out
