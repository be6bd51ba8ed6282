"""The same tables in plain Python: a dictionary, a sort, and hashlib."""

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

PURPOSE = b"subspacedp contributions v1"


@dataclass
class Found:
    """What the oracle finds."""

    everything: np.ndarray
    bounded: np.ndarray
    sums: np.ndarray | None
    sums_everything: np.ndarray | None


def rank(secret: str, *parts: object) -> str:
    return hashlib.sha256("|".join([secret, *map(str, parts)]).encode()).hexdigest()


def secret_of(key: bytes | str) -> str:
    key = key.encode() if isinstance(key, str) else key
    return hmac.new(key, PURPOSE, hashlib.sha256).hexdigest()[:32]


def units_of(value, lower, upper, unit) -> int:
    """Clipped, then rounded half to even, in fractions where float64 division is exact."""
    return round(Fraction(min(max(float(value), lower), upper) / unit))


def chosen(cells: Counter, unit: object, secret: str, records: int, per_cell: int) -> Counter:
    """How many records of one person stay in each cell."""
    copies = [(c, j) for c, n in cells.items() for j in range(min(n, per_cell))]
    copies.sort(key=lambda copy: (rank(secret, unit, *copy), *copy))
    return Counter(c for c, _ in copies[:records])


def tabulated(people, shape, *, records, per_cell, key, valued=False) -> Found:
    """Tables from rows (unit, cell, value in units)."""
    secret, size = secret_of(key), int(np.prod(shape))
    everything, bounded = np.zeros(size, np.int64), np.zeros(size, np.int64)
    sums, all_sums = np.zeros(size, np.int64), np.zeros(size, np.int64)
    mine: dict[object, list[tuple[int, int]]] = {}
    for unit, cell, value in people:
        mine.setdefault(unit, []).append((cell, value))
        everything[cell] += 1
        all_sums[cell] += value
    for unit, rows in mine.items():
        keep = chosen(Counter(c for c, _ in rows), unit, secret, records, per_cell)
        for cell in {c for c, _ in rows}:
            bounded[cell] += keep[cell]
            times = Counter(v for c, v in rows if c == cell)
            copies = [(v, j) for v, n in times.items() for j in range(n)]
            if keep[cell] < len(copies):
                copies.sort(key=lambda copy, c=cell: (rank(secret, unit, c, *copy), *copy))
            sums[cell] += sum(v for v, _ in copies[: keep[cell]])
    arrays = (everything, bounded, sums if valued else None, all_sums if valued else None)
    return Found(*(None if a is None else a.reshape(shape) for a in arrays))
